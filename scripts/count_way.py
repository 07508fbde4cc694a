"""Count our own functions, modules and changes of room between a call and its first kernel.

    python scripts/count_way.py                  # a table: Python, command line and napari
    python scripts/count_way.py python --list    # the functions, with file and line

Three calls are followed, each on one image of 64x64 pixels with sigma given:

- ``python``: ``gd.bm3d(image, sigma=20)``;
- ``command``: ``gpu-denoise bm3d in.tif -o out.tif --sigma 20``, run in this process;
- ``napari``: a click on Denoise in the panel Filter, at BM3D, with 20 typed as sigma; where there
  is no display, start the script with ``xvfb-run -a``.

*Functions on the way* are those that the array passes: the call stack when the first kernel is
enqueued, after the stacks where the threads that lead there were started. *Changes of room* are
how often the next of them is in another folder of the package; below the table, in all of the
first call, and not on the way alone.

Only functions of the package count, each once; lambdas, comprehensions, module bodies and the lazy
``__getattr__`` of the package do not. Each call is made once before, so that imports, devices,
kernels and memory are ready.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import CodeType
from typing import NamedTuple
from unittest.mock import patch

import numpy as np

import napari_gpu_denoise as gd

PACKAGE = Path(gd.__file__).resolve().parent
PLUGIN = "napari-gpu-denoise"
SIGMA = 20
# What the panel calls its parts: change them here if it is redesigned.
PANEL, FILTER, RUN, SIGMA_FIELD = "Filter", "BM3D", "Denoise", "Noise standard deviation"


class Function(NamedTuple):
    """One of our functions, and where it is."""

    module: str
    name: str
    place: str

    @property
    def room(self) -> str:
        """The folder of the package that the function is in."""
        return self.module.partition(".")[0]


def function_of(code: CodeType) -> Function | None:
    """Return the function that a code object belongs to, or None if it does not count."""
    path, name = Path(code.co_filename), code.co_qualname
    if code.co_name.startswith("<") or not path.is_relative_to(PACKAGE):
        return None
    path = path.relative_to(PACKAGE)
    module = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    found = Function(module, name, f"{path}:{code.co_firstlineno}")
    return None if (module, name) == ("__init__", "__getattr__") else found


class Recorder:
    """Follows one call through all its threads until a kernel is enqueued."""

    def __init__(self):
        self._stack: tuple[CodeType, ...] | None = None
        self._thread = threading.local()  # with the stack where it was started

    def on_the_way(self) -> list[Function]:
        """Return the functions on the way to the first launch; RuntimeError if there was none."""
        if self._stack is None:
            raise RuntimeError("no kernel was enqueued")
        return list(dict.fromkeys(filter(None, map(function_of, self._stack))))

    def launching(self, plain: Callable) -> Callable:
        """Return a function that notes the stack, if this is the first launch."""

        def launch(*given, **options):
            self._stack = self._stack or self._joined_stack()
            return plain(*given, **options)

        return launch

    def passing(self, function: Callable) -> Callable:
        """Return a function for another thread, recorded as what comes from here."""
        stack = self._joined_stack()

        def call(*given, **options):
            self._thread.started_from = stack
            try:
                return function(*given, **options)
            finally:
                self._thread.started_from = ()

        return call

    def _joined_stack(self) -> tuple[CodeType, ...]:
        own, frame = [], sys._getframe()
        while frame is not None:
            own.append(frame.f_code)
            frame = frame.f_back
        return (*getattr(self._thread, "started_from", ()), *reversed(own))


@contextlib.contextmanager
def recorded() -> Iterator[Recorder]:
    """Record calls, starts of threads and the first launch in this block."""
    import pyopencl as cl

    recorder = Recorder()

    def starting(plain: Callable, method: str) -> Callable:
        def start(task):
            setattr(task, method, recorder.passing(getattr(task, method)))
            return plain(task)

        return start

    def submit(executor, function, /, *given, plain=ThreadPoolExecutor.submit, **options):
        return plain(executor, recorder.passing(function), *given, **options)

    replaced = [
        (cl.Kernel, "__call__", recorder.launching(cl.Kernel.__call__)),
        (cl, "enqueue_nd_range_kernel", recorder.launching(cl.enqueue_nd_range_kernel)),
        (threading.Thread, "start", starting(threading.Thread.start, "run")),
        (ThreadPoolExecutor, "submit", submit),
    ]
    if "superqt" in sys.modules:
        from superqt.utils._qthreading import WorkerBase

        replaced.append((WorkerBase, "start", starting(WorkerBase.start, "work")))
    with contextlib.ExitStack() as stack:
        for each in replaced:
            stack.enter_context(patch.object(*each))
        yield recorder


def _image() -> np.ndarray:
    return np.random.default_rng(1).normal(100, SIGMA, (64, 64)).astype(np.float32)


def _second_of(call: Callable[[], object]) -> Recorder:
    """Make a call twice, as the first one imports and compiles, and record the second."""
    call()
    with recorded() as recorder:
        call()
    return recorder


def follow_python() -> Recorder:
    """Follow `gd.bm3d`."""
    image = _image()
    return _second_of(lambda: gd.bm3d(image, sigma=SIGMA))


def calls_between_rooms() -> int:
    """Return how often our functions call one in another room in a warm `gd.bm3d`."""
    image, found = _image(), []

    def note(frame, event, _) -> None:
        called = function_of(frame.f_code) if event == "call" else None
        while called and (frame := frame.f_back):
            if caller := function_of(frame.f_code):
                found.append(caller.room != called.room)
                break

    gd.bm3d(image, sigma=SIGMA)
    sys.setprofile(note)
    gd.bm3d(image, sigma=SIGMA)
    sys.setprofile(None)
    return sum(found)


def follow_command() -> Recorder:
    """Follow the entry point of the command ``gpu-denoise``."""
    import tifffile

    from napari_gpu_denoise.cli import main

    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nowhere:
        source, out = Path(folder, "in.tif"), Path(folder, "out.tif")
        tifffile.imwrite(source, _image())
        command = ["bm3d", str(source), "-o", str(out), "--sigma", str(SIGMA)]

        def call() -> None:
            out.unlink(missing_ok=True)
            with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
                code = main(command)
            if code:
                raise RuntimeError(f"gpu-denoise ended with exit code {code}")

        return _second_of(call)


def follow_napari() -> Recorder:
    """Follow a click on Denoise in the panel Filter, at BM3D."""
    with contextlib.ExitStack() as stack:
        # Before napari is imported: the settings of the user are neither read nor changed.
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        os.environ["NAPARI_CONFIG"] = str(Path(folder, "settings.yaml"))
        import napari

        viewer = napari.Viewer()
        stack.callback(viewer.close)
        return _second_of(_click_of(viewer))


def _click_of(viewer) -> Callable[[], None]:
    from qtpy.QtCore import Qt
    from qtpy.QtTest import QTest
    from qtpy.QtWidgets import QComboBox, QLineEdit, QPushButton

    viewer.add_image(_image(), name="image")
    viewer.window.add_plugin_dock_widget(PLUGIN, PANEL)
    panel = viewer.window._qt_window  # a label stands in the panel's place until it is loaded

    def run_buttons() -> list:
        buttons = panel.findChildren(QPushButton)
        return [button for button in buttons if button.text().replace("&", "") == RUN]

    _wait(run_buttons)  # panels are loaded in the background
    boxes = panel.findChildren(QComboBox)
    next(box for box in boxes if box.findText(FILTER) >= 0).setCurrentText(FILTER)
    (run,) = run_buttons()
    (sigma,) = (f for f in panel.findChildren(QLineEdit) if f.accessibleName() == SIGMA_FIELD)
    sigma.setFocus()
    QTest.keyClicks(sigma, str(SIGMA))

    def click() -> None:
        for result in viewer.layers[1:]:
            viewer.layers.remove(result)
        _wait(run.isEnabled)
        QTest.mouseClick(run, Qt.MouseButton.LeftButton)
        _wait(lambda: run.isEnabled() and len(viewer.layers) > 1)

    return click


def _wait(condition: Callable[[], object]) -> None:
    from qtpy.QtWidgets import QApplication

    end = time.monotonic() + 120
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("napari did not finish the run in time")
        QApplication.processEvents()
        time.sleep(0.01)


WAYS = {
    "python": ("gd.bm3d(image, sigma=20)", follow_python),
    "command": ("gpu-denoise bm3d", follow_command),
    "napari": ("Denoise in napari", follow_napari),
}


def figures(functions: list[Function]) -> tuple[int, int, int]:
    """Return the number of functions, of their modules, and of changes of room."""
    changes = sum(a.room != b.room for a, b in itertools.pairwise(functions))
    return len(functions), len({each.module for each in functions}), changes


def main() -> None:
    """Follow the calls and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("ways", nargs="*", choices=[[], *WAYS], default=[], metavar="WAY")
    parser.add_argument("--list", action="store_true", help="list the functions on the way")
    args = parser.parse_args()
    ways = {WAYS[name][0]: WAYS[name][1]().on_the_way() for name in args.ways or WAYS}
    print("| call | functions on the way | in modules | changes of room |")
    print("| --- | ---: | ---: | ---: |")
    for title, functions in ways.items():
        print(f"| {title} | {' | '.join(map(str, figures(functions)))} |")
    print(f"\nAll of gd.bm3d: {calls_between_rooms()} calls from room to room")
    for title, functions in ways.items() if args.list else ():
        print(f"\n{title}")
        for number, each in enumerate(functions, 1):
            print(f"  {number:3d} {f'{each.module}.{each.name}':64}  {each.place}")


if __name__ == "__main__":
    main()
