"""Photon and read noise of a sensor, from pairs of frames with little motion.

Two frames of a still scene share the scene, so half the variance of their difference is the noise,
block by block. A block with an edge in it is as good as any: its variance and its mean are averages
over the same pixels, and the line fits averages as it fits pixels. Places that move are the upper
tail of the blocks of a level of brightness.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import NonFiniteError
from napari_gpu_denoise.noise import photon
from napari_gpu_denoise.noise.patches import selection
from napari_gpu_denoise.noise.patches.coefficients import matmul_in_blocks
from napari_gpu_denoise.noise.patches.spectra import PatchSpectra, read_alike, weights
from napari_gpu_denoise.noise.patches.variance import CLIPPED, VarianceCurve, brightness_levels
from napari_gpu_denoise.noise.sampling import MAX_PLANES, PlaneStack, spread

BLOCK = 8
MEMBERS = 16  # blocks a level of brightness needs
MAX_BLOCKS = 40_000  # blocks read over all pairs, about
CORE = 3.0  # distance above the median, in spreads, from which a block counts as moving
DIFFERENCES = "differences of neighbouring frames"  # how it was measured
FAR = 2.5  # standard errors from the line from which a level counts less
STILL = 0.6  # share of the patches of a level that are to stand still in a time-lapse that does
MOVING_LEVELS = 0.25  # share of the levels of brightness that may move
SHIFTED = 1.15  # power at the low frequencies over that at the high ones, at most
MOVING = 4.0  # standard errors by which the low frequencies of a difference are above its noise
ALIKE = 0.7  # noise at the high frequencies of differences over that at all of them, at least
PATCHES = 8000  # looked at over all differences, about


def still_noise(frames: PlaneStack) -> photon.PhotonNoise | None:
    """Return the noise of frames, from differences of neighbouring ones; None where they move.

    Correlated noise is taken for motion.
    """
    if len(frames) < 2 or min(frames.shape[1:]) < BLOCK:
        return None
    pairs = neighbours(frames)
    blanks = _blanks(pairs)
    found = pairs_noise(pairs, blanks)
    # The transform of a difference is the difference of transforms.
    before, after = read_alike(list(zip(*pairs[::2], strict=True)), PATCHES, blanks[::2])
    if before.coefficients.shape != after.coefficients.shape or before.lows < 2:
        return None
    means = (before.mean + after.mean) / 2
    floor = found.read_noise**2 or 1e-300
    # Light that is not even in a patch is not the same to low and to high frequencies.
    parts = [np.concatenate([each.low, each.high], axis=1) for each in (before, after)]
    offsets = (parts[0] + parts[1]) / 2
    sight = (
        weights() if offsets.shape[1] == photon.COEFFICIENTS else np.zeros(2 * offsets.shape[1:])
    )
    split = before.lows
    expected = [
        np.maximum(
            found.gain * (means + matmul_in_blocks(offsets, part.mean(axis=0)[:, None])[:, 0])
            + found.intercept,
            floor,
        )
        for part in (sight[:split], sight[split:])
    ]
    low = np.square(after.low - before.low).mean(axis=1) / 2 / expected[0]
    high = np.square(after.high - before.high).mean(axis=1) / 2 / expected[1]
    limit = 1 + MOVING * math.sqrt(2 / before.lows)
    # Objects may move on a ground that stands still: the gain is measured on both.
    parts = brightness_levels(means, MEMBERS).each()
    moving = [_moves(low[part], high[part], limit, before) for part in parts]
    still = np.mean(moving) <= MOVING_LEVELS and np.median(high) >= ALIKE
    return found if still else None


def _moves(low: np.ndarray, high: np.ndarray, limit: float, patches: PatchSpectra) -> bool:
    """Return whether places of one brightness move, given the power of differences there."""
    if np.mean(low <= limit) < STILL:
        return True
    # Faint objects: all patches differ a little more at the low frequencies than at the high ones.
    known = max(len(low) / patches.overlap, 1.0)
    error = math.sqrt(2 / (patches.lows * known) + 2 / (len(patches.upper) * known))
    return bool(np.median(low) > (SHIFTED + 2 * error) * np.median(high))


def neighbours(frames: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return pairs of neighbouring frames, spread evenly over time."""
    places = spread(int(frames.shape[0]) - 1, MAX_PLANES)
    return [(np.asarray(frames[t]), np.asarray(frames[t + 1])) for t in places]


