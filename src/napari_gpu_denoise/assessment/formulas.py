"""Formulas of an assessment: detail kept, expected error, residual, and the check of sigma."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import fft
from scipy.ndimage import correlate1d

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
    judged : tuple of bool
        Whether there is signal enough to rely on the value.
    """

    frequency: tuple[float, ...]
    kept: tuple[float, ...]
    judged: tuple[bool, ...]

    @property
    def _count(self) -> int:
        """Number of rings before the first that cannot be judged: nothing is known beyond."""
        return [*self.judged, False].index(False)

    @property
    def limit(self) -> float | None:
        """The highest frequency up to which rings can be judged; None if there is none."""
        return self.frequency[self._count - 1] if self._count else None

    @property
    def half(self) -> float | None:
        """Frequency up to which half the contrast is kept; None if it is up to `limit`."""
        kept, last = self.kept, self._count - 1
        for k in range(self._count):
            if kept[k] < HALF and kept[min(k + 1, last)] < HALF:
                before = max(k - 1, 0)
                rows = (kept[k], kept[before]), (self.frequency[k], self.frequency[before])
                return float(np.interp(HALF, *rows)) if k else self.frequency[0]
        return None


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
        self.frequency = (np.arange(self.count) + 0.5) * self.step
        self._weight = np.broadcast_to(twice(width), radius.shape).ravel()
        hann = [np.sin(np.pi * (np.arange(n) + 0.5) / n) ** 2 for n in self.shape]
        self.window = (hann[0][:, None] * hann[1]).astype(np.float32)

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
        return total * self.sums(np.zeros((1, 1)) + power)


def twice(width: int) -> np.ndarray:
    """Return how often each column of `rfft2` is in the whole spectrum."""
    count = np.full(width // 2 + 1, 2.0)
    count[0] = 1.0
    if width % 2 == 0:
        count[-1] = 1.0
    return count


def detail(
    rings: Rings,
    noisy: np.ndarray,
    noise: np.ndarray,
    filtered: np.ndarray,
    others: np.ndarray,
) -> Detail:
    """Return the detail kept in planes (…, y, x) of one channel.

    Along a first axis, `filtered` are results for images whose noise is independent of that in
    `others`; `noise` are the sums of the noise of `noisy`.
    """
    both = rings.spectrum(filtered) * rings.spectrum(others).conj()
    kept = rings.sums(np.real(both)) / len(filtered)
    original = rings.spectrum(noisy)
    signal = rings.sums(np.square(np.real(original)) + np.square(np.imag(original))) - noise
    ratio = signal / np.maximum(noise, 1e-300)
    independent = rings.sums(np.full((1, 1), 0.5))
    sure = _WINDOWED * np.sqrt(1 + 2 * np.maximum(ratio, 0)) < _SURE * ratio * independent**0.5
    judged = (ratio > JUDGED) & sure
    transfer = np.where(signal > 0, kept / np.where(signal > 0, signal, 1.0), np.nan)
    # Noise enough may leave any number, of no meaning.
    transfer = np.where(judged, transfer, np.clip(transfer, -0.5, 1.5))
    return Detail(*(tuple(each.tolist()) for each in (rings.frequency, transfer, judged)))


EPSILON = 0.1  # fresh noise in units of the noise
PAIRS = 3


def squared_errors(
    noisy: np.ndarray, fresh: np.ndarray, variance: np.ndarray, plus: np.ndarray, minus: np.ndarray
) -> np.ndarray:
    """Return an unbiased estimate of the squared error at each pixel, of any shape.

    `fresh` is fresh noise and `variance` that of the noise; `plus` and `minus` are the results for
    the noisy image with `EPSILON` times the fresh noise added and subtracted.
    """
    followed = fresh * (plus - minus) / np.float32(EPSILON)
    return ((plus - noisy) ** 2 + (minus - noisy) ** 2) / 2 + followed - variance


def standard_error(
    spread: np.ndarray,
    residual: np.ndarray,
    varied: np.ndarray,
    followed: np.ndarray,
    correlated: float = 1.0,
    unsure: float = 0.0,
) -> float:
    """Return the standard error of a predicted mean square, from those pixels that count.

    It has three parts: that of Stein's estimate (P. C. Bellec, C.-H. Zhang, "Second-order Stein",
    Ann. Statist. 49, 2021), which an estimate of its own gives, that of the fresh noise of `PAIRS`
    of runs, and that of sigma, of a relative standard error `unsure`. `spread` is the noise,
    `residual` what the filter took, `varied` and `followed` are as in `Observed`, and `correlated`
    is the sum of the squared autocorrelation of the noise.
    """
    power, count = np.square(spread, dtype=np.float64), max(spread.size, 1)
    drawn = 4 * power * (np.square(residual) + varied * (1 + 2 / PAIRS)) - 2 * power**2
    by_pixels = correlated * max(float(drawn.sum()), 0.0) / count**2
    by_sigma = 2 * unsure * float(np.mean(followed - power))
    return math.sqrt(by_pixels + by_sigma**2)


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
    losses : tuple of float
        The loss with each of the `FACTORS` on sigma, in units of the variance of the noise.
    best : float
        Factor with the lowest loss, over that of a twin of the image whose noise is known.
    """

    losses: tuple[float, ...]
    best: float

    @classmethod
    def of(cls, losses: Sequence[float]) -> SigmaCheck:
        """Return the check, with the minimum of a parabola through the lowest loss."""
        k = int(np.argmin(losses))
        best = math.log(FACTORS[k])
        if 0 < k < len(FACTORS) - 1:
            x = np.log(FACTORS[k - 1 : k + 2])
            a, b, _ = np.polyfit(x, losses[k - 1 : k + 2], 2)
            if a > 0:
                best = float(np.clip(-b / (2 * a), x[0], x[-1]))
        return cls(tuple(losses), math.exp(best))

    @property
    def fits(self) -> bool:
        """Whether the sigma assumed is near enough to the best: then it is better kept."""
        least = min(self.losses)
        gain = self.losses[FACTORS.index(1.0)] / least - 1 if least > 0 else 0.0
        return FITS[0] <= self.best <= FITS[1] or gain < WORTH


def hidden_grid(shape: Sequence[int], axes: tuple[int, int]) -> np.ndarray:
    """Return the mask of the pixels that are replaced."""
    mask, place = np.zeros(tuple(shape), bool), [slice(None)] * len(shape)
    for k in axes:
        place[k] = slice(1, None, GRID)
    mask[tuple(place)] = True
    return mask


def without_hidden(values: np.ndarray, mask: np.ndarray, axes: tuple[int, int]) -> np.ndarray:
    """Return pixels with those of the mask replaced by the mean of their four neighbours."""
    around = sum(correlate1d(values, (0.25, 0, 0.25), k, mode="mirror") for k in axes)
    return np.where(mask, around, values)


def hidden_loss(
    values: np.ndarray, spread: np.ndarray, result: np.ndarray, mask: np.ndarray
) -> float:
    """Return the mean squared difference at the pixels of the mask, in units of the noise."""
    return float(np.mean(np.square(((result - values) / spread)[mask]), dtype=np.float64))
