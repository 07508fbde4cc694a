"""Photon and read noise of a sensor, from pairs of frames with little motion.

Two frames of a still scene share the scene, so half the variance of their difference is the noise,
patch by patch. A patch with an edge in it is as good as any: its variance and its mean are averages
over the same pixels, and the line fits averages as it fits pixels. Places that move are the upper
tail of the patches of a level of brightness.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from napari_gpu_denoise.noise import photon
from napari_gpu_denoise.noise.patches import selection
from napari_gpu_denoise.noise.patches.coefficients import PATCH
from napari_gpu_denoise.noise.patches.spectra import read_alike
from napari_gpu_denoise.noise.patches.variance import CLIPPED, VarianceCurve, brightness_levels
from napari_gpu_denoise.noise.sampling import MAX_PLANES, PlaneStack, spread

PATCHES = 40_000  # read over all pairs, about
MEMBERS = 16  # patches a level of brightness needs
CORE = 3.0  # distance above the median, in spreads, from which a patch counts as moving
FAR = 2.5  # standard errors from the line from which a level counts less
STILL = 0.6  # share of the patches of a level that are to stand still in a time-lapse that does
MOVING_LEVELS = 0.25  # share of the levels of brightness that may move
SHIFTED = 1.15  # power at the low frequencies over that at the high ones, at most
MOVING = 4.0  # standard errors by which the low frequencies of a difference are above its noise
METHOD = "differences of neighbouring frames"


class Differences(NamedTuple):
    """Patches of differences of frames; variances are half of theirs, (patch,)."""

    mean: np.ndarray  # grey level of both frames
    seen: np.ndarray  # the same, as the high frequencies see it
    variance: np.ndarray  # of all pixels, less flicker
    low: np.ndarray  # at the low frequencies
    high: np.ndarray
    clipped: np.ndarray  # share of clipped pixels
    frequencies: tuple[int, int]  # how many of these are low and high
    overlap: float  # how many patches share a pixel

    @classmethod
    def of(cls, pairs: Sequence[tuple[np.ndarray, ...]]) -> Differences:
        """Read the patches of pairs of frames (y, x); NonFiniteError if none is whole."""
        masks = selection.not_image([frame for pair in pairs for frame in pair])
        halves = zip(masks[::2], masks[1::2], strict=True)
        blanks = [b if a is None else a if b is None else a | b for a, b in halves]
        before, after = read_alike(list(zip(*pairs, strict=True)), PATCHES, blanks)
        # The transform of a difference is the difference of transforms.
        change = np.square(np.asarray(after.coefficients) - np.asarray(before.coefficients)) / 2
        lows, number = before.lows, change.shape[1]
        low, high = (part.sum(axis=1, dtype=float) for part in np.split(change, [lows], axis=1))
        mean, shift = (before.mean + after.mean) / 2, after.mean - before.mean
        ends = np.cumsum([0, *before.count])
        for first, last in pairwise(ends):
            shift[first:last] -= _drift(mean[first:last], shift[first:last])
        return cls(
            mean,
            (before.seen + after.seen) / 2,
            (low + high) / PATCH**2 + np.square(shift) / 2,
            low / lows,
            high / (number - lows),
            (before.clipped + after.clipped) / 2,
            (lows, number - lows),
            before.overlap,
        )

    def moves(self, found: photon.PhotonNoise) -> bool:
        """Return whether the scene moves, or noise is correlated, given the noise."""
        least = found.read_noise**2 or 1e-300
        low, high = (
            power / photon.line_values(seen, found.gain, found.intercept, least)
            for power, seen in ((self.low, self.mean), (self.high, self.seen))
        )
        limit = 1 + MOVING * math.sqrt(2 / self.frequencies[0])
        # Objects may move on a ground that stands still: the gain is measured on both.
        parts = brightness_levels(self.mean, MEMBERS).each()
        moving = [
            np.mean(low[part] <= limit) < STILL or self._shifted(low[part], high[part], SHIFTED)
            for part in parts
        ]
        return bool(np.mean(moving) > MOVING_LEVELS)

    def _shifted(self, low: np.ndarray, high: np.ndarray, least: float) -> bool:
        """Return whether all patches differ a little more at the low frequencies: faint objects."""
        known = max(len(low) / self.overlap, 1.0)
        error = math.sqrt(sum(2 / (number * known) for number in self.frequencies))
        return bool(np.median(low) > (least + 2 * error) * np.median(high))

    def noise(self, white: bool) -> photon.PhotonNoise:
        """Fit a line to the noise of patches that stand still, at levels of brightness.

        Where the low frequencies hold more than the high ones, and noise is `white`, something
        moves, and the high ones tell the noise.
        """
        rows = []
        for part in brightness_levels(self.mean, MEMBERS).each():
            moves = white and self._shifted(self.low[part], self.high[part], 1.0)
            means, variances = (self.seen, self.high) if moves else (self.mean, self.variance)
            core, error = _still(variances[part])
            core = part[core]
            enough = len(part) >= min(MEMBERS, len(self.mean))
            enough &= self.clipped[part].mean() <= CLIPPED
            level = means[core].mean(), variances[core].mean()
            rows.append((*level, len(core), enough, error * math.sqrt(self.overlap)))
        x, y, count, used, error = (np.array(each) for each in zip(*rows, strict=True))
        known = used.any()
        if not known:
            used[:] = True
        line = 0.0, 0.0, np.zeros((2, 2))
        if y[used].any():
            errors = np.hypot(error[used], photon.SYSTEMATIC)
            *line, used[used] = photon.robust_line(x[used], y[used], errors, FAR)
        curve = VarianceCurve(*(tuple(each.tolist()) for each in (x, y, count, used)))
        result = photon.photon_noise(tuple(line), curve, METHOD)
        return result if known else replace(result, gain_error=math.inf)


def still_noise(frames: PlaneStack) -> photon.PhotonNoise | None:
    """Return the noise of frames, from differences of neighbouring ones; None where they move.

    Correlated noise is taken for motion.
    """
    if len(frames) < 2:
        return None
    read = Differences.of(neighbours(frames))
    found = read.noise(white=True)
    return None if read.moves(found) else found


def neighbours(frames: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return pairs of neighbouring frames, spread evenly over time."""
    places = spread(int(frames.shape[0]) - 1, MAX_PLANES)
    return [(np.asarray(frames[t]), np.asarray(frames[t + 1])) for t in places]


