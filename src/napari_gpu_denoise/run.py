"""Run one filter over one array on one device: tiles, transfers, progress, cancel, provenance."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from napari_gpu_denoise.axes import (
    arrange,
    check_axes,
    check_numbers,
    convert,
    output_dtype,
)
from napari_gpu_denoise.errors import Cancelled, NonFiniteError
from napari_gpu_denoise.modelled import levels_for
from napari_gpu_denoise.noise_choice import resolve_noise
from napari_gpu_denoise.opencl.device import Device, choose
from napari_gpu_denoise.opencl.program import session
from napari_gpu_denoise.pipeline import Filter, Progress
from napari_gpu_denoise.prepare import (
    along_time,
    extend,
    extend_sigma,
    fill_nonfinite,
    keep_noiseless,
    settings_for,
    unfiltered,
    wanted_frames,
)
from napari_gpu_denoise.sigma import FrameSigma, Sigma, from_zero, no_more_than_matters
from napari_gpu_denoise.tiles import Span, span_around
from napari_gpu_denoise.video import execute_any, over_time


@dataclass(frozen=True)
class Record:
    """Where a result comes from.

    Attributes
    ----------
    version : str
        Version of this package.
    filter : str
        Name of the filter.
    settings : dict
        Every setting by name.
    sigma : tuple of float
        Noise standard deviation used, in grey levels: one value, one a channel, or one a plane;
        of a map its root mean square.
    sigma_source : str
        ``"given"``, ``"given as a map from … to …"``, or how it was estimated.
    axes : str
        Axes of the array.
    input_dtype, output_dtype : str
        Types of the pixels.
    device : str
        Device the filter ran on.
    noise : tuple of dict
        The models of noise, one a channel or one for all, as `NoiseModel.from_dict` takes them;
        none where sigma says it all.
    saturated : int
        Values of the result that were clipped to the range of the output type.
    nonfinite : int
        Pixels that were NaN or infinite and were left as they were.
    notes : tuple of str
        What else the user should know.
    date : str
        UTC, ISO 8601.
    """

    version: str
    filter: str
    settings: dict[str, Any]
    sigma: tuple[float, ...]
    sigma_source: str
    axes: str
    input_dtype: str
    output_dtype: str
    device: str
    saturated: int
    nonfinite: int
    notes: tuple[str, ...]
    date: str
    noise: tuple[dict[str, Any], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the record as plain values that JSON can hold."""
        plain = asdict(self)
        plain["sigma"] = list(self.sigma)
        plain["notes"] = list(self.notes)
        plain["noise"] = list(plain["noise"])
        return plain


@dataclass(frozen=True)
class Result:
    """A denoised array and where it comes from."""

    image: np.ndarray
    record: Record


