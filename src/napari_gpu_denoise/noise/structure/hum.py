"""Periodic hum: waves of one frequency and phase over a whole plane."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from napari_gpu_denoise.noise.structure.amplitudes import BLOCKS, along_x, along_y, block_size
from napari_gpu_denoise.noise.structure.peaks import find_peaks

SMALLEST = 64  # pixels of the shortest side of a plane that is looked at
_MOST_WAVES = 8
_ALONE = 1 << 17  # multiplications of a product that OpenBLAS does not share among threads
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
    band = max(1, _ALONE // right.size)
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
    size = block_size(plane.shape)
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
    """Return what noise and texture make of the amplitude in each block, (wave, block).

    From frequencies beside those of the waves.
    """
    step = _BESIDE / block_size(plane.shape)
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
