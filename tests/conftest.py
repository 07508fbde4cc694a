"""Devices for the tests. Without any OpenCL device there is nothing to test, and the run fails.

Tests run on the device that `choose()` takes and, where memory accesses count, on the simulator.
``pytest --all-devices`` runs them on every usable device, ``--device`` on the one named, and
``--optimised`` with all kernels built as users have them (scripts/test_drivers.sh). ``--thorough``
runs what is marked so, too: whole matrices of which a part tells nearly as much.
"""

from __future__ import annotations

import dataclasses
import gc
import os
import platform
import re
import sys
import textwrap
import types
from pathlib import Path

# For the processes that start from here, those of pytest-xdist among them: two share two cores, so
# that a second thread of linear algebra mostly waits for a core, and keeps one busy waiting.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import hypothesis
import pytest

# A setting of the user's shell must not choose the device of a test.
os.environ.pop("GPU_DENOISE_DEVICE", None)

from napari_gpu_denoise.errors import NoDeviceError
from napari_gpu_denoise.noise import models
from napari_gpu_denoise.opencl.device import choose, devices, listed
from opencl.builtins import replace_header

# A busy machine may be slow to make examples, and to run them.
hypothesis.settings.register_profile(
    "untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("untimed")


def _readable(device) -> str:
    return f"{device.index}-{device.kind}-{device.platform}".replace(" ", "-")


def pytest_addoption(parser) -> None:
    parser.addoption(
        "--all-devices",
        action="store_true",
        help="test on every usable OpenCL device, not only on the one that choose() takes",
    )
    parser.addoption("--device", help="test on this OpenCL device, by a part of its name")
    parser.addoption(
        "--optimised", action="store_true", help="let the compiler optimise all kernels"
    )
    parser.addoption(
        "--thorough", action="store_true", help="run what is marked thorough, too: before a release"
    )


def pytest_configure(config) -> None:
    # What is left to choose() is the device under test, also in processes that tests start.
    if config.getoption("device"):
        os.environ["GPU_DENOISE_DEVICE"] = config.getoption("device")
    if not config.getoption("optimised"):
        replace_header()


def pytest_generate_tests(metafunc) -> None:
    if "device" in metafunc.fixturenames:
        options = metafunc.config.getoption
        tested = [choose(options("device"))]
        if options("all_devices"):
            tested = [d for d in devices() if not d.problem and d.kind != "simulator"]
        metafunc.parametrize("device", tested, ids=_readable, indirect=True, scope="session")


def pytest_sessionstart(session) -> None:
    # Where nobody has used the device yet, this is what tests it: other processes know the answer.
    try:
        choose(session.config.getoption("device"))
    except NoDeviceError as error:
        pytest.exit(f"Nothing can be tested. {error}", returncode=1)


def pytest_collection_modifyitems(config, items) -> None:
    if not config.getoption("thorough"):
        left = [item for item in items if item.get_closest_marker("thorough")]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in set(left)]
    # The longest first: at the end, one process would wait for the other.
    long = ("test_simulator.py", "test_docs.py", "test_docs_site.py", "test_packaging.py")
    items.sort(key=lambda item: item.path.name not in long)


def pytest_collection_finish(session) -> None:
    # Modules and thousands of tests stay to the end. Whoever closes a window of napari looks for
    # garbage twice, which takes a tenth of a second each time if all of them are looked through.
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(session) -> None:
    # Without this look, every second run or so crashed after its last test: Qt's clean-up at exit
    # let go of an OpenGL context (QOpenGLContext::doneCurrent) when the screen was gone already.
    gui = sys.modules.get("PySide6.QtGui")
    context = gui and gui.QOpenGLContext.currentContext()
    if context:
        context.doneCurrent()


def pytest_report_header(config) -> list[str]:
    return [f"OpenCL device {device.index}: {device}" for device in listed()]


@pytest.fixture(scope="session")
def device(request):
    """The OpenCL device under test: the one `choose()` takes, or each with --all-devices."""
    return request.param