def denoise(
    image,
    settings: Filter,
    sigma: ArrayLike | None = None,
    *,
    noise: Any = None,
    axes: str | None = None,
    frames: int | slice | None = None,
    dtype=None,
    nonfinite: str = "raise",
    device: Device | int | str | None = None,
    memory_limit: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    cancel=None,
) -> Result:
    """Denoise an array.

    Parameters
    ----------
    image : array_like
        Pixels of any real type, two or more axes. Never modified.
    settings : filter settings
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
    dtype : data type, optional
        Type of the result; by default that of the image. Integer results are rounded and
        saturated.
    nonfinite : {"raise", "keep"}, optional
        What to do with NaN and infinity: refuse them, or leave them as they are and filter the
        others, which see the nearest finite pixel of the plane in their place.
    device : Device, int, str or None, optional
        See `napari_gpu_denoise.choose`.
    memory_limit : int, optional
        Largest number of bytes of device memory to use, by default what the device allows.
    progress : callable, optional
        Called as ``progress(done, total)`` with numbers of tiles, or of frames where the filter
        looks at several, in this thread.
    cancel : object with ``is_set()``, optional
        An event; once it is set the next tile raises `Cancelled`.

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
    steps = denoise_steps(
        image,
        settings,
        sigma,
        noise=noise,
        axes=axes,
        frames=frames,
        dtype=dtype,
        nonfinite=nonfinite,
        device=device,
        memory_limit=memory_limit,
    )
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
    image,
    settings: Filter,
    sigma: ArrayLike | None = None,
    *,
    noise: Any = None,
    axes: str | None = None,
    frames: int | slice | None = None,
    dtype=None,
    nonfinite: str = "raise",
    device: Device | int | str | None = None,
    memory_limit: int | None = None,
) -> Generator[Progress, None, Result]:
    """Denoise an array step by step: `denoise` as a generator, for whoever drives it.

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
    array = np.asarray(image)
    names = check_axes(axes, array.shape)
    check_numbers(array)
    applied = settings_for(settings, names, array.shape)
    wanted = wanted_frames(frames, names, array.shape)
    chosen_dtype = output_dtype(dtype, array.dtype)
    chosen = choose(device)
    array, odd = fill_nonfinite(array, names, nonfinite)
    if odd is not None and chosen_dtype.kind != "f":
        raise NonFiniteError(
            f"NaN and infinity cannot be kept in a result of type {chosen_dtype}: use "
            "dtype='float32'."
        )
    levels = levels_for(applied, array)  # refuses NaN and infinity
    running, found = resolve_noise(sigma, noise, array, names, applied, dtype=chosen_dtype)
    if running is not applied:
        same = from_zero(running) == from_zero(applied)
        applied, levels = running, levels_for(running, array, levels if same else None)
    notes = list(found.notes)
    usable = no_more_than_matters(found, array, applied)
    # What comes out, of what goes in: the frames wanted.
    inner = along_time(wanted, names)
    own = found.array[along_time(wanted, names, found.array.shape)]
    kept = array[inner]
    out = np.empty(kept.shape, chosen_dtype)

    if own.any():
        if not over_time(applied):
            # Frames do not see each other: the others are not needed.
            array, usable = kept, usable[along_time(wanted, names, usable.shape)]
            wanted = None
        wide = extend(array, names, array.shape, applied.smallest)
        if wide is not array:
            notes.append(
                f"extended by mirroring to at least {applied.smallest} pixels in Y and X, "
                "then cropped"
            )
        spread = extend_sigma(usable, names, array.shape, applied.smallest)
        source = arrange(wide, names, applied.joint)
        part, origin = None, (0, 0, 0, 0)
        if wanted is not None:
            origin = (wanted.start, 0, 0, 0)
            part = (
                span_around(wanted, applied.reach.t, source.shape[1]),
                *map(Span.whole, source.shape[2:]),
            )
        saturated = yield from execute_any(
            source,
            arrange(out, names, applied.joint, origin),
            levels,
            applied,
            FrameSigma.of(spread, wide.shape, names, applied.joint, numbers=found.numbers),
            session(chosen),
            memory_limit,
            part,
        )
        keep_noiseless(unfiltered(applied, kept), out, names, own)
    else:
        yield Progress(0, 1)
        notes.append("sigma is 0: the image is returned unchanged")
        saturated = convert(unfiltered(applied, kept), out)
        yield Progress(1, 1)
    if odd is not None:
        out[odd[inner]] = np.asarray(image)[inner][odd[inner]]
    record = record_of(
        settings,
        found,
        names,
        (array.dtype, out.dtype),
        chosen,
        saturated=saturated,
        nonfinite=0 if odd is None else int(np.count_nonzero(odd[inner])),
        notes=notes,
    )
    return Result(out, record)


def record_of(
    settings: Filter,
    sigma: Sigma,
    axes: str,
    dtypes: tuple[np.dtype, np.dtype],
    device: Device,
    *,
    saturated: int,
    nonfinite: int,
    notes: Iterable[str],
) -> Record:
    """Return the record of a run that has just ended; `dtypes` are those of input and output."""
    return Record(
        version=package_version(),
        filter=settings.name,
        settings=asdict(settings),
        sigma=sigma.values,
        sigma_source=sigma.source,
        axes=axes,
        input_dtype=str(dtypes[0]),
        output_dtype=str(dtypes[1]),
        device=str(device),
        saturated=saturated,
        nonfinite=nonfinite,
        notes=tuple(notes),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        noise=tuple(model.as_dict() for model in sigma.models),
    )


def package_version() -> str:
    """Return the version of this package."""
    try:
        return version("napari-gpu-denoise")
    except PackageNotFoundError:
        return "unknown"
