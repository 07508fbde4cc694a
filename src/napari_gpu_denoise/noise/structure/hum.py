"""Periodic hum: waves of one frequency and phase over a whole plane."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from scipy.fft import rfft2

from napari_gpu_denoise.image.threads import number_of_workers
from napari_gpu_denoise.noise.patches.coefficients import matmul_in_blocks

# Amplitudes of waves in blocks of a plane, of several frequencies at once.
BLOCKS = 4  # along each axis
# OpenBLAS shares larger products among threads, which take longer to meet than to multiply.
_ALONE = 64**3
_TOGETHER = 16  # frequencies of one product
_LONGEST = 256  # pixels that one product adds up


def along_x(plane: np.ndarray, fx: np.ndarray) -> np.ndarray:
    """Return the complex amplitudes of some frequencies along x in each row of each block.

    Of shape (frequency, block along x, row), complex64; see `along_y`.
    """
    ny, nx = plane.shape
    found = np.zeros((len(fx), BLOCKS, ny), np.complex64)
    cuts = _cuts(nx)
    for first in range(0, len(fx), _TOGETHER):
        some = fx[first : first + _TOGETHER]
        table = _table(some, nx)  # (2, frequency, pixel)
        for k in range(BLOCKS):
            parts = np.zeros((2 * len(some), ny), np.float32)
            count = -(-(cuts[k + 1] - cuts[k]) // _LONGEST)
            inside = cuts[k] + (cuts[k + 1] - cuts[k]) * np.arange(count + 1) // count
            for start, stop in pairwise(inside):
                of_pixels = table[:, :, start:stop].reshape(2 * len(some), -1)
                rows = max(8, _ALONE // of_pixels.size)
                parts += matmul_in_blocks(plane[:, start:stop], of_pixels.T, rows).T
            found[first : first + len(some), k].real = parts[: len(some)]
            found[first : first + len(some), k].imag = parts[len(some) :]
    return found


def along_y(rows: np.ndarray, fy: np.ndarray) -> np.ndarray:
    """Return the complex amplitudes in each block, (frequency, block along y, block along x).

    ``rows`` are those that `along_x` returns, `fy` the frequencies along y. A block has a window of
    Hann along both axes, whose sum is 1.
    """
    ny = rows.shape[-1]
    table = _table(fy, ny)
    turned = rows * (table[0] + 1j * table[1])[:, None]
    return np.add.reduceat(turned, _cuts(ny)[:-1], axis=-1).swapaxes(1, 2)


def _table(frequencies: np.ndarray, count: int) -> np.ndarray:
    """Return windows of blocks times ``exp(-2 pi i f k)``, (real or imaginary, frequency, k)."""
    turns = np.asarray(frequencies)[:, None] * np.arange(count)
    phase = ((turns - np.rint(turns)) * (-2 * math.pi)).astype(np.float32)
    table = np.empty((2, *phase.shape), np.float32)
    np.cos(phase, out=table[0])
    np.sin(phase, out=table[1])
    table *= _windows(count)
    return table


@lru_cache(maxsize=8)
def _cuts(count: int) -> np.ndarray:
    """Return the first pixel of each block, and the end of the last."""
    return np.arange(BLOCKS + 1) * count // BLOCKS


@lru_cache(maxsize=8)
def _windows(count: int) -> np.ndarray:
    """Return the windows of all blocks side by side, each with a sum of 1, float32."""
    windows = [np.hanning(size + 2)[1:-1] for size in np.diff(_cuts(count))]
    return np.concatenate([each / each.sum() for each in windows]).astype(np.float32)


# Peaks of the power spectrum of a plane that stand out of what is around them.
_FEWEST_CYCLES = 8  # over the plane; slower waves may be its shading
_AROUND = 17  # frequencies whose mean is what a peak is compared with
_LEAST_RATIO = 15.0  # of the power of a peak to that
_BAND = 128  # rows of the spectrum looked at at once
_APART = 3  # frequencies; a lower peak within these is the same


@lru_cache(maxsize=8)
def hann(count: int) -> np.ndarray:
    """Return the window of Hann, float32, read-only."""
    window = np.hanning(count).astype(np.float32)
    window.flags.writeable = False
    return window


def find_peaks(plane: np.ndarray, most: int) -> np.ndarray:
    """Return the frequencies of the highest peaks of a plane (y, x), float32, (peak, 2).

    Along y and x in cycles per pixel, the highest above its surroundings first; at most `most`.
    """
    ny, nx = plane.shape
    windowed = plane * hann(ny)[:, None]
    windowed *= hann(nx)
    spectrum = rfft2(windowed, overwrite_x=True, workers=number_of_workers())
    power = np.square(spectrum.real)
    power += np.square(spectrum.imag)
    largest = float(power.max())
    if not largest > 0 or not math.isfinite(largest):
        return np.zeros((0, 2))
    # The mean logarithm of the power of noise is 0.577 below that of its mean.
    by_chance = math.log(math.log(power.size) + 1) + 0.577
    ys, xs, ratio = _standing_out(power, largest, max(math.log(_LEAST_RATIO), by_chance))
    # Near a frequency of 0 or 1/2 along both axes, a wave cannot be told from its mirror image.
    sides = [np.minimum(2 * k % n, -2 * k % n) for k, n in ((ys, ny), (xs, nx))]
    slow = np.hypot(*sides) < 2 * _FEWEST_CYCLES
    half = (xs == 0) & (2 * ys >= ny)  # each is there twice
    keep = np.flatnonzero(~(slow | half))
    keep = keep[np.argsort(-ratio[keep], kind="stable")]
    found: list[int] = []
    while keep.size and len(found) < most:
        best = keep[0]
        found.append(best)
        same = np.zeros(len(keep), bool)
        for sign in (1, -1):  # it is there twice, too, where its other half is near x = 0
            away = (ys[keep] - sign * ys[best]) % ny
            same |= (np.minimum(away, ny - away) <= _APART) & (
                np.abs(xs[keep] - sign * xs[best]) <= _APART
            )
        keep = keep[~same]
    return _between(power, ys[found], xs[found], nx)


def _standing_out(
    power: np.ndarray, largest: float, least: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return places (y, x) whose logarithm is `least` above the means around it, and by how much.

    Stripes are lines in the spectrum: a peak has to stand out of a square, and of lines along both
    axes. Few do of the line along y, so the others are looked at only where it does.
    """
    ny, width = power.shape
    reach = _AROUND // 2
    found = []
    for first in range(0, ny, _BAND):  # of rows, which stay in the cache
        count = min(_BAND, ny - first)
        # Along y the spectrum begins again at its end.
        near = np.arange(first - reach, first + count + reach) % ny
        level = power[near]
        np.log(np.maximum(level, 1e-12 * largest, out=level), out=level)
        sums = level[:-1] + level[1:]  # of 2, then of 4, 8 and 16
        for step in (2, 4, 8):
            sums = sums[:-step] + sums[step:]
        upright = sums[:count]
        upright += level[2 * reach :]
        upright *= np.float32(1 / _AROUND)
        level = level[reach : reach + count]
        places = np.flatnonzero(level - upright >= least)
        if not len(places):
            continue
        ys, xs = np.divmod(places, width)
        # It is mirrored at both ends of x.
        beside = np.abs(xs[:, None] + np.arange(-reach, reach + 1))
        beside = (width - 1) - np.abs((width - 1) - beside)
        around = np.maximum(upright[ys, xs], level[ys[:, None], beside].mean(axis=1))
        around = np.maximum(around, upright[ys[:, None], beside].mean(axis=1))
        ratio = level[ys, xs] - around
        some = ratio >= least
        found.append((first + ys[some], xs[some], ratio[some]))
    if not found:
        return (np.zeros(0, int),) * 2 + (np.zeros(0),)
    ys, xs, ratio = (np.concatenate(each) for each in zip(*found, strict=True))
    return ys, xs, ratio


