"""The same filters over dask arrays: each chunk is filtered when it is asked for."""

from __future__ import annotations

import math

import dask.array as da
import numpy as np
from dask.array.overlap import ensure_minimum_chunksize, overlap

from napari_gpu_denoise.axes import (
    Levels,
    arrange,
    channel_axis,
    check_axes,
    check_numbers,
    convert,
    output_dtype,
)
from napari_gpu_denoise.errors import ImageError, NonFiniteError
from napari_gpu_denoise.modelled import levels_for
from napari_gpu_denoise.noise_choice import resolve_noise
from napari_gpu_denoise.opencl.device import Device, choose, find
from napari_gpu_denoise.opencl.program import session
from napari_gpu_denoise.pipeline import Filter
from napari_gpu_denoise.prepare import (
    check_policy,
    extend,
    extend_sigma,
    fill_nonfinite,
    keep_noiseless,
    settings_for,
    unfiltered,
)
from napari_gpu_denoise.sigma import FrameSigma, varies_within
from napari_gpu_denoise.tiles import Span, span_around
from napari_gpu_denoise.video import execute_any, over_time

# NaN and infinity are replaced by the nearest finite pixel of a chunk and this margin around it:
# spots up to twice as wide are filled as in the whole plane.
_FILL_MARGIN = 16


def denoise_lazy(
    array: da.Array,
    settings: Filter,
    sigma=None,
    *,
    noise=None,
    axes: str | None = None,
    dtype=None,
    nonfinite: str = "raise",
    device: Device | int | str | None = None,
) -> da.Array:
    """Denoise a dask array, chunk by chunk, when the result is computed.

    Parameters
    ----------
    array : dask array
        Pixels of any real type, two or more axes, of known shape.
    settings : filter settings
        An object of one of `FILTERS`, such as ``NLMeans(patch=5, step=1)``.
    sigma : float, array_like or None, optional
        Noise standard deviation in grey levels: one value; one a channel (axis C or S); one a
        plane, an array of the shape of the axes other than Y and X; or a map of shape (ny, nx),
        for all planes. None measures the noise at once, as `noise`. Where it is 0 the image comes
        back unchanged.
    noise : NoiseModel, tuple of NoiseModel, NoiseEstimate, str or float, optional
        A model of the noise, as `denoise` takes it, by default ``"auto"`` where `sigma` is not
        given. It is measured at once, from 8 planes of each channel and for time-lapses 16 more,
        which are computed for it; all chunks share the estimate.
    axes : str, optional
        Names of the axes, as ``"TZYX"``; by default the last two are Y and X and the others
        independent planes.
    dtype : data type, optional
        Type of the result; by default that of the array. Integers are rounded and saturated.
    nonfinite : {"raise", "keep"}, optional
        Refuse NaN and infinity, or leave them as they are without letting them spread.
    device : Device, int, str or None, optional
        Where to run; looked up again in each process. By default the best device there is.

    Returns
    -------
    dask array
        Of the same shape; its chunks are those of `array`, but for chunks smaller than the margin
        the filter needs, which are joined with their neighbours, and for channels that it filters
        together, which are all in one chunk.

    Raises
    ------
    AxesError, ImageError, SigmaError, SettingsError
        At once, if the input does not fit.
    NonFiniteError, NoDeviceError, DeviceMemoryError, KernelError
        When the result is computed.

    Notes
    -----
    A chunk is read with the margin that the filter needs, and knows where it lies in the whole, so
    that the result is that of `denoise`: to the last bit for integers of 8 and 16 bits, to the
    rounding of float32 for others, whose offset and scale are removed chunk by chunk. Spots of NaN
    or infinity wider than 32 pixels may be seen differently by pixels beside them. Memory needed
    is that of a few chunks a thread.
    """
    array = da.asarray(array)
    if any(map(math.isnan, array.shape)):
        raise ImageError(
            "The shape of the dask array is unknown: call compute_chunk_sizes() first."
        )
    names = check_axes(axes, array.shape)
    check_numbers(array)
    settings = settings_for(settings, names, array.shape)
    check_policy(nonfinite)
    wanted = output_dtype(dtype, array.dtype)
    settings, found = resolve_noise(sigma, noise, array, names, settings, dtype=wanted)
    spread = found.array

    # What a driver gives is worth nothing in another process: the names of the device are sent.
    sent = (device.name, device.platform, device.index) if isinstance(device, Device) else device
    reach = _reach(settings, names) if spread.any() else {}
    extra = _FILL_MARGIN if nonfinite == "keep" and array.dtype.kind == "f" and reach else 0
    margins = {
        a: (before + extra * (a in "YX"), after + extra * (a in "YX"))
        for a, (before, after) in reach.items()
    }
    together = {channel_axis(names)} if "C" in settings.joint else set()
    if over_time(settings):
        # Frames are compared as a whole: in brightness, and whether there is anything in them.
        together |= {names.index("Y"), names.index("X")}
    array = array.rechunk(_chunks(array, names, margins, settings.smallest, together))
    depth = {
        i: margins[a]
        for i, a in enumerate(names)
        if a in margins and array.numblocks[i] > 1 and any(margins[a])
    }
    return overlap(array, depth, "none", allow_rechunk=False).map_blocks(
        _denoise_block,
        settings=settings,
        sigma=spread,
        numbers=found.numbers,
        names=names,
        reach=reach,
        margins=margins,
        nonfinite=nonfinite,
        out_dtype=wanted,
        device=sent,
        dtype=wanted,
        chunks=array.chunks,
        meta=np.empty((0,) * array.ndim, wanted),
        token=settings.name,
    )


