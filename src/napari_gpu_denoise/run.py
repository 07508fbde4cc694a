"""Run one filter over one array on one device: tiles, transfers, progress, cancel, provenance."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from napari_gpu_denoise.axes import (
    CHANNEL_AXES,
    Levels,
    arrange,
    check_axes,
    check_numbers,
    output_dtype,
)
from napari_gpu_denoise.errors import (
    AxesError,
    Cancelled,
    ImageError,
    NonFiniteError,
    SigmaError,
)
from napari_gpu_denoise.noise.estimate import estimate_noise
from napari_gpu_denoise.opencl.device import Device, choose
from napari_gpu_denoise.opencl.program import session
from napari_gpu_denoise.pipeline import Filter, Progress, execute


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
        Noise standard deviation used, in grey levels: one value, or one a channel.
    sigma_source : str
        ``"given"``, or how it was estimated.
    axes : str
        Axes of the array.
    input_dtype, output_dtype : str
        Types of the pixels.
    device : str
        Device the filter ran on.
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

    def as_dict(self) -> dict[str, Any]:
        """Return the record as plain values that JSON can hold."""
        plain = asdict(self)
        plain["sigma"] = list(self.sigma)
        plain["notes"] = list(self.notes)
        return plain


@dataclass(frozen=True)
class Result:
    """A denoised array and where it comes from."""

    image: np.ndarray
    record: Record


def denoise(
    image,
    settings: Filter,
    sigma: float | Iterable[float] | None = None,
    *,
    axes: str | None = None,
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
    sigma : float, sequence of float or None, optional
        Noise standard deviation in grey levels of the image: one value, or one a channel (axis C
        or S). None estimates it. 0 returns the image unchanged.
    axes : str, optional
        Names of the axes, as ``"TZYX"``; by default the last two are Y and X and the others
        independent planes.
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
        Called as ``progress(done, total)`` with numbers of tiles, in this thread.
    cancel : object with ``is_set()``, optional
        An event; once it is set the next tile raises `Cancelled`.

    Returns
    -------
    Result
        ``image``, an array of the shape of the input, and ``record``, its provenance.

    Raises
    ------
    AxesError, ImageError, NonFiniteError, SigmaError
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
        axes=axes,
        dtype=dtype,
        nonfinite=nonfinite,
        device=device,
        memory_limit=memory_limit,
    )
    try:
        while True:
            step = next(steps)
            if progress is not None:
                progress(step.done, step.total)
            if cancel is not None and cancel.is_set():
                raise Cancelled("The run was cancelled: no result was made.")
    except StopIteration as end:
        return end.value
    finally:
        steps.close()


def denoise_steps(
    image,
    settings: Filter,
    sigma: float | Iterable[float] | None = None,
    *,
    axes: str | None = None,
    dtype=None,
    nonfinite: str = "raise",
    device: Device | int | str | None = None,
    memory_limit: int | None = None,
) -> Generator[Progress, None, Result]:
    """Denoise an array step by step: `denoise` as a generator, for whoever drives it.

    Yields
    ------
    Progress
        After each tile; the first one before any work. Closing the generator stops the work.

    Returns
    -------
    Result
        As the value of ``StopIteration``.
    """
    array = np.asarray(image)
    names = check_axes(axes, array.shape)
    check_numbers(array)
    _check_needed_axes(settings, names)
    out = np.empty(array.shape, output_dtype(dtype, array.dtype))
    chosen = choose(device)
    array, odd = _fill_nonfinite(array, names, nonfinite)
    if odd is not None and out.dtype.kind != "f":
        raise NonFiniteError(
            f"NaN and infinity cannot be kept in a result of type {out.dtype}: use dtype='float32'."
        )
    levels = Levels.of(array)
    sigmas, source = _sigma(sigma, array, names)
    notes: list[str] = []

    if any(sigmas):
        wide = _extended(array, names, settings.smallest, notes)
        saturated = yield from execute(
            arrange(wide, names, settings.joint),
            arrange(out, names, settings.joint),
            levels,
            settings,
            sigmas,
            session(chosen),
            memory_limit,
        )
    else:
        yield Progress(0, 1)
        notes.append("sigma is 0: the image is returned unchanged")
        saturated = _convert(array, out)
        yield Progress(1, 1)
    if odd is not None:
        out[odd] = np.asarray(image)[odd]
    record = Record(
        version=package_version(),
        filter=settings.name,
        settings=asdict(settings),
        sigma=sigmas,
        sigma_source=source,
        axes=names,
        input_dtype=str(array.dtype),
        output_dtype=str(out.dtype),
        device=str(chosen),
        saturated=saturated,
        nonfinite=0 if odd is None else int(np.count_nonzero(odd)),
        notes=tuple(notes),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    return Result(out, record)


def package_version() -> str:
    """Return the version of this package."""
    try:
        return version("napari-gpu-denoise")
    except PackageNotFoundError:
        return "unknown"


def _check_needed_axes(settings: Filter, names: str) -> None:
    for spec in fields(settings):
        axis = spec.metadata["needs_axis"]
        if axis and axis not in names and getattr(settings, spec.name) != spec.default:
            raise AxesError(
                f"{spec.name}={getattr(settings, spec.name)} needs an axis {axis}, but the axes are "
                f"{names!r}: name them, as axes='{axis}YX'."
            )


def _sigma(sigma, array: np.ndarray, names: str) -> tuple[tuple[float, ...], str]:
    """Return sigma a channel, or one for all, and where it comes from."""
    if sigma is None:
        estimate = estimate_noise(array, names)
        return tuple(estimate.sigma), f"estimated: {estimate.method}"
    try:
        values = tuple(float(s) for s in np.atleast_1d(np.asarray(sigma, dtype=np.float64)))
    except (TypeError, ValueError) as error:
        raise SigmaError(f"sigma={sigma!r} is not a number: give one, or None for auto.") from error
    for value in values:
        if not (np.isfinite(value) and value >= 0):
            raise SigmaError(
                f"sigma={value:g} is no standard deviation: give 0 or a positive number in grey "
                "levels, or None to estimate it."
            )
    channels = next((array.shape[i] for i, a in enumerate(names) if a in CHANNEL_AXES), 1)
    if len(values) not in (1, channels):
        raise SigmaError(
            f"{len(values)} values of sigma were given for {channels} channels: give one for all "
            "or one for each."
        )
    return values, "given"


def _fill_nonfinite(array: np.ndarray, names: str, policy: str):
    """Return the array with NaN and infinity replaced by the nearest finite pixel, and where.

    The second value is None when all pixels are finite. A plane with no finite pixel becomes 0.
    """
    if policy not in ("raise", "keep"):
        raise ImageError(f"nonfinite={policy!r} is unknown: choose 'raise' or 'keep'.")
    if policy == "raise" or array.dtype.kind != "f":
        return array, None
    odd = ~np.isfinite(array)
    if not odd.any():
        return array, None
    from scipy.ndimage import distance_transform_edt

    filled = array.copy()
    planes, holes = arrange(filled, names), arrange(odd, names)
    for t in range(planes.shape[1]):
        plane, hole = planes.frame(0, t)[0], holes.frame(0, t)[0]
        if hole.all():
            plane[...] = 0
        elif hole.any():
            nearest = distance_transform_edt(hole, return_distances=False, return_indices=True)
            plane[hole] = plane[tuple(nearest)][hole]
    return filled, odd


def _extended(array: np.ndarray, names: str, smallest: int, notes: list[str]) -> np.ndarray:
    """Mirror the end of Y and X where they are shorter than the filter can work on."""
    missing = [
        (0, max(smallest - n, 0) if a in "YX" else 0)
        for a, n in zip(names, array.shape, strict=True)
    ]
    if not any(after for _, after in missing):
        return array
    notes.append(f"extended by mirroring to at least {smallest} pixels in Y and X, then cropped")
    return np.pad(array, missing, mode="symmetric")


def _convert(array: np.ndarray, out: np.ndarray) -> int:
    """Copy unfiltered pixels to the output type; return how many were clipped."""
    if array.dtype.newbyteorder("=") == out.dtype or out.dtype.kind == "f":
        np.copyto(out, array, casting="unsafe")
        return 0
    limits = np.iinfo(out.dtype)
    whole = np.rint(array) if array.dtype.kind == "f" else array
    clipped = int(np.count_nonzero((whole < limits.min) | (whole > limits.max)))
    np.copyto(out, np.clip(whole, limits.min, limits.max), casting="unsafe")
    return clipped
