"""Noise of magnitude images: Rayleigh in the background, Rician in the object.

The correction for the object after C. G. Koay and P. J. Basser, *Analytically exact correction
scheme for signal extraction from noisy magnitude MR signals*, Journal of Magnetic Resonance 179
(2006).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from napari_gpu_denoise.errors import ImageError, NonFiniteError
from napari_gpu_denoise.image.levels import check_numbers
from napari_gpu_denoise.noise.patches import selection
from napari_gpu_denoise.noise.patches.spectra import read_spectra
from napari_gpu_denoise.noise.patches.variance import (
    MEMBERS,
    brightness_levels,
    level_noise,
    pooled_variance,
)
from napari_gpu_denoise.noise.sampling import sample_planes

# Noise of repeated magnitude images, from the pixels in which repetitions hold noise alone.
#
# After C. G. Koay, E. Özarslan and C. Pierpaoli, *Probabilistic identification and estimation of
# noise (PIESNO): a self-consistent approach and its applications in MRI*, Journal of Magnetic
# Resonance 199 (2009).
REJECTED = 0.01  # share of true noise that is rejected
TRIALS = 50  # values of sigma it starts from
ROUNDS = 50  # of the iteration from each, at most
MAX_GROUPS = 40_000  # groups of values looked at, about
LIKE_NOISE = 0.25  # by which the squared contrast may be below that of pure noise, relative
COILS = (1, 2, 4, 8, 16, 32)  # tried where the number is not known
RANGES = 64  # of sorted values, in which those of groups are counted
STEPPED = 1 << 11  # values that show whether all are whole steps, about
CONTRAST_ERROR = 1.1  # relative standard error of that contrast, of one value


@dataclass(frozen=True)
class Piesno:
    """Sigma of the real and imaginary parts of each coil, and share of pixels without signal."""

    sigma: float  # grey levels
    error: float  # standard error of sigma
    share: float  # of the pixels (y, x) that hold noise alone


def piesno(stack: Any, coils: Sequence[int] = COILS) -> tuple[Piesno, int]:
    """Measure sigma in magnitude images of one slice, on the pixels that hold only noise.

    `stack` is (n, y, x), one slice measured n times, such as with n gradient directions. Returned
    is also the number of coils whose squares were summed (degrees of freedom / 2): of those given,
    the one for which these pixels are closest to the theoretical distribution. Sigma is 0 where no
    pixel holds noise alone.

    Sigma follows from the quantile with the smallest error for that number of coils (0.797 for 1,
    0.626 for 8), not from the median. Pixels with NaN or infinity, and those that are the same in
    all images, such as padding, are left out; about 40 000 pixels are read.
    """
    values, pixels = _repeated(stack)
    found = [(*_of_coils(values, pixels, number), number) for number in coils]
    best, _, number = min(found, key=lambda each: each[1])
    return best, number


def _repeated(stack: Any) -> tuple[np.ndarray, int]:
    """Return values (pixel, repetition) of a stack, and how many pixels they were chosen from."""
    stack = np.asarray(stack)
    check_numbers(stack)
    if stack.ndim != 3 or stack.shape[0] < 2:
        raise ImageError(
            f"A stack of shape {stack.shape} does not repeat a slice; "
            "give two images or more as (n, y, x)."
        )
    step = math.ceil(math.sqrt(stack[0].size / MAX_GROUPS))
    values = stack[:, ::step, ::step].reshape(len(stack), -1).T.astype(np.float64)
    values = values[np.isfinite(values).all(axis=1) & (values != values[:, :1]).any(axis=1)]
    return values, max(1, stack[0, ::step, ::step].size)


def _of_coils(values: np.ndarray, pixels: int, coils: int) -> tuple[Piesno, float]:
    """Return the noise for a number of coils, and its deviation from the distribution."""
    from scipy.special import gammainc

    sigma, accepted = noise_only(values, coils, LIKE_NOISE)
    share = float(np.count_nonzero(accepted)) / pixels
    found = Piesno(sigma, standard_error(sigma, values[accepted].size, coils), share)
    if not sigma:
        return found, math.inf
    alone = np.sort(values[accepted], axis=None)
    expected = gammainc(coils, np.square(alone / sigma) / 2)
    return found, float(np.abs((np.arange(len(alone)) + 0.5) / len(alone) - expected).max())


def noise_only(
    values: np.ndarray, coils: int, tolerance: float, trials: int = TRIALS
) -> tuple[float, np.ndarray]:
    """Return sigma, and which of the groups of values (group, repetition) are noise alone.

    Half the sum of squares over sigma squared follows a gamma law there, so that a group is kept
    inside its quantiles, sigma follows from a quantile of what is kept, and so on. Of all starts
    the one that keeps most groups wins, if the values kept vary at least as much as pure noise
    does, up to the relative `tolerance`: an object of one brightness passes for noise of some sigma
    by its sums of squares, but varies less. Rounded values are spread over their steps, else sigma
    has steps, too.
    """
    none = 0.0, np.zeros(len(values), bool)
    if not values.any():
        return none
    repetitions = values.shape[1]
    quantile = _best_quantile(coils)[0]
    rounded, step = values, step_of(values)
    if step:
        values = np.abs(values + step * (np.random.default_rng(0).random(values.shape) - 0.5))
    unit = math.sqrt(2 * _gamma_quantiles(coils, (quantile,))[0])
    bounds = _gamma_quantiles(coils * repetitions, (REJECTED / 2, 1 - REJECTED / 2))
    energy = np.square(values).sum(axis=1) / 2
    expected = 1 - math.exp(2 * (math.lgamma(coils + 0.5) - math.lgamma(coils))) / coils
    order = np.argsort(energy)
    ranked = energy[order]
    ordered = values[order]
    quantiles = _Quantiles(ordered)
    (largest,) = quantiles.of(np.array([0]), np.array([len(values)]), quantile) / unit
    sigmas, spans = np.arange(1, trials + 1) / trials * largest, np.zeros((trials, 2), np.intp)
    earlier = spans.copy()
    moving = np.arange(trials)  # starts whose groups still change
    for _ in range(ROUNDS):
        now = np.searchsorted(ranked, bounds * np.square(sigmas[moving])[:, None])
        changed = (now != spans[moving]).any(axis=1) & (now[:, 0] < now[:, 1])
        changed &= (now != earlier[moving]).any(axis=1)  # or it would go to and fro
        earlier[moving], spans[moving] = spans[moving], now
        moving = moving[changed]
        if not len(moving):
            break
        sigmas[moving] = quantiles.of(*now[changed].T, quantile) / unit
    count = np.diff(spans, axis=1)[:, 0]
    number = np.maximum(count * repetitions, 1)
    mean, square = (
        np.diff(np.concatenate([[0.0], np.cumsum(each)])[spans], axis=1)[:, 0] / number
        for each in (ordered.sum(axis=1), 2 * ranked)
    )
    slack = tolerance + 3 * CONTRAST_ERROR / np.sqrt(number)
    alike = (count > 0) & (sigmas > 0) & (square - mean**2 > (1 - slack) * expected * square)
    if not alike.any():
        return none
    best = np.where(alike, count, 0).argmax()
    mask = np.zeros(len(values), bool)
    mask[order[slice(*spans[best])]] = True
    if not step:
        return float(sigmas[best]), mask
    # Between two steps the share of the values is known exactly.
    level, count = np.unique(rounded[mask], return_counts=True)
    share = np.cumsum(count[:-1]) / count.sum()
    if not len(share):
        return none
    at = int(np.abs(share - quantile).argmin())
    unit = math.sqrt(2 * _gamma_quantiles(coils, (float(share[at]),))[0])
    return float(level[at] + step / 2) / unit, mask


def step_of(values: np.ndarray) -> float:
    """Return the usual step of grey levels if values repeat, else 0."""
    some = values.ravel()[:: 1 + values.size // STEPPED]
    level = np.unique(some)
    return float(np.median(np.diff(level))) if 1 < len(level) < some.size / 2 else 0.0


class _Quantiles:
    """Quantiles of the values of groups in a row, (group, value), of which many are asked for."""

    def __init__(self, values: np.ndarray):
        groups, self._each = values.shape
        order = np.argsort(values, axis=None)
        self._values = values.ravel()[order]
        self._group = (order // self._each).astype(np.int32)
        self._range = -(-values.size // RANGES)
        # How many values of the groups before each one are in each range of the sorted values.
        where = np.arange(values.size) // self._range * groups + self._group
        counts = np.bincount(where, minlength=groups * RANGES).reshape(RANGES, groups)
        self._before = np.zeros((RANGES, groups + 1), np.int32)
        np.cumsum(counts, axis=1, out=self._before[:, 1:])

    def of(self, first: np.ndarray, last: np.ndarray, quantile: float) -> np.ndarray:
        """Return `numpy.quantile` of the groups from first to last, for several spans."""
        number = (last - first) * self._each
        place = quantile * (number - 1)
        below = place.astype(np.int32)
        wanted = np.array([below, np.minimum(below + 1, number - 1)])
        inside = np.cumsum((self._before[:, last] - self._before[:, first]).T, axis=1)
        # The range that holds each wanted value, and which of the values there it is.
        found = (inside <= wanted[:, :, None]).sum(axis=2)
        rest = wanted - np.where(found, inside[np.arange(len(first)), found - 1], 0)
        at = found[:, :, None] * self._range + np.arange(self._range)
        group = self._group.take(at, mode="clip")
        member = (group >= first[:, None]) & (group < last[:, None])
        which = (np.cumsum(member, axis=2, dtype=np.int32) > rest[:, :, None]).argmax(axis=2)
        low, high = self._values[found * self._range + which]
        return low + (high - low) * (place - below)


@cache
def _best_quantile(coils: int) -> tuple[float, float]:
    """Return the quantile with the smallest error of sigma, and that of one value, relative.

    Half the square of a magnitude over sigma squared follows a gamma law; the quantile is the one
    with the least variance for its slope.
    """
    quantiles = np.linspace(0.3, 0.95, 1301)
    value = _gamma_quantiles(coils, tuple(quantiles.tolist()))
    density = np.exp((coils - 1) * np.log(value) - value - math.lgamma(coils))
    error = np.sqrt(quantiles * (1 - quantiles)) / (2 * value * density)
    best = int(np.argmin(error))
    return float(quantiles[best]), float(error[best])


@lru_cache(maxsize=16)
def _gamma_quantiles(shape: int, shares: tuple[float, ...]) -> np.ndarray:
    """Return quantiles of the gamma law, by bisection; the last ones are kept.

    SciPy has them, too, but takes longer to import than an estimate takes, and most need no more.
    """
    events = np.arange(shape)
    factorials = np.cumsum(np.log(np.maximum(events, 1)))
    low, high = np.zeros(len(shares)), np.full(len(shares), 2.0 * shape + 40)
    for _ in range(60):
        middle = (low + high) / 2
        # A value is above x where a Poisson variable of mean x is below the shape.
        chances = np.exp(events * np.log(middle)[:, None] - factorials - middle[:, None])
        below = chances.sum(axis=1) > 1 - np.array(shares)
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return (low + high) / 2


def standard_error(sigma: float, number: int, coils: int) -> float:
    """Return the standard error of sigma from a number of independent values."""
    return sigma * _best_quantile(coils)[1] / math.sqrt(number) if number else 0.0


# Noise of single magnitude images.
BLOCK = 4  # width of the blocks that a single image is cut into
LEAST_BACKGROUND = 0.02  # smallest share of the blocks that counts as a background
LEAST_BLOCKS = 30
SOME_GROUPS = 10_000  # blocks that decide whether there is a background, about,
FEW_GROUPS, FEW_TRIALS = 1250, 16  # those looked at first, from so many values of sigma,
UNLIKE_NOISE = 0.03  # and their deviation from noise alone, but for chance, that shows none
FEW_LINES = 128  # rows and columns of pixels that show whether any is negative, about
LEAST_CONTRAST = 0.12  # squared, of the darkest blocks, in a background; of all of it 0.21
BACKGROUND_LIKE_NOISE = 0.044  # by which the squared contrast may be below that of noise, relative
APART = 0.6  # variance of neighbours in a background about each other over that of all, at least
STRONGER = 2.0  # standard errors by which noise of the background exceeds that of the object
KNOWN_WELL = 0.03  # relative error of the latter, up to which it is believed
_HIGH = 30  # ratio of signal to sigma from which the variance is that of its asymptote
_COSINES = np.cos(np.pi * (np.arange(64) + 0.5) / 64)  # more angles change no digit up to there
DEEP = 1.0  # signal-to-noise ratio below which a level tells little about sigma


@dataclass(frozen=True)
class RicianNoise:
    """Sigma of the real and of the imaginary part of a complex signal, seen in its magnitude."""

    sigma: float  # grey levels; from the background where there is one
    error: float  # standard error of sigma
    background: float | None  # sigma from the background alone
    # Sigma from the high frequencies of smooth patches at every level of brightness, if any noise
    # shows there.
    object: float | None
    background_share: float  # of the image, pixels of a fill not counted


def koay_factor(ratio: np.ndarray | float) -> np.ndarray:
    """Return the variance of a Rician variable over sigma squared, at ratios of signal to sigma."""
    ratio = np.asarray(ratio, np.float64)
    quarter = np.square(np.minimum(ratio, _HIGH)) / 4
    # Two scaled Bessel functions, as integrals over angles: those of SciPy take 0.2 s to import.
    scaled = np.exp(quarter[..., None] * (_COSINES - 1))
    bessel = (scaled * (2 + 4 * quarter[..., None] * (1 + _COSINES))).mean(axis=-1)
    exact = 2 + 4 * quarter - np.pi / 8 * np.square(bessel)
    # At high ratios the difference of two large numbers is lost to rounding.
    return np.where(ratio > _HIGH, 1 - 0.5 / np.maximum(np.square(ratio), 1), exact)


def rician_noise(image: Any) -> RicianNoise:
    """Estimate sigma of magnitude images of one coil, (y, x) or (..., y, x).

    At most 8 planes are read. A constant image gives 0. NonFiniteError if NaN or infinity leave no
    patch.

    Background: blocks of 4 x 4 pixels are taken as the repeated values of PIESNO, so that its
    position need not be known; it counts only if its values vary as much as those of pure noise.
    Object: the variance at each level of brightness is divided by that of a Rician variable of
    sigma 1 and the same ratio of mean to sigma, and the median over the levels is taken. Pixels of
    a filled background, such as zeros around a masked head, are left out. Noise is assumed white
    for the object; for the background only its distribution matters.
    """
    planes = sample_planes(image)
    (outside, share), (inside, white) = _background(planes), _object(planes)
    if outside and inside and white and inside[1] <= KNOWN_WELL * inside[0]:
        # Texture raises the noise of an object, and never lowers it; dark parts that pass for
        # background raise that of a background.
        chance = math.hypot(outside[1], inside[1])
        outside = outside if outside[0] - inside[0] <= STRONGER * chance else None
    sigma, error = outside or inside or (0.0, 0.0)
    return RicianNoise(
        sigma, error, outside and outside[0], inside and inside[0], share if outside else 0.0
    )


class RayleighBackground(NamedTuple):
    """Blocks that look like the background of magnitude images, and how well they fit."""

    sigma: float  # of the real and of the imaginary part, grey levels
    share: float  # of the blocks
    deviation: float  # largest difference of the cumulative distribution from that of noise alone
    values: int  # number of values that it was read from
    photons: float  # deviation from counts of photons, where all values are whole steps


def rayleigh_background(
    planes: list[np.ndarray],
    blanks: Sequence[np.ndarray | None] | None = None,
    levels: Sequence[list] | None = None,
) -> RayleighBackground | None:
    """Return the background of magnitude images of one coil; None where nothing looks like one.

    About 10 000 blocks of 4 x 4 pixels are looked at, fewer where these already show that there is
    none. `blanks` and `levels` are what `not_image` and `clipping_levels` returned, if known.
    """
    blanks = selection.not_image(planes) if blanks is None else blanks
    levels = list(map(selection.clipping_levels, planes, blanks)) if levels is None else levels
    # A few pixels show that there are negative values, unless these may be a fill.
    for plane, blank, ends in zip(planes, blanks, levels, strict=True):
        if blank is None and not ends:
            down, across = (max(n // FEW_LINES, 1) for n in plane.shape)
            if plane[:: max(down, BLOCK), :: max(across, BLOCK**2)].min() < 0:
                return None
    groups = _blocks(planes, FEW_GROUPS, blanks, levels)
    if len(groups) >= FEW_GROUPS / 2:
        few = _of_groups(groups, FEW_TRIALS)
        if few is None or few.deviation > UNLIKE_NOISE + 2 / math.sqrt(few.values):
            return few
    return _of_groups(_blocks(planes, SOME_GROUPS, blanks, levels), TRIALS)


def _of_groups(groups: np.ndarray, trials: int) -> RayleighBackground | None:
    """Return the background among blocks (block, pixel)."""
    if len(groups) < LEAST_BLOCKS or groups.min() < 0:
        return None
    # A background is the darkest part, and varies; this alone rules most images out.
    dark = groups[np.argsort(groups.mean(axis=1))[: max(len(groups) // 20, LEAST_BLOCKS)]]
    if np.square(dark).mean() * (1 - LEAST_CONTRAST) < dark.mean() ** 2:
        return None
    step = step_of(groups)
    found = _of_rounded(groups, step, 0.0, trials)
    if step and found is not None:
        # Integers may also be cut off instead of rounded.
        other = _of_rounded(groups, step, step / 2, trials)
        if other is not None and other.deviation < found.deviation:
            return other
    return found


def _of_rounded(
    groups: np.ndarray, step: float, less: float, trials: int
) -> RayleighBackground | None:
    """Return the background among blocks of values that are rounded to steps, and by `less`."""
    sigma, accepted = noise_only(groups + less, 1, BACKGROUND_LIKE_NOISE, trials)
    if np.count_nonzero(accepted) < LEAST_BLOCKS:
        return None
    alone = groups[accepted]
    if np.square(np.diff(alone.reshape(-1, BLOCK, BLOCK))).mean() < 2 * APART * alone.var():
        return None  # texture
    values = np.sort(alone, axis=None)
    expected = -np.expm1(-np.square((values + less + step / 2) / sigma) / 2)
    share = np.searchsorted(values, values, "right") / len(values)
    photons = math.inf
    if step:
        from scipy.special import pdtr

        photons = float(np.abs(share - pdtr(values / step, values.mean() / step)).max())
    deviation = float(np.abs(share - expected).max())
    return RayleighBackground(sigma, float(accepted.mean()), deviation, len(values), photons)


def _background(planes: list[np.ndarray]) -> tuple[tuple[float, float] | None, float]:
    """Return sigma with its standard error, and the share of blocks that are background."""
    blanks = selection.not_image(planes)
    levels = list(map(selection.clipping_levels, planes, blanks))
    found = _of_groups(_blocks(planes, MAX_GROUPS, blanks, levels), TRIALS)
    if found is None or found.share < LEAST_BACKGROUND:
        return None, 0.0
    return (found.sigma, standard_error(found.sigma, found.values, 1)), found.share


def _blocks(
    planes: list[np.ndarray],
    most: int,
    blanks: Sequence[np.ndarray | None],
    levels: Sequence[list],
) -> np.ndarray:
    """Return about `most` blocks of 4 x 4 pixels, (block, pixel), without filled ones."""
    groups = []
    for plane, blank, ends in zip(planes, blanks, levels, strict=True):
        blocks = selection.blocks_of(plane, BLOCK)
        if not blocks.size:
            continue
        step = math.ceil(math.sqrt(math.prod(blocks.shape[:2]) * len(planes) / most))
        blocks = blocks[::step, ::step].reshape(-1, BLOCK**2)
        keep = np.isfinite(blocks).all(axis=1)
        if blank is not None:
            keep &= ~selection.blocks_of(blank, BLOCK)[::step, ::step].any(axis=(2, 3)).ravel()
        for level in ends:
            # Rounding piles up zeros too; a fill is flat.
            keep &= (blocks == level).mean(axis=1) <= 0.5
        groups.append(blocks[keep].astype(np.float64))
    return np.concatenate(groups) if groups else np.empty((0, BLOCK * BLOCK))


def _object(planes: list[np.ndarray]) -> tuple[tuple[float, float] | None, bool]:
    """Return sigma and its error from the variance at each level, and if most of them are white."""
    patches = read_spectra(planes).statistics
    found, errors = [], []
    levels = brightness_levels(patches.mean, order=patches.order)
    found_at = level_noise(patches, levels, patches.mean)
    white = 2 * np.count_nonzero(found_at.white) > len(found_at.white)
    for mean, variance, error, count, is_open, _ in zip(*found_at, strict=True):
        if len(levels.count) > 1 and (not is_open or count < MEMBERS):
            continue
        sigma, ratio = _from_moments(mean, variance)
        if sigma > 0 and ratio > DEEP:
            found.append(sigma)
            errors.append(max(error / 2, 1e-6))
    if not found:  # few patches, or hardly any signal: all of them as one level
        variance, error, _ = pooled_variance(patches.order, patches.energy, patches.overlap)
        sigma, _ = _from_moments(float(patches.mean.mean()), variance)
        return ((sigma, sigma * error) if sigma > 0 else None), False
    order = np.argsort(found)
    weight = np.cumsum(1 / np.array(errors)[order])
    sigma = float(np.array(found)[order][np.searchsorted(weight, weight[-1] / 2)])
    spread = float(np.median(np.abs(np.array(found) - sigma))) / 0.6745
    statistical = sigma * float(np.median(errors))
    error = max(spread, statistical) * math.sqrt(math.pi / 2 / len(found))
    return (sigma, error), white


def _from_moments(mean: float, variance: float) -> tuple[float, float]:
    """Return sigma, and the ratio of signal to sigma, from the moments of magnitudes."""
    if variance <= 0:
        return 0.0, 0.0
    # The mean square is signal^2 + 2 sigma^2, and the variance sigma^2 * factor(signal / sigma).
    sigma = math.sqrt(variance)
    ratio = 0.0
    for _ in range(100):
        ratio = math.sqrt(max((mean / sigma) ** 2 + variance / sigma**2 - 2, 0.0))
        now = math.sqrt(variance / float(koay_factor(ratio)))
        if abs(now - sigma) <= 1e-9 * sigma:
            break
        sigma = now
    return sigma, ratio


# Speckle: multiplicative noise of coherent imaging, measured as a number of looks.
#
# In a homogeneous window the variance over the squared mean is 1 / looks; slopes of brightness are
# subtracted first. Texture and edges only ever raise it. For independent pixels the ratio follows
# about a gamma law, whose density over the logarithm of the ratio is highest at the true value,
# however small the window. So the looks are read at the mode of the logarithm over all windows.
WINDOW = 8
MAX_WINDOWS = 40_000
CLIPPED = 0.01  # share of clipped pixels of a window, at most
BINS = 200  # an e-fold of the ratio
RESAMPLES = 50
TINY = 1e-14  # squared contrast that is only rounding
FEW_LOOKS = 0.06  # relative, at one look; measured: few looks have no gamma law of the ratio
RESOLUTION = 0.4  # width of the smoothing, as a share of the spread that chance gives the windows


@dataclass(frozen=True)
class SpeckleNoise:
    """Multiplicative noise of mean 1 and variance 1 / looks."""

    looks: float  # equivalent number of looks; infinite without noise
    error: float  # standard error of the looks
    contrast: float  # standard deviation over mean, 1 / sqrt(looks); 0 without noise


def speckle_noise(image: Any) -> SpeckleNoise:
    """Estimate the equivalent number of looks of intensities, (y, x) or (..., y, x).

    At most 8 planes are read, and about 40 000 windows of 8 x 8 pixels. Windows with NaN, infinity,
    clipped pixels or a mean that is not above 0 are left out; NonFiniteError if none is finite. A
    constant image has infinitely many looks. Where the grain of the speckle is not much smaller
    than a window, values vary less within a window than over the image, so that looks come out too
    many. The standard error comes from resampling the windows.
    """
    planes = sample_planes(image)
    ratios, overlaps = [], []
    finite = 0
    for plane, blank in zip(planes, selection.not_image(planes), strict=True):
        patches, shape, overlap, _ = selection.read_patches(
            plane, WINDOW, MAX_WINDOWS // len(planes), blank
        )
        finite += len(patches)
        clipped = selection.clipped_shares(patches, selection.clipping_levels(plane, blank))
        values = patches[clipped <= CLIPPED].astype(np.float64)
        mean = values.mean(axis=1)
        keep = mean > 0
        trend = orthonormal_slopes(shape)
        freedom = values.shape[1] - 1 - len(trend)
        if freedom > 0:
            rest = values[keep] - mean[keep, None]
            square = np.square(rest).sum(axis=1) - np.square(rest @ trend.T).sum(axis=1)
            ratios.append(square / freedom / np.square(mean[keep]))
            overlaps.append(overlap)
    if not finite:
        raise NonFiniteError(
            "No window of finite pixels is left to estimate speckle; replace NaN and "
            "infinity first."
        )
    ratio = np.concatenate(ratios) if ratios else np.empty(0)
    number = len(ratio)
    ratio = ratio[ratio > TINY]
    if 2 * len(ratio) <= number:
        return SpeckleNoise(math.inf, 0.0, 0.0)
    mode, error = _mode(np.log(ratio), max(overlaps))
    found = math.exp(mode)
    found *= 1 + FEW_LOOKS * found
    looks = 1 / found
    return SpeckleNoise(looks, looks * error, math.sqrt(found))


def orthonormal_slopes(shape: tuple[int, int]) -> np.ndarray:
    """Return orthonormal slopes along y and x, (slope, pixel), of axes longer than 1."""
    slopes = []
    for axis, length in enumerate(shape):
        if length > 1:
            slope = np.arange(length) - (length - 1) / 2
            slope = np.broadcast_to(np.expand_dims(slope, 1 - axis), shape).ravel()
            slopes.append(slope / np.linalg.norm(slope))
    return np.array(slopes).reshape(len(slopes), shape[0] * shape[1])


def _mode(values: np.ndarray, overlap: float) -> tuple[float, float]:
    """Return the mode of values, and its standard error.

    The logarithm of gamma variables with n degrees of freedom spreads by sqrt(2 / n). Noise with a
    long tail, as few looks have, spreads more.
    """
    from scipy.ndimage import gaussian_filter1d

    low, high = np.quantile(values, [0.001, 0.999], method="nearest")
    bins = int(min(max(math.ceil((high - low) * BINS), 8), 4000))
    counts, edges = np.histogram(values, bins, (low, max(high, low + 1e-6)))
    width = edges[1] - edges[0]
    looks = math.exp(-float(np.median(values)))
    chance = math.sqrt((2 + 6 / looks) / WINDOW**2)
    smooth = max(RESOLUTION * chance / width, 1.0)
    rng = np.random.default_rng(0)
    # Overlapping windows share pixels, so they count as fewer.
    number = max(int(counts.sum() / overlap), 1)
    drawn = rng.multinomial(number, counts / counts.sum(), RESAMPLES).astype(np.float64)
    curves = gaussian_filter1d(
        np.concatenate([counts[None].astype(np.float64), drawn]), smooth, axis=1, mode="constant"
    )
    places = edges[0] + width * (0.5 + curves.argmax(axis=1))
    return float(places[0]), float(places[1:].std())