def pairs_noise(
    pairs: Sequence[tuple[np.ndarray, ...]], blanks: list[np.ndarray | None] | None = None
) -> photon.PhotonNoise:
    """Return the noise of pairs of frames (y, x) of one still scene each.

    `blanks` is what `_blanks` returned, if known. About 40 000 blocks of 8 x 8 pixels are read, but
    for those with NaN or infinity, those in constant areas, and levels of brightness at which more
    than 1 % of the pixels are clipped. Motion in up to about a third of the blocks of a level does
    no harm; neither does flicker or bleaching. Correlated noise is measured in full.

    With the pairs of the 12-bit CCD in EMVA 1288 sample data the gain is 0.280 (0.28) and the noise
    of dark frames 3.06 (3.07).
    """
    blanks = _blanks(pairs) if blanks is None else blanks
    limit = MAX_BLOCKS // len(pairs)
    parts = [_blocks(*pair, limit, blank) for pair, blank in zip(pairs, blanks, strict=True)]
    if not any(len(part[0]) for part in parts):
        parts = [_blocks(*pair, limit, None) for pair in pairs]
    mean, variance, clipped = (np.concatenate(each) for each in zip(*parts, strict=True))
    if not len(mean):
        raise NonFiniteError(
            "Too few finite pixels are left to measure the noise; replace NaN and infinity first."
        )
    rows = []
    for part in brightness_levels(mean, MEMBERS).each():
        core, error = _still(variance[part])
        level = float(variance[part][core].mean())
        enough = len(part) >= min(MEMBERS, len(mean)) and clipped[part].mean() <= CLIPPED
        rows.append((float(mean[part][core].mean()), level, int(core.sum()), bool(enough), error))
    x, y, count, used, error = (np.array(each) for each in zip(*rows, strict=True))
    known = used.any()
    if not known:
        used[:] = True
    if y[used].any():
        gain, intercept, covariance, near = photon.robust_line(
            x[used], y[used], np.hypot(error[used], photon.SYSTEMATIC), FAR
        )
        used[used] = near
    else:
        gain, intercept, covariance = 0.0, 0.0, np.zeros((2, 2))
    curve = VarianceCurve(*(tuple(each.tolist()) for each in (x, y, count, used)))
    result = photon.photon_noise((gain, intercept, covariance), curve, DIFFERENCES)
    return result if known else replace(result, gain_error=math.inf)


def _still(variance: np.ndarray) -> tuple[np.ndarray, float]:
    """Return a mask of still blocks, and the relative standard error of their mean variance."""
    # They are the smallest ones, sorted once: `numpy.quantile` would take most of the time.
    ordered = np.sort(variance)
    number = len(ordered)
    for _ in range(20):
        low, centre = (_quantile(ordered[:number], share) for share in (0.16, 0.5))
        now = int(np.searchsorted(ordered, centre + CORE * (centre - low), "right"))
        if now == number:
            break
        number = now
    core = variance <= ordered[number - 1]
    level = variance[core].mean()
    if level == 0:
        return core, 0.0
    # At least the spread of independent normal values, whatever a few blocks happen to show.
    least = math.sqrt(2) / BLOCK
    spread = max(float(variance[core].std()) / level, least)
    return core, spread / math.sqrt(np.count_nonzero(core))


def _quantile(ordered: np.ndarray, share: float) -> float:
    """Return a quantile of sorted values, as `numpy.quantile` does."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    one, other = float(ordered[below]), float(ordered[min(below + 1, len(ordered) - 1)])
    part = place - below
    return one + (other - one) * part if part < 0.5 else other - (other - one) * (1 - part)


def _blanks(pairs: Sequence[tuple[np.ndarray, ...]]) -> list[np.ndarray | None]:
    """Return for each pair a mask of what is constant in one of its frames."""
    masks = selection.not_image([frame for pair in pairs for frame in pair])
    halves = zip(masks[::2], masks[1::2], strict=True)
    return [b if a is None else a if b is None else a | b for a, b in halves]


def _blocks(
    first: np.ndarray, second: np.ndarray, limit: int, blank: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return mean, noise variance and share of clipped pixels of blocks spread over a pair."""
    down, across = selection.grid_steps(*(length // BLOCK for length in first.shape), limit)
    clipped, values = 0.0, []
    for frame in (first, second):
        blocks = selection.blocks_of(frame, BLOCK)[::down, ::across].reshape(-1, BLOCK**2)
        for level in selection.clipping_levels(frame, blank):
            clipped = clipped + (blocks == level).mean(axis=1) / 2
        values.append(blocks.astype(np.float64))
    mean = (values[0] + values[1]).mean(axis=1) / 2
    difference = values[0] - values[1]
    change = difference.mean(axis=1)
    read = np.isfinite(change)
    if blank is not None:
        read &= ~selection.blocks_of(blank, BLOCK)[::down, ::across].any(axis=(2, 3)).ravel()
    clipped = np.broadcast_to(clipped, mean.shape)[read]
    square = np.square(difference).mean(axis=1)[read]
    mean, change = mean[read], change[read]
    if not len(mean):
        return mean, change, clipped
    drift = _drift(mean, change)
    return mean, (square - 2 * drift * change + np.square(drift)) / 2, clipped


def _drift(mean: np.ndarray, change: np.ndarray) -> np.ndarray:
    """Return the difference of brightness between two frames, at the mean of each block.

    A line: a constant, and a part proportional to brightness. What moves does not tilt it. The mean
    of each block is not simply subtracted, as it holds a share of correlated noise.
    """
    if not change.any():
        return change
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
