"""Denoise dask arrays: each chunk is filtered when it is computed."""

from __future__ import annotations

import itertools
import math
import multiprocessing
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from operator import getitem
from queue import SimpleQueue
from typing import Any

import dask.array as da
import numpy as np
from dask.array.core import Array
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

from napari_gpu_denoise.errors import ImageError
from napari_gpu_denoise.image.axes import channel_axis
from napari_gpu_denoise.image.levels import readable
from napari_gpu_denoise.image.threads import in_bands
from napari_gpu_denoise.noise.structure.remove import Correction
from napari_gpu_denoise.opencl.device import Device, choose_devices, own_device
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.run.input import Input
from napari_gpu_denoise.run.job import Job, start
from napari_gpu_denoise.run.part import Part, filter_part, with_uncut_axes, within
from napari_gpu_denoise.run.record import NO_NOISE, DeviceReport, warn_of
from napari_gpu_denoise.run.request import Run, takes_options


@takes_options()
def denoise_lazy(
    array: Array,
    filter: Filter,
    sigma=None,
    **options: Any,
) -> Array:
    """Denoise a dask array, chunk by chunk, when the result is computed.

    The functions of the filters, such as `bm3d`, do this for dask arrays. This function also
    accepts other arrays and your own filters.

    Parameters
    ----------
    array : dask array
        Pixels of any real type, two or more axes, of known shape.
    filter : Filter
        An object of one of `FILTERS`, such as ``NLMeans(patch=5, step=1)``.
    {sigma}
    noise : NoiseModel, tuple of NoiseModel, NoiseEstimate, str or float, optional
        Noise model, as in `denoise`; ``"auto"`` is the default without `sigma`. Noise is measured
        at once, because the type of the result and the margins of the chunks depend on it. This
        computes 8 planes of each channel, 16 more for time-lapses, and up to 32 along each axis of
        planes; all chunks share the estimate. With `sigma`, with models, or with a result of
        `estimate_noise`, nothing is computed, except the pixels that a filter chooses settings by:
        six frames by VBM3D, unless `window_nearest` is given.
    axes : str, optional
        Names of the axes, such as ``"TZYX"``. By default the last two are Y and X, the rest
        independent planes.
    {dtype}
    {nonfinite}
    {correct}
    {sigma_factor}
    device : Device, int, str, sequence or None, optional
        Where to run; looked up again in each process. By default the best device available. If
        there are several (``"all"``, or a list), each chunk uses one that is free. A dask worker
        process uses a single device, by default one of the best kind on its machine; the workers of
        a machine take different devices, in turn.
    {memory_limit}

    Returns
    -------
    dask array
        Of the same shape and chunks as `array`, except that chunks smaller than the margin of the
        filter are joined with their neighbours, but along time, and channels that are filtered
        together are in one chunk.

    Raises
    ------
    AxesError, ImageError, SigmaError, SettingsError
        At once, if the input does not fit.
    NonFiniteError, NoDeviceError, DeviceMemoryError, KernelError
        When the result is computed.

    Notes
    -----
    Chunks are read with the margin that the filter needs, so the result is identical to that of
    `denoise`. Of types other than integers of 8 and 16 bits, a window of 512 pixels in the middle
    is read for the offset and scale of all chunks, without measured noise once in each computation;
    if it has one grey level only, or a chunk is far beyond its levels, this chunk has its own, and
    results are identical up to float32 rounding. Results next to spots of NaN or infinity
    wider than 32 pixels may differ. The memory needed is a few chunks per thread. By filters over
    time, chunks that are computed at once are filtered together, up to 256 MiB, so that margins are
    up to an eighth of the work; of a single frame its chunk and the margins are filtered. Warnings
    are those of `bm3d` and the like: of noise at once, of the result when it is computed.
    """
    return lazy_result(array, Run(filter, sigma, **options))


