"""Sigma, the noise standard deviation of an array, as given by the user or estimated."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from napari_gpu_denoise.errors import SigmaError
from napari_gpu_denoise.image.axes import channel_axis
from napari_gpu_denoise.noise.models import NoiseModel
from napari_gpu_denoise.noise.patches.white import SigmaEstimate, estimate_sigma
from napari_gpu_denoise.run.filter import Filter

if TYPE_CHECKING:
    from napari_gpu_denoise.noise.series import PlaneSpectra

# Largest sigma used, in units of the range of an image; and of one of many frames, where the others
# may have a larger range.
_RANGES = 32.0
_RANGES_OF_FRAME = 4096.0


@dataclass(frozen=True)
class Sigma:
    """Noise standard deviation of an array, in its grey levels.

    Attributes
    ----------
    array : ndarray of float64
        Has the axes of the image, each with the length there or 1: it broadcasts to the image. It
        varies along Y and X (a map, the same in all planes but for a factor) or along other axes.
    values, source, notes
        What the record says: one value, one per channel or plane, or the root mean square of a map.
    models : tuple of NoiseModel
        One per channel or one for all; empty if sigma alone describes the noise.
    numbers : ndarray of int, or None
        Index of the model of each pixel, broadcast as `array` is; None if one is for all.
    planes : PlaneSpectra or None
        Spectra of planes that differ in theirs; None if `models` are for all.
    stabilised : bool
        Whether `array` is in units of stabilised values instead of grey levels.
    blank_width : int
        Constant squares of this width are not image and stay as they are; 0 if that was not
        measured or there are none.
    """

    array: np.ndarray
    values: tuple[float, ...]
    source: str
    notes: tuple[str, ...] = ()
    models: tuple[NoiseModel, ...] = ()
    numbers: np.ndarray | None = None
    planes: PlaneSpectra | None = None
    stabilised: bool = False
    blank_width: int = 0


def scaled(sigma: Sigma, factor: float) -> Sigma:
    """Return sigma for a filter that is told so many times the noise; what is said stays."""
    return sigma if factor == 1 else replace(sigma, array=sigma.array * factor)


def varies_within(sigma: np.ndarray, names: str) -> bool:
    """Return whether sigma, as ``Sigma.array``, is a map: whether it varies within a plane."""
    return sigma.shape[names.index("Y")] * sigma.shape[names.index("X")] > 1


def estimated(estimate: SigmaEstimate, image: Any, names: str) -> Sigma:
    """Return an estimate of sigma, placed along the axes of the image."""
    placed = place(np.asarray(estimate.sigma, np.float64), image.shape, names)
    source = f"estimated: {estimate.method}"
    width = estimate.blank_width
    return Sigma(placed, estimate.sigma, source, estimate.notes, blank_width=width)


def resolve_sigma(sigma: Any, image: Any, names: str, filter: Filter | None = None) -> Sigma:
    """Check the sigma that was given to `denoise`, or estimate it if it is None.

    For an image of more than two axes, it may also have as many axes as the image, with length 1
    where it does not vary. If `filter` needs no sigma, 0 only marks pixels to leave as they are.
    """
    unused = filter.sigma_unused if filter else ""
    if unused and sigma is None:
        return Sigma(np.ones((1,) * len(image.shape)), (), unused)
    if sigma is None:
        own = filter.estimate_sigma(image, names) if filter else None
        return estimated(own or estimate_sigma(image, names), image, names)
    try:
        given = np.array(sigma, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise SigmaError(
            f"sigma={sigma!r} is not a number",
            "give one, or None to estimate it",
            code="sigma-value",
        ) from error
    wrong = given[~(np.isfinite(given) & (given >= 0))]
    if wrong.size:
        raise SigmaError(
            f"sigma={wrong[0]:g} is not a standard deviation",
            "give 0 or a positive number in grey levels, or None to estimate it",
            code="sigma-value",
        )
    placed = place(given, image.shape, names)
    if unused:
        return Sigma((placed > 0).astype(np.float64), (), unused)
    if not varies_within(placed, names):
        return Sigma(placed, tuple(given.ravel().tolist()), "given")
    low, high = given.min(), given.max()
    # Relative to the largest value, whose square may overflow float64.
    mean = high * math.sqrt(np.mean((given / high) ** 2)) if high > 0 else 0.0
    return Sigma(placed, (float(mean),), f"given as a map from {low:.4g} to {high:.4g}")


def clamp_sigma(
    found: Sigma, image: np.ndarray, filter: Filter, one_of_many: bool = False
) -> np.ndarray:
    """Return ``found.array``, limited to a multiple of the range of the finite `image`.

    Beyond it, a filter takes everything for noise, whatever sigma is exactly, but its fixed-point
    sums get coarser with sigma. Sigma of stabilised values is not changed.
    """
    sigma = found.array
    if found.stabilised:
        return sigma
    power = filter.sigma_power
    ranges = _RANGES_OF_FRAME if one_of_many else _RANGES

    def highest(pixels: np.ndarray) -> float:
        return ranges * (float(pixels.max()) - float(pixels.min())) ** power

    # Nearly always, a few pixels show that sigma is far below the limit.
    step = max(1, round((image.size / 65536) ** (1 / image.ndim)))
    some = image[(slice(None, None, step),) * image.ndim]
    if sigma.max() <= highest(some):
        return sigma
    most = highest(image)
    return np.minimum(sigma, most) if most > 0 else sigma


def place(given: np.ndarray, shape: tuple[int, ...], names: str) -> np.ndarray:
    """Return sigma as ``Sigma.array`` has it; refuse a shape that does not fit or is ambiguous."""
    if given.size == 1:
        return given.reshape((1,) * len(shape))
    planes = [i for i, a in enumerate(names) if a not in "YX"]
    plane_shape = tuple(shape[i] for i in planes)
    map_shape = (shape[names.index("Y")], shape[names.index("X")])
    found = []
    if given.ndim == 1:
        channel = channel_axis(names)
        longer = [i for i in planes if shape[i] > 1] if channel is None else [channel]
        if len(longer) == 1 and len(given) == shape[longer[0]]:
            found.append(_spread(given, longer, len(shape)))
    elif given.shape == plane_shape:
        found.append(_spread(given, planes, len(shape)))
    if given.shape == map_shape:
        upright = given if names.index("Y") < names.index("X") else given.T
        found.append(_spread(upright, sorted(map(names.index, "YX")), len(shape)))
    if given.ndim == len(shape) > 2:
        varying = "".join(a for n, a in zip(given.shape, names, strict=True) if n > 1)
        one_kind = all(a in "YX" for a in varying) or not set("YX") & set(varying)
        if one_kind and all(n in (1, m) for n, m in zip(given.shape, shape, strict=True)):
            found.append(given)
    if len(found) == 1:
        return found[0]
    if found:
        ones = (1,) * 2
        raise SigmaError(
            f"sigma of shape {given.shape} may be one value for each plane or a map of Y and X, "
            f"for axes {names!r} of lengths {shape}",
            f"reshape it to the number of axes of the image, as {plane_shape + ones} for planes or "
            f"{ones + map_shape} for a map with Y and X last",
        )
    raise _misfit(given, shape, names, plane_shape, map_shape)


def _spread(values: np.ndarray, where: list[int], ndim: int) -> np.ndarray:
    """Return an array of `ndim` axes, with those of `values` at the ascending places `where`."""
    return np.expand_dims(values, tuple(i for i in range(ndim) if i not in where))


def _misfit(given, shape, names, plane_shape, map_shape) -> SigmaError:
    """Return an error that says which shapes of sigma would fit."""
    channel = channel_axis(names)
    count = 1 if channel is None else shape[channel]
    what = f"sigma of shape {given.shape} does not fit"
    if given.ndim == 1:
        what = f"{len(given)} values of sigma were given for {count} channel{'s' * (count != 1)}"
    planes = (
        f", {plane_shape} for one value per plane"
        if len(plane_shape) > (channel is not None)
        else ""
    )
    channels = ", one for each channel" * (channel is not None)
    return SigmaError(
        what,
        f"give one number{channels}{planes}, or a map of shape {map_shape}, for axes {names!r} of "
        f"lengths {shape}",
        code="sigma-shape",
        channels=channels.replace("one", "or one"),
    )
