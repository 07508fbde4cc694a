"""Denoise an array, in memory or not, in one call or step by step."""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, overload

import numpy as np
from numpy.typing import ArrayLike

from napari_gpu_denoise.errors import AxesError, SettingsError
from napari_gpu_denoise.image.axes import channel_axis
from napari_gpu_denoise.image.levels import output_dtype
from napari_gpu_denoise.image.threads import quiet
from napari_gpu_denoise.opencl.device import Device, choose_devices
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.run import by_parts
from napari_gpu_denoise.run.input import Block, Input
from napari_gpu_denoise.run.job import Job, start, type_with
from napari_gpu_denoise.run.ledger import Ledger
from napari_gpu_denoise.run.part import Part, divide, filter_part, unit_of, with_uncut_axes, within
from napari_gpu_denoise.run.progress import COMPILING, MEASURING, SILENT, Progress, Step
from napari_gpu_denoise.run.record import DeviceReport, Result, warn_of
from napari_gpu_denoise.run.request import Run, takes_options, with_settings

if TYPE_CHECKING:
    from dask.array.core import Array

#: Names of what is yielded of an axis, and its letter.
CUT = {"frames": "T", "slices": "Z", "rows": "Y", "columns": "X"}


@takes_options()
def denoise(
    image,
    filter: Filter,
    sigma: ArrayLike | None = None,
    *,
    frames: int | slice | None = None,
    slices: int | slice | None = None,
    rows: slice | None = None,
    columns: slice | None = None,
    out: Any = None,
    progress: Callable[[int, int], None] | None = None,
    cancel=None,
    **options: Any,
) -> Result:
    """Denoise an array.

    Parameters
    ----------
    image : array_like
        Pixels of any real type, with two or more axes. Never modified. Arrays that are not in
        memory (dask, zarr, anything with
        ``shape``, ``dtype`` and NumPy indexing) are read part by part if `out` is given, else as a
        whole.
    filter : Filter
        An object of one of `FILTERS`, such as ``NLMeans(patch=5, step=1)``.
    sigma : float, array_like or None, optional
        Noise standard deviation in grey levels of the image: one value; one for each channel (axis
        C or S); one for each plane, an array of the shape of the axes other than Y and X; or a map
        of shape (ny, nx), for all planes. None measures the noise (see `noise`). Where it is 0,
        pixels are returned unchanged. Above the range of the image a note says so.
    noise : NoiseModel, tuple of NoiseModel, NoiseEstimate, str or float, optional
        Noise model, for noise that is not described by one sigma:
        ``PoissonGaussian(0.28, 3.1, 14.7)``, ``Rician(6)``, ``Speckle(4)`` and the like, one for
        each channel or one for all; the result of `estimate_noise`; the name of a model, to measure
        its parameters (``"gaussian"``: one sigma for each channel); or ``"auto"``, the default
        without `sigma`, to find the model as well. A number is `sigma`. Variance stabilisation,
        filter and inverse run on the device in one call. If `sigma` is given, it is used instead.
        Constant areas, such as padding, are left out of measurements and returned unchanged.
    axes : str, optional
        Names of the axes, such as ``"TZYX"``. By default the last two are Y and X, the rest
        independent planes.
    frames : int or slice, optional
        Frames along the axis T to return, by default all. The result is the same as for the whole
        video, but only frames that the filter needs are read and filtered. The axis T is kept, even
        for a single frame.
    slices : int or slice, optional
        The same along the axis Z.
    rows : slice, optional
        The same along the axis Y. With `columns` it is a rectangle of all planes. The noise is that
        of the whole image.
    columns : slice, optional
        The same along the axis X.
    {dtype}
    nonfinite : {"raise", "keep"}, optional
        Reject NaN and infinity, or leave these pixels unchanged; for all other pixels they are
        replaced by the nearest finite pixel of the plane.
    {correct}
    {sigma_factor}
    {device}
    {memory_limit}
    out : array or callable, optional
        Array for the result, of its shape: anything with ``shape``, ``dtype`` and NumPy indexing,
        such as a memory map or a zarr array. Without `dtype` the result takes its type. Or a
        function that is called as ``out(shape, dtype)`` and returns such an array. By default a
        new array.
    {progress}

    Returns
    -------
    Result
        ``image``, an array of the shape of the input or of the requested part, and ``record``,
        which describes how it was made.

    Raises
    ------
    {errors}
    """
    run = Run(filter, sigma, **options)
    chosen = {"frames": frames, "slices": slices, "rows": rows, "columns": columns}
    return denoise_image(image, run, out, progress=Progress.of(progress, cancel), **chosen)