@pytest.fixture(scope="session")
def simulator():
    """The Oclgrind simulator, which checks every access a kernel makes."""
    found = [device for device in listed() if device.kind == "simulator"]
    if not found and (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip("Oclgrind comes from the registry for Linux on x86_64 only")
    assert found, "Oclgrind is missing: install the extra 'test'"
    return found[0]


@pytest.fixture(params=["as it is", "as a GPU"])
def flowing(request, device):
    """Return the session of each device, and once more with the queues and threads of a GPU."""
    from frames_over_time import posing_as_gpu
    from napari_gpu_denoise.opencl.program import session

    return session(device) if request.param == "as it is" else posing_as_gpu(device)


@pytest.fixture
def streaming_device(flowing):
    """Return the device of `flowing`, whose session streams then take."""
    return flowing.device


@pytest.fixture
def limits(monkeypatch):
    """Return a function that changes the sizes by which runs cut images."""
    from napari_gpu_denoise.run import request

    def change(**sizes):
        made = dataclasses.replace(request.USUAL_LIMITS, **sizes)
        monkeypatch.setattr(request, "USUAL_LIMITS", made)

    return change


@pytest.fixture
def in_parts(limits):
    """Take every file for a large one, of small parts, of which a moment is worth to be kept."""
    from scenes import SMALL_PARTS

    limits(**dataclasses.asdict(SMALL_PARTS))


@pytest.fixture
def calls(monkeypatch):
    """Stand in for the device: each image comes back brighter by one; tells what was asked."""
    import numpy as np

    from napari_gpu_denoise.errors import NonFiniteError
    from napari_gpu_denoise.files import batch, one_file
    from napari_gpu_denoise.run.record import Record, Result

    asked, here = [], types.SimpleNamespace(shares_cores=False)

    def stand_in(data, run, progress):
        asked.append(run)
        for done in range(3):
            progress.tell(done, 2)
        if not np.isfinite(data).all():
            raise NonFiniteError("1 of 168 pixels are NaN or infinite: pass nonfinite='keep'.")
        told = ("0", "nl_means", run.filter.as_dict(), (2.0,), "given", "YX", str(data.dtype))
        notes = ("something to know",)
        record = Record(*told, str(data.dtype), "a device", 7, 1, notes, "2026")
        return Result(data + np.ones((), data.dtype), record)

    monkeypatch.setattr(one_file, "denoise_image", stand_in)
    monkeypatch.setattr(batch, "choose_devices", lambda device, *_: device or (here,))
    return asked


@pytest.fixture
def own_cache(monkeypatch, tmp_path):
    """Return the folder of caches, which is one of this test alone, and not there yet."""
    from napari_gpu_denoise.opencl import device_test, program

    for module in (device_test, program):
        monkeypatch.setattr(module, "cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture
def machine(monkeypatch):
    """Return a function that puts devices into the machine, and returns them."""
    from napari_gpu_denoise.opencl import device as devices

    monkeypatch.delenv("GPU_DENOISE_DEVICE", raising=False)

    def put(*found):
        monkeypatch.setattr(devices, "_devices", lambda: found)
        return found

    return put


@pytest.fixture
def arenas(monkeypatch):
    """Return the arenas that are made from here on."""
    from napari_gpu_denoise.opencl.memory import Arena, release_memory

    made, plain = [], Arena.__init__

    def begin(self, *given):
        plain(self, *given)
        made.append(self)

    release_memory()
    monkeypatch.setattr(Arena, "__init__", begin)
    return made


@pytest.fixture(scope="session")
def import_graph():
    """Return which module of the package imports which."""
    import grimp

    return grimp.build_graph("napari_gpu_denoise", cache_dir=None)


@pytest.fixture(scope="module")
def added_models():
    """Return a module with the noise models of a page, which are then models as all others."""
    path = Path(__file__).parents[1] / "docs" / "develop" / "add_a_noise_model.md"
    added = types.ModuleType("added_models")
    added.page = path.read_text(encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "added_models", added)  # dataclasses look there
        for text in re.findall(r"```python\n(.*?)```", added.page, re.DOTALL):
            exec(textwrap.dedent(text), vars(added))
        patch.setattr(models, "MODELS", (*models.MODELS, added.Uniform, added.Multiplicative))
        yield added
