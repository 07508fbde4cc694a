"""Noise of repeated magnitude images, from the pixels in which repetitions hold noise alone.

After C. G. Koay, E. Özarslan and C. Pierpaoli, *Probabilistic identification and estimation of
noise (PIESNO): a self-consistent approach and its applications in MRI*, Journal of Magnetic
Resonance 199 (2009).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from napari_gpu_denoise.errors import ImageError, SettingsError
from napari_gpu_denoise.image.levels import check_numbers

REJECTED = 0.01  # share of true noise that is rejected
TRIALS = 50  # values of sigma it starts from
ROUNDS = 50  # of the iteration from each, at most
MAX_GROUPS = 40_000  # groups of values looked at, about
LIKE_NOISE = 0.25  # by which the squared contrast may be below that of pure noise, relative
COILS = (1, 2, 4, 8, 16, 32)  # tried where the number is not known
RANGES = 64  # of sorted values, in which those of groups are counted
CONTRAST_ERROR = 1.1  # relative standard error of that contrast, of one value


@dataclass(frozen=True)
class Piesno:
    """Sigma of the real and imaginary parts of each coil, and share of pixels without signal."""

    sigma: float  # grey levels
    error: float  # standard error of sigma
    share: float  # of the pixels (y, x) that hold noise alone


def piesno(stack: Any, coils: int = 1) -> Piesno:
    """Measure sigma in magnitude images of one slice, on the pixels that hold only noise.

    `stack` is (n, y, x), one slice measured n times, such as with n gradient directions; `coils` is
    the number of coils whose squares were summed (degrees of freedom / 2). Sigma is 0 where no
    pixel holds noise alone.

    Sigma follows from the quantile with the smallest error for that number of coils (0.797 for 1,
    0.626 for 8), not from the median. Pixels with NaN or infinity, and those that are the same in
    all images, such as padding, are left out; about 40 000 pixels are read.
    """
    if coils < 1:
        raise SettingsError(f"coils is {coils}; give 1 or more.")
    return _of_coils(*_repeated(stack), coils)[0]


def piesno_any_coils(stack: Any) -> tuple[Piesno, int]:
    """Return the result of `piesno`, and the number of coils from 1 to 32 that fits best.

    It is the one for which the pixels without signal are closest to the theoretical distribution.
    """
    values, pixels = _repeated(stack)
    found = [(*_of_coils(values, pixels, coils), coils) for coils in COILS]
    best, _, coils = min(found, key=lambda each: each[1])
    return best, coils


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
    by its sums of squares, but varies less.
    """
    none = 0.0, np.zeros(len(values), bool)
    if not values.any():
        return none
    repetitions = values.shape[1]
    quantile = _best_quantile(coils)[0]
    unit = math.sqrt(2 * _gamma_quantiles(coils, [quantile])[0])
    bounds = _gamma_quantiles(coils * repetitions, [REJECTED / 2, 1 - REJECTED / 2])
    energy = np.square(values).sum(axis=1) / 2
    expected = 1 - math.exp(2 * (math.lgamma(coils + 0.5) - math.lgamma(coils))) / coils
    order = np.argsort(energy)
    ranked = energy[order]
    ordered = values[order]
    quantiles = _Quantiles(ordered)
    (largest,) = quantiles.of(np.array([0]), np.array([len(values)]), quantile) / unit
    sigmas, spans = np.arange(1, trials + 1) / trials * largest, np.zeros((trials, 2), np.intp)
    moving = np.arange(trials)  # starts whose groups still change
    for _ in range(ROUNDS):
        now = np.searchsorted(ranked, bounds * np.square(sigmas[moving])[:, None])
        changed = (now != spans[moving]).any(axis=1) & (now[:, 0] < now[:, 1])
        spans[moving] = now
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
    return float(sigmas[best]), mask


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
        """Return what `numpy.quantile` returns for groups from first to last; of several spans."""
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
    value = _gamma_quantiles(coils, quantiles)
    density = np.exp((coils - 1) * np.log(value) - value - math.lgamma(coils))
    error = np.sqrt(quantiles * (1 - quantiles)) / (2 * value * density)
    best = int(np.argmin(error))
    return float(quantiles[best]), float(error[best])


def _gamma_quantiles(shape: int, shares: ArrayLike) -> np.ndarray:
    """Return quantiles of the gamma law, by bisection.

    SciPy has them, too, but takes longer to import than an estimate takes, and most need no more.
    """
    shares = np.asarray(shares)
    events = np.arange(shape)
    factorials = np.cumsum(np.log(np.maximum(events, 1)))
    low, high = np.zeros(shares.shape), np.full(shares.shape, 2.0 * shape + 40)
    for _ in range(60):
        middle = (low + high) / 2
        # A value is above x where a Poisson variable of mean x is below the shape.
        chances = np.exp(events * np.log(middle)[:, None] - factorials - middle[:, None])
        below = chances.sum(axis=1) > 1 - shares
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return (low + high) / 2


def standard_error(sigma: float, number: int, coils: int) -> float:
    """Return the standard error of sigma from a number of independent values."""
    return sigma * _best_quantile(coils)[1] / math.sqrt(number) if number else 0.0
