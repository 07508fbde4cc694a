"""Noise measured off the GUI thread, always of what was asked for last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from napari.qt.threading import GeneratorWorker, create_worker
from qtpy.QtCore import QObject, Signal

from napari_gpu_denoise._napari.flat_noise import flat_noise
from napari_gpu_denoise._napari.reading import Planes, is_lazy
from napari_gpu_denoise._napari.regions import Cut, Part
from napari_gpu_denoise.errors import Cancelled
from napari_gpu_denoise.noise.estimate import estimate_noise
from napari_gpu_denoise.noise.noise_estimate import NoiseEstimate
from napari_gpu_denoise.opencl.isolation import load_bundled_drivers


@dataclass(frozen=True)
class Request:
    """What to measure; nothing of it is a napari or Qt object.

    Attributes
    ----------
    data : array-like
        The layer's, of its finest level.
    part : Part
        Where.
    model : str
        As `estimate_noise` takes it.
    flat : bool
        Whether the part holds no object.
    device : int, str or None
        Where to work; None for the best there is.
    alpha : bool
        Whether the last axis of the data is RGBA; of the part it is RGB.
    """

    data: Any = field(repr=False)
    part: Part
    model: str = "auto"
    flat: bool = False
    device: Any = None
    alpha: bool = False


@dataclass(frozen=True)
class Outcome:
    """What came of a request: an estimate, or the error that ended it."""

    request: Request
    estimate: NoiseEstimate | None = None
    error: Exception | None = None


def measure(request: Request, stopped: Callable[[], bool] = lambda: False) -> Outcome | None:
    """Measure noise; returns None when it was stopped.

    Of data that are read from elsewhere that is before a plane is read; others do not take long.
    """
    try:
        load_bundled_drivers()
        data, index = request.data, request.part.index
        data = Cut(Planes(data, stopped, False), index) if is_lazy(data) else data[index]
        if request.flat:
            estimate = flat_noise(data, request.part.axes, request.model)
        else:
            estimate = estimate_noise(data, request.part.axes, request.model, device=request.device)
    except Cancelled:
        return None
    except Exception as error:
        return Outcome(request, error=error)
    return Outcome(request, estimate)


class _Measurement(partial):
    """A call with a readable name: napari shows it when it is closed while the call runs."""

    def __repr__(self) -> str:
        return "Estimated noise"


class _Worker(GeneratorWorker):
    """A worker that can be asked to stop before every plane that is read."""

    def __init__(self, function: Any, request: Request):
        super().__init__(function, request)
        self._request = request

    def work(self) -> Outcome | None:
        """Measure, or end early after `quit`."""
        outcome = (
            None if self.abort_requested else measure(self._request, lambda: self.abort_requested)
        )
        if outcome is None:
            self.aborted.emit()
        return outcome


def _begun(request: Request):
    # napari makes the generator when a worker is made; the worker does its work in `work`.
    yield


class Measuring(QObject):
    """Measures in one thread at a time; a new request takes the place of any other.

    Parameters
    ----------
    parent : QObject
    """

    #: An `Outcome` of the request made last; of earlier ones nothing is heard.
    done = Signal(object)

    def __init__(self, parent: QObject):
        super().__init__(parent)
        # Lists of their own, so that they can be reached when this is gone.
        self._workers: list[_Worker] = []
        self._wanted: list[Request] = []
        self.destroyed.connect(partial(_abandon, self._workers, self._wanted))

    def ask(self, request: Request) -> None:
        """Measure this, and drop what goes on."""
        self.drop()
        self._wanted.append(request)
        self._start()

    def drop(self) -> None:
        """Stop; nothing will be heard of what was asked for."""
        _abandon(self._workers, self._wanted)

    def _start(self) -> None:
        # One that was stopped may still be reading a plane: the next one waits for its end.
        if self._workers or not self._wanted:
            return
        request = self._wanted.pop()
        worker = create_worker(
            _Measurement(_begun), request, _start_thread=False, _worker_class=_Worker
        )
        self._workers.append(worker)
        worker.returned.connect(self._tell)
        worker.finished.connect(self._end)
        worker.start()

    def _tell(self, outcome: Outcome | None) -> None:
        # What was asked for may have changed when the result was already on its way here.
        if outcome is not None and not any(each.abort_requested for each in self._workers):
            self.done.emit(outcome)

    def _end(self) -> None:
        self._workers.clear()
        self._start()


def _abandon(workers: list[_Worker], wanted: list[Request], *_: object) -> None:
    wanted.clear()
    for worker in workers:
        worker.quit()