def _reach(settings: Filter, names: str) -> dict[str, tuple[int, int]]:
    """Return how far the filter looks along each axis that it joins."""
    joined = [a for a in names if a in "YX" or (a in "TZ" and a in settings.joint)]
    return {a: getattr(settings.reach, a.lower()) for a in joined}


def _chunks(
    array: da.Array, names: str, margins: dict, smallest: int, together: set[int | None]
) -> tuple:
    """Return chunks that hold their neighbours' margins: those of the array where they do.

    The axes `together` are left whole.
    """
    chunks = []
    for i, (a, length, own) in enumerate(zip(names, array.shape, array.chunks, strict=True)):
        margin = max(margins.get(a, (0, 0)))
        short = i in together or length < max(margin, smallest if a in "YX" else 0)
        chunks.append((length,) if short else ensure_minimum_chunksize(max(margin, 1), own))
    return tuple(chunks)


def _denoise_block(
    block: np.ndarray,
    *,
    settings: Filter,
    sigma: np.ndarray,
    numbers: np.ndarray | None,
    names: str,
    reach: dict[str, tuple[int, int]],
    margins: dict[str, tuple[int, int]],
    nonfinite: str,
    out_dtype: np.dtype,
    device,
    block_info: dict,
) -> np.ndarray:
    """Denoise one chunk, given with its margin."""
    where, shape = block_info[None]["array-location"], block_info[None]["shape"]
    finite, odd = fill_nonfinite(block, names, nonfinite)
    out = np.empty([stop - start for start, stop in where], out_dtype)
    if odd is not None and out_dtype.kind != "f":
        raise NonFiniteError(
            f"NaN and infinity cannot be kept in a result of type {out_dtype}: use dtype='float32'."
        )
    spans, needed, inner, read = {}, [], [], []
    for i, a in enumerate(names):
        if a not in reach:
            needed.append(slice(None))
            inner.append(slice(None))
            read.append(slice(*where[i]))
            continue
        held = span_around(range(*where[i]), margins[a], shape[i])
        spans[a] = span = span_around(range(*where[i]), reach[a], shape[i])
        first = held.source_start
        needed.append(slice(span.source_start - first, span.source_stop - first))
        inner.append(slice(span.start - first, span.stop - first))
        read.append(slice(span.source_start, span.source_stop))
    here = _part(sigma, [slice(*ends) for ends in where])
    if here.any():
        level = float(sigma.max()) if varies_within(sigma, names) else None
        seen = _part(sigma, read)
        models = None if numbers is None else _part(numbers, read)
        part = (finite[tuple(needed)], out, seen, level, models)
        _filter_part(*part, settings, names, spans, device)
        keep_noiseless(unfiltered(settings, finite[tuple(inner)]), out, names, here)
    else:
        Levels.of(finite)  # refuses NaN and infinity
        convert(unfiltered(settings, finite[tuple(inner)]), out)
    if odd is not None:
        kept = odd[tuple(inner)]
        out[kept] = block[tuple(inner)][kept]
    return out


def _part(sigma: np.ndarray, region: list[slice]) -> np.ndarray:
    """Return sigma over a region of the whole; axes along which it does not vary stay."""
    return sigma[
        tuple(part if n > 1 else slice(None) for part, n in zip(region, sigma.shape, strict=True))
    ]


def _filter_part(
    array: np.ndarray,
    out: np.ndarray,
    sigma: np.ndarray,
    level: float | None,
    numbers: np.ndarray | None,
    settings: Filter,
    names: str,
    spans: dict[str, Span],
    device,
) -> None:
    """Filter a part of a larger array; `spans` tells where it lies along the axes it is cut in.

    `level` is the largest sigma of the whole, where it is a map; `numbers` tell which model of
    noise a pixel belongs to, if there are several.
    """
    lengths = [
        spans[a].length if a in spans else n for a, n in zip(names, array.shape, strict=True)
    ]
    # An axis too short for the filter is never cut, and is extended as a whole.
    wide = extend(array, names, lengths, settings.smallest)
    sigma = extend_sigma(sigma, names, lengths, settings.smallest)
    for i, a in enumerate(names):
        if a in "YX" and lengths[i] < settings.smallest:
            spans = {**spans, a: Span.whole(wide.shape[i])}
    read = tuple(spans[a].source_start if a in spans else 0 for a in "TZYX")
    written = tuple(spans[a].start if a in spans else 0 for a in "TZYX")
    source = arrange(wide, names, settings.joint, read)
    # Axes that are not cut: independent frames, side by side, and those the filter does not join.
    rest = map(Span.whole, source.shape[1:])
    chosen = choose(find(*device) if isinstance(device, tuple) else device)
    steps = execute_any(
        source,
        arrange(out, names, settings.joint, written),
        levels_for(settings, array),
        settings,
        FrameSigma.of(sigma, wide.shape, names, settings.joint, read, level, numbers),
        session(chosen),
        part=tuple(spans.get(a, span) for a, span in zip("TZYX", rest, strict=True)),
    )
    for _ in steps:
        pass
