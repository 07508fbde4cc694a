"""The line of photon and read noise through variances at levels of brightness."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from napari_gpu_denoise.noise.patches.variance import VarianceCurve, medians

FLOOR = 0.02  # lowest variance used for a weight, as a share of the median variance
SAMPLE = 512  # variances that median is taken of, about
SYSTEMATIC = 0.01  # relative error of a variance that more pixels do not reduce
ROUNDS = 20  # of a robust fit, at most
SETTLED = 1e-6  # change of its weights, and of a gain, from which on it has come to an end
OUTLIER = 4.0  # distance from the line, over the scatter, beyond which a level is left out
SIGNIFICANT = 4.0  # standard errors by which a gain is above 0
DISAGREE = 2.0  # standard errors by which two gains differ
GROWTH = 1.5  # ratio of variances, brightest level to darkest, that matters


@dataclass(frozen=True)
class PhotonNoise:
    """Photon and read noise: variance = gain * mean + intercept."""

    gain: float  # grey levels per electron; near 0 where noise does not grow with brightness
    gain_error: float
    intercept: float  # variance at grey level 0; negative where the camera adds an offset
    # Grey level of no light: measured on dark frames, else where the line reaches 0, if above 0.
    offset: float
    read_noise: float  # standard deviation at `offset`, in grey levels
    read_noise_error: float
    curve: VarianceCurve  # that the line was fitted to
    method: str  # in words

    @property
    def grows(self) -> bool:
        """Whether noise clearly grows with brightness."""
        used = np.array(self.curve.used, bool)
        level = np.array(self.curve.mean)[used]
        if not self.significant or len(level) < 2:
            return False
        dark, bright = self.gain * level[[0, -1]] + self.intercept
        return bool(bright > GROWTH * max(dark, 0.0))

    @property
    def significant(self) -> bool:
        """Whether the gain is clearly above 0."""
        return self.gain > SIGNIFICANT * self.gain_error

    def exceeds(self, other: PhotonNoise) -> bool:
        """Whether this gain is clearly above another one of the same image."""
        error = math.hypot(self.gain_error, other.gain_error)
        return self.gain - other.gain > DISAGREE * error


def weighted_line(
    x: np.ndarray, y: np.ndarray, error: np.ndarray
) -> tuple[float, float, np.ndarray]:
    """Fit y = gain * x + intercept, given the standard error of y, above 0.

    Returns gain (0 where all x are the same), intercept, and their covariance (2, 2).
    """
    gain, centre, middle, spread, total = _weighted_sums(x, y, error)
    slope = 1 / spread if spread else 0.0
    covariance = np.array(
        [[slope, -centre * slope], [-centre * slope, 1 / total + centre**2 * slope]]
    )
    return gain, middle - gain * centre, covariance


def _weighted_sums(x: np.ndarray, y: np.ndarray, error: np.ndarray) -> tuple[float, ...]:
    """Return the gain, the middle of x and y, the weighted spread of x, 0 if none, the weight."""
    weight = 1 / np.square(error)
    total = float(weight.sum())
    centre, middle = float(weight @ x) / total, float(weight @ y) / total
    apart = x - centre
    weight *= apart
    spread = float(weight @ apart)
    if spread <= 1e-18 * total * max(centre**2, 1e-300):
        return 0.0, centre, middle, 0.0, total
    return float(weight @ (y - middle)) / spread, centre, middle, spread, total


def least_variance(variances: np.ndarray) -> float:
    """Return the lowest variance used for a weight; some of many tell."""
    some = variances[:: max(1, len(variances) // SAMPLE)]
    typical = float(medians(some)) if len(some) else 0.0
    return FLOOR * typical if typical > 0 else 1e-300


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
    least = least_variance(y)
    gain, centre, middle, *_ = _weighted_sums(x, y, error * least)
    weight = np.ones(len(x))
    for _ in range(ROUNDS):
        line = np.maximum(gain * (x - centre) + middle, least)
        spread = line * error
        distance = (y - line) / spread
        limit = np.where(distance > 0, upward, 3 * upward)
        before, weight = weight, np.minimum(1, limit / np.maximum(np.abs(distance), 1e-12))
        old = gain
        gain, centre, middle, *_ = _weighted_sums(x, y, spread / weight)
        if abs(gain - old) <= SETTLED * abs(gain) and np.abs(weight - before).max() < SETTLED:
            break
    gain, intercept, covariance = weighted_line(x, y, spread / weight)
    distance = (y - np.maximum(gain * x + intercept, least)) / spread
    scatter = max(1.0, math.sqrt(float(np.square(weight * distance).mean())))
    return gain, intercept, covariance * scatter**2, np.abs(distance) <= OUTLIER * scatter


def photon_noise(
    line: tuple[float, float, np.ndarray], offset: float | None, curve: VarianceCurve, method: str
) -> PhotonNoise:
    """Return the noise of a line (gain, intercept, covariance) fitted to a curve."""
    gain, intercept, covariance = line
    if offset is None:
        offset = -intercept / gain if intercept < 0 < gain else 0.0
    at = np.array([offset, 1.0])
    variance = max(gain * offset + intercept, 0.0)
    spread = math.sqrt(max(float(at @ covariance @ at), 0.0))
    return PhotonNoise(
        gain,
        math.sqrt(covariance[0, 0]),
        intercept,
        offset,
        math.sqrt(variance),
        math.sqrt(variance + spread) - math.sqrt(variance),
        curve,
        method,
    )
