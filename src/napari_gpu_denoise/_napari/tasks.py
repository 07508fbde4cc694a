"""Work off the GUI thread: tasks of panels, their progress, and their outcome."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from napari.qt.threading import WorkerBase, WorkerBaseSignals, create_worker
from qtpy.QtCore import QObject, Signal

from napari_gpu_denoise.assessment.recommend import time_in_words
from napari_gpu_denoise.errors import Cancelled, free_traceback
from napari_gpu_denoise.opencl.isolation import load_bundled_drivers
from napari_gpu_denoise.run.progress import Progress, Step

_SETTLED = 3.0  # seconds from which the pace of a step is believed


def words_of(step: Step) -> str:
    """Return what is done, and how much of it."""
    text = step.unit[:1].upper() + step.unit[1:]
    return f"{text} {step.done} of {step.total}" if step.total else f"{text} …"


def doing(text: str) -> Callable[[Step], Step]:
    """Return the change of steps, for `Progress.within`, that says what is done in them."""
    return lambda step: replace(step, unit=f"{text}: {step.unit}") if step.total else step


class TimeLeft:
    """Says how long a step of a run still takes, from the pace of its parts so far."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._unit: str | None = None
        self._since, self._done = 0.0, 0

    def words(self, step: Step) -> str:
        """Return the words of a step, with the time left once it can be told."""
        return ", ".join(filter(None, (words_of(step), self.left(step))))

    def left(self, step: Step) -> str:
        """Return the time left alone; empty as long as it cannot be told."""
        now = self._clock()
        if step.unit != self._unit or step.done < self._done:
            self._unit, self._since, self._done = step.unit, now, step.done
        passed, parts = now - self._since, step.done - self._done
        left = step.total - step.done
        if passed < _SETTLED or parts < 1 or left < 1:
            return ""
        return f"{time_in_words(passed / parts * left)} left"


@dataclass(frozen=True)
class Outcome:
    """The end of a task: the value it returned, or the error that ended it."""

    request: Any
    value: Any = None
    error: Exception | None = None
    seconds: float = 0.0


class _Signals(WorkerBaseSignals):
    # Of a worker, which they begin with.
    told = Signal(object, object)
    over = Signal(object)


class _Worker(WorkerBase):
    """Calls ``work(request, progress)`` in a thread; `quit` ends it by `Cancelled`.

    `name` is what napari shows if it is closed meanwhile.
    """

    def __init__(self, name: str, work: Callable[[Any, Progress], Any], request: Any):
        super().__init__(SignalsClass=_Signals)
        self._work, self.request = work, request

    def run(self) -> None:
        """Work, and tell when the thread ends."""
        super().run()
        self.over.emit(self)

    def work(self) -> tuple[_Worker, Outcome] | None:
        """Return this and its outcome; None if it was cancelled.

        Errors are not raised: superqt takes a RuntimeError for the deletion of the worker, and
        would then never say that it has finished.
        """
        progress = Progress(partial(self.told.emit, self), lambda: self.abort_requested)
        started, value, problem = time.perf_counter(), None, None
        try:
            load_bundled_drivers()
            progress.check()
            value = self._work(self.request, progress)
        except Cancelled:
            return None
        except Exception as error:
            # Device objects are freed in this thread, to which they belong.
            free_traceback(error)
            problem = error
        return self, Outcome(self.request, value, problem, time.perf_counter() - started)


class Task(QObject):
    """Works on requests off the GUI thread, one after another; signals come in the GUI thread.

    Each is worked on by ``work(request, progress)``. A new request replaces those before, whose
    threads end by themselves at their next step; with `alone` it waits for that. `name` is what
    napari shows of the task if it is closed meanwhile.
    """

    #: What the request in progress reports.
    told = Signal(object)
    #: The `Outcome` of a request that was not dropped.
    ended = Signal(object)
    #: The task was stopped by napari: there will be no outcome.
    stopped = Signal()
    #: A thread has ended, whatever became of its request.
    free = Signal()

    def __init__(
        self,
        parent: QObject,
        work: Callable[[Any, Progress], Any],
        name: str = "",
        *,
        alone: bool = False,
    ):
        super().__init__(parent)
        self._work, self._name, self._alone = work, name, alone
        self._queue: list[tuple[Any, str]] = []
        self.worker: _Worker | None = None  # of the request in progress
        # A list of its own, so that it can be reached when this is gone.
        self._threads = threads = list[_Worker]()
        self.destroyed.connect(lambda _=None: [each.quit() for each in threads])

    @property
    def running(self) -> bool:
        """Whether a request is in progress."""
        return self.worker is not None

    @property
    def busy(self) -> bool:
        """Whether a thread is at work, be it on a request that was dropped."""
        return bool(self._threads)

    @property
    def request(self) -> Any:
        """The request in progress; None if there is none or it was dropped."""
        return None if self.worker is None else self.worker.request

    def start(self, request: Any, name: str = "") -> None:
        """Work on a request, in place of those before; `name` replaces that of the task."""
        self.drop()
        self.proceed([(request, name or self._name)])

    def drop(self) -> None:
        """Leave the request in progress at once, and those that wait; there will be no outcome."""
        self._queue.clear()
        current, self.worker = self.worker, None
        if current is not None:
            current.quit()

    def proceed(self, requests: Iterable[tuple[Any, str]] = ()) -> None:
        """Work on more requests, each with its name, after those before; begin the next one."""
        self._queue += requests
        if self._queue and self.worker is None and not (self._alone and self._threads):
            request, name = self._queue.pop(0)
            given: Any = name, self._work, request
            slots = {"told": self._on_step, "returned": self._on_end, "over": self._on_over}
            options = {"_worker_class": _Worker, "_connect": slots, "_start_thread": False}
            worker = self.worker = create_worker(*given, **options)
            self._threads.append(worker)
            worker.start()

    # Called in the GUI thread.

    def _on_step(self, worker: _Worker, step: Any) -> None:
        if worker is self.worker:
            self.told.emit(step)

    def _on_end(self, end: tuple[_Worker, Outcome]) -> None:
        """Pass the outcome on, and begin the next request."""
        worker, outcome = end
        # Of a request that was dropped the outcome may already be on its way here.
        if worker is self.worker:
            self.worker = None
            if not self._alone:
                self.proceed()
            self.ended.emit(outcome)

    def _on_over(self, worker: _Worker) -> None:
        """Note that a thread has ended, whatever became of its request."""
        self._threads.remove(worker)
        if worker is self.worker:
            self.drop()
            self.stopped.emit()
        self.proceed()
        self.free.emit()
