"""The run of a panel: its worker, and its bar in napari's activity dock."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial

from napari.qt.threading import create_worker
from qtpy.QtCore import QObject, Signal

from napari_gpu_denoise._napari.denoise.run import Outcome, Request, steps
from napari_gpu_denoise._napari.tasks import ActivityBar, Stage, Task, Worker


class Runs(QObject):
    """Runs requests one after another, off the GUI thread; signals come in the GUI thread.

    `work` makes the steps of a request.
    """

    #: The `Stage` of the run in progress.
    staged = Signal(object)
    #: The `Outcome` of a run, which is over; not of one that was stopped.
    ended = Signal(object)
    #: The runs were stopped in napari's activity dock; there will be no outcome.
    stopped = Signal()

    def __init__(self, parent: QObject, work: Callable[..., Generator] = steps):
        super().__init__(parent)
        self._work = work
        # At most one; a list of its own, so that it can be reached when this is gone.
        self._bars: list[ActivityBar] = []
        self._request: Request | None = None  # in progress
        self._waiting: list[tuple[Request, str]] = []
        self._count = self._ended = self._failed = 0  # of the runs that were started together
        self.destroyed.connect(partial(_abandon, self._bars))

    @property
    def running(self) -> bool:
        """Whether a run is in progress."""
        return bool(self._bars)

    @property
    def worker(self) -> Worker | None:
        """The worker of the run in progress."""
        return self._bars[0].worker if self._bars else None

    @property
    def place(self) -> str:
        """Which of several runs is in progress, such as ``"2 of 3: "``; empty for a single one."""
        number = self._count - len(self._waiting)
        return f"{number} of {self._count}: " if self._count > 1 else ""

    @property
    def cancelled(self) -> str:
        """What to say of runs that were stopped."""
        before = self._ended
        if not before:
            return "Cancelled: no layer was added."
        return f"Cancelled after {before} of {self._count} runs, whose results stay."

    @property
    def summary(self) -> str:
        """What to say at the end of several runs; empty for a single one."""
        done = self._ended - self._failed
        if self._count < 2:
            return ""
        if self._failed:
            return f"{done} of {self._count} layers done, {self._failed} failed."
        return f"{done} layers done."

    def start_all(self, requests: Sequence[tuple[Request, str]]) -> None:
        """Start runs one after another, each with its name; none may be in progress."""
        (first, name), *self._waiting = requests
        self._count, self._ended, self._failed = len(requests), 0, 0
        self._start(first, name)

    def start(self, request: Request, name: str) -> None:
        """Start a run; `name` is shown in the activity dock. None may be in progress."""
        self.start_all([(request, name)])

    def _start(self, request: Request, name: str) -> None:
        bar = ActivityBar(total=0, desc=name)
        bar.on_cancel = self._stop_and_tell
        self._bars.append(bar)
        self._request = request
        # Signals come when this has returned: the worker cannot be too quick for them.
        bar.worker = create_worker(
            Task(self._work, name),
            request,
            _worker_class=Worker,
            _connect={
                "yielded": self._on_stage,
                "returned": self._on_outcome,
                "aborted": self._on_aborted,
            },
        )

    def stop(self) -> None:
        """Leave the run in progress at once, and those that wait; there will be no outcome.

        Its thread ends by itself: after the current tile, or when the noise is measured.
        """
        self._request = None
        self._waiting.clear()
        _abandon(self._bars)

    def _stop_and_tell(self) -> None:
        self.stop()
        self.stopped.emit()

    def _on_stage(self, stage: Stage) -> None:
        if self._bars:
            self._bars[0].show(stage)
            self.staged.emit(stage)

    def _on_outcome(self, outcome: Outcome) -> None:
        # Of a run that was stopped the result may already be on its way here.
        if outcome.request is not self._request:
            return
        waiting = list(self._waiting)
        self._ended += 1
        self._failed += outcome.error is not None
        self.stop()
        if waiting:
            (request, name), *self._waiting = waiting
            self._start(request, name)
        self.ended.emit(outcome)

    def _on_aborted(self) -> None:
        # Also of a run that was stopped before this one.
        if any(bar.worker.abort_requested for bar in self._bars):
            self._stop_and_tell()


def _abandon(bars: list[ActivityBar], *_: object) -> None:
    """Stop the run, if it has not ended, and close its bar."""
    while bars:
        bar = bars.pop()
        bar.worker.quit()
        bar.close()
