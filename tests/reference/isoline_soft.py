"""The isoline filter with weights in the place of choices, slow and plain.

Residuals and directions are looked at in blocks of 2 x 2 pixels, the first of which begins at the
first pixel of the image. All images of the steps are float64, and wider than the image: what lies
around it is its mirror image, the last pixel not repeated.

Conventions: of equal residuals the first axis wins; an isoline that meets a line exactly across
takes the sense in which that points up, or right where it is level; where there is no noise it
counts as `LEAST`, and no squared residual as more than `MOST`.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.ndimage import correlate
from scipy.special import polygamma

from reference.bm3d import OPPONENT, mix, mix_sigmas
from reference.isoline_patterns import segment_patterns

LOW_SLOPE, EDGE, ISOLINE = 0, 1, 2
AXES = 16
LEAST, MOST = 1e-18, 1e30

# Residual, in units of the variance of the noise, up to which a mean is believed.
FITTING = 2.0
# How much worse than the best line the window may fit where the slope is low: by chance one of 16
# lines fits better.
LIKE_LINES = 0.25
# Standard deviations of the weights, in units of the noise, and of distances in pixels.
ALIKE, NEARBY, RIDGE = 0.5, 4.0, 10.0
ALIKE_ENDS = 0.24
# Of speckle, no pixel counts as less than this part of the mean around when its logarithm is taken,
# and no level as less than this.
FLOOR, DARKEST = 0.25, 1e-30
SOFTNESS = 0.1  # of the weights of candidates, in sigma squared


class Maps(NamedTuple):
    """The result (c, y, x), and what decides it: axes in steps of 11.25 degrees, and classes."""

    image: np.ndarray
    directions: np.ndarray
    classes: np.ndarray


def isoline_soft(image: np.ndarray, sigma, settings) -> np.ndarray:
    """Denoise an image (y, x), or channels (c, y, x) by common isolines, or as opponent colours.

    `sigma` is one value, one a channel, or a map (y, x); `settings` are those of the filter. All
    but "opponent" counts as "joint" here.
    """
    return maps(image, sigma, settings).image.reshape(np.shape(image))


def wider(planes: np.ndarray, settings) -> tuple[np.ndarray, int]:
    """Return images with all that is looked at around them, in whole blocks, and how much."""
    steps = (settings.max_length // settings.segment_length - 1) // 2
    reach = (steps + 1) * settings.segment_length + settings.staircase // 2 + 10
    reach += reach % 2
    # An odd length gets one pixel more.
    around = [(reach, reach + n % 2) for n in planes.shape[1:]]
    return np.pad(planes, [(0, 0), *around], mode="reflect"), reach


def maps(image: np.ndarray, sigma, settings) -> Maps:
    """Return what the steps find; see `isoline_soft`.

    Opponent colours are filtered each by its own isolines. Where planes are fitted to chrominance,
    pixels count by how alike they are in both.
    """
    planes = np.asarray(image, dtype=np.float64)
    planes = planes.reshape(-1, *planes.shape[-2:])
    ny, nx = planes.shape[1:]
    sigma = np.asarray(sigma, dtype=np.float64)
    sigmas = np.broadcast_to(sigma[:, None, None] if sigma.ndim == 1 else sigma, planes.shape)
    opponent = settings.channels == "opponent" and len(planes) == 3
    if opponent:
        planes, sigmas = mix(OPPONENT, planes), mix_sigmas(OPPONENT, sigmas)

    steps = (settings.max_length // settings.segment_length - 1) // 2
    planes, reach = wider(planes, settings)
    sigmas, _ = wider(sigmas, settings)
    guides = [guide_of(planes, sigmas, settings)]
    if opponent:
        guides = [(*each, None) for each in zip(planes, sigmas, strict=True)]
    seen = []
    for guide, noise, looks in guides:
        if looks is not None:
            guide, noise = logarithm(guide), np.full(guide.shape, np.sqrt(polygamma(1, looks)))
        smooth = smoothed(block_residuals(guide, noise, settings))
        seen.append((guide, noise, smooth, *best_lines(smooth, settings)))
    made, luminance = [], None
    for k, (levels, own) in enumerate(zip(planes, sigmas, strict=True)):
        guide, noise, smooth, directions, _ = seen[k % len(seen)]
        if settings.staircase:
            pilot = mixed(guide, smooth, settings)
            levels = regress(levels, pilot, noise, settings.staircase, luminance)
            luminance = luminance or ((pilot, np.maximum(noise, LEAST)) if opponent else None)
        else:
            levels = mixed(levels, smooth, settings)
        if looks is not None:
            own = settings.looks**-0.5 * np.abs(levels)
        made.append(extend(levels, directions, own, settings.segment_length, steps))
    made = mix(OPPONENT.T, np.array(made)) if opponent else np.array(made)
    inner = np.s_[..., reach : reach + ny, reach : reach + nx]
    return Maps(made[inner], *(each[inner] for each in seen[0][3:]))


def guide_of(
    planes: np.ndarray, sigmas: np.ndarray, settings
) -> tuple[np.ndarray, np.ndarray, float | None]:
    """Return the image that isolines are found in, its noise, and its looks if that is speckle.

    It is the luminance: the mean of all channels that have noise, each divided by it;
    a map counts with its largest value. Of speckle it is the plain mean, which has more looks.
    """
    speckle = settings.criterion == "multiplicative"
    looks = settings.looks if speckle else None
    if len(planes) == 1:
        return planes[0], sigmas[0], looks
    if speckle:
        return planes.mean(axis=0), sigmas[0], looks * len(planes)
    largest = sigmas.max(axis=(1, 2))
    weights = np.array([1 / level if level > 0 else 0.0 for level in largest])
    weights = weights[:, None, None] / len(planes)
    return (weights * planes).sum(axis=0), np.sqrt(((weights * sigmas) ** 2).sum(axis=0)), None


def logarithm(image: np.ndarray) -> np.ndarray:
    """Return the logarithm of a speckled image, where its noise is additive. Signs do not count."""
    around = np.abs(weighted_mean(image, window_weights()))
    return np.log(np.maximum(np.abs(image), np.maximum(FLOOR * around, DARKEST)))


def moved(image: np.ndarray, dy: int, dx: int) -> np.ndarray:
    """Return the image whose pixel (y, x) is that of (y + dy, x + dx)."""
    return np.roll(image, (-dy, -dx), axis=(-2, -1))


def line_weights(axis: int, length: int, thickness: int = 1) -> np.ndarray:
    """Return the weights (dy, dx) of the mean along a line, around the pixel in the middle.

    They fall to both ends as a triangle. A thicker line has a share of each pixel in the two beside
    it: above and below if it rises by 45 degrees at most, else left and right.
    """
    middle = length + 1
    weights = np.zeros((2 * middle + 1,) * 2)
    beside = (0, 1) if 4 < axis < 12 else (1, 0)
    share = (thickness - 1) / 8
    offsets = segment_patterns(length)[axis]
    for k in range(-length, length + 1):
        y, x = middle + np.sign(k) * offsets[abs(k) - 1] if k else (middle, middle)
        weight = (length + 1 - abs(k)) / (length + 1) ** 2
        weights[y, x] += (1 - 2 * share) * weight
        for side in (1, -1):
            weights[y + side * beside[0], x + side * beside[1]] += share * weight
    return weights


def candidate_weights(settings) -> list[np.ndarray]:
    """Return the weights of all that a pixel may be replaced by: lines, and a window."""
    candidates = [line_weights(d, settings.segment_length, settings.thickness) for d in range(AXES)]
    if settings.method == "hybrid":
        candidates.append(window_weights())
    return candidates


def window_weights() -> np.ndarray:
    """Return the binomial weights of 5 x 5 pixels."""
    row = np.array([1, 4, 6, 4, 1]) / 16
    return np.outer(row, row)


def weighted_mean(image: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the mean of the pixels around each one."""
    return correlate(image, weights, mode="grid-wrap")


