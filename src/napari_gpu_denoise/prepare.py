"""What is checked and changed in an array before the kernels see it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import NamedTuple

import numpy as np

from napari_gpu_denoise.axes import CHANNEL_AXES, arrange
from napari_gpu_denoise.errors import AxesError, ImageError, SigmaError
from napari_gpu_denoise.noise.estimate import estimate_noise
from napari_gpu_denoise.pipeline import Filter


def settings_for(settings: Filter, names: str, shape: tuple[int, ...]) -> Filter:
    """Return the settings that apply to an array.

    Those that look along an axis are set to their defaults where that axis has length 1: the
    result is the same as without the axis, to the last bit.

    Raises
    ------
    AxesError
        If a setting looks along an axis that the array does not have.
    """
    unused = {}
    for spec in fields(settings):
        axis, value = spec.metadata["needs_axis"], getattr(settings, spec.name)
        if axis is None or value == spec.default:
            continue
        if axis not in names:
            raise AxesError(
                f"{spec.name}={value} needs an axis {axis}, but the axes are {names!r}: name them, "
                f"as axes='{axis}YX'."
            )
        if shape[names.index(axis)] == 1:
            unused[spec.name] = spec.default
    return replace(settings, **unused)


class ResolvedSigma(NamedTuple):
    """Sigma a channel, or one for all, where it comes from, and what the user should know of it."""

    values: tuple[float, ...]
    source: str
    notes: tuple[str, ...] = ()


def resolve_sigma(sigma, array, names: str) -> ResolvedSigma:
    """Check the sigma that was given, or estimate it where it is None.

    Raises
    ------
    SigmaError
        If it is negative, not finite, or of the wrong length.
    """
    if sigma is None:
        estimate = estimate_noise(array, names)
        return ResolvedSigma(estimate.sigma, f"estimated: {estimate.method}", estimate.notes)
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
    return ResolvedSigma(values, "given")


def check_policy(nonfinite: str) -> None:
    """Refuse an unknown policy for NaN and infinity.

    Raises
    ------
    ImageError
    """
    if nonfinite not in ("raise", "keep"):
        raise ImageError(f"nonfinite={nonfinite!r} is unknown: choose 'raise' or 'keep'.")


def fill_nonfinite(array: np.ndarray, names: str, policy: str):
    """Return the array with NaN and infinity replaced by the nearest finite pixel, and where.

    The second value is None when all pixels are finite. A plane with no finite pixel becomes 0.
    """
    check_policy(policy)
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


def extend(array: np.ndarray, names: str, lengths: Iterable[int], smallest: int) -> np.ndarray:
    """Mirror the end of Y and X where they are shorter than the filter can work on."""
    missing = [
        (0, max(smallest - n, 0) if a in "YX" else 0) for a, n in zip(names, lengths, strict=True)
    ]
    if not any(after for _, after in missing):
        return array
    return np.pad(array, missing, mode="symmetric")


def convert(array: np.ndarray, out: np.ndarray) -> int:
    """Copy unfiltered pixels to the output type; return how many were clipped."""
    if array.dtype.newbyteorder("=") == out.dtype or out.dtype.kind == "f":
        np.copyto(out, array, casting="unsafe")
        return 0
    limits = np.iinfo(out.dtype)
    whole = np.rint(array.astype(np.float64)) if array.dtype.kind == "f" else array
    # The next float above the largest 64-bit integers is the first one out of range.
    past = whole.dtype.kind == "f" and float(limits.max) > limits.max
    below, above = whole < limits.min, whole >= limits.max if past else whole > limits.max
    np.copyto(out, whole, casting="unsafe", where=~(below | above))
    out[below] = limits.min
    out[above] = limits.max
    return int(np.count_nonzero(below | above))


def keep_noiseless(array: np.ndarray, out: np.ndarray, names: str, sigmas: tuple[float, ...]):
    """Copy the channels whose sigma is 0 to the output: there is nothing to filter in them."""
    for channel, sigma in enumerate(sigmas):
        if sigma == 0:
            axis = next(i for i, a in enumerate(names) if a in CHANNEL_AXES)
            index = (slice(None),) * axis + (channel,)
            convert(array[index], out[index])
