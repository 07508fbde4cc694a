"""Work off the GUI thread, and its bar in napari's activity dock."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import closing
from functools import partial
from typing import Any

from napari.qt.threading import GeneratorWorker, create_worker
from napari.utils.progress import cancelable_progress

from napari_gpu_denoise._napari.stage import Stage

_BAR_INTERVAL = 0.1  # seconds between two updates of napari's activity bar

#: Takes a request and a function that says whether to stop; yields stages, returns an outcome.
Steps = Callable[[Any, Callable[[], bool]], Generator[Stage, None, Any]]


class Worker(GeneratorWorker):
    """A worker whose generator is closed in its own thread as soon as `quit` is called."""

    def __init__(self, steps: Steps, request: Any):
        self._begin = partial(steps, request, lambda: self.abort_requested)
        super().__init__(steps, request, bool)  # never started: `work` has its own

    def work(self) -> Any:
        """Run to the end, or to the first stage after `quit`."""
        with closing(self._begin()) as running:
            while not self.abort_requested:
                try:
                    stage = next(running)
                except StopIteration as end:
                    if self.abort_requested:
                        break
                    return end.value
                self.yielded.emit(stage)
        self.aborted.emit()
        return None


class _Task(partial):
    """A call with a readable name: napari shows it when it is closed while the call runs."""

    def __new__(cls, steps: Steps, name: str):
        task = super().__new__(cls, steps)
        task.name = name
        return task

    def __repr__(self) -> str:
        return self.name


def new_worker(steps: Steps, request: Any, name: str) -> Worker:
    """Return a worker that is not started; `name` is what napari calls it."""
    return create_worker(_Task(steps, name), request, _start_thread=False, _worker_class=Worker)


class _ActivityBar(cancelable_progress):
    """A bar in napari's activity dock whose Cancel button stops the run."""

    job: Job | None = None

    def cancel(self) -> None:
        """Stop the run this bar shows."""
        super().cancel()
        if self.job is not None:
            self.job.stop()


class Job:
    """A run in progress: its worker, and its bar in napari's activity dock.

    Make it in the GUI thread, connect to `worker`'s signals, then `start`.

    Parameters
    ----------
    steps : callable
        The work.
    request : object
        Its first argument.
    name : str
        Its name in the activity dock.
    """

    def __init__(self, steps: Steps, request: Any, name: str):
        self.worker = new_worker(steps, request, name)
        self._bar = _ActivityBar(total=0, desc=name)
        self._bar.job = self
        self._shown = 0.0
        self._busy = False

    def start(self) -> None:
        """Begin."""
        self.worker.start()

    def stop(self) -> None:
        """Ask the worker to stop after the present part."""
        self.worker.quit()

    def show(self, stage: Stage) -> None:
        """Show progress in the activity dock; call it in the GUI thread."""
        now = time.monotonic()
        # napari's bar handles waiting events at every update, so that this may be called from
        # within itself; without a limit, once for every tile that has piled up.
        if self._bar is None or self._busy or now - self._shown < _BAR_INTERVAL:
            return
        self._busy, self._shown = True, now
        try:
            if self._bar.total != stage.total:
                self._bar.total = stage.total
            self._bar.update(stage.done - self._bar.n)
        finally:
            self._busy = False

    def close(self) -> None:
        """Remove the bar from the activity dock."""
        bar, self._bar = self._bar, None
        if bar is not None:
            bar.job = None
            bar.close()

    def abandon(self) -> None:
        """Stop and close, with no panel left to show anything."""
        self.stop()
        self.close()
