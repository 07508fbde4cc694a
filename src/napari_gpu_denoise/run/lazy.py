"""Denoise dask arrays: each chunk is filtered when it is computed."""

from __future__ import annotations

import math
import multiprocessing
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import dask.array as da
import numpy as np
from dask.array.overlap import ensure_minimum_chunksize, overlap

from napari_gpu_denoise.errors import ImageError
from napari_gpu_denoise.image.axes import channel_axis
from napari_gpu_denoise.image.levels import as_array, check_numbers
from napari_gpu_denoise.noise.structure.remove import Correction
from napari_gpu_denoise.opencl.device import Device, choose_devices, own_device
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.run.input import Input, is_lazy
from napari_gpu_denoise.run.job import Job, start
from napari_gpu_denoise.run.part import Part, filter_part, within
from napari_gpu_denoise.run.request import Run, takes_options


@takes_options()
def denoise_lazy(
    array: da.Array,
    filter: Filter,
    sigma=None,
    **options: Any,
) -> da.Array:
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
        there are several (``"all"``, or a list), each chunk uses the least busy one. A dask worker
        process uses a single device, by default one of the best kind on its machine; the workers of
        a machine take different devices, in turn.
    {memory_limit}

    Returns
    -------
    dask array
        Of the same shape and chunks as `array`, except that chunks smaller than the margin of the
        filter are joined with their neighbours, and channels that are filtered together are in
        one chunk.

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
    time, chunks of up to 256 MiB are filtered together, so that margins are up to an eighth of the
    work: the first frame takes longer, all frames less.
    """
    return lazy_result(array, Run(filter, sigma, **options))


def lazy_result(array: Any, run: Run) -> da.Array:
    """Return the result of a run as a dask array: `denoise_lazy`."""
    given = array if is_lazy(array) else as_array(array)
    check_numbers(given)  # dask fails to chunk what is not numbers
    array = da.asarray(given)
    if any(map(math.isnan, array.shape)):
        raise ImageError(
            "The shape of the dask array is unknown: call compute_chunk_sizes() first."
        )
    array = array.map_blocks(
        _checked, dtype=array.dtype, meta=np.empty((0,) * array.ndim, array.dtype)
    )
    several = list(run.device) if isinstance(run.device, (list, tuple)) else [run.device]
    if not several:
        choose_devices(several)  # refuses it
    # Device handles are invalid in other processes: send names instead.
    sent = [d.address if isinstance(d, Device) else d for d in several]
    # Named, as "", the best device measures the noise, as in `denoise`, if there is one here.
    run = replace(run, device="" if sent[0] is None else sent[0])
    image = Input.of(array, run)
    if image.correction:
        array = _corrected(array, image.correction)
    source = Input(array, image.names)
    job = start(image.adapted(run), source, anywhere=True)
    if run.measures_noise:  # pixels have been read anyway
        job, windows = job.sharing(source.windows()), None
    else:
        windows = np.stack(found) if (found := list(source.windows())) else None
    margins = {}
    for axis, letter in enumerate(job.names):
        margins[axis] = job.margin_along(letter)
    kept = joined_chunks(array.chunks, job.names, job.filter, margins)
    array = array.rechunk(time_blocks(kept, job.names, margins, array.dtype.itemsize))
    depth = {
        axis: both for axis, both in margins.items() if array.numblocks[axis] > 1 and any(both)
    }
    read = overlap(array, depth, "none", allow_rechunk=False) if depth else array  # not a copy
    made = read.map_blocks(
        _denoise_block,
        job=job,
        windows=windows,
        devices=sent,
        margins=margins,
        dtype=job.dtypes[1],
        chunks=array.chunks,
        meta=np.empty((0,) * array.ndim, job.dtypes[1]),
        token=job.filter.name,
    )
    return made.rechunk(kept)


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


def _corrected(array: da.Array, correction: Correction) -> da.Array:
    """Return an array without structured noise."""
    names = correction.names
    whole = {names.index("Y"), names.index("X"), channel_axis(names)} - {None}
    planes = array.rechunk(dict.fromkeys(whole, -1))
    return planes.map_blocks(
        correction.applied, dtype=np.float32, meta=np.empty((0,) * array.ndim, np.float32)
    )


def joined_chunks(
    chunks: Sequence[tuple[int, ...]],
    names: str,
    filter: Filter,
    margins: Mapping[int, tuple[int, int]],
) -> tuple[tuple[int, ...], ...]:
    """Return chunks at least as large as the margins: those given, if they are."""
    uncut, joined = filter.uncut_axes(names), []
    for i, (letter, own) in enumerate(zip(names, chunks, strict=True)):
        margin, length = max(margins[i]), sum(own)
        short = i in uncut or length < max(margin, filter.smallest if letter in "YX" else 0)
        joined.append((length,) if short else ensure_minimum_chunksize(max(margin, 1), own))
    return tuple(joined)


_BLOCK_BYTES = 1 << 28  # of pixels that chunks filtered together read


def time_blocks(
    chunks: Sequence[tuple[int, ...]],
    names: str,
    margins: Mapping[int, tuple[int, int]],
    itemsize: int,
) -> tuple[tuple[int, ...], ...]:
    """Return chunks joined along time until they are eight times as long as their margins."""
    t = names.find("T")
    if t < 0 or not (margin := sum(margins[t])):
        return tuple(chunks)
    sizes = [max(own) + sum(margins[i]) for i, own in enumerate(chunks) if i != t]
    frame = itemsize * math.prod(sizes)
    most, joined = min(8 * margin, _BLOCK_BYTES // frame - margin), [0]
    for length in chunks[t]:
        if joined[-1] and joined[-1] + length > most:
            joined.append(0)
        joined[-1] += length
    return (*chunks[:t], tuple(joined), *chunks[t + 1 :])


def _denoise_block(
    block: np.ndarray,
    *,
    job: Job,
    windows: np.ndarray | None,
    devices: list[Any],
    margins: dict[int, tuple[int, int]],
    block_info: dict,
) -> np.ndarray:
    """Denoise one chunk, given with its margin."""
    job = job if windows is None else job.sharing(windows)
    where = [slice(*ends) for ends in block_info[None]["array-location"]]
    part = Part.of(job, where)
    given = [slice(max(one.start - margins[axis][0], 0), None) for axis, one in enumerate(where)]
    out = np.empty(part.shape, job.dtypes[1])
    pixels = job.block(block)
    with _least_busy(_here(devices)) as device:
        filter_part(job.on(device), part, pixels[within(part.reads, given)], out)
    return out


def _here(sent: list[Any]) -> tuple[Device, ...]:
    """Return the devices of this process that were sent, maybe from another one."""
    wanted = sent if len(sent) > 1 else sent[0]
    return (own_device(wanted),) if _is_worker() else choose_devices(wanted)


def _is_worker() -> bool:
    """Return whether this process is one of several that compute chunks."""
    if multiprocessing.parent_process() is not None:
        return True
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return False
    try:
        distributed.get_worker()
    except ValueError:
        return False
    return True


_busy: Counter[Device] = Counter()  # chunks in progress on each device, in this process
_AT_ONCE = 4  # of them on a device: it is busy, and more threads wait for each other
_done = threading.Condition()


@contextmanager
def _least_busy(devices: tuple[Device, ...]) -> Iterator[Device]:
    """Borrow the device that works on the fewest chunks, once it may take one more."""
    with _done:
        _done.wait_for(lambda: any(_busy[each] < _AT_ONCE for each in devices))
        device = min(devices, key=_busy.__getitem__)
        _busy[device] += 1
    try:
        yield device
    finally:
        with _done:
            _busy[device] -= 1
            _done.notify_all()
