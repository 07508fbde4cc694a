"""Devices for the tests. Without any OpenCL device there is nothing to test, and the run fails."""

from __future__ import annotations

import os
import platform
import sys

import pytest

# A setting of the user's shell must not choose the device of a test.
os.environ.pop("GPU_DENOISE_DEVICE", None)

from napari_gpu_denoise.opencl.device import ADVICE, devices

USABLE = [device for device in devices() if not device.problem and device.kind != "simulator"]


def _readable(device) -> str:
    return f"{device.index}-{device.kind}-{device.platform}".replace(" ", "-")


def pytest_sessionstart(session) -> None:
    if not USABLE:
        found = "; ".join(f"{d}: {d.problem or 'only for checks'}" for d in devices())
        pytest.exit(
            f"No usable OpenCL device was found ({found or 'none at all'}), so nothing can be "
            f"tested. {ADVICE}",
            returncode=1,
        )


def pytest_sessionfinish(session) -> None:
    # Without this look, every second run or so crashed after its last test: Qt's clean-up at exit
    # let go of an OpenGL context (QOpenGLContext::doneCurrent) when the screen was gone already.
    gui = sys.modules.get("PySide6.QtGui")
    context = gui and gui.QOpenGLContext.currentContext()
    if context:
        context.doneCurrent()


def pytest_report_header(config) -> list[str]:
    return [f"OpenCL device {device.index}: {device} {device.problem}" for device in devices()]


@pytest.fixture(scope="session", params=USABLE, ids=_readable)
def device(request):
    """Each OpenCL device that can be used, in turn."""
    return request.param


@pytest.fixture(scope="session")
def simulator():
    """The Oclgrind simulator, which checks every access a kernel makes."""
    found = [device for device in devices() if device.kind == "simulator"]
    if not found and (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip("Oclgrind comes from the registry for Linux on x86_64 only")
    assert found, "Oclgrind is missing: install the extra 'test'"
    return found[0]
