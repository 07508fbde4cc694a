"""Sessions of devices that build kernels quickly, and as users have them."""

from __future__ import annotations

import pytest

from filters.sessions import QUICK, Plain, Precise, as_gpu
from napari_gpu_denoise.opencl import program

_PLAIN_SESSIONS: dict = {}
_PRECISE_SESSIONS: dict = {}


def pytest_configure(config) -> None:
    if config.getoption("optimised"):
        QUICK.clear()


@pytest.fixture(params=["as it is", "as a GPU"])
def flowing(request, device, quickly_built):
    """Return the session of each device, and one that takes the kernels of a GPU."""
    return program.session(device if request.param == "as it is" else as_gpu(device))


@pytest.fixture
def optimised(device):
    """Return a session of a device with kernels as the compiler optimises them for users."""
    if device not in _PRECISE_SESSIONS:
        _PRECISE_SESSIONS[device] = Precise(device, program.session(device).context)
    return _PRECISE_SESSIONS[device]


@pytest.fixture(autouse=True)
def quickly_built(request, monkeypatch):
    """Let the compiler optimise no kernel, but in tests that ask for `optimised`.

    With small images and many settings most time would go into builds, of seconds each. The
    contract tests and test_gpu_kernels run every filter as users have it, and ``--optimised`` all.
    """
    if "optimised" not in request.fixturenames:
        monkeypatch.setattr(program, "Session", Plain)
        monkeypatch.setattr(program, "_sessions", _PLAIN_SESSIONS)