def lazy_result(array: Any, run: Run) -> Array:
    """Return the result of a run as a dask array: `denoise_lazy`."""
    array = da.asarray(readable(array))  # dask fails to chunk what is not numbers
    if any(map(math.isnan, array.shape)):
        raise ImageError(
            "The shape of the dask array is unknown: call compute_chunk_sizes() first."
        )
    array = array.map_blocks(
        _checked, dtype=array.dtype, meta=np.empty((0,) * array.ndim, array.dtype)
    )
    several = list(run.device) if isinstance(run.device, (list, tuple)) else [run.device]
    if not several:
        choose_devices(())  # refuses it
    # Device handles are invalid in other processes: send names instead.
    sent = [d.address if isinstance(d, Device) else d for d in several]
    # Named, as "", the best device measures the noise, as in `denoise`, if there is one here.
    run = replace(run, device="" if sent[0] is None else sent[0])
    image = Input.of(array, run)
    if image.correction:
        array = _corrected(array, image.correction)
    source = Input(array, image.names)
    job = start(image.adapted(run), source, choose=False)
    warn_of([*job.sigma.notes, *[NO_NOISE] * (not job.noisy)], run.measures_noise, level=4)
    if run.measures_noise:  # pixels have been read anyway
        job, others = job.sharing(source.windows()), []
    else:
        others = [one.rechunk(-1) for one in source.windows()]
    windows = [(one.name, *(0,) * one.ndim) for one in others]
    name = f"{job.filter.name}-{tokenize(array.name, job, sent)}"
    layer = Blocks(name, job, sent, array.name, array.chunks, windows)
    graph = HighLevelGraph.from_collections(name, layer, [array, *others])
    return Array(graph, name, array.chunks, meta=np.empty((0,) * array.ndim, job.dtypes[1]))


def _checked(block: Any, block_info: dict) -> Any:
    """Return a chunk; dask takes whatever the function gives that makes it, and cuts what it likes.

    Pixels of a larger one would be lost without a word.
    """
    declared = tuple(stop - start for start, stop in block_info[0]["array-location"])
    if np.shape(block) != declared:
        raise ImageError(
            f"A chunk of the dask array has the shape {np.shape(block)}, but {declared} is "
            "declared: give the function that makes it the right chunks."
        )
    return block


def _corrected(array: Any, correction: Correction) -> Array:
    """Return an array without structured noise."""
    names = correction.names
    whole = {names.index("Y"), names.index("X"), channel_axis(names)} - {None}
    planes = array.rechunk(dict.fromkeys(whole, -1))
    return planes.map_blocks(
        correction.applied, dtype=np.float32, meta=np.empty((0,) * array.ndim, np.float32)
    )


_BLOCK_BYTES = 1 << 28  # of pixels that chunks filtered together read, about


