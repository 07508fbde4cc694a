"""Work off the GUI thread, and its bar in napari's activity dock."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

from napari.qt.threading import GeneratorWorker
from napari.utils.progress import cancelable_progress

from napari_gpu_denoise._napari.stage import Stage

_BAR_INTERVAL = 0.1  # seconds between two updates of the text in napari's activity dock


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
