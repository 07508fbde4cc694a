"""One worker at a time for the latest request."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from napari.qt.threading import create_worker
from qtpy.QtCore import QObject, Signal

from napari_gpu_denoise._napari.tasks import Task, Worker


class Working(QObject):
    """Does one request at a time, off the GUI thread; signals come in the GUI thread.

    `steps` is a generator of stages that returns an outcome with a `request`; `name` is what napari
    shows if it is closed meanwhile.
    """

    #: The outcome of a request that was not dropped.
    done = Signal(object)
    #: The thread has ended, whatever became of the request: the next one may start.
    free = Signal()

    def __init__(self, steps: Callable[..., Generator], name: str, parent: QObject):
        super().__init__(parent)
        self._steps, self._name = steps, name
        self._request: Any = None
        # At most one; a list of its own, so that it can be reached when this is gone.
        self._workers: list[Worker] = []
        self.destroyed.connect(partial(_quit, self._workers))

    @property
    def busy(self) -> bool:
        """Whether a thread is at work, be it on a request that was dropped."""
        return bool(self._workers)

    @property
    def request(self) -> Any:
        """The request in progress, None if there is none or it was dropped."""
        return self._request

    def start(self, request: Any) -> None:
        """Start; no thread may be at work."""
        self._request = request
        worker = create_worker(
            Task(self._steps, self._name),
            request,
            _worker_class=Worker,
            _connect={"returned": self._tell, "finished": self._end},
        )
        self._workers.append(worker)

    def drop(self) -> None:
        """Let go of the request in progress: there will be no outcome.

        Its thread ends by itself, at the next stage.
        """
        self._request = None
        _quit(self._workers)

    def _tell(self, outcome: Any) -> None:
        if outcome is not None and outcome.request is self._request:
            self._request = None
            self.done.emit(outcome)

    def _end(self) -> None:
        self._request = None
        self._workers.clear()
        self.free.emit()


def _quit(workers: list[Worker], *_: object) -> None:
    for worker in workers:
        worker.quit()