def pairs_noise(pairs: Sequence[tuple[np.ndarray, ...]]) -> photon.PhotonNoise:
    """Return the noise of pairs of frames (y, x) of one still scene each.

    About 40 000 patches of 8 x 8 pixels are read, but for those with NaN or infinity, those in
    constant areas, and levels of brightness at which more than 1 % of the pixels are clipped.
    Motion in up to about a third of the patches of a level does no harm; neither does flicker or
    bleaching. Correlated noise is measured in full.

    With the pairs of the 12-bit CCD in EMVA 1288 sample data the gain is 0.280 (0.28) and the noise
    of dark frames 3.06 (3.07).
    """
    return Differences.of(pairs).noise(white=False)


def _still(variance: np.ndarray) -> tuple[np.ndarray, float]:
    """Return a mask of still patches, and the relative standard error of their mean variance."""
    ordered = np.sort(variance)  # they are the smallest ones
    for _ in range(20):
        low, centre = np.quantile(ordered, (0.16, 0.5))
        now = int(np.searchsorted(ordered, centre + CORE * (centre - low), "right"))
        if now == len(ordered):
            break
        ordered = ordered[:now]
    core = variance <= ordered[-1]
    level = variance[core].mean()
    # At least the spread of independent normal values, whatever a few patches happen to show.
    spread = max(float(variance[core].std()) / level, math.sqrt(2) / PATCH) if level else 0.0
    return core, spread / math.sqrt(np.count_nonzero(core))


def _drift(mean: np.ndarray, change: np.ndarray) -> np.ndarray:
    """Return the difference of brightness between two frames, at the mean of each patch.

    A line: a constant, and a part proportional to brightness. What moves does not tilt it. The mean
    of each patch is not simply subtracted, as it holds a share of correlated noise.
    """
    factor, constant = 0.0, float(np.median(change))
    for _ in range(10):
        rest = np.abs(change - factor * mean - constant)
        scale = 1.4826 * float(np.median(rest))
        if scale == 0:
            break
        factor, constant, _ = photon.weighted_line(
            mean, change, np.sqrt(np.maximum(rest / scale, 1))
        )
    return factor * mean + constant
