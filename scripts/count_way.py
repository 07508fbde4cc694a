"""Count our own functions and modules between a call and the first kernel launch.

    python scripts/count_way.py                  # a table: Python, command line and napari
    python scripts/count_way.py python --list    # the functions on the way, with file and line
    python scripts/count_way.py python --entered # all functions that were entered, too

Three calls are followed, each on one image of 64x64 pixels with sigma given:

- ``python``: ``gd.bm3d(image, sigma=20)``;
- ``command``: ``gpu-denoise bm3d in.tif -o out.tif --sigma 20``, run in this process;
- ``napari``: a click on Denoise in the BM3D panel, with 20 typed as sigma. Without a display a
  virtual one is started; that needs Xvfb.

The table has these figures for each call:

- *functions on the way*: the functions that the array passes. That is the call stack when the
  first kernel is enqueued, from the public call down to the launch, with the functions that made
  and handed over a generator or a worker that is on this stack. If the launch is in a worker
  thread, the stacks where the worker was made and started come first. *in modules*: their modules.
- *modules they use*: the modules of the functions on the way and of all functions that they call
  directly before the launch: what has to be opened to follow the array.
- *room changes*: how often a function of another folder of the package is entered than the last.
- *functions entered*: all functions that were entered before the launch, and their modules. What a
  thread does after it has started the worker that launches is not counted.

At commit 92bba6c the way has 12 functions from Python, which use 22 modules, and 17 from napari:
the figures that the plan for a shorter way started from ("12 functions in some 20 modules, from
napari's Run button 17").

Rules: only functions of the package napari_gpu_denoise count, each once. Each call is made once
before it is counted, so that imports, devices, kernels and memory are ready. Copies and fills of
device memory are not kernel launches. Lambdas, comprehensions, module bodies, ``__post_init__``
and the lazy ``__getattr__`` of the package are not counted: what they call counts as called by the
function around them. Methods that dataclasses generate have no source file and are not counted
either. ``--list`` shows what was left out of the way in brackets.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FrameType, GeneratorType

import numpy as np

import napari_gpu_denoise as gd

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path(gd.__file__).resolve().parent
PLUGIN = "napari-gpu-denoise"
SIGMA = 20
# What the panel calls its parts: change them here if it is redesigned.
PANEL, RUN, SIGMA_FIELD = "BM3D", "Denoise", "Noise standard deviation"


@dataclass(frozen=True)
class Function:
    """One of our functions: where it is, and whether it counts."""

    module: str
    name: str
    place: str
    counts: bool

    @classmethod
    @cache
    def of(cls, code: CodeType) -> Function | None:
        """Return the function that a code object belongs to, or None if it is not ours."""
        path = Path(code.co_filename)
        if not path.is_relative_to(PACKAGE):
            return None
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        generated = code.co_name.startswith("<") or code.co_name == "__post_init__"
        lazy = module == "" and code.co_name == "__getattr__"
        place = f"{path.relative_to(PACKAGE)}:{code.co_firstlineno}"
        return cls(module or PACKAGE.name, code.co_qualname, place, not (generated or lazy))


@dataclass(frozen=True)
class Count:
    """The functions of one call up to its first kernel launch, in order.

    `used` holds those on the way and those that they call directly.
    """

    on_the_way: tuple[Function, ...]
    used: tuple[Function, ...]
    entered: tuple[Function, ...]
    room_changes: int


@dataclass(frozen=True)
class Origin:
    """What led to the start of a thread: the stack there, and what each thread had entered."""

    stack: tuple[CodeType, ...]
    entered: dict[int, int]


class Recorder:
    """Follows one call through all its threads until a kernel is enqueued."""

    def __init__(self):
        self.stack: tuple[CodeType, ...] | None = None
        # Thread, function and the function that called it, in order.
        self._entered: dict[tuple[int, CodeType, CodeType | None], None] = {}
        self._room, self._room_changes = "", -1  # the first room is none
        self._handed: list[tuple[FrameType, CodeType]] = []
        self._until: dict[int, int] = {}
        self._thread = threading.local()

    def count(self) -> Count:
        """Return what was recorded.

        Raises
        ------
        RuntimeError
            If no kernel was enqueued.
        """
        if self.stack is None:
            raise RuntimeError("no kernel was enqueued")
        calls = [
            (code, caller)
            for place, (thread, code, caller) in enumerate(self._entered)
            if place < self._until.get(thread, len(self._entered))
        ]
        way = set(self.stack)
        return Count(
            _functions(self.stack),
            _functions([*self.stack, *(code for code, caller in calls if caller in way)]),
            _functions([code for code, _ in calls]),
            self._room_changes,
        )

    def profile(self, frame: FrameType, event: str, value: object) -> None:
        """Note a function that is entered or left; a profile function of `sys.setprofile`."""
        found = Function.of(frame.f_code)
        if self.stack is not None or found is None:
            return
        # No lock: taking one would be profiled, too, and single operations are atomic.
        if event == "call":
            key = (threading.get_ident(), frame.f_code, _caller(frame))
            self._entered.setdefault(key)
            room = found.module.partition(".")[0]
            self._room_changes += room != self._room
            self._room = room
        elif (
            event == "return"
            and isinstance(value, GeneratorType)
            and value.gi_frame is not None
            and value.gi_code is not frame.f_code
        ):
            self._handed.append((value.gi_frame, frame.f_code))

    def launch(self) -> None:
        """Note the stack, if this is the first launch."""
        if self.stack is None:
            self._until = self._origin().entered
            self.stack = self.joined_stack()

    def started_here(self, made: tuple[CodeType, ...] = ()) -> Origin:
        """Return what a thread or task that is started now, and was `made` there, comes from."""
        entered = {**self._origin().entered, threading.get_ident(): len(self._entered)}
        return Origin((*made, *self.joined_stack()), entered)

    def joined_stack(self) -> tuple[CodeType, ...]:
        """Return the stack of this thread after what it comes from."""
        own, frame = [], sys._getframe()
        while frame is not None:
            own.append(frame.f_code)
            own += [code for generator, code in self._handed if generator is frame]
            frame = frame.f_back
        return (*self._origin().stack, *reversed(own))

    @contextlib.contextmanager
    def coming_from(self, origin: Origin) -> Iterator[None]:
        """Record this thread as started by another one."""
        before, profile = self._origin(), sys.getprofile()
        self._thread.origin = origin
        # Threads that Python did not start, such as those of Qt, have no profile function yet.
        sys.setprofile(self.profile)
        try:
            yield
        finally:
            sys.setprofile(profile)
            self._thread.origin = before

    def _origin(self) -> Origin:
        return getattr(self._thread, "origin", Origin((), {}))


def _caller(frame: FrameType) -> CodeType | None:
    """Return the nearest function further up that is ours and counts."""
    above = frame.f_back
    while above is not None:
        found = Function.of(above.f_code)
        if found is not None and found.counts:
            return above.f_code
        above = above.f_back
    return None


def _functions(codes) -> tuple[Function, ...]:
    return tuple(dict.fromkeys(found for found in map(Function.of, codes) if found))


@contextlib.contextmanager
def recorded() -> Iterator[Recorder]:
    """Record calls, starts of threads and the first launch in this block."""
    import pyopencl as cl

    recorder = Recorder()
    with contextlib.ExitStack() as stack:

        def replace(owner: type | object, name: str, wrap: Callable) -> None:
            plain = getattr(owner, name)
            setattr(owner, name, wrap(plain))
            stack.callback(setattr, owner, name, plain)

        replace(cl.Kernel, "__call__", lambda plain: _launching(recorder, plain))
        replace(cl, "enqueue_nd_range_kernel", lambda plain: _launching(recorder, plain))
        replace(threading.Thread, "start", lambda plain: _starting(recorder, plain))
        replace(ThreadPoolExecutor, "submit", lambda plain: _submitting(recorder, plain))
        if "superqt" in sys.modules:
            from superqt.utils._qthreading import WorkerBase

            made: dict[int, tuple[CodeType, ...]] = {}
            origins: dict[int, Origin] = {}
            replace(WorkerBase, "__init__", lambda plain: _making(recorder, made, plain))
            replace(WorkerBase, "start", lambda plain: _noting(recorder, made, origins, plain))
            replace(WorkerBase, "run", lambda plain: _continuing(recorder, origins, plain))
        stack.callback(sys.setprofile, sys.getprofile())
        stack.callback(threading.setprofile, threading.getprofile())
        threading.setprofile(recorder.profile)
        sys.setprofile(recorder.profile)
        yield recorder


def _launching(recorder: Recorder, plain: Callable) -> Callable:
    def launch(*args, **kwargs):
        recorder.launch()
        return plain(*args, **kwargs)

    return launch


def _starting(recorder: Recorder, plain: Callable) -> Callable:
    def start(thread):
        origin, run = recorder.started_here(), thread.run

        def run_from_origin():
            with recorder.coming_from(origin):
                run()

        thread.run = run_from_origin
        return plain(thread)

    return start


def _submitting(recorder: Recorder, plain: Callable) -> Callable:
    def submit(executor, function, /, *args, **kwargs):
        origin = recorder.started_here()

        def call():
            with recorder.coming_from(origin):
                return function(*args, **kwargs)

        return plain(executor, call)

    return submit


def _making(recorder: Recorder, made: dict[int, tuple], plain: Callable) -> Callable:
    def __init__(worker, *args, **kwargs):
        made[id(worker)] = recorder.joined_stack()
        plain(worker, *args, **kwargs)

    return __init__


def _noting(recorder: Recorder, made: dict, origins: dict, plain: Callable) -> Callable:
    def start(worker):
        origins[id(worker)] = recorder.started_here(made.get(id(worker), ()))
        return plain(worker)

    return start


def _continuing(recorder: Recorder, origins: dict[int, Origin], plain: Callable) -> Callable:
    def run(worker):
        origin = origins.get(id(worker))
        if origin is None:
            return plain(worker)
        with recorder.coming_from(origin):
            return plain(worker)

    return run


def _image() -> np.ndarray:
    return np.random.default_rng(1).normal(100, SIGMA, (64, 64)).astype(np.float32)


def count_python() -> Count:
    """Count from `gd.bm3d`."""
    image = _image()
    gd.bm3d(image, sigma=SIGMA)
    with recorded() as recorder:
        gd.bm3d(image, sigma=SIGMA)
    return recorder.count()


def count_command() -> Count:
    """Count from the entry point of the command ``gpu-denoise``."""
    import importlib

    import tifffile

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module, function = project["scripts"]["gpu-denoise"].split(":")
    entry = getattr(importlib.import_module(module), function)
    arguments, stderr = sys.argv, sys.stderr
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nowhere:
        source, out = Path(folder, "in.tif"), Path(folder, "out.tif")
        tifffile.imwrite(source, _image())
        sys.argv = ["gpu-denoise", "bm3d", str(source), "-o", str(out), "--sigma", str(SIGMA)]

        def call() -> None:
            sys.stderr = nowhere
            try:
                with contextlib.redirect_stdout(nowhere):
                    entry()
            except SystemExit as end:
                if end.code:
                    raise RuntimeError(f"gpu-denoise ended with exit code {end.code}") from end
            finally:
                sys.stderr = stderr

        try:
            call()
            out.unlink()
            with recorded() as recorder:
                call()
        finally:
            sys.argv = arguments
    return recorder.count()


def count_napari() -> Count:
    """Count from a click on Denoise in the BM3D panel."""
    with contextlib.ExitStack() as stack:
        if sys.platform == "linux" and not os.environ.get("DISPLAY"):
            from pyvirtualdisplay import Display

            stack.enter_context(Display(visible=False, size=(1600, 1000), color_depth=24))
        # Before napari is imported: the settings of the user are neither read nor changed.
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        os.environ["NAPARI_CONFIG"] = str(Path(folder, "settings.yaml"))
        return _count_clicks()


def _count_clicks() -> Count:
    import napari
    from qtpy.QtCore import Qt
    from qtpy.QtTest import QTest
    from qtpy.QtWidgets import QLineEdit, QPushButton

    viewer = napari.Viewer()
    try:
        layer = viewer.add_image(_image(), name="image")
        _, panel = viewer.window.add_plugin_dock_widget(PLUGIN, PANEL)

        def run_buttons() -> list:
            buttons = panel.findChildren(QPushButton)
            return [button for button in buttons if button.text().replace("&", "") == RUN]

        _wait(run_buttons)  # panels are loaded in the background
        run = _only(run_buttons(), RUN)
        fields = panel.findChildren(QLineEdit)
        sigma = _only([f for f in fields if f.accessibleName() == SIGMA_FIELD], SIGMA_FIELD)
        sigma.setFocus()
        QTest.keyClicks(sigma, str(SIGMA))

        def click() -> None:
            _wait(run.isEnabled)
            layers = len(viewer.layers)
            QTest.mouseClick(run, Qt.MouseButton.LeftButton)
            _wait(lambda: run.isEnabled() and len(viewer.layers) > layers)

        _wait(lambda: False, 1, quiet=True)
        click()
        for result in [each for each in viewer.layers if each is not layer]:
            viewer.layers.remove(result)
        with recorded() as recorder:
            click()
        return recorder.count()
    finally:
        viewer.close()


def _only(found: list, what: str):
    if len(found) != 1:
        raise RuntimeError(f"the panel {PANEL} has {len(found)} widgets called {what!r}, not one")
    return found[0]


def _wait(condition: Callable[[], bool], seconds: float = 120, quiet: bool = False) -> None:
    from qtpy.QtWidgets import QApplication

    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            if quiet:
                return
            raise TimeoutError("napari did not finish the run in time")
        QApplication.processEvents()
        time.sleep(0.01)


WAYS = {
    "python": ("gd.bm3d(image, sigma=20)", count_python),
    "command": ("gpu-denoise bm3d", count_command),
    "napari": ("Denoise in napari", count_napari),
}


def sizes(functions: tuple[Function, ...]) -> tuple[int, int]:
    """Return the number of functions that count, and of their modules."""
    counted = [each for each in functions if each.counts]
    return len(counted), len({each.module for each in counted})


def show(functions: tuple[Function, ...]) -> None:
    """Print functions in order, those that do not count in brackets."""
    width = max((len(f"{each.module}.{each.name}") for each in functions), default=0)
    number = 0
    for each in functions:
        number += each.counts
        label = f"{number:3d} " if each.counts else "  ( "
        print(f"  {label} {each.module + '.' + each.name:{width}}  {each.place}")


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("ways", nargs="*", choices=[[], *WAYS], default=[], metavar="WAY")
    parser.add_argument("--list", action="store_true", help="list the functions on the way")
    parser.add_argument("--entered", action="store_true", help="list all functions entered, too")
    args = parser.parse_args()
    counts = {name: WAYS[name][1]() for name in args.ways or WAYS}
    heads = ("functions on the way", "in modules", "modules they use", "room changes")
    print(f"| call | {' | '.join(heads)} | functions entered | in modules |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, count in counts.items():
        figures = *sizes(count.on_the_way), sizes(count.used)[1], count.room_changes
        figures += sizes(count.entered)
        print(f"| {WAYS[name][0]} | {' | '.join(map(str, figures))} |")
    for name, count in counts.items():
        if args.list or args.entered:
            print(f"\n{WAYS[name][0]}: on the way")
            show(count.on_the_way)
        if args.entered:
            print(f"\n{WAYS[name][0]}: entered")
            show(count.entered)


if __name__ == "__main__":
    main()
