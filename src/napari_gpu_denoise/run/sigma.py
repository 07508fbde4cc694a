"""The noise of an array: sigma as it is given, and as tiles of frames need it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import SigmaError
from napari_gpu_denoise.image.axes import channel_axis
from napari_gpu_denoise.noise.models import NoiseModel
from napari_gpu_denoise.noise.sigma_estimate import SigmaEstimate, estimate_sigma
from napari_gpu_denoise.run.filter import Filter

# A sigma of more than so many ranges of an image is taken as that; where only one of many frames is
# known, others may be of larger range.
_RANGES = 32.0
_RANGES_OF_FRAME = 4096.0


@dataclass(frozen=True)
class Sigma:
    """Noise standard deviation of an array, in its grey levels.

    Attributes
    ----------
    array : ndarray of float64
        Has the axes of the image, each of its length there or of length 1: it broadcasts to the
        image. Varies along Y and X (a map, the same in all planes), or along others, not both.
    values : tuple of float
        For people and records: one value, one a channel, one a plane; of a map the root mean
        square.
    source : str
        Where it comes from.
    notes : tuple of str
        What the user should know of it.
    models : tuple of NoiseModel
        What the noise is, one a channel or one for all; none where sigma says it all.
    numbers : ndarray of int, or None
        Which of several models a pixel belongs to; broadcasts to the image as `array` does. None
        where there is one for all.
    stabilised : bool
        Whether `array` is of what the models make of the image, not of its grey levels.
    """

    array: np.ndarray
    values: tuple[float, ...]
    source: str
    notes: tuple[str, ...] = ()
    models: tuple[NoiseModel, ...] = ()
    numbers: np.ndarray | None = None
    stabilised: bool = False


def varies_within(sigma: np.ndarray, names: str) -> bool:
    """Return whether sigma, as ``Sigma.array``, varies within a plane: whether it is a map."""
    return sigma.shape[names.index("Y")] * sigma.shape[names.index("X")] > 1


def estimated(estimate: SigmaEstimate, image: Any, names: str) -> Sigma:
    """Return an estimate of sigma, placed along the axes of the image."""
    placed = place(np.asarray(estimate.sigma, np.float64), image.shape, names)
    return Sigma(placed, estimate.sigma, f"estimated: {estimate.method}", estimate.notes)


def resolve_sigma(sigma: Any, image: Any, names: str, filter: Filter | None = None) -> Sigma:
    """Check the sigma that was given, or estimate it where it is None.

    Parameters
    ----------
    sigma : float, array_like or None
        One value; one a channel; one a plane, of the shape of the axes other than Y and X; or a
        map of shape (ny, nx) for all planes. Or, for an image of more than two axes, any of these
        with as many axes as the image, of length 1 where it does not vary.
    image : array
        What it belongs to.
    names : str
        Axes of the image, as `check_axes` returns them.
    filter : Filter, optional
        Whose sigma it is. One that needs none learns from it only, by 0, where pixels are to be
        left as they are; None is 1.

    Raises
    ------
    SigmaError
        If it is negative, not finite, or of a shape that does not fit or may mean two things.
    """
    unused = filter.sigma_unused if filter else ""
    if unused and sigma is None:
        return Sigma(np.ones((1,) * len(image.shape)), (), unused)
    if sigma is None:
        own = filter.estimate_sigma(image, names) if filter else None
        return estimated(own or estimate_sigma(image, names), image, names)
    try:
        given = np.array(sigma, dtype=np.float64)
    except (TypeError, ValueError) as error:
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
    # Relative to the largest value, whose square may be beyond the range of float64.
    mean = high * math.sqrt(np.mean((given / high) ** 2)) if high > 0 else 0.0
    return Sigma(placed, (float(mean),), f"given as a map from {low:.4g} to {high:.4g}")


def clamp_sigma(
    found: Sigma, image: np.ndarray, filter: Filter, one_of_many: bool = False
) -> np.ndarray:
    """Return ``found.array``, cut off at a multiple of the range of the image.

    Beyond it a filter takes all there is for noise, whatever sigma is exactly; but what it adds up
    in fixed point is as coarse as sigma is large.

    Parameters
    ----------
    found : Sigma
        Where it is of stabilised values it is left alone.
    image : ndarray
        Finite pixels.
    filter : Filter
        Whose sigma it is.
    one_of_many : bool, optional
        Whether the image is one of many frames.
    """
    sigma = found.array
    if found.stabilised:
        return sigma
    power = filter.sigma_power
    ranges = _RANGES_OF_FRAME if one_of_many else _RANGES

    def highest(pixels: np.ndarray) -> float:
        return ranges * (float(pixels.max()) - float(pixels.min())) ** power

    # A few pixels show that nearly every sigma is far below.
    step = max(1, round((image.size / 65536) ** (1 / image.ndim)))
    some = image[(slice(None, None, step),) * image.ndim]
    if sigma.max() <= highest(some):
        return sigma
    most = highest(image)
    return np.minimum(sigma, most) if most > 0 else sigma


def place(given: np.ndarray, shape: tuple[int, ...], names: str) -> np.ndarray:
    """Return sigma with the axes of the image, each of its length there or of length 1.

    Raises
    ------
    SigmaError
        If its shape does not fit, or may mean two things.
    """
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
            found.append(_spread(given, [longer[0]], len(shape)))
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
            f"reshape it to as many axes as the image has, as {plane_shape + ones} for planes or "
            f"{ones + map_shape} for a map where Y and X are the last ones",
        )
    raise _misfit(given, shape, names, plane_shape, map_shape)


def _spread(values: np.ndarray, where: list[int], ndim: int) -> np.ndarray:
    """Return an array of `ndim` axes, those of `values` at the places `where`, which ascend."""
    return np.expand_dims(values, tuple(i for i in range(ndim) if i not in where))


def _misfit(given, shape, names, plane_shape, map_shape) -> SigmaError:
    """Return an error that says which shapes of sigma would fit."""
    channel = channel_axis(names)
    count = 1 if channel is None else shape[channel]
    what = f"sigma of shape {given.shape} does not fit" if given.ndim != 1 else ""
    what = (
        what or f"{len(given)} values of sigma were given for {count} channel{'s' * (count != 1)}"
    )
    planes = f", {plane_shape} for one a plane" if len(plane_shape) > (channel is not None) else ""
    channels = ", one for each channel" * (channel is not None)
    return SigmaError(
        what,
        f"give one number{channels}{planes}, or a map of shape {map_shape}, for axes {names!r} of "
        f"lengths {shape}",
        code="sigma-shape",
        channels=channels.replace("one", "or one"),
    )
