"""How much of the detail a filter keeps, against spatial frequency.

The noisy image is split into two whose noise is independent: one is filtered, and compared with
the other, which holds the detail as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import fft

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
