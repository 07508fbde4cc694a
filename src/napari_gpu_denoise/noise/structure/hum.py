"""Periodic hum: waves of one frequency and phase over a whole plane."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.fft import rfft2
from scipy.ndimage import uniform_filter

SMALLEST = 64  # pixels of the shortest side of a plane that is looked at
_FEWEST_CYCLES = 8  # over the plane; slower waves may be its shading
_MOST_WAVES = 8
_AROUND = 17  # frequencies whose mean is what a peak is compared with
_LEAST_RATIO = 15.0  # of the power of a peak to that
_BLOCKS = 4  # along each axis, in which a wave has to be the same
_BESIDE = 2.5  # cycles per block, beyond the reach of a window of Hann
_LEAST_TIMES = 1.0  # of the amplitude that noise makes in a block
_NEAR, _MOST_OTHERS = 0.5, 0.25  # of the amplitude; share of blocks that may differ by more


@dataclass(frozen=True)
class Wave:
    """A wave, ``re(amplitude * exp(2 pi i (fy * y + fx * x)))``; frequencies in cycles per pixel.

    `agreement` is the share of blocks of the plane in which it is the same.
    """

    fy: float
    fx: float
    amplitude: complex
    agreement: float

    def over(self, shape: tuple[int, int]) -> np.ndarray:
        """Return the wave as a plane, float32."""
        along_y, along_x = _carriers(self.fy, self.fx, shape)
        column = (self.amplitude * along_y.conj())[:, None]
        return np.real(column * along_x.conj()).astype(np.float32)


def find_waves(plane: np.ndarray) -> list[Wave]:
    """Return the waves of a plane (y, x), float32, the strongest first.

    Peaks of the power spectrum are tried; one is a wave if amplitude and phase are the same in
    blocks all over the plane. A texture of an object has neither.
    """
    waves: list[Wave] = []
    rest = plane - plane.mean(dtype=np.float64).astype(plane.dtype)
    for _ in range(2):  # the strongest may hide others
        more = [wave for fy, fx in _peaks(rest) if (wave := _wave_at(rest, fy, fx)) is not None]
        more = _different(more, waves, plane.shape)[: _MOST_WAVES - len(waves)]
        if not more:
            break
        waves += more
        for wave in more:
            rest = rest - wave.over(plane.shape)
    return sorted(waves, key=lambda wave: -abs(wave.amplitude))


def _peaks(plane: np.ndarray) -> list[tuple[float, float]]:
    """Return the frequencies (fy, fx) of the highest peaks above what is around them."""
    ny, nx = plane.shape
    window = [np.hanning(n).astype(np.float32) for n in (ny, nx)]
    power = np.abs(rfft2(plane * window[0][:, None] * window[1])) ** 2
    largest = float(power.max())
    if not largest > 0 or not math.isfinite(largest):
        return []
    level = np.log(np.maximum(power, 1e-12 * largest))
    # Stripes are lines in the spectrum: a peak has to stand out of them, too.
    modes = ("wrap", "mirror")
    around = uniform_filter(level, _AROUND, mode=modes)
    for size in ((_AROUND, 1), (1, _AROUND)):
        around = np.maximum(around, uniform_filter(level, size, mode=modes))
    fy, fx = np.fft.fftfreq(ny)[:, None], np.fft.rfftfreq(nx)[None]
    # Near a frequency of 0 or 1/2 along both axes, a wave cannot be told from its mirror image.
    cycles = [np.square((2 * f - np.rint(2 * f)) * n) for f, n in ((fy, ny), (fx, nx))]
    slow = cycles[0] + cycles[1] < (2 * _FEWEST_CYCLES) ** 2
    half = (fx == 0) & (fy < 0)  # each is there twice
    ratio = np.where(slow | half, -np.inf, level - around)
    # The mean logarithm of the power of noise is 0.577 below that of its mean.
    by_chance = math.log(math.log(ratio.size) + 1) + 0.577
    least = max(math.log(_LEAST_RATIO), by_chance)
    found = []
    for _ in range(2 * _MOST_WAVES):
        y, x = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
        if ratio[y, x] < least:
            break
        found.append(_between(power, int(y), int(x), ny, nx))
        near_y = np.arange(y - 3, y + 4) % ny
        ratio[near_y[:, None], np.arange(max(x - 3, 0), min(x + 4, ratio.shape[1]))] = -np.inf
    return found


def _between(power: np.ndarray, y: int, x: int, ny: int, nx: int) -> tuple[float, float]:
    """Return the frequency of a peak, between those of the spectrum."""
    root = np.sqrt(power)
    sides_y = root[(y - 1) % ny, x], root[(y + 1) % ny, x]
    last = root.shape[1] - 1
    sides_x = root[y, x - 1] if x else root[-y % ny, 1], root[y, x + 1] if x < last else 0.0
    shifts = []
    for before, after in (sides_y, sides_x):
        total = before + 2 * root[y, x] + after
        shifts.append(2 * float(after - before) / float(total))  # of the window of Hann
    fy = y if 2 * y <= ny else y - ny
    return (fy + shifts[0]) / ny, (x + shifts[1] * (0 < x < last)) / nx


def _wave_at(plane: np.ndarray, fy: float, fx: float) -> Wave | None:
    """Return the wave near a frequency, if the blocks of the plane agree on it."""
    found = np.zeros((1, 1), complex)
    for _ in range(3):
        found, size = _amplitudes(plane, fy, fx)
        # What is left of the frequency turns the phase from block to block.
        turns = (
            np.angle(np.sum(found[1:] * found[:-1].conj())),
            np.angle(np.sum(found[:, 1:] * found[:, :-1].conj())),
        )
        fy, fx = (
            f + turn / (2 * math.pi * n) for f, turn, n in zip((fy, fx), turns, size, strict=True)
        )
    found, _ = _amplitudes(plane, fy, fx)
    amplitude = complex(np.median(found.real), np.median(found.imag))
    if amplitude == 0:
        return None
    # What noise and texture make of it, from frequencies beside this one.
    beside = [
        _amplitudes(plane, fy + dy / size[0], fx + dx / size[1])[0]
        for dy, dx in ((-_BESIDE, 0), (_BESIDE, 0), (0, -_BESIDE), (0, _BESIDE))
    ]
    # The median of the power of noise is log 2 of its mean; one of the four may hold more.
    noise = np.sqrt(np.median(np.abs(beside) ** 2, axis=0) / math.log(2))
    if abs(amplitude) < _LEAST_TIMES * float(np.median(noise)):
        return None
    allowed = np.maximum(_NEAR * abs(amplitude), np.minimum(noise, abs(amplitude)))
    others = float(np.mean(np.abs(found - amplitude) > allowed))
    if others > _MOST_OTHERS:
        return None
    return Wave(float(fy), float(fx), 2 * amplitude, 1 - others)


def _amplitudes(plane: np.ndarray, fy: float, fx: float) -> tuple[np.ndarray, tuple[float, float]]:
    """Return the complex amplitude at a frequency in each block, and the size of blocks."""
    ny, nx = plane.shape
    along_y, along_x = _carriers(fy, fx, plane.shape)
    cuts_y, cuts_x = (np.arange(_BLOCKS + 1) * n // _BLOCKS for n in (ny, nx))
    right = np.zeros((nx, _BLOCKS), np.complex64)
    left = np.zeros((_BLOCKS, ny), np.complex64)
    for k in range(_BLOCKS):
        for table, cuts, carrier in ((right.T, cuts_x, along_x), (left, cuts_y, along_y)):
            inside = slice(cuts[k], cuts[k + 1])
            window = np.hanning(cuts[k + 1] - cuts[k] + 2)[1:-1]
            table[k, inside] = window / window.sum() * carrier[inside]
    # Twice with real numbers: NumPy would copy the plane as complex ones.
    inner = plane @ right.real + 1j * (plane @ right.imag)
    return left @ inner, (ny / _BLOCKS, nx / _BLOCKS)


def _carriers(fy: float, fx: float, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return ``exp(-2 pi i f k)`` along both axes."""
    along = (np.exp(-2j * math.pi * f * np.arange(n)) for f, n in zip((fy, fx), shape, strict=True))
    return next(along), next(along)


def _different(found: list[Wave], known: list[Wave], shape: tuple[int, int]) -> list[Wave]:
    """Return the waves that are not the same as one before, strongest first.

    A wave is the same with both frequencies negative.
    """
    kept: list[Wave] = []
    for wave in sorted(found, key=lambda wave: -abs(wave.amplitude)):
        others = [(sign * each.fy, sign * each.fx) for each in (*known, *kept) for sign in (1, -1)]
        if all(
            max(abs(wave.fy - fy) * shape[0], abs(wave.fx - fx) * shape[1]) > 2 for fy, fx in others
        ):
            kept.append(wave)
    return kept
