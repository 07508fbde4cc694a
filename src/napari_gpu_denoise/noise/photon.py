"""Photon and read noise of a sensor, from single images.

A line is fitted to the noise at levels of brightness. The power of texture falls with frequency,
that of white noise does not: what the middle frequencies have more than the top ones is texture.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from napari_gpu_denoise.noise import limits
from napari_gpu_denoise.noise.patches.coefficients import compared_bands
from napari_gpu_denoise.noise.patches.spectra import PatchSpectra
from napari_gpu_denoise.noise.patches.variance import MEMBERS, VarianceCurve
from napari_gpu_denoise.noise.robust import huber_weights, median_power

# The line of photon and read noise through variances at levels of brightness.
FLOOR = 0.02  # lowest variance used for a weight, as a share of the median variance
SYSTEMATIC = 0.01  # relative error of a variance that more pixels do not reduce


@dataclass(frozen=True)
class PhotonNoise:
    """Photon and read noise: variance = gain * mean + intercept."""

    gain: float  # grey levels per electron; near 0 where noise does not grow with brightness
    gain_error: float
    intercept: float  # variance at grey level 0; negative where the camera adds an offset
    offset: float  # grey level of no light: where the line reaches 0, if 0 is not it
    read_noise: float  # standard deviation at `offset`, in grey levels
    read_noise_error: float  # half its range, where a larger offset and more of it fit as well
    curve: VarianceCurve  # that the line was fitted to
    method: str  # in words

    @property
    def grows(self) -> bool:
        """Whether noise clearly grows with brightness."""
        level, _ = self.curve.fitted
        if not self.significant or len(level) < 2:
            return False
        dark, bright = self.gain * level[[0, -1]] + self.intercept
        return bool(bright > limits.MIN_VARIANCE_GROWTH * max(dark, 0.0))

    @property
    def significant(self) -> bool:
        """Whether the gain is clearly above 0."""
        return self.gain > limits.MIN_ERRORS_ABOVE * self.gain_error

    @property
    def most_offset(self) -> float:
        """The largest offset that fits as well, with more read noise: that of the darkest level."""
        return max(min(self.curve.mean), self.offset) if self.offset else 0.0


def weighted_line(
    x: np.ndarray, y: np.ndarray, error: np.ndarray
) -> tuple[float, float, np.ndarray]:
    """Fit y = gain * x + intercept, given the standard error of y, above 0.

    Returns gain (0 where all x are the same), intercept, and their covariance (2, 2).
    """
    weight = 1 / np.maximum(np.square(error), 1e-300)
    total = float(weight.sum()) or 1e-300  # of the largest float64 no weight is left
    centre, middle = float(weight @ x) / total, float(weight @ y) / total
    spread = float(weight @ np.square(x - centre))
    some = spread > 1e-18 * total * max(centre**2, 1e-300)
    slope = 1 / spread if some else 0.0
    gain = float((weight * (x - centre)) @ (y - middle)) * slope
    covariance = np.array(
        [[slope, -centre * slope], [-centre * slope, 1 / total + centre**2 * slope]]
    )
    return gain, middle - gain * centre, covariance


def line_values(x: np.ndarray, gain: float, intercept: float, least: float) -> np.ndarray:
    """Return the line at x, kept above 0 so that it can serve for weights."""
    return np.maximum(gain * x + intercept, least)


def robust_line(
    x: np.ndarray, y: np.ndarray, error: np.ndarray, upward: float
) -> tuple[float, float, np.ndarray, np.ndarray]:
    """Fit a line that single points do not tilt; `error` is relative to the line.

    Points count less from `upward` standard errors above the line, and from three times as many
    below it, as texture and motion only ever raise a variance. Returns gain, intercept, their
    covariance, scaled up where points scatter more than `error` suggests, and the points used.
    """
    least = FLOOR * float(np.median(y)) or 1e-300
    weight, spread = np.ones(len(x)), error * least
    for _ in range(20):
        gain, intercept, covariance = weighted_line(x, y, spread / weight)
        line = line_values(x, gain, intercept, least)
        spread = line * error
        distance = (y - line) / spread
        weight = huber_weights(distance, upward, 3 * upward)
    scatter = max(1.0, math.sqrt(float(np.square(weight * distance).mean())))  # pyright: ignore[reportPossiblyUnboundVariable]
    return gain, intercept, np.multiply(covariance, scatter**2), np.abs(distance) <= 4 * scatter  # pyright: ignore[reportPossiblyUnboundVariable]


def photon_noise(
    levels: tuple[np.ndarray, np.ndarray, np.ndarray],
    error: np.ndarray,
    used: np.ndarray,
    upward: float,
    method: str,
) -> PhotonNoise:
    """Return the noise of a line fitted to the mean, variance and count of the `used` levels.

    `error` and `upward` are as in `robust_line`. One line does not tell an offset from read noise:
    unless 0 can be the level without light, the offset is the smallest that fits.
    """
    mean, variance, _ = levels
    gain, intercept, covariance, fitted = 0.0, 0.0, np.zeros((2, 2)), used.copy()
    if variance[used].any():
        gain, intercept, covariance, fitted[used] = robust_line(
            mean[used], variance[used], error[used], upward
        )
    curve = VarianceCurve(*(tuple(each.tolist()) for each in (*levels, fitted)))
    # Levels below 0 by more than a quarter of sigma there: something was subtracted.
    shifted = min(curve.mean, default=0.0) < -0.25 * math.sqrt(max(intercept, 0.0))
    if gain > 0 and (intercept < 0 or shifted):
        # No level is darker than that without light.
        offset, read = min(-intercept / gain, min(curve.mean)), 0.0
        unsure = math.sqrt(max(gain * (min(curve.mean) - offset), 0.0)) / 2
    else:
        spread = math.sqrt(max(covariance[1, 1], 0.0))
        offset, read = 0.0, math.sqrt(max(intercept, 0.0))
        unsure = spread / (2 * read) if read**2 > spread else math.sqrt(read**2 + spread) - read
    return PhotonNoise(
        gain, math.sqrt(covariance[0, 0]), intercept, offset, read, unsure, curve, method
    )


# Photon noise of single images.
TEXTURE_REACH = 0.6  # texture at the top frequencies, over what the middle ones have more than they
METHOD = "high frequencies of smooth patches"


def single_image_noise(spectra: PatchSpectra, white: bool = True) -> PhotonNoise:
    """Estimate gain and read noise from patches of images of one sensor.

    They together make one curve. A constant image gives 0. Where noise is not `white`, gain and
    read noise are those of its high frequencies, with texture. Fixed pattern counts as noise.
    `gain_error` is large where the image has hardly more than one level of brightness, or texture
    everywhere, and infinite where there is one level only, or nothing without clipped pixels.
    """
    noise = spectra.level_noise
    variance, error = noise.variance, np.hypot(noise.error, 2 * SYSTEMATIC)
    if white:
        variance, error = level_variances(spectra)
    open_levels = noise.open if noise.open.any() else ~noise.open  # a mask, a drawing
    shown = open_levels & (noise.variance > 0)
    many = shown & (noise.count >= MEMBERS)
    shown = many if many.any() else shown
    # From one standard error above the line texture is suspected.
    result = photon_noise((noise.mean, variance, noise.count), error, shown, 1.0, METHOD)
    # Gains from one image scatter by 2.5 % more than statistics say.
    error = math.hypot(result.gain_error, 0.025 * result.gain)
    one_level = shown.any() and np.count_nonzero(noise.open) < 2
    return replace(result, gain_error=math.inf if one_level else error)


def level_variances(spectra: PatchSpectra) -> tuple[np.ndarray, np.ndarray]:
    """Return the noise variance of each level of brightness, texture subtracted, and its error.

    The error is relative. Where the middle frequencies clearly have more power than the top ones,
    their difference is extrapolated to the noise beyond these.
    """
    power, count = (each[: len(spectra.levels.count)] for each in spectra.pooled[2:])
    independent = np.maximum(count / spectra.overlap, 1.0)

    def typical(power: np.ndarray) -> np.ndarray:
        return np.minimum(power.mean(axis=1), median_power(power, independent))

    middle, top = (power[:, which] for which in compared_bands())
    sizes = middle.shape[1], top.shape[1]
    middle, top = typical(middle), np.maximum(typical(top), 1e-300)
    chance = np.sqrt(2 / independent)
    excess = np.maximum(middle / top - 1, 0)
    square = np.square(excess)
    share = square / (square + np.square(chance) * (1 / sizes[0] + 1 / sizes[1]))
    texture = TEXTURE_REACH * share * excess
    variance = (1 - share) * typical(power) + top * np.maximum(share - texture, FLOOR)
    return variance, np.hypot(np.hypot(chance / math.sqrt(sizes[1]), 2 * SYSTEMATIC), texture)
