"""Formulas of an assessment: detail kept, expected error, residual, and the check of sigma."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import fft
from scipy.ndimage import gaussian_filter, zoom

ALPHA = 0.1  # fresh noise in the image that is filtered, as variance in units of that of the noise
RING = 0.04  # cycles per pixel
_WIDEST = 2.0  # rings are at least so many steps of frequency wide
JUDGED = 0.5  # signal over noise of a ring above which its value can be relied on
_SURE = 0.05  # relative standard error of its signal, up to which it can be relied on
_WINDOWED = 1.5  # by how much the window raises that error
HALF = 0.5


@dataclass(frozen=True)
class Detail:
    """The contrast that a channel keeps, by spatial frequency.

    Attributes
    ----------
    frequency : tuple of float
        Middle of each ring, cycles per pixel (of the finer of the two axes).
    kept : tuple of float
        Contrast in the result over that in the image without noise: 1 where nothing is lost.
    signal_to_noise : tuple of float
        Power of the image without noise over that of the noise.
    judged : tuple of bool
        Whether there is signal enough to rely on the value.
    """

    frequency: tuple[float, ...]
    kept: tuple[float, ...]
    signal_to_noise: tuple[float, ...]
    judged: tuple[bool, ...]

    @property
    def half(self) -> float | None:
        """Frequency up to which half the contrast is kept; None if all that can be judged keeps it.

        Nothing is known beyond the last ring that can be judged without a gap, `limit`.
        """
        rows = self._first()
        for k, (frequency, kept) in enumerate(rows):
            if kept < HALF and (k + 1 == len(rows) or rows[k + 1][1] < HALF):
                if k == 0:
                    return frequency
                before, above = rows[k - 1]
                share = (above - HALF) / max(above - kept, 1e-9)
                return before + min(max(share, 0.0), 1.0) * (frequency - before)
        return None

    @property
    def limit(self) -> float | None:
        """The highest frequency up to which rings can be judged; None if there is none."""
        rows = self._first()
        return rows[-1][0] if rows else None

    def _first(self) -> list[tuple[float, float]]:
        """Return frequency and contrast of the rings before the first that cannot be judged."""
        found = []
        for frequency, kept, judged in zip(self.frequency, self.kept, self.judged, strict=True):
            if not judged:
                break
            found.append((frequency, kept))
        return found


class Rings:
    """Sums over rings of equal spatial frequency, of planes (…, y, x) below a Hann window."""

    def __init__(self, height: int, width: int, spacing: Sequence[float] = (1.0, 1.0)):
        self.shape = height, width
        finer = min(spacing)
        y = fft.fftfreq(height) * finer / spacing[0]
        x = fft.rfftfreq(width) * finer / spacing[1]
        radius = np.hypot(y[:, None], x)
        self.step = max(RING, _WIDEST / min(height * spacing[0], width * spacing[1]) * finer)
        self._ring = np.floor(radius / self.step).astype(np.int64).ravel()
        self.count = int(0.5 / self.step)
        twice = np.full(radius.shape, 2.0)
        twice[:, 0] = 1.0
        if width % 2 == 0:
            twice[:, -1] = 1.0
        self._weight = twice.ravel()
        hann = [np.sin(np.pi * (np.arange(n) + 0.5) / n) ** 2 for n in self.shape]
        self.window = (hann[0][:, None] * hann[1]).astype(np.float32)

    @property
    def sizes(self) -> np.ndarray:
        """Number of frequencies of each ring, of which half are independent."""
        return self.sums(np.full((1, 1), 0.5))

    @property
    def frequency(self) -> np.ndarray:
        """Middle of each ring."""
        return (np.arange(self.count) + 0.5) * self.step

    def spectrum(self, planes: np.ndarray) -> np.ndarray:
        """Return the spectrum of planes below the window, without their mean."""
        share = self.window / self.window.sum()
        mean = (planes * share).sum(axis=(-2, -1), keepdims=True)
        below = ((planes - mean) * self.window).astype(np.float32)
        return fft.rfft2(below, workers=-1)

    def sums(self, power: np.ndarray) -> np.ndarray:
        """Return the sum over each ring, and over planes, of numbers for each frequency."""
        total = np.broadcast_to(power, (*power.shape[:-2], self.shape[0], self.shape[1] // 2 + 1))
        flat = total.reshape(-1, self._ring.size).sum(axis=0, dtype=np.float64) * self._weight
        return np.bincount(self._ring, flat, self.count)[: self.count]

    def noise(self, spread: np.ndarray, power: np.ndarray | float) -> np.ndarray:
        """Return the expected sums of noise of a spread, whose power spectrum has a mean of 1."""
        # The window takes the mean with it: the ring at 0 lacks little.
        total = float(np.sum(np.square(spread * self.window), dtype=np.float64))
        return total * self.sums(np.zeros(1) + power)


def detail(
    rings: Rings,
    noisy: np.ndarray,
    noise: np.ndarray,
    filtered: Sequence[np.ndarray],
    others: Sequence[np.ndarray],
    second: np.ndarray | None = None,
) -> Detail:
    """Return the detail kept in planes (…, y, x) of one channel.

    `filtered` are results for images whose noise is independent of that in `others`; `noise` are
    the sums of the noise of `noisy`. `second` is another image of the same, whose noise is
    independent of that of `noisy`: the signal is then told from both, not from the noise assumed.
    """
    original = rings.spectrum(noisy)
    kept = np.zeros(rings.count)
    for one, other in zip(filtered, others, strict=True):
        both = rings.spectrum(one) * rings.spectrum(other).conj()
        kept += rings.sums(both.real) / len(filtered)
    if second is None:
        signal = rings.sums(np.square(original.real) + np.square(original.imag)) - noise
    else:
        signal = rings.sums((original * rings.spectrum(second).conj()).real)
    ratio = signal / np.maximum(noise, 1e-300)
    sure = _WINDOWED * np.sqrt(1 + 2 * np.maximum(ratio, 0)) < _SURE * ratio * rings.sizes**0.5
    judged = (ratio > JUDGED) & sure
    transfer = np.where(judged, kept / np.where(judged, signal, 1.0), np.nan)
    # Noise enough may leave any number, of no meaning.
    some = np.where(signal > 0, kept / np.where(signal > 0, signal, 1.0), np.nan)
    transfer = np.where(judged, transfer, np.clip(some, -0.5, 1.5))
    return Detail(
        tuple(rings.frequency.tolist()),
        tuple(transfer.tolist()),
        tuple(ratio.tolist()),
        tuple(judged.tolist()),
    )


EPSILON = 0.1  # fresh noise in units of the noise
PAIRS = 3
MAP_WIDTH = 12.0  # pixels: standard deviation of the mean that makes the map


def told_factor(strength: float) -> float:
    """Return the factor on sigma for an image with so much fresh noise, in units of its own."""
    return float(np.sqrt(1 + strength**2))


def squared_errors(
    noisy: np.ndarray, fresh: np.ndarray, variance: np.ndarray, plus: np.ndarray, minus: np.ndarray
) -> np.ndarray:
    """Return an unbiased estimate of the squared error at each pixel, of any shape.

    `fresh` is fresh noise and `variance` that of the noise; `plus` and `minus` are the results for
    the noisy image with `EPSILON` times the fresh noise added and subtracted.
    """
    followed = fresh * (plus - minus) / np.float32(EPSILON)
    return ((plus - noisy) ** 2 + (minus - noisy) ** 2) / 2 + followed - variance


def error_map(
    squared: np.ndarray,
    varied: np.ndarray,
    mean: np.ndarray,
    spread: np.ndarray,
    known: np.ndarray,
    correlated: float = 1.0,
) -> np.ndarray:
    """Return the expected squared error around each pixel of planes (…, y, x), float32.

    It is the local mean of `squared`, drawn towards what follows from the noise that is kept
    (`varied`, the variance of the result) and from the slopes of the result, as far as the noise of
    that mean asks for it: few pixels tell little where the error is far below the noise. How both
    add up is fitted to `squared` itself. `correlated` is the sum of the squared autocorrelation of
    the noise.
    """
    slope = np.square(np.gradient(mean, axis=-1)) + np.square(np.gradient(mean, axis=-2))
    told = [_coarse(each, known) for each in (spread**2, varied, slope, np.sqrt(slope))]
    errors = _coarse(squared, known)
    weight = _coarse(known.astype(np.float32), np.ones_like(known))
    usable = weight > 0.25
    terms = np.stack([each[usable] for each in told], axis=-1).astype(np.float64)
    scale = np.sqrt(np.mean(np.square(terms), axis=0)) + 1e-30
    factors, *_ = np.linalg.lstsq(terms / scale, errors[usable].astype(np.float64), rcond=None)
    model = np.stack(told, axis=-1) @ (factors / scale)
    noise = (
        2 * correlated * np.square(told[0]) / (4 * np.pi * MAP_WIDTH**2) / np.maximum(weight, 0.1)
    )
    apart = np.mean(np.square(errors - model)[usable]) - np.mean(noise[usable])
    trust = max(float(apart), 0.0) / (max(float(apart), 0.0) + noise)
    expected = np.where(usable, model + trust * (errors - model), errors)
    # Some of the noise is left everywhere, though not all that `varied` has, which jumps raise.
    return _fine(np.maximum(expected, _LEAST * told[1]), mean.shape)


_LEAST = 0.25  # of the variance of the result, that the error has
_BLOCK = 4  # pixels along Y and X that are taken together before local means


def _coarse(values: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return Gaussian means of known pixels of planes (…, y, x), at every fourth pixel."""
    width = [0] * (values.ndim - 2) + [MAP_WIDTH / _BLOCK] * 2
    options = {"sigma": width, "mode": "constant", "truncate": 3.0}
    total = gaussian_filter(_blocks(np.where(known, values, 0)), **options)
    weight = gaussian_filter(_blocks(known), **options)
    return total / np.maximum(weight, 1e-6)


