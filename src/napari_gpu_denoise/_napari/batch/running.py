"""A batch off the GUI thread: its steps, which can be paused and stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from napari.qt.threading import create_worker
from qtpy.QtCore import QObject, Signal

from napari_gpu_denoise._napari.tasks import ActivityBar, Stage, Task, Worker
from napari_gpu_denoise.errors import Cancelled
from napari_gpu_denoise.files.batch import (
    Batch,
    BatchProgress,
    BatchReport,
    FileReport,
    batch_steps,
)
from napari_gpu_denoise.opencl.isolation import load_bundled_drivers
from napari_gpu_denoise.opencl.several import choose_devices

_PAUSE = 0.05  # seconds between two looks whether a pause is over


@dataclass(frozen=True)
class BatchRequest:
    """Files to denoise, those of `only`; `paused` and `stopping` are set from the GUI thread."""

    batch: Batch
    only: frozenset[Path]
    paused: threading.Event = field(default_factory=threading.Event)
    stopping: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class Outcome:
    """The end of a batch: its report, or the error that ended it."""

    request: BatchRequest
    report: BatchReport | None = None
    error: Exception | None = None


def steps(
    request: BatchRequest, stopped: Callable[[], bool] = lambda: False
) -> Generator[BatchProgress | FileReport, None, Outcome | None]:
    """Denoise files; yields as `batch_steps`. Errors are returned, as in `denoise.run`."""
    try:
        load_bundled_drivers()
        batch = request.batch
        run = replace(batch.run, device=choose_devices(batch.run.device))
        with closing(batch_steps(replace(batch, run=run), request.only)) as running:
            step = next(running)
            while True:
                yield step
                while request.paused.is_set() and not request.stopping.is_set():
                    if stopped():
                        return None
                    time.sleep(_PAUSE)
                if request.stopping.is_set():
                    running.throw(Cancelled("The batch was stopped."))
                step = next(running)
    except StopIteration as end:
        return Outcome(request, end.value)
    except Exception as error:
        return Outcome(request, error=error)


class BatchRun(QObject):
    """Runs a batch; signals come in the GUI thread."""

    #: The `BatchProgress` of a file.
    moved = Signal(object)
    #: The `FileReport` of a file.
    filed = Signal(object)
    #: The `Outcome`.
    ended = Signal(object)

    def __init__(self, parent: QObject):
        super().__init__(parent)
        # At most one; a list of its own, so that it can be reached when this is gone.
        self._bars: list[ActivityBar] = []
        self._request: BatchRequest | None = None
        self.destroyed.connect(partial(_abandon, self._bars))

    @property
    def running(self) -> bool:
        """Whether a batch is in progress, also while it is paused."""
        return self._request is not None

    @property
    def paused(self) -> bool:
        """Whether it is paused, or will be at its next step."""
        return self.running and self._request.paused.is_set()

    @property
    def stopping(self) -> bool:
        """Whether it ends at its next step."""
        return self.running and self._request.stopping.is_set()

    def start(self, request: BatchRequest, name: str) -> None:
        """Start a batch; `name` is shown in the activity dock. None may be in progress."""
        bar = ActivityBar(total=0, desc=name)
        bar.on_cancel = self.stop
        self._bars.append(bar)
        self._request = request
        bar.worker = create_worker(
            Task(steps, name),
            request,
            _worker_class=Worker,
            _connect={
                "yielded": self._on_step,
                "returned": self._on_outcome,
                "aborted": self._on_aborted,
            },
        )

    def pause(self, wanted: bool) -> None:
        """Pause at the next step, or resume."""
        if self.running:
            event = self._request.paused
            event.set() if wanted else event.clear()

    def stop(self) -> None:
        """Stop at the next step; an outcome follows."""
        if self.running:
            self._request.stopping.set()

    def leave(self) -> None:
        """Stop at the next step, without an outcome; what is done is kept."""
        self._request = None
        _abandon(self._bars)

    def _on_step(self, step: BatchProgress | FileReport) -> None:
        if not self.running:
            return
        if isinstance(step, BatchProgress):
            self._bars[0].show(Stage(step.path.name, step.index + 1, step.count))
            self.moved.emit(step)
        else:
            self.filed.emit(step)

    def _on_outcome(self, outcome: Outcome | None) -> None:
        # Of a batch that was left the outcome may already be on its way here.
        if outcome is not None and outcome.request is self._request:
            self.leave()
            self.ended.emit(outcome)

    def _on_aborted(self) -> None:
        # By napari's activity dock, or as napari is closed.
        if any(bar.worker.abort_requested for bar in self._bars):
            request = self._request
            self.leave()
            self.ended.emit(Outcome(request, BatchReport((), cancelled=True)))


def _abandon(bars: list[ActivityBar], *_: object) -> None:
    """Stop the batch, if it has not ended, and close its bar."""
    while bars:
        bar = bars.pop()
        bar.worker.quit()
        bar.close()