@quiet()
def denoise_image(
    image: Any,
    run: Run,
    out: Any = None,
    *,
    ledger: Ledger | None = None,
    progress: Progress = SILENT,
    **chosen: int | slice | None,
) -> Result:
    """Denoise an array; `image`, `out` and what is `chosen` of its axes are those of `denoise`.

    `ledger`, for a result that is written part by part, says what an earlier run has done, and is
    told what is done. `progress` is told before noise is measured, before kernels are compiled,
    before any work, and after each tile or part of the work on frames; steps may repeat.
    """
    resumable, ledger = ledger is not None, ledger or Ledger()
    image = Input.of(image, run, ledger.known("correction"))
    region = wanted_region(image.names, image.given.shape, chosen)
    devices = choose_devices(run.device, *run.uses)
    run = image.adapted(run)
    shape = tuple(one.stop - one.start for one in region)
    if out is not None and not callable(out):
        dtype = None if run.dtype is None else output_dtype(run.dtype, np.dtype(image.array.dtype))
        run = replace(run, dtype=type_with(out, shape, dtype))
    if ledger.known("job") is None and run.measures_noise:
        progress.stage(MEASURING)
    whole = all(one is None for one in chosen.values())
    if whole and (made := run.filter.denoised(image, run, out, ledger, progress)) is not None:
        return Result(made.image, image.noted(made.record))
    run = run.on(devices)
    # A rectangle of many frames is read part by part, too.
    cut = any(chosen.get(name) is not None for name in ("rows", "columns"))
    cut = cut and with_uncut_axes(run.filter, image.names, image.given.shape, region) == region
    in_parts = cut or (out is not None and shape == tuple(image.given.shape))
    if in_parts and (image.lazy or resumable):
        made = _piece_by_piece(image, run, devices, out, ledger, region, progress)
    else:
        made = _at_once(image, run, devices, out, region, progress)
    return Result(made.image, image.noted(made.record))


def _at_once(
    image: Input,
    run: Run,
    devices: Sequence[Device],
    out: Any,
    region: Sequence[slice],
    progress: Progress,
) -> Result:
    """Denoise a region of an image, of which what it depends on is read into memory."""
    shape = tuple(one.stop - one.start for one in region)
    whole = shape == tuple(image.given.shape) or not image.lazy
    pixels = image.block(run.nonfinite) if whole else None
    job = start(run, image, pixels, choose=False)
    if pixels is None:
        job = job.sharing(image.windows(), image.window_levels)
    part = Part.of(job, with_uncut_axes(job.filter, job.names, job.shape, region))
    block = image.block(run.nonfinite, part.reads) if pixels is None else pixels[part.reads]
    if callable(out):
        out = out(shape, job.dtypes[1])
    # Pixels must not be overwritten before they are read.
    apart = isinstance(out, np.ndarray) and not np.may_share_memory(out, block.given)
    made = out if apart and part.shape == shape else np.empty(part.shape, job.dtypes[1])
    progress.stage(COMPILING)
    report = _on_devices(devices, job, part, block, made, progress)
    record = job.record(report, lambda: (block.given[part.inner], made), "")
    if part.shape != shape:
        made = made[within(region, part.yields)]
    if out is not None and made is not out:
        out[...] = made
    return Result(made if out is None else out, record)


def _on_devices(
    devices: Sequence[Device],
    job: Job,
    part: Part,
    block: Block,
    made: np.ndarray,
    progress: Progress,
) -> DeviceReport:
    """Filter a part in memory on one device, or cut for several."""
    # Where devices differ, the more parts there are, the less the slowest delays the others.
    each = 1 if len({device.name for device in devices}) == 1 else 4
    parts = divide(job, part, len(devices), each) if len(devices) > 1 else [part]
    if len(parts) == 1:
        tally = filter_part(job, part, block, made, progress)
        return DeviceReport(tally, {devices[0]: devices[0]})
    work = by_parts.PartWork(
        job,
        parts,
        lambda one: block[within(one.reads, part.reads)],
        lambda one: made[within(one.yields, part.yields)],
    )
    return by_parts.filter_parts(devices, work, progress)


def _piece_by_piece(
    image: Input,
    run: Run,
    devices: Sequence[Device],
    out: Any,
    ledger: Ledger,
    region: Sequence[slice],
    progress: Progress,
) -> Result:
    """Denoise a region of an array that is not in memory, frame by frame or part by part."""
    if image.correction is not None:
        ledger.keep("correction", image.correction)
    if (known := ledger.known("job")) is None:
        job = start(run, image, choose=False).sharing(image.windows())
        ledger.keep("job", (job.dtypes, job.filter, job.sigma, job.levels))
    else:
        job = Job(run, image.names, tuple(image.array.shape), *known)
    shape = tuple(one.stop - one.start for one in region)
    out = np.empty if out is None else out
    made = out(shape, job.dtypes[1]) if callable(out) else out
    series = "T" in job.names and unit_of(image.array) is None and len(devices) == 1
    if series and shape == job.shape:
        return by_parts.denoise_series(image.array, job, made, ledger, progress)
    return by_parts.denoise_parts(image.array, job, made, devices, ledger, progress, region)