def _blocks(values: np.ndarray) -> np.ndarray:
    """Return sums over blocks; those at the end may be of fewer pixels."""
    ny, nx = values.shape[-2:]
    rest = [(0, 0)] * (values.ndim - 2) + [(0, -n % _BLOCK) for n in (ny, nx)]
    padded = np.pad(values.astype(np.float32), rest)
    shape = (*values.shape[:-2], padded.shape[-2] // _BLOCK, _BLOCK, padded.shape[-1] // _BLOCK, -1)
    return padded.reshape(shape).sum(axis=(-3, -1))


def _fine(values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return values at blocks as values at pixels, by linear interpolation."""
    factors = [1] * (values.ndim - 2) + [_BLOCK] * 2
    found = zoom(values, factors, order=1, mode="nearest", grid_mode=True)
    return found[..., : shape[-2], : shape[-1]].astype(np.float32)


def standard_error(
    spread: np.ndarray,
    residual: np.ndarray,
    varied: np.ndarray,
    followed: np.ndarray,
    pairs: int,
    correlated: float = 1.0,
    unsure: float = 0.0,
) -> float:
    """Return the standard error of a predicted mean square, from those pixels that count.

    It has three parts: that of Stein's estimate (P. C. Bellec, C.-H. Zhang, "Second-order Stein",
    Ann. Statist. 49, 2021), which an estimate of its own gives, that of the fresh noise of `pairs`
    of runs, and that of sigma, of a relative standard error `unsure`. `spread` is the noise,
    `residual` what the filter took, `varied` and `followed` are as in `Observed`, and `correlated`
    is the sum of the squared autocorrelation of the noise.
    """
    power, count = np.square(spread, dtype=np.float64), max(spread.size, 1)
    drawn = 4 * power * (np.square(residual) + varied * (1 + 2 / pairs)) - 2 * power**2
    by_pixels = correlated * max(float(drawn.sum()), 0.0) / count**2
    by_sigma = 2 * unsure * float(np.mean(followed - power))
    return math.sqrt(by_pixels + by_sigma**2)


def decibels(mse: float, peak: float) -> float:
    """Return the PSNR."""
    return float(10 * np.log10(peak**2 / mse))


@dataclass(frozen=True)
class Statistics:
    """Of a residual in units of the noise.

    Attributes
    ----------
    variance : float
        1 where all the noise was taken, and nothing else.
    along_x, along_y : float
        Correlation of neighbouring pixels.
    """

    variance: float
    along_x: float
    along_y: float

    @classmethod
    def of(cls, residual: np.ndarray, known: np.ndarray) -> Statistics:
        """Return those of planes (…, y, x); `known` says which pixels count."""
        values = np.where(known, residual, 0).astype(np.float32)
        count = max(int(np.count_nonzero(known)), 1)
        mean = values.sum(dtype=np.float64) / count
        values = np.where(known, values - np.float32(mean), 0)
        variance = float(np.vdot(values, values)) / count

        def neighbours(one: tuple, other: tuple) -> float:
            pairs = max(int(np.count_nonzero(known[one] & known[other])), 1)
            product = float(np.sum(values[one] * values[other], dtype=np.float64))
            return product / pairs / variance if variance > 0 else 0.0

        return cls(
            variance,
            neighbours(np.s_[..., 1:], np.s_[..., :-1]),
            neighbours(np.s_[..., 1:, :], np.s_[..., :-1, :]),
        )


FACTORS = (0.6, 0.73, 0.87, 1.0, 1.15, 1.35, 1.6)
GRID = 4  # every so-manieth pixel along Y and X
FITS = (0.85, 1.25)  # of the best factor, within which sigma is taken to be right
WORTH = 0.012  # by which the loss has to fall: that of smooth images hardly depends on sigma
MOST_CHECKED = 1 << 17  # pixels of the crop for this


@dataclass(frozen=True)
class SigmaCheck:
    """How well the filter predicts pixels it has not seen, told other strengths of the noise.

    Attributes
    ----------
    factors, losses : tuple of float
        Factors on sigma, and the loss of each in units of the variance of the noise.
    best : float
        Factor with the lowest loss.
    """

    factors: tuple[float, ...]
    losses: tuple[float, ...]
    best: float

    @property
    def fits(self) -> bool:
        """Whether the sigma assumed is near enough to the best: then it is better kept."""
        told = self.losses[self.factors.index(1.0)]
        gain = told / min(self.losses) - 1 if min(self.losses) > 0 else 0.0
        return FITS[0] <= self.best <= FITS[1] or gain < WORTH


def hidden_grid(shape: Sequence[int], axes: tuple[int, int], first: int = 1) -> np.ndarray:
    """Return the mask of the pixels that are replaced."""
    mask = np.ones(tuple(shape), bool)
    for k in axes:
        along = np.zeros(shape[k], bool)
        along[first::GRID] = True
        mask &= along.reshape([-1 if j == k else 1 for j in range(len(shape))])
    return mask


def without_hidden(values: np.ndarray, mask: np.ndarray, axes: tuple[int, int]) -> np.ndarray:
    """Return pixels with those of the mask replaced by the mean of their four neighbours."""
    total = np.zeros_like(values)
    for k in axes:
        padded = np.pad(
            values, [(1, 1) if j == k else (0, 0) for j in range(values.ndim)], "reflect"
        )
        for start in (0, 2):
            index = [slice(None)] * values.ndim
            index[k] = slice(start, start + values.shape[k])
            total += padded[tuple(index)]
    return np.where(mask, total / 4, values)


def hidden_loss(
    values: np.ndarray, spread: np.ndarray, result: np.ndarray, mask: np.ndarray
) -> float:
    """Return the mean squared difference at the pixels of the mask, in units of the noise."""
    return float(np.mean(np.square(((result - values) / spread)[mask]), dtype=np.float64))


def best_factor(factors: Sequence[float], losses: Sequence[float]) -> SigmaCheck:
    """Return the check, with the minimum of a parabola through the lowest loss."""
    k = int(np.argmin(losses))
    best = math.log(factors[k])
    if 0 < k < len(factors) - 1:
        x = np.log(factors[k - 1 : k + 2])
        a, b, _ = np.polyfit(x, losses[k - 1 : k + 2], 2)
        if a > 0:
            best = float(np.clip(-b / (2 * a), x[0], x[-1]))
    return SigmaCheck(tuple(factors), tuple(losses), math.exp(best))
