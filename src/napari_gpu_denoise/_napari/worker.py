"""One run off the GUI thread: read the data, filter it tile by tile, tell how far it is."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from napari.qt.threading import GeneratorWorker, create_worker
from napari.utils.progress import cancelable_progress

from napari_gpu_denoise import run
from napari_gpu_denoise.opencl.isolation import load_bundled_drivers
from napari_gpu_denoise.prepare import put_together

_SLAB = 16_000_000  # bytes read at a time from arrays without chunks
_BAR_INTERVAL = 0.1  # seconds between two updates of napari's activity bar


@dataclass(frozen=True)
class Request:
    """All that a run needs; nothing of it is a napari or Qt object.

    Attributes
    ----------
    data : array-like
        What to filter: NumPy, dask, zarr, anything that can be sliced.
    settings : dataclass instance
        An entry of FILTERS, filled in.
    sigma : float, tuple of float or None
        None to estimate.
    axes, dtype, nonfinite, device, memory_limit
        As `run.denoise_steps` takes them.
    alpha : bool
        Whether the last axis is RGBA: alpha then passes as it is.
    """

    data: Any = field(repr=False)
    settings: Any
    sigma: float | tuple[float, ...] | None
    axes: str
    dtype: str | None
    nonfinite: str
    device: Any
    memory_limit: int | None
    alpha: bool = False


@dataclass(frozen=True)
class Stage:
    """How far a run is: what it does, `done` of `total` parts; a total of 0 is not known yet."""

    text: str
    done: int = 0
    total: int = 0


@dataclass(frozen=True)
class Outcome:
    """What a run came to: a result, or the error that ended it."""

    seconds: float
    result: run.Result | None = None
    error: Exception | None = None


def steps(request: Request) -> Generator[Stage, None, Outcome]:
    """Do a run; yields after every part, so that it can be stopped there.

    Errors are returned, not raised: superqt takes a RuntimeError out of a generator for the
    deletion of the worker, and would then never say that it has finished.
    """
    started = time.perf_counter()
    load_bundled_drivers()
    try:
        image = yield from _load(request.data)
        yield Stage("Preparing")
        filtering = run.denoise_steps(
            image[..., :3] if request.alpha else image,
            request.settings,
            request.sigma,
            axes=request.axes,
            dtype=request.dtype,
            nonfinite=request.nonfinite,
            device=request.device,
            memory_limit=request.memory_limit,
        )
        with closing(filtering):
            result = yield from _stages(filtering)
        if request.alpha:
            whole = put_together(result.image, np.s_[..., :3], image, np.s_[..., 3:])
            result = replace(result, image=whole)
    except Exception as error:
        return Outcome(time.perf_counter() - started, error=error)
    return Outcome(time.perf_counter() - started, result)


def _stages(filtering: Generator) -> Generator[Stage, None, run.Result]:
    while True:
        try:
            progress = next(filtering)
        except StopIteration as end:
            return end.value
        yield Stage("Denoising: tile", progress.done, progress.total)


def _load(data: Any) -> Generator[Stage, None, np.ndarray]:
    """Bring lazy data into memory, chunk by chunk."""
    if isinstance(data, np.ndarray):
        return data
    blocks = list(_blocks(data))
    image = np.empty(data.shape, data.dtype)
    for done, block in enumerate(blocks):
        yield Stage("Reading: chunk", done, len(blocks))
        image[block] = np.asarray(data[block])
    return image


def _blocks(data: Any) -> Iterator[tuple[slice, ...]]:
    """Slices that follow the chunks of dask, zarr and HDF5 arrays; slabs of anything else."""
    chunks = getattr(data, "chunks", None)
    if chunks is None:
        row = math.prod(data.shape[1:]) * np.dtype(data.dtype).itemsize
        chunks = (max(1, _SLAB // max(row, 1)), *data.shape[1:])
    along = []
    for length, chunk in zip(data.shape, chunks, strict=True):
        sizes = (chunk,) * -(-length // max(chunk, 1)) if isinstance(chunk, int) else chunk
        stops = list(itertools.accumulate(sizes))
        along.append([slice(a, min(b, length)) for a, b in itertools.pairwise([0, *stops])])
    return itertools.product(*along)


class DenoiseWorker(GeneratorWorker):
    """A worker whose generator is closed in its own thread as soon as a stop is asked for."""

    def __init__(self, function, request: Request):
        super().__init__(function, request)
        self._request = request

    def work(self) -> Outcome | None:
        """Run to the end, or to the first part after `quit`."""
        with closing(steps(self._request)) as running:
            while not self.abort_requested:
                try:
                    stage = next(running)
                except StopIteration as end:
                    return end.value
                self.yielded.emit(stage)
        self.aborted.emit()
        return None


class _ActivityBar(cancelable_progress):
    """A bar in napari's activity dock whose Cancel button stops the run."""

    job: Job | None = None

    def cancel(self) -> None:
        """Stop the run this bar shows."""
        super().cancel()
        if self.job is not None:
            self.job.stop()


class _Task(partial):
    """A call with a readable name: napari shows it when it is closed while the call runs."""

    def __new__(cls, function, name: str):
        task = super().__new__(cls, function)
        task.name = name
        return task

    def __repr__(self) -> str:
        return self.name


class Job:
    """A run in progress: its worker, and its bar in napari's activity dock.

    Make it in the GUI thread, connect to `worker`'s signals, then `start`.

    Parameters
    ----------
    request : Request
        What to do.
    name : str
        What the activity dock calls it.
    """

    def __init__(self, request: Request, name: str):
        self.worker = create_worker(
            _Task(steps, name), request, _start_thread=False, _worker_class=DenoiseWorker
        )
        self._bar = _ActivityBar(total=0, desc=name)
        self._bar.job = self
        self._shown = 0.0
        self._busy = False

    def start(self) -> None:
        """Begin."""
        self.worker.start()

    def stop(self) -> None:
        """Ask the worker to stop after the part it is at."""
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
        """Take the bar out of the activity dock."""
        bar, self._bar = self._bar, None
        if bar is not None:
            bar.job = None
            bar.close()

    def abandon(self, *_: object) -> None:
        """Stop and tidy up, with no one left to be told."""
        self.stop()
        self.close()
