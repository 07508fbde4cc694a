"""How long a user of napari waits: previews, gaps of the GUI thread, Cancel.

    xvfb-run -a -s "-screen 0 1600x1000x24" python tests/benchmarks/napari_times.py

Drives a window of napari by its own event loop and prints a table, in ms, with the bars that hold
for a quiet machine with two CPU cores. `--device` chooses the OpenCL device.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

# Before napari is imported: its settings come from an empty folder.
os.environ["NAPARI_CONFIG"] = str(Path(tempfile.mkdtemp()) / "settings.yaml")

import napari
import numpy as np
from qtpy.QtCore import QEventLoop, QThreadPool, QTimer

TITLES = ("Filter", "Filter", "Estimated noise", "Estimated noise", "Compare", "Batch")
BARS = {"NL-means": 150, "fast": 250, "gap": 100, "cancel": 500}


class Gaps:
    """The longest time in which the GUI thread did nothing else, in ms.

    Beside it the longest that it worked itself meanwhile: on a busy machine it also waits for a
    processor, and for threads that hold Python's lock.
    """

    def __init__(self):
        self._timer = QTimer()
        self.begin()
        self._timer.timeout.connect(self._tick)
        self._timer.start(1)

    def _tick(self) -> None:
        now = time.perf_counter(), time.thread_time()
        passed = [1000 * (a - b) for a, b in zip(now, self._last, strict=True)]
        self._longest = [max(a, b) for a, b in zip(self._longest, passed, strict=True)]
        self._last = now

    def begin(self) -> None:
        """Forget what was."""
        self._longest, self._last = [0.0, 0.0], (time.perf_counter(), time.thread_time())

    def tell(self, what: str) -> None:
        """Print the longest gap since `begin`."""
        self._tick()
        tell(f"{what}: gap", self._longest[0], BARS["gap"], f"{self._longest[1]:.0f} at work")


def wait(condition: Callable[[], bool], seconds: float = 120) -> float:
    """Let napari work until a condition holds; returns the time that took, in ms."""
    loop, timer, start = QEventLoop(), QTimer(), time.perf_counter()

    def look() -> None:
        if condition() or time.perf_counter() - start > seconds:
            loop.quit()

    timer.timeout.connect(look)
    timer.start(1)
    loop.exec()
    return 1000 * (time.perf_counter() - start)


def rest(seconds: float = 0.5) -> None:
    """Let napari work for a while."""
    end = time.perf_counter() + seconds
    wait(lambda: time.perf_counter() > end)


def tell(what: str, measured: float, bar: float, more: str = "") -> None:
    """Print a line of the table."""
    above = "above" if measured > bar else ""
    print(f"{what:52}{measured:8.0f}{bar:8.0f}  {above:7}{more}".rstrip(), flush=True)


class Times:
    """One window, its layer and what is measured with them."""

    def __init__(self, device: str | None):
        self.device = device
        self.viewer = napari.Viewer(show=False)
        self.viewer.window._qt_window.resize(1400, 900)
        self.viewer.window._qt_window.show()
        self.gaps = Gaps()
        rng = np.random.default_rng(0)
        y, x = np.mgrid[:512, :512]
        clean = 400 + 150 * np.sin(x / 17) * np.cos(y / 13)
        movie = rng.poisson(np.broadcast_to(clean, (8, 512, 512))).astype(np.uint16)
        self.movie = self.viewer.add_image(movie, name="movie", axis_labels=("t", "y", "x"))
        rest(1)

    def open(self, title: str, filter: str = ""):
        """Open a panel as the menus do, that of filters at one of them."""
        from napari_gpu_denoise._napari.docks import open_panel
        from napari_gpu_denoise._napari.loading import when_loaded

        made = []
        when_loaded(lambda: made.append(open_panel(self.viewer, title)))
        wait(lambda: bool(made))
        rest(1)
        panel = made[0]
        if hasattr(panel, "device"):
            wait(lambda: bool(panel.options.device.caption.text()))
            if self.device is not None:
                panel.options.device.device = lambda: self.device
        if filter:
            panel.filter.choose(filter)
            rest(0.5)
        return panel

    def opening(self) -> None:
        """Longest gap while a panel is opened, the first one and others."""
        for number, title in enumerate(TITLES):
            self.gaps.begin()
            panel = self.open(title)
            first = ", first" if not number else ""
            self.gaps.tell(f"opening {title}{first}")
            self.viewer.window.remove_dock_widget(panel)
            rest(0.3)

    def previews(self, filter: str, profile: str | None, bar: float) -> None:
        """Time from a slider to the picture, and the longest gap while it is dragged."""
        panel = self.open("Filter", filter)
        if profile is not None:
            panel.form.profile.setCurrentText(profile)
        panel.options.noise.edit.setText("20")
        panel.options.noise.choose("typed")
        panel.preview.box.setChecked(True)
        wait(lambda: panel.live.settled)
        named = filter if profile is None else f"{filter} {profile}"
        waits = []
        for value in (1, 3, 5, 7, 9, 11, 13):
            before = panel.live.layer.data
            panel.options.strength.slider.setValue(value)
            waits.append(wait(lambda before=before: panel.live.layer.data is not before))
            wait(lambda: panel.live.settled)
            rest(0.1)
        shape = "x".join(map(str, panel.live.layer.data.shape[-2:]))
        tell(f"{named}: slider to picture, {shape}", statistics.median(waits), bar)
        self.gaps.begin()
        for value in range(-20, 21):
            panel.options.strength.slider.setValue(value)
            rest(0.03)
        self.gaps.tell(f"{named}: dragging")
        wait(lambda: panel.live.settled)
        self.gaps.begin()
        for frame in (1, 5, 2, 7, 3, 0):
            self.viewer.dims.set_current_step(0, frame)
            rest(0.1)
        self.gaps.tell(f"{named}: moving the slider of time")
        wait(lambda: panel.live.settled)
        panel.preview.box.setChecked(False)
        self.viewer.window.remove_dock_widget(panel)
        rest(0.3)

    def running(self) -> None:
        """Longest gaps of a run: while it works, and when its result is added."""
        panel = self.open("Filter", "nl_means")
        for number in range(2):
            self.gaps.begin()
            panel.runs.ended.disconnect(panel._on_outcome)
            outcome = []
            panel.runs.ended.connect(outcome.append)
            panel.run_button.click()
            wait(lambda outcome=outcome: bool(outcome))
            which = "measuring, compiling, filtering" if not number else "filtering"
            self.gaps.tell(f"NL-means: {which}")
            panel.runs.ended.disconnect(outcome.append)
            panel.runs.ended.connect(panel._on_outcome)
            self.gaps.begin()
            panel._on_outcome(outcome[0])
            rest(1)
            which = "first result" if not number else "result"
            self.gaps.tell(f"NL-means: adding the {which}")
        self.viewer.window.remove_dock_widget(panel)
        rest(0.3)

    def cancelling(self) -> None:
        """Time from Cancel to a panel that is ready again, at several stages of a run."""
        panel = self.open("Filter", "bm3d")
        panel.form.profile.setCurrentText("high")
        for stage in ("Measuring", "Compiling", "Denoising"):
            if stage == "Measuring":
                self.movie.data = self.movie.data + 1
            panel.run_button.click()
            wait(lambda stage=stage: stage in panel.status.text() or panel.run_button.isEnabled())
            if panel.run_button.isEnabled():
                continue
            start = time.perf_counter()
            panel.cancel_button.click()
            wait(panel.run_button.isEnabled)
            taken = 1000 * (time.perf_counter() - start)
            tell(f"BM3D: Cancel while {stage.lower()}", taken, BARS["cancel"])
            rest(1)


def main() -> None:
    """Measure and print everything."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", help="part of the name of the OpenCL device")
    times = Times(parser.parse_args().device)
    print(f"{'':52}{'ms':>8}{'bar':>8}")
    times.opening()
    times.previews("nl_means", None, BARS["NL-means"])
    times.previews("bm3d", "fast", BARS["fast"])
    times.previews("bm3d", None, BARS["fast"])
    times.running()
    times.cancelling()
    QThreadPool.globalInstance().waitForDone()  # those that were left
    rest(0.5)
    times.viewer.close()


if __name__ == "__main__":
    main()
