"""Work off the GUI thread: tasks of panels, their progress, and their outcome."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

from napari.qt.threading import GeneratorWorker, create_worker
from napari.utils.progress import cancelable_progress
from qtpy.QtCore import QObject, Signal

from napari_gpu_denoise.errors import Cancelled
from napari_gpu_denoise.opencl.isolation import load_bundled_drivers

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
        # Loaded only when needed: it brings the filters.
        from napari_gpu_denoise.assessment.recommend import time_in_words

        return f"{time_in_words(passed / parts * left)} left"


def as_stages(running: Generator, text: str) -> Generator[Stage, None, Any]:
    """Drive a generator of `run.Progress`, and return its result."""
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


@dataclass(frozen=True)
class Outcome:
    """The end of a task: the value it returned, or the error that ended it."""

    request: Any
    value: Any = None
    error: Exception | None = None
    seconds: float = 0.0


def to_outcome(
    steps: Callable[..., Generator], request: Any, stopped: Callable[[], bool]
) -> Generator[Any, None, Outcome | None]:
    """Drive ``steps(request, stopped)`` and return its outcome; None if it was cancelled.

    Errors are returned, not raised: superqt takes a RuntimeError out of a generator for the
    deletion of the worker, and would then never say that it has finished.
    """
    started = time.perf_counter()
    try:
        load_bundled_drivers()
        value = yield from steps(request, stopped)
    except Cancelled:
        return None
    except Exception as error:
        return Outcome(request, error=error, seconds=time.perf_counter() - started)
    return Outcome(request, value, seconds=time.perf_counter() - started)


class _Named(partial):
    """A call with a readable name, which napari shows if it is closed during the call."""

    def __new__(cls, name: str, *given: Any):
        call = super().__new__(cls, *given)
        call.name = name
        return call

    def __repr__(self) -> str:
        return self.name


class _Worker(GeneratorWorker):
    """A worker whose generator is closed as soon as `quit` is called."""

    def __init__(self, call: _Named):
        super().__init__(call, lambda: self.abort_requested)

    def work(self) -> Any:
        """Run to the end, or to the first stage after `quit`."""
        # Closed in this thread, which the device's queues and buffers belong to.
        with closing(self._gen):
            return super().work()


class _ActivityBar(cancelable_progress):
    """A bar in napari's activity dock; its button calls `on_cancel`.

    Progress is shown as text beside a bar that only moves: napari handles waiting events whenever
    it sets the value of one, so that anything could happen within a slot of the panel.
    """

    on_cancel: Callable[[], None] | None = None
    _shown = 0.0

    def cancel(self) -> None:
        """Stop the task this bar shows."""
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


class Task(QObject):
    """Works on requests off the GUI thread, one after another; signals come in the GUI thread.

    `steps` is a generator of stages, called as ``steps(request, stopped)``. A new request replaces
    those before, whose threads end by themselves at their next stage; with `alone` it waits for
    that. `name` is what napari shows of the task. With `bar` there is a bar in napari's activity
    dock, whose button calls `cancel`, by default a method that drops the requests.
    """

    #: A step of the request in progress, by default a `Stage`.
    staged = Signal(object)
    #: The `Outcome` of a request that was not dropped.
    ended = Signal(object)
    #: The task was stopped by napari, in its activity dock for example: there will be no outcome.
    stopped = Signal()
    #: A thread has ended, whatever became of its request.
    free = Signal()

    def __init__(
        self,
        parent: QObject,
        steps: Callable[..., Generator],
        name: str = "",
        *,
        alone: bool = False,
        bar: bool = False,
        cancel: Callable[[], None] | None = None,
    ):
        super().__init__(parent)
        self._steps, self._name, self._alone = steps, name, alone
        self._bar, self._cancel = bar, cancel or self._stop
        self._queue: list[tuple[Any, str]] = []
        self._current: _Thread | None = None
        # Lists of their own, so that they can be reached when this is gone.
        self._threads: list[_Thread] = []
        self.destroyed.connect(partial(_leave_all, self._threads))

    @property
    def running(self) -> bool:
        """Whether a request is in progress."""
        return self._current is not None

    @property
    def busy(self) -> bool:
        """Whether a thread is at work, be it on a request that was dropped."""
        return bool(self._threads)

    @property
    def request(self) -> Any:
        """The request in progress; None if there is none or it was dropped."""
        return None if self._current is None else self._current.request

    @property
    def worker(self) -> GeneratorWorker | None:
        """The worker of the request in progress."""
        return None if self._current is None else self._current.worker

    @property
    def waiting(self) -> int:
        """The number of requests that are not begun."""
        return len(self._queue)

    def start(self, request: Any, name: str = "") -> None:
        """Work on a request, in place of those before; `name` replaces that of the task."""
        self.start_all([(request, name or self._name)])

    def start_all(self, requests: Sequence[tuple[Any, str]]) -> None:
        """Work on requests one after another, each with its name, in place of those before."""
        self.drop()
        self._queue += requests
        self._begin()

    def drop(self) -> None:
        """Leave the request in progress at once, and those that wait; there will be no outcome."""
        self._queue.clear()
        current, self._current = self._current, None
        if current is not None:
            current.leave()

    def show(self, stage: Stage) -> None:
        """Show progress in napari's activity dock."""
        if self._current is not None and self._current.bar is not None:
            self._current.bar.show(stage)

    def _stop(self) -> None:
        self.drop()
        self.stopped.emit()

    def _begin(self) -> None:
        if self._queue and self._current is None and not (self._alone and self._threads):
            request, name = self._queue.pop(0)
            bar = _ActivityBar(total=0, desc=name) if self._bar else None
            if bar is not None:
                bar.on_cancel = self._cancel
            self._current = _Thread(self, self._steps, request, name, bar)
            self._threads.append(self._current)

    def _on_stage(self, thread: _Thread, stage: Any) -> None:
        if thread is self._current:
            if isinstance(stage, Stage):
                self.show(stage)
            self.staged.emit(stage)

    def _on_outcome(self, thread: _Thread, outcome: Outcome | None) -> None:
        # Of a request that was dropped the outcome may already be on its way here.
        if thread is self._current and outcome is not None:
            thread.leave()
            self._current = None
            if not self._alone:
                self._begin()
            self.ended.emit(outcome)

    def _on_end(self, thread: _Thread) -> None:
        self._threads.remove(thread)
        if thread is self._current:
            self._stop()
        self._begin()
        self.free.emit()


class _Thread(QObject):
    """A request of a task in a thread of its own."""

    def __init__(
        self,
        task: Task,
        steps: Callable[..., Generator],
        request: Any,
        name: str,
        bar: _ActivityBar | None,
    ):
        super().__init__(task)
        self._task, self.request, self.bar = task, request, bar
        # Signals come when this has returned: the worker cannot be too quick for them.
        self.worker = create_worker(
            _Named(name, to_outcome, steps, request),
            _worker_class=_Worker,
            _connect={
                "yielded": self._on_stage,
                "returned": self._on_outcome,
                "finished": self._on_end,
            },
        )

    def leave(self) -> None:
        """Stop the thread at its next stage, and close the bar."""
        self.worker.quit()
        if self.bar is not None:
            self.bar.close()

    def _on_stage(self, stage: Any) -> None:
        self._task._on_stage(self, stage)

    def _on_outcome(self, outcome: Outcome | None) -> None:
        self._task._on_outcome(self, outcome)

    def _on_end(self) -> None:
        self._task._on_end(self)
        self.deleteLater()


def _leave_all(threads: list[_Thread], *_: object) -> None:
    for thread in threads:
        thread.leave()