def without_middle(weights: np.ndarray) -> np.ndarray:
    """Return the weights of the same mean without the pixel itself."""
    others = weights.copy()
    others[tuple(np.array(weights.shape) // 2)] = 0
    return others / others.sum()


def block_residuals(image: np.ndarray, noise: np.ndarray, settings) -> np.ndarray:
    """Return how badly pixels are told from those around: (candidates, blocks, blocks).

    The square of what each mean without the pixel misses it by, in units of the noise; mean over
    the four pixels of a block.
    """
    noise = np.maximum(noise, LEAST)
    residuals = []
    for weights in candidate_weights(settings):
        missed = image - weighted_mean(image, without_middle(weights))
        squares = np.minimum((missed / noise) ** 2, MOST)
        ny, nx = squares.shape
        residuals.append(squares.reshape(ny // 2, 2, nx // 2, 2).mean(axis=(1, 3)))
    return np.array(residuals)


def smoothed(residuals: np.ndarray) -> np.ndarray:
    """Return means of 5 x 5 blocks, weighted by a triangle each way."""
    row = np.array([1, 2, 3, 2, 1]) / 9
    return np.array([weighted_mean(one, np.outer(row, row)) for one in residuals])


def of_pixels(blocks: np.ndarray) -> np.ndarray:
    """Return values of blocks for each of their pixels."""
    return blocks.repeat(2, axis=-2).repeat(2, axis=-1)


def best_lines(residuals: np.ndarray, settings) -> tuple[np.ndarray, np.ndarray]:
    """Return the axis of least residual, and the class, of each pixel."""
    lines = residuals[:AXES]
    classes = np.full(lines.shape[1:], ISOLINE)
    if settings.method == "hybrid":
        window = residuals[AXES]
        classes[window > FITTING] = EDGE
        classes[window <= lines.min(axis=0) + LIKE_LINES] = LOW_SLOPE
    return of_pixels(lines.argmin(axis=0)), of_pixels(classes)


def mixed(image: np.ndarray, residuals: np.ndarray, settings) -> np.ndarray:
    """Return the mean of the candidates, each weighted by how well it fits.

    What is left of the noisy pixel grows with what even this mean leaves unexplained.
    """
    weights = np.exp((residuals.min(axis=0) - residuals) / SOFTNESS)
    weights /= weights.sum(axis=0)
    means = np.array([weighted_mean(image, one) for one in candidate_weights(settings)])
    mean = (of_pixels(weights) * means).sum(axis=0)
    unexplained = np.maximum((weights * residuals).sum(axis=0) - FITTING, 0)
    kept = of_pixels(unexplained / (unexplained + 1))
    return mean + kept * (image - mean)


def falling(differences: np.ndarray, width: float) -> np.ndarray:
    """Return weights like a Gaussian's of a standard deviation, but 0 from 4 of them on."""
    t = (differences / width) ** 2 / 2
    return np.maximum(1 - t / 8, 0) ** 8


def regress(
    image: np.ndarray,
    pilot: np.ndarray,
    noise: np.ndarray,
    width: int,
    luminance: tuple[np.ndarray, np.ndarray] | None = None,
    looks: float | None = None,
) -> np.ndarray:
    """Return the level, at each pixel, of the plane that fits the noisy pixels around it.

    Pixels count by how alike their pilots are and how near they lie; slopes cost `RIDGE` times
    their squares. `luminance` is another pilot and its noise: that they are alike there counts a
    third of what decides. With `looks` the noise is that of speckle, for the mean of both pilots.
    """
    noise = np.maximum(noise, LEAST)
    told = [(1.0, pilot, noise)]
    if luminance is not None:
        told = [(0.5, pilot, noise), (0.25, *luminance)]
    radius = width // 2
    offsets = list(product(range(-radius, radius + 1), repeat=2))
    weights, levels = np.empty((2, len(offsets), *image.shape))
    for k, (dy, dx) in enumerate(offsets):
        apart = sum(w * ((moved(p, dy, dx) - p) / sigma) ** 2 for w, p, sigma in told)
        if looks is not None:
            other = moved(pilot, dy, dx)
            both = np.maximum(np.abs(other + pilot), DARKEST) / 2
            apart = looks * ((other - pilot) / both) ** 2
        weights[k] = falling(np.sqrt(apart), ALIKE) * np.exp(-(dy**2 + dx**2) / (2 * NEARBY**2))
        levels[k] = moved(image, dy, dx)
    terms = np.array([(1, *offset) for offset in offsets])
    left = np.einsum("kyx,ki,kj->yxij", weights, terms, terms, optimize=True)
    left[..., (1, 2), (1, 2)] += RIDGE
    right = np.einsum("kyx,ki->yxi", weights * levels, terms, optimize=True)
    return np.linalg.solve(left, right[..., None])[..., 0, 0]


def extend(
    levels: np.ndarray, directions: np.ndarray, noise: np.ndarray, length: int, steps: int
) -> np.ndarray:
    """Return means of each pixel and the ends of the segments that its isoline is extended by.

    An end counts as much as the one before, times how alike it is to the pixel.
    """
    ends = segment_patterns(length)[:, -1]
    noise = np.maximum(noise, LEAST)
    ny, nx = levels.shape
    total, weights = levels.copy(), np.ones(levels.shape)
    for side in (0, AXES):
        y, x = np.indices(levels.shape)
        heading, weight = directions + side, np.ones(levels.shape)
        for step in range(steps):
            if step:
                line = directions[y, x]
                turn = (line - heading) % (2 * AXES)
                back = (turn > AXES // 2) & (turn < 3 * AXES // 2)
                heading = np.where(back, line + AXES, line)
            # What leaves the padded image is never looked at.
            y = (y + ends[heading, 0]) % ny
            x = (x + ends[heading, 1]) % nx
            weight = weight * falling(levels[y, x] - levels, ALIKE_ENDS * noise)
            total += weight * levels[y, x]
            weights += weight
    return total / weights
