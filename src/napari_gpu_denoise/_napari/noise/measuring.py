"""Noise measured off the GUI thread, always for the latest request."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any

from napari.qt.threading import create_worker
from qtpy.QtCore import QObject, Signal

from napari_gpu_denoise._napari.layers.lazy import LazyArray, is_lazy
from napari_gpu_denoise._napari.layers.regions import Part
from napari_gpu_denoise._napari.layers.source import Source
from napari_gpu_denoise._napari.noise.flat import flat_noise
from napari_gpu_denoise._napari.noise.plots import load_library
from napari_gpu_denoise._napari.stage import Stage
from napari_gpu_denoise._napari.worker import Task, Worker
from napari_gpu_denoise.errors import Cancelled
from napari_gpu_denoise.noise.estimate import estimate_noise
from napari_gpu_denoise.noise.record import NoiseEstimate
from napari_gpu_denoise.opencl.isolation import load_bundled_drivers


@dataclass(frozen=True)
class NoiseRequest:
    """All that a measurement needs: a part of a layer, without alpha, and how to measure it.

    It holds no napari or Qt objects. `axes` are those of the whole layer, `model` and
    `device` as `estimate_noise` takes them. A `flat` part holds no object.
    """

    source: Source
    axes: str
    part: Part
    model: str
    flat: bool
    device: int | str | None


@dataclass(frozen=True)
class Outcome:
    """The end of a measurement: an estimate, or the error that ended it."""

    request: NoiseRequest
    estimate: NoiseEstimate | None = None
    error: Exception | None = None


def measure(
    request: NoiseRequest, stopped: Callable[[], bool] = lambda: False
) -> Generator[Stage, None, Outcome | None]:
    """Measure noise; return None if stopped.

    Lazy data can be stopped before each plane is read; other data do not take long.
    """
    yield Stage("Measuring")
    try:
        load_bundled_drivers()
        load_library()  # not in the GUI thread, when there is something to draw
        data, part = request.source.data, request.part
        data = LazyArray(data, stopped, part.index) if is_lazy(data) else data[part.index]
        if request.flat:
            estimate = flat_noise(data, part.axes, request.model)
        else:
            estimate = estimate_noise(data, part.axes, request.model, device=request.device)
    except Cancelled:
        return None
    except Exception as error:
        return Outcome(request, error=error)
    return Outcome(request, estimate)


class Measuring(QObject):
    """Measures in one thread at a time; a new request replaces any other.

    `steps` is a generator of stages, called as `measure`; `name` is what napari shows of it.
    """

    #: What `steps` returned for the latest request.
    done = Signal(object)
    #: The `Stage` of the latest request.
    staged = Signal(object)

    def __init__(
        self,
        parent: QObject,
        steps: Callable[..., Generator] = measure,
        name: str = "Estimated noise",
    ):
        super().__init__(parent)
        self._task = Task(steps, name)
        # Lists of their own, so that they can be reached when this is gone.
        self._workers: list[Worker] = []
        self._wanted: list[Any] = []
        self.destroyed.connect(partial(_abandon, self._workers, self._wanted))

    def ask(self, request: Any) -> None:
        """Start a measurement, replacing the current one."""
        self.drop()
        self._wanted.append(request)
        self._start()

    def drop(self) -> None:
        """Stop; there will be no outcome."""
        _abandon(self._workers, self._wanted)

    def _start(self) -> None:
        # One that was stopped may still be reading a plane: the next one waits for its end.
        if self._workers or not self._wanted:
            return
        worker = create_worker(
            self._task,
            self._wanted.pop(),
            _worker_class=Worker,
            _connect={"yielded": self._show, "returned": self._tell, "finished": self._end},
        )
        self._workers.append(worker)

    def _show(self, stage: Stage) -> None:
        if not any(each.abort_requested for each in self._workers):
            self.staged.emit(stage)

    def _tell(self, outcome: Any) -> None:
        # The request may have changed when the result was already on its way here.
        if outcome is not None and not any(each.abort_requested for each in self._workers):
            self.done.emit(outcome)

    def _end(self) -> None:
        self._workers.clear()
        self._start()


def _abandon(workers: list[Worker], wanted: list[Any], *_: object) -> None:
    wanted.clear()
    for worker in workers:
        worker.quit()
