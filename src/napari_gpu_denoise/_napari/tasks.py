"""Work off the GUI thread: its progress, its worker, its bar in napari's activity dock."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

from napari.qt.threading import GeneratorWorker
from napari.utils.progress import cancelable_progress

from napari_gpu_denoise.filters.advice.cost import in_words

_SETTLED = 3.0  # seconds from which the pace of a step is believed

_BAR_INTERVAL = 0.1  # seconds between two updates of the text in napari's activity dock


@dataclass(frozen=True)
class Stage:
    """A step of a run, with `done` of `total` parts; a total of 0 means unknown."""

    text: str
    done: int = 0
    total: int = 0

    @property
    def words(self) -> str:
        """What is done, and how much of it."""
        return f"{self.text} {self.done} of {self.total}" if self.total else f"{self.text} …"


class TimeLeft:
    """Says how long a step of a run still takes, from the pace of its parts so far."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._text: str | None = None
        self._since, self._done = 0.0, 0

    def words(self, stage: Stage) -> str:
        """Return the words of a stage, with the time left once it can be told."""
        return ", ".join(filter(None, (stage.words, self.left(stage))))

    def left(self, stage: Stage) -> str:
        """Return the time left alone; empty as long as it cannot be told."""
        now = self._clock()
        if stage.text != self._text or stage.done < self._done:
            self._text, self._since, self._done = stage.text, now, stage.done
        passed, parts = now - self._since, stage.done - self._done
        left = stage.total - stage.done
        if passed < _SETTLED or parts < 1 or left < 1:
            return ""
        return f"{in_words(passed / parts * left)} left"


def as_stages(running: Generator, text: str) -> Generator[Stage, None, Any]:
    """Drive a generator of `run.Progress`, and return what it returns."""
    with closing(running):
        while True:
            try:
                progress = next(running)
            except StopIteration as end:
                return end.value
            if not progress.total:
                yield Stage(progress.unit.capitalize())
                continue
            reading = progress.unit == "frame read"
            named = "Reading: frame" if reading else f"{text}: {progress.unit}"
            yield Stage(named, progress.done, progress.total)


class Task(partial):
    """A call with a readable name, which napari shows if it is closed during the call."""

    def __new__(cls, steps: Callable, name: str):
        task = super().__new__(cls, steps)
        task.name = name
        return task

    def __repr__(self) -> str:
        return self.name


class Worker(GeneratorWorker):
    """Runs ``steps(request, stopped)``, a generator that is closed as soon as `quit` is called.

    Make and start it with napari's `create_worker`, which shows its `Task` to the user.
    """

    def __init__(self, steps: Task, request: Any):
        super().__init__(steps, request, lambda: self.abort_requested)

    def work(self) -> Any:
        """Run to the end, or to the first stage after `quit`."""
        # Closed in this thread, which the device's queues and buffers belong to.
        with closing(self._gen):
            return super().work()


class ActivityBar(cancelable_progress):
    """A bar in napari's activity dock for the run of `worker`; its button calls `on_cancel`.

    Progress is shown as text beside a bar that only moves: napari handles waiting events whenever
    it sets the value of one, so that anything could happen within a slot of the panel.
    """

    worker: Worker | None = None
    on_cancel: Callable[[], None] | None = None
    _shown = 0.0

    def cancel(self) -> None:
        """Stop the run this bar shows."""
        super().cancel()
        if self.on_cancel is not None:
            self.on_cancel()

    def show(self, stage: Stage) -> None:
        """Show progress; call it in the GUI thread."""
        now = time.monotonic()
        # A closed bar is disabled.
        if self.disable or now - self._shown < _BAR_INTERVAL:
            return
        self._shown = now
        self.events.eta(value=stage.words)