def _between(power: np.ndarray, ys: np.ndarray, xs: np.ndarray, nx: int) -> np.ndarray:
    """Return the frequencies (peak, 2) of peaks, between those of the spectrum."""
    ny, last = power.shape[0], power.shape[1] - 1
    left = np.where(xs > 0, power[ys, xs - 1], power[-ys % ny, min(1, last)])
    right = np.where(xs < last, power[ys, np.minimum(xs + 1, last)], 0)
    middle = np.sqrt(power[ys, xs])
    shifts = []
    for before, after in ((power[ys - 1, xs], power[(ys + 1) % ny, xs]), (left, right)):
        before, after = np.sqrt(before), np.sqrt(after)
        shifts.append(2.0 * (after - before) / (before + 2 * middle + after))  # of such a window
    fy = np.where(2 * ys <= ny, ys, ys - ny)
    inside = (xs > 0) & (xs < last)
    return np.stack([(fy + shifts[0]) / ny, (xs + shifts[1] * inside) / nx], axis=1)


SMALLEST = 64  # pixels of the shortest side of a plane that is looked at
_MOST_WAVES = 8
_SUMMED_ALONE = 1 << 17  # multiplications of a product that OpenBLAS does not share among threads
_STEPS = 3  # towards the frequency of a wave
_SMALL_TURN = 0.01  # from block to block, radians; not worth another step
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
        return over([self], shape)