def wanted_region(
    names: str, shape: tuple[int, ...], chosen: Mapping[str, int | slice | None]
) -> list[slice]:
    """Return the region of an array to yield: what is chosen of the axes in `CUT`, or all."""
    region = [slice(0, n) for n in shape]
    for name, wanted in chosen.items():
        if wanted is None:
            continue
        axis = CUT[name]
        if axis not in names:
            raise AxesError(
                f"{name}={wanted} needs an axis {axis}, but the axes are {names!r}",
                f"name them, as axes='{axis}YX'",
                code="axis-needed",
                axis=axis,
            )
        place = names.index(axis)
        region[place] = _span(wanted, shape[place], name, axis)
    return region


def _span(wanted: int | slice, count: int, name: str, axis: str) -> slice:
    """Return the wanted ones of `count` frames or slices as a slice with both ends."""
    try:
        if isinstance(wanted, slice):
            places = range(*wanted.indices(count))
        else:
            start = operator.index(wanted)
            start += count * (start < 0)
            places = range(start, start + (not isinstance(wanted, bool)))
    except (TypeError, ValueError):  # ValueError: a step of 0
        places = range(0)
    if not places or places.step != 1 or places.start < 0 or places.stop > count:
        raise AxesError(
            f"{name}={wanted} selects none of the {count} {name} along {axis}, or {name} that are "
            "not consecutive: give a number from 0, or a slice without a step."
        )
    return slice(places.start, places.stop)


@quiet()
def shown_maps(
    image: Any, run: Run, shown: Sequence[str], progress: Progress, **chosen: int | slice | None
) -> dict[str, np.ndarray]:
    """Make maps, float32, by the values of the setting `show`.

    `chosen` is as in `wanted_region`. Channels that are joined share a map. It is 0 where the image
    is not finite or has no noise.
    """
    image = Input.of(image, run)
    region = wanted_region(image.names, image.given.shape, chosen)
    whole = image.block(run.nonfinite)
    # The noise is measured once, for all maps.
    job = start(replace(run, dtype=np.float32), image, whole)
    maps: dict[str, np.ndarray] = {}
    for number, show in enumerate(shown):
        one = replace(job, filter=replace(job.filter, **{"show": show}))
        part = Part.of(one, with_uncut_axes(one.filter, one.names, one.shape, region))
        values = np.empty(part.shape, np.float32)

        def among_all(step: Step, number: int = number) -> Step:
            return Step(number * step.total + step.done, len(shown) * step.total, step.unit)

        filter_part(one, part, whole[part.reads], values, progress.within(among_all))
        mask = whole[part.yields].nonfinite_mask
        if mask is not None:
            values[mask] = 0
        values = values[within(region, part.yields)]
        # Joined channels share one map; channels without noise hold 0.
        joined = channel_axis(job.names) if "C" in one.filter.joint else None
        maps[show] = values if joined is None else values.max(axis=joined)
    return maps


class DenoiseFunction(Protocol):
    """The public function of a filter."""

    @overload
    def __call__(self, image: Array, sigma: ArrayLike | None = None, **given: Any) -> Array: ...

    @overload
    def __call__(
        self, image: ArrayLike, sigma: ArrayLike | None = None, **given: Any
    ) -> np.ndarray: ...


def filter_function(kind: type[Filter]) -> Callable[[Callable[[], None]], DenoiseFunction]:
    """Return a decorator that makes the public function of a filter from its name and docstring.

    The function takes an image, sigma, the options of a run and every setting by name, and returns
    the pixels alone. Of a dask array it makes another, see `denoise_lazy`.
    """

    def decorate(named: Callable[[], None]) -> DenoiseFunction:
        @functools.wraps(named)
        def call(
            image: Any,
            sigma: ArrayLike | None = None,
            *,
            progress: Callable[[int, int], None] | None = None,
            cancel: Any = None,
            **given: Any,
        ) -> Any:
            run = Run.of(kind, sigma, given)
            dask = sys.modules.get("dask.array")  # only then is it one of dask
            if dask is not None and isinstance(image, dask.Array):
                if progress is not None or cancel is not None:
                    raise SettingsError(
                        "A dask array is filtered when the result is computed: leave out "
                        "progress= and cancel=, and use those of dask."
                    )
                from napari_gpu_denoise.run.lazy import lazy_result

                return lazy_result(image, run)
            result = denoise_image(image, run, progress=Progress.of(progress, cancel))
            record = result.record
            warn_of(record.notes, sigma is None, record.saturated, record.output_dtype)
            return result.image

        del call.__wrapped__  # its signature is not that of the filter
        call.__annotations__ = {"return": "np.ndarray"}
        return with_settings(kind)(call)

    return decorate