@dataclass(eq=False)
class Blocks(MaterializedLayer):
    """The chunks of a result, and the blocks of neighbouring chunks that are filtered together.

    dask asks a layer for the tasks that are needed: where all chunks are, margins are a small part
    of what is filtered, and for a single one no more is filtered than its margins. `source` names
    the array; `windows` are the keys of what levels are chosen from.
    """

    name: str
    job: Job
    devices: list[Any]
    source: str
    chunks: Sequence[tuple[int, ...]]
    windows: list[tuple]

    def __post_init__(self) -> None:
        job, names, self._blocks = self.job, self.job.names, []  # lengths of blocks along each axis
        uncut = job.filter.uncut_axes(names)
        held = [n if i in uncut else max(self.chunks[i]) for i, n in enumerate(job.shape)]
        frame = math.prod(n for a, n in zip(names, held, strict=True) if a != "T")
        for i, letter in enumerate(names):
            most = margin = sum(job.margins[i])
            if letter == "T":
                most = min(8 * margin, _BLOCK_BYTES // (frame * job.dtypes[0].itemsize) - margin)
            self._blocks.append(held[i] if i in uncut else max(most, 1))
        # Where chunks begin along each axis, and the last one ends.
        self._ends = [list(itertools.accumulate(own, initial=0)) for own in self.chunks]
        indices = itertools.product(*(range(len(own)) for own in self.chunks))
        super().__init__(self._tasks((self.name, *index) for index in indices)[0])

    def cull(self, keys: set, all_hlg_keys: Any) -> tuple[MaterializedLayer, dict]:
        """Return the tasks for some keys, and the keys that each of them needs."""
        tasks, needed = self._tasks(k for k in self.mapping.keys() & keys if k[0] == self.name)
        return MaterializedLayer(tasks, self.annotations), needed

    def _tasks(self, keys: Iterable[tuple]) -> tuple[dict, dict]:
        tasks, needed = {}, {}
        for _, some in itertools.groupby(sorted(keys, key=self._block_of), self._block_of):
            chunks = list(some)
            job, region = self.job, self._region(*chunks)
            region = with_uncut_axes(job.filter, job.names, job.shape, region)
            block = f"{self.name}-block", *(end for one in region for end in (one.start, one.stop))
            for key in chunks:
                tasks[key] = getitem, block, within(self._region(key), region)
                needed[key] = {block}
            part = Part.of(job, region)
            pieces = list(itertools.product(*map(_pieces, self._ends, part.reads)))
            read = [(self.source, *(k for k, _ in piece)) for piece in pieces]
            places = [tuple(place for _, place in piece) for piece in pieces]
            function = partial(_denoise_block, job, self.devices, part, places)
            tasks[block], needed[block] = (function, read, self.windows), {*read, *self.windows}
        return tasks, needed

    def _block_of(self, key: tuple) -> list[int]:
        each = zip(key[1:], self._ends, self._blocks, strict=True)
        return [ends[k] // length for k, ends, length in each]

    def _region(self, *keys: tuple) -> list[slice]:
        """Return the region that spans some chunks."""
        along = zip(self._ends, *(key[1:] for key in keys), strict=True)
        return [slice(ends[min(some)], ends[max(some) + 1]) for ends, *some in along]


def _pieces(ends: list[int], read: slice) -> list[tuple[int, slice]]:
    """Return which chunks along an axis hold what is read, and where they lie."""
    some = range(bisect_right(ends, read.start) - 1, bisect_left(ends, read.stop))
    return [(k, slice(ends[k], ends[k + 1])) for k in some]


def _denoise_block(
    job: Job,
    devices: list[Any],
    part: Part,
    places: list[tuple[slice, ...]],
    chunks: list[np.ndarray],
    windows: list[np.ndarray],
) -> np.ndarray:
    """Denoise a part of an array, of which the chunks that it reads lie at some places."""
    if 0 in part.shape:
        return np.empty(part.shape, job.dtypes[1])
    job = job.sharing(windows) if windows else job
    free = _free(_here(devices))
    device = free.get()
    try:
        pixels = job.block(_joined(chunks, places, part.reads))
        out = np.empty(part.shape, job.dtypes[1])
        tally = filter_part(job.on(device), part, pixels, out)
    finally:
        free.put(device)
    middle = all(one.start <= one.length // 2 < one.stop for one in part.spans)
    if middle or tally.saturated:
        made = job.record(DeviceReport(tally), lambda: (pixels.given[part.inner], out), "")
        warn_of(made.notes, False, tally.saturated, out.dtype)
    return out


def _joined(
    chunks: list[np.ndarray], places: list[tuple[slice, ...]], region: tuple[slice, ...]
) -> np.ndarray:
    """Return a region of an array from the chunks at some places; one chunk is not copied."""
    if len(chunks) == 1:
        return chunks[0][within(region, places[0])]
    pixels = np.empty([one.stop - one.start for one in region], chunks[0].dtype)
    for chunk, place in zip(chunks, places, strict=True):
        both = zip(place, region, strict=True)
        common = [slice(max(a.start, b.start), min(a.stop, b.stop)) for a, b in both]
        in_bands(np.copyto, pixels[within(common, region)], chunk[within(common, place)])
    return pixels


def _here(sent: list[Any]) -> tuple[Device, ...]:
    """Return the devices of this process that were sent, maybe from another one."""
    wanted = sent if len(sent) > 1 else sent[0]
    return (own_device(wanted),) if _is_worker() else choose_devices(wanted)


def _is_worker() -> bool:
    """Return whether this process is one of several that compute chunks."""
    if multiprocessing.parent_process() is not None:
        return True
    with suppress(KeyError, ValueError):
        return bool(sys.modules["distributed"].get_worker())
    return False


_AT_ONCE = 4  # blocks in progress on a device: it is busy, and more threads wait for each other


@cache
def _free(devices: tuple[Device, ...]) -> SimpleQueue:
    """Return the devices of this process that may take a block, the one free for longest."""
    free: SimpleQueue = SimpleQueue()
    for device in devices * _AT_ONCE:
        free.put(device)
    return free