def over(waves: Sequence[Wave], shape: tuple[int, int]) -> np.ndarray:
    """Return the sum of waves as a plane, float32."""
    along_y, along_x = (
        np.exp(2j * math.pi * np.multiply.outer(frequencies, np.arange(n)))
        for frequencies, n in (
            ([wave.fy for wave in waves], shape[0]),
            ([wave.fx for wave in waves], shape[1]),
        )
    )
    along_y *= np.array([wave.amplitude for wave in waves])[:, None]
    left = np.concatenate([along_y.real, -along_y.imag]).T
    right = np.concatenate([along_x.real, along_x.imag])
    out = np.empty(shape, np.float32)
    band = max(1, _SUMMED_ALONE // right.size)
    for first in range(0, shape[0], band):
        out[first : first + band] = left[first : first + band] @ right
    return out


def find_waves(plane: np.ndarray) -> list[Wave]:
    """Return the waves of a plane (y, x), float32, the strongest first.

    Peaks of the power spectrum are tried; one is a wave if amplitude and phase are the same in
    blocks all over the plane. A texture of an object has neither.
    """
    waves: list[Wave] = []
    rest = plane - plane.mean(dtype=np.float64).astype(plane.dtype)
    for _ in range(2):  # the strongest may hide others
        if waves:
            rest = without(rest, waves)
        found = _waves_at(rest, find_peaks(rest, 2 * _MOST_WAVES))
        more = _different(found, waves, plane.shape)[: _MOST_WAVES - len(waves)]
        waves += more
        if not more or len(waves) == _MOST_WAVES:
            break
    return sorted(waves, key=lambda wave: -abs(wave.amplitude))


def without(plane: np.ndarray, waves: Sequence[Wave]) -> np.ndarray:
    """Return a plane (y, x), float32, less waves."""
    return plane - over(waves, plane.shape) if waves else plane


def _waves_at(plane: np.ndarray, frequencies: np.ndarray) -> list[Wave]:
    """Return the waves near frequencies (wave, 2), where the blocks of the plane agree on one."""
    if not len(frequencies):
        return []
    frequencies, rows, found = _settled(plane, frequencies)
    flat = found.reshape(len(found), -1)
    amplitudes = np.median(flat.real, axis=1) + 1j * np.median(flat.imag, axis=1)
    size, away = np.abs(amplitudes), np.abs(flat - amplitudes[:, None])
    # No deviation larger than the amplitude is ever allowed, see below.
    likely = np.mean(away > size[:, None], axis=1) <= _MOST_OTHERS
    some = np.flatnonzero((size > 0) & likely)
    waves = []
    if len(some):
        noise = _noise_beside(plane, frequencies[some], rows[some])
        for k, level in zip(some, noise, strict=True):
            if size[k] < _LEAST_TIMES * float(np.median(level)):
                continue
            allowed = np.maximum(_NEAR * size[k], np.minimum(level, size[k]))
            others = float(np.mean(away[k] > allowed))
            if others <= _MOST_OTHERS:
                fy, fx = map(float, frequencies[k])
                waves.append(Wave(fy, fx, complex(2 * amplitudes[k]), 1 - others))
    return waves


def _settled(
    plane: np.ndarray, frequencies: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return frequencies (wave, 2) at which the phase is the same from block to block, if any is.

    With the amplitudes in the rows (see `along_x`) and in the blocks there.
    """
    frequencies = frequencies.copy()
    size = np.array(plane.shape) / BLOCKS
    rows = along_x(plane, frequencies[:, 1])
    found = along_y(rows, frequencies[:, 0])
    moving = np.arange(len(frequencies))
    for _ in range(_STEPS):
        near = found[moving]
        turns = np.angle(
            [
                (near[:, 1:] * near[:, :-1].conj()).sum(axis=(1, 2)),
                (near[:, :, 1:] * near[:, :, :-1].conj()).sum(axis=(1, 2)),
            ]
        ).T
        frequencies[moving] += turns / (2 * math.pi * size)
        small = np.abs(turns).max(axis=1) < _SMALL_TURN
        # So small a turn only turns the phase of each block, by what it makes to its middle.
        middles = np.arange(BLOCKS) + 0.5
        back = turns[small][:, :, None] * middles
        found[moving[small]] *= np.exp(-1j * (back[:, 0, :, None] + back[:, 1, None]))
        moving = moving[~small]
        if not len(moving):
            break
        rows[moving] = along_x(plane, frequencies[moving, 1])
        found[moving] = along_y(rows[moving], frequencies[moving, 0])
    return frequencies, rows, found


def _noise_beside(plane: np.ndarray, frequencies: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the amplitude of noise and texture in each block, (wave, block).

    From frequencies beside those of the waves.
    """
    step = _BESIDE / (np.array(plane.shape) / BLOCKS)
    fy, fx = frequencies.T
    beside = [along_y(rows, fy - step[0]), along_y(rows, fy + step[0])]
    shifted = along_x(plane, np.concatenate([fx - step[1], fx + step[1]]))
    beside.extend(np.split(along_y(shifted, np.tile(fy, 2)), 2))
    # The median of the power of noise is log 2 of its mean; one of the four may hold more.
    power = np.median(np.abs(beside) ** 2, axis=0) / math.log(2)
    return np.sqrt(power).reshape(len(frequencies), -1)


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
