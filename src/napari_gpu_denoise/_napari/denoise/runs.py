"""The run of a panel: its worker, and its bar in napari's activity dock."""

from __future__ import annotations

from functools import partial

from napari.qt.threading import create_worker
from qtpy.QtCore import QObject, Signal

from napari_gpu_denoise._napari.denoise.request import Request
from napari_gpu_denoise._napari.denoise.run import Outcome, steps
from napari_gpu_denoise._napari.stage import Stage
from napari_gpu_denoise._napari.worker import ActivityBar, Task, Worker


class Runs(QObject):
    """Runs one request at a time, off the GUI thread; signals come in the GUI thread."""

    #: The `Stage` of the run in progress.
    staged = Signal(object)
    #: The `Outcome` of the run, which is over; not of one that was stopped.
    ended = Signal(object)
    #: The run was stopped in napari's activity dock; there will be no outcome.
    stopped = Signal()

    def __init__(self, parent: QObject):
        super().__init__(parent)
        # At most one; a list of its own, so that it can be reached when this is gone.
        self._bars: list[ActivityBar] = []
        self._request: Request | None = None  # in progress
        self.destroyed.connect(partial(_abandon, self._bars))

    @property
    def running(self) -> bool:
        """Whether a run is in progress."""
        return bool(self._bars)

    @property
    def worker(self) -> Worker | None:
        """The worker of the run in progress."""
        return self._bars[0].worker if self._bars else None

    def start(self, request: Request, name: str) -> None:
        """Start a run; `name` is shown in the activity dock. None may be in progress."""
        bar = ActivityBar(total=0, desc=name)
        bar.on_cancel = self._stop_and_tell
        self._bars.append(bar)
        self._request = request
        # Signals come when this has returned: the worker cannot be too quick for them.
        bar.worker = create_worker(
            Task(steps, name),
            request,
            _worker_class=Worker,
            _connect={
                "yielded": self._on_stage,
                "returned": self._on_outcome,
                "aborted": self._on_aborted,
            },
        )

    def stop(self) -> None:
        """Leave the run in progress at once, if there is one; there will be no outcome.

        Its thread ends by itself: after the current tile, or when the noise is measured.
        """
        self._request = None
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
        if outcome.request is self._request:
            self.stop()
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
