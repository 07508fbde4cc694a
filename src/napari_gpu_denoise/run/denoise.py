"""Denoise an array, in memory or not: `denoise`, and the same step by step."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from napari_gpu_denoise.errors import AxesError, Cancelled, ImageError
from napari_gpu_denoise.image.axes import check_axes
from napari_gpu_denoise.image.levels import check_numbers, output_dtype
from napari_gpu_denoise.opencl.device import Device, choose
from napari_gpu_denoise.run.block import Block
from napari_gpu_denoise.run.filter import Filter
from napari_gpu_denoise.run.job import Part, Run, prepare
from napari_gpu_denoise.run.long_series import denoise_series
from napari_gpu_denoise.run.part import filter_part
from napari_gpu_denoise.run.public import documented
from napari_gpu_denoise.run.record import Progress, Result


@documented
def denoise(
    image,
    filter: Filter,
    sigma: ArrayLike | None = None,
    *,
    noise: Any = None,
    axes: str | None = None,
    frames: int | slice | None = None,
    dtype=None,
    nonfinite: str = "raise",
    device: Device | int | str | None = None,
    memory_limit: int | None = None,
    out: Any = None,
    progress: Callable[[int, int], None] | None = None,
    cancel=None,
) -> Result:
    """Denoise an array.

    Parameters
    ----------
    image : array_like
        Pixels of any real type, two or more axes. Never modified. Arrays that are not in memory
        (dask, zarr, anything with ``shape``, ``dtype`` and NumPy indexing) are read frame by frame
        along T where `out` is given, else whole.
    filter : Filter
        An object of one of `FILTERS`, such as ``NLMeans(patch=5, step=1)``.
    sigma : float, array_like or None, optional
        Noise standard deviation in grey levels of the image. One value; one a channel (axis C or
        S); one a plane, an array of the shape of the axes other than Y and X; or a map of shape
        (ny, nx), for all planes. None measures the noise (see `noise`). Where it is 0 the image
        comes back unchanged; above 32 times the range of the image it is taken as that.
    noise : NoiseModel, tuple of NoiseModel, NoiseEstimate, str or float, optional
        What the noise is, where it is not of one sigma: a model such as ``PoissonGaussian(0.28,
        3.1, 14.7)``, ``Rician(6)`` or ``Speckle(4)``, one a channel or one for all; what
        `estimate_noise` returned; ``"auto"``, the default where `sigma` is not given, to measure
        which it is; the name of a model, to measure its parameters (``"gaussian"``: one sigma a
        channel); a number is `sigma`. Forward transform, filter and inverse then run on the device
        in one go. A sigma that is given wins.
    axes : str, optional
        Names of the axes, as ``"TZYX"``; by default the last two are Y and X and the others
        independent planes.
    frames : int or slice, optional
        Which frames along the axis T are wanted, by default all. Their pixels are those of the
        whole result; only what the filter looks at around them is read and filtered. The axis T
        stays, also for one frame.
    {dtype}
    nonfinite : {"raise", "keep"}, optional
        What to do with NaN and infinity: refuse them, or leave them as they are and filter the
        others, which see the nearest finite pixel of the plane in their place.
    {device}
    {memory_limit}
    out : array, optional
        Takes the result: anything with ``shape``, ``dtype`` and NumPy indexing, such as a memory
        map or a zarr array, of the shape and type of the result. By default a new array.
    {progress}

    Returns
    -------
    Result
        ``image``, an array of the shape of the input or with `frames` of these, and ``record``, its
        provenance.

    Raises
    ------
    AxesError, ImageError, NonFiniteError, SigmaError, SettingsError
        If the input does not fit.
    NoDeviceError, DeviceMemoryError, KernelError
        If the device does not.
    Cancelled
        If `cancel` was set.
    """
    run = Run(filter, sigma, noise, axes, dtype, nonfinite, device, memory_limit)
    return drive(image, run, frames=frames, out=out, progress=progress, cancel=cancel)


def drive(
    image: Any,
    run: Run,
    *,
    frames: int | slice | None = None,
    out: Any = None,
    progress: Callable[[int, int], None] | None = None,
    cancel: Any = None,
) -> Result:
    """Do a run to its end; the arguments are those of `denoise`.

    Raises
    ------
    Cancelled
        If `cancel` was set.
    DenoiseError
        Whatever `denoise` raises.
    """
    steps = denoise_steps(image, run, frames, out)
    told = None
    try:
        while True:
            step = next(steps)
            if progress is not None and step != told:
                progress(step.done, step.total)
            told = step
            if cancel is not None and cancel.is_set():
                raise Cancelled("The run was cancelled: no result was made.")
    except StopIteration as end:
        return end.value
    finally:
        steps.close()


def denoise_steps(
    image: Any, run: Run, frames: int | slice | None = None, out: Any = None
) -> Generator[Progress, None, Result]:
    """Denoise an array step by step: `denoise` as a generator.

    Parameters
    ----------
    image : array
        As `denoise` takes it.
    run : Run
        What to do with it.
    frames : int or slice, optional
        As `denoise` takes them.
    out : array, optional
        As `denoise` takes it.

    Yields
    ------
    Progress
        After each tile, or each part of the work on frames; the first one before any work. It may
        say the same again. Closing the generator stops the work.

    Returns
    -------
    Result
        As the value of ``StopIteration``.
    """
    lazy = is_lazy(image)
    array = image if lazy else np.asarray(image)
    names = check_axes(run.axes, array.shape)
    check_numbers(array)
    wanted = wanted_frames(frames, names, array.shape)
    dtype = output_dtype(run.dtype, np.dtype(array.dtype))
    run = replace(run, device=choose(run.device), axes=names)
    region = [slice(0, n) for n in array.shape]
    if wanted is not None:
        region[names.index("T")] = slice(wanted.start, wanted.stop)
    shape = tuple(one.stop - one.start for one in region)
    check_out(out, shape, dtype)
    if wanted is None and lazy and out is not None and "T" in names:
        return (yield from denoise_series(array, run, out))
    if lazy and wanted is not None:
        job = prepare(run, array)
        part = Part.of(job, region)
        block = Block.of(np.asarray(array[part.reads]), names, run.nonfinite)
    else:
        whole = Block.of(np.asarray(array[...]), names, run.nonfinite)
        job = prepare(run, whole)
        part = Part.of(job, region)
        block = whole[part.reads]
    # Nothing is written over pixels that are still to be read.
    direct = isinstance(out, np.ndarray) and not np.may_share_memory(out, block.given)
    made = out if direct else np.empty(shape, dtype)
    tally = yield from filter_part(job, part, block, made)
    if out is not None and made is not out:
        out[...] = made
    return Result(made if out is None else out, job.record(tally))


def check_out(out: Any, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Refuse a place for the result that has another shape or type.

    Raises
    ------
    ImageError
    """
    if out is None:
        return
    held = tuple(out.shape), np.dtype(out.dtype).newbyteorder("=")
    if held != (shape, dtype):
        raise ImageError(
            f"out= is of shape {held[0]} and type {held[1]}, the result of {shape} and {dtype}",
            "give an array of that shape and type, or name its type by dtype=",
        )


def is_lazy(image: Any) -> bool:
    """Return whether an array is not in memory: it is read by NumPy indexing, part by part."""
    indexed = all(hasattr(image, name) for name in ("shape", "dtype", "__getitem__"))
    return indexed and not isinstance(image, (np.ndarray, np.generic))


def wanted_frames(frames: int | slice | None, names: str, shape: tuple[int, ...]) -> range | None:
    """Return which frames along T are wanted; None for all.

    Raises
    ------
    AxesError
        If there is no axis T, or no such frames.
    """
    if frames is None:
        return None
    if "T" not in names:
        raise AxesError(
            f"frames={frames} needs an axis T, but the axes are {names!r}",
            "name them, as axes='TYX'",
            code="axis-needed",
            axis="T",
        )
    count = shape[names.index("T")]
    if isinstance(frames, slice):
        found = range(*frames.indices(count))
    else:
        found = (
            range(frames, frames + 1) if frames >= 0 else range(count + frames, count + frames + 1)
        )
    if not found or found.step != 1 or found.start < 0 or found.stop > count:
        raise AxesError(
            f"frames={frames} names none of the {count} frames along T, or not all between two: "
            "give a number from 0, or a slice without a step."
        )
    return found
