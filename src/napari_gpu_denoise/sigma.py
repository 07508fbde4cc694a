"""The noise of an array: sigma as it is given, and as tiles of frames need it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from napari_gpu_denoise.axes import Frames, Levels, arrange, channel_axis
from napari_gpu_denoise.errors import SigmaError
from napari_gpu_denoise.noise.noise_model import NoiseModel
from napari_gpu_denoise.noise.sigma_estimate import SigmaEstimate, estimate_sigma
from napari_gpu_denoise.tiles import Tile

# A sigma of more than so many ranges of an image is taken as that.
_RANGES = 32.0


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


@dataclass(frozen=True)
class FrameSigma:
    """Noise standard deviation of frames, in grey levels, for those who cut them into tiles.

    Attributes
    ----------
    frames : Frames
        Sigma of every pixel, float64, arranged as the pixels are; nothing is copied.
    level : float or None
        Of a map, what it is told relative to: its largest value over the whole array, be the
        frames a part of it or not, so that rounding does not depend on how the array is cut. None
        where sigma does not vary within a plane.
    numbers : Frames or None
        Which of several models of noise a pixel belongs to, arranged as `frames`; None for one.
    """

    frames: Frames
    level: float | None
    numbers: Frames | None = None

    @classmethod
    def of(
        cls,
        sigma: Any,
        shape: tuple[int, ...],
        axes: str,
        joint: str = "",
        origin: tuple[int, int, int, int] = (0, 0, 0, 0),
        level: float | None = None,
        numbers: np.ndarray | None = None,
    ) -> FrameSigma:
        """Arrange sigma as the array it belongs to.

        Parameters
        ----------
        sigma : array_like
            Grey levels; broadcasts to `shape`, as ``Sigma.array`` does.
        shape, axes, joint, origin
            Shape of the array, and what `arrange` was given for it.
        level : float, optional
            Where this is a part of a map, the largest value of the whole.
        numbers : array_like, optional
            As ``Sigma.numbers``.
        """
        sigma = np.asarray(sigma, np.float64)
        frames = arrange(np.broadcast_to(sigma, shape), axes, joint, origin)
        lengths, strides = frames.view.shape[-2:], frames.view.strides[-2:]
        if level is None and any(n > 1 and s for n, s in zip(lengths, strides, strict=True)):
            level = float(sigma.max())
        if numbers is not None:
            numbers = arrange(np.broadcast_to(numbers, shape), axes, joint, origin)
        return cls(frames, level, numbers)

    @property
    def is_map(self) -> bool:
        """Whether sigma varies within a plane; it is then the same in all planes."""
        return self.level is not None

    def levels(self, tile: Tile, scale: float) -> np.ndarray:
        """Return sigma of the frames a tile yields, in units of `scale` grey levels.

        Returns
        -------
        ndarray of float32, shape (channels, nt * nz)
            Of a map, `level` for each frame.
        """
        values = np.array(self.level) if self.is_map else _of_frames(self.frames, tile)
        shape = (tile.channels, tile.t.size * tile.z.size)
        return np.broadcast_to(values / scale, shape).astype(np.float32)

    def models(self, tile: Tile) -> np.ndarray:
        """Return which model of noise each frame has that a tile yields.

        Returns
        -------
        ndarray of int32, shape (channels, nt * nz)
        """
        shape = (tile.channels, tile.t.size * tile.z.size)
        if self.numbers is None:
            return np.zeros(shape, np.int32)
        return _of_frames(self.numbers, tile).astype(np.int32)

    def variation(self, tile: Tile) -> np.ndarray | None:
        """Return the map over what a tile reads, relative to `level`; None where sigma is no map.

        Returns
        -------
        ndarray of float32, shape (source ny, source nx), or None
            From 0 to 1.
        """
        if not self.is_map:
            return None
        spans = (tile.z, tile.y, tile.x)
        region = self.frames.region(*(slice(s.source_start, s.source_stop) for s in spans))
        plane = self.frames.frame(tile.sequence, tile.t.source_start)[region][0]
        return np.ascontiguousarray(plane / self.level, np.float32)


def _of_frames(frames: Frames, tile: Tile) -> np.ndarray:
    """Return the first pixel of each frame that a tile yields, (channels, nt * nz)."""
    values = np.empty((tile.channels, tile.t.size, tile.z.size))
    first = frames.origin[1]
    slices = slice(tile.z.start - first, tile.z.stop - first)
    for c in range(tile.channels):
        for k, t in enumerate(range(tile.t.start, tile.t.stop)):
            values[c, k] = frames.frame(tile.sequence, t, c)[slices, 0, 0]
    return values.reshape(tile.channels, -1)


def varies_within(sigma: np.ndarray, names: str) -> bool:
    """Return whether sigma, as ``Sigma.array``, varies within a plane: whether it is a map."""
    return sigma.shape[names.index("Y")] * sigma.shape[names.index("X")] > 1


def own_noise(settings: Any) -> str | None:
    """Return how a filter says what noise it is set to; None where that is sigma."""
    return getattr(settings, "own_noise", None)


def sigma_unit(settings: Any, levels: Levels) -> float:
    """Return how many units of sigma, of which grey levels have `scale`, kernel values have."""
    return levels.scale ** getattr(settings, "sigma_power", 1.0)


def from_zero(settings: Any) -> bool:
    """Return whether ratios of grey levels tell a filter something, so that 0 must stay 0."""
    return own_noise(settings) is not None or getattr(settings, "from_zero", False)


def own_estimate(settings: Any, image: Any, names: str) -> SigmaEstimate | None:
    """Return sigma as a filter measures it that knows its noise; None where it knows none."""
    own = getattr(settings, "estimate_sigma", None)
    return None if own is None else own(image, names)


def estimated(estimate: SigmaEstimate, image: Any, names: str) -> Sigma:
    """Return an estimate of sigma as filters are told of it."""
    placed = place(np.asarray(estimate.sigma, np.float64), image.shape, names)
    return Sigma(placed, estimate.sigma, f"estimated: {estimate.method}", estimate.notes)


def resolve_sigma(sigma: Any, image: Any, names: str, settings: Any = None) -> Sigma:
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
    settings : filter settings, optional
        Whose sigma it is: those that say themselves what the noise is need none. Sigma then tells
        only, by 0, where nothing is to be done; None is 1.

    Raises
    ------
    SigmaError
        If it is negative, not finite, or of a shape that does not fit or may mean two things.
    """
    told = own_noise(settings)
    if told is not None and sigma is None:
        return Sigma(np.ones((1,) * len(image.shape)), (), told)
    if sigma is None:
        estimate = own_estimate(settings, image, names) or estimate_sigma(image, names)
        return estimated(estimate, image, names)
    try:
        given = np.array(sigma, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise SigmaError(f"sigma={sigma!r} is not a number: give one, or None for auto.") from error
    wrong = given[~(np.isfinite(given) & (given >= 0))]
    if wrong.size:
        raise SigmaError(
            f"sigma={wrong[0]:g} is no standard deviation: give 0 or a positive number in grey "
            "levels, or None to estimate it."
        )
    placed = place(given, image.shape, names)
    if told is not None:
        return Sigma((placed > 0).astype(np.float64), (), told)
    if not varies_within(placed, names):
        return Sigma(placed, tuple(given.ravel().tolist()), "given")
    low, high = given.min(), given.max()
    # Relative to the largest value, whose square may be beyond the range of float64.
    mean = high * math.sqrt(np.mean((given / high) ** 2)) if high > 0 else 0.0
    return Sigma(placed, (float(mean),), f"given as a map from {low:.4g} to {high:.4g}")


def no_more_than_matters(found: Sigma, image: np.ndarray, settings: Any = None) -> np.ndarray:
    """Return ``found.array``, cut off at a multiple of the range of the image.

    Beyond it a filter takes all there is for noise, whatever sigma is exactly; but what it adds up
    in fixed point is as coarse as sigma is large.

    Parameters
    ----------
    found : Sigma
        Where it is of stabilised values it is left alone.
    image : ndarray
        Finite pixels.
    settings : filter settings, optional
        Whose sigma it is.
    """
    sigma = found.array
    if found.stabilised:
        return sigma
    power = getattr(settings, "sigma_power", 1.0)

    def highest(pixels: np.ndarray) -> float:
        return _RANGES * (float(pixels.max()) - float(pixels.min())) ** power

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
            f"for axes {names!r} of lengths {shape}: reshape it to as many axes as the image has, "
            f"as {plane_shape + ones} for planes or {ones + map_shape} for a map where Y and X "
            "are the last ones."
        )
    raise SigmaError(_misfit(given, shape, names, plane_shape, map_shape))


def _spread(values: np.ndarray, where: list[int], ndim: int) -> np.ndarray:
    """Return an array of `ndim` axes, those of `values` at the places `where`, which ascend."""
    return np.expand_dims(values, tuple(i for i in range(ndim) if i not in where))


def _misfit(given, shape, names, plane_shape, map_shape) -> str:
    """Say which shapes of sigma would fit."""
    channel = channel_axis(names)
    count = 1 if channel is None else shape[channel]
    what = f"sigma of shape {given.shape} does not fit" if given.ndim != 1 else ""
    what = what or f"{len(given)} values of sigma were given for {count} channels"
    planes = f", {plane_shape} for one a plane" if len(plane_shape) > (channel is not None) else ""
    return (
        f"{what}, axes {names!r} of lengths {shape}: give one number"
        f"{', one for each channel' if channel is not None else ''}{planes}, or a map of shape "
        f"{map_shape}."
    )
