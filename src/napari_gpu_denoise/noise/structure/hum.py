"""Periodic hum: waves of one frequency and phase over a whole plane."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.fft import rfft2

from napari_gpu_denoise.noise import limits

SMALLEST = 64  # pixels of the shortest side of a plane that is looked at
BLOCKS = 4  # of a plane along each axis
MAX_WAVES = 8
REACH = 8  # frequencies on each side, whose mean is what a peak is compared with


@dataclass(frozen=True)
class Wave:
    """A wave, ``re(amplitude * exp(2 pi i (fy * y + fx * x)))``; frequencies in 1 / pixel."""

    fy: float
    fx: float
    amplitude: complex


def without(plane: np.ndarray, waves: Sequence[Wave]) -> np.ndarray:
    """Return a plane (y, x), float32, less waves."""
    rest = plane.copy() if waves else plane
    for wave in waves:
        each = zip(plane.shape, (wave.fy, wave.fx), strict=True)
        turns = (np.arange(int(n)) * f for n, f in each)
        down, across = (np.exp(2j * math.pi * each).astype(np.complex64) for each in turns)
        down *= wave.amplitude
        rest -= np.outer(down.real, across.real) - np.outer(down.imag, across.imag)
    return rest


def seems_to_be(plane: np.ndarray) -> bool:
    """Whether the spectrum of a plane has a peak."""
    return min(plane.shape) >= SMALLEST and len(find_peaks(_centred(plane), 1)) > 0


def _centred(plane: np.ndarray) -> np.ndarray:
    return plane - plane.mean(dtype=np.float64).astype(plane.dtype)


def find_waves(plane: np.ndarray) -> list[Wave]:
    """Return the waves of a plane (y, x), float32, the strongest first.

    Peaks of the power spectrum are tried; one is a wave if amplitude and phase are the same in
    blocks all over the plane. A texture of an object has neither.
    """
    waves: list[Wave] = []
    rest = _centred(plane)
    while min(plane.shape) >= SMALLEST and len(waves) < MAX_WAVES:
        found = _waves_at(rest, find_peaks(rest, 2 * MAX_WAVES))
        # What is left of one is not another.
        known = np.reshape([(each.fy, each.fx) for each in waves], (-1, 2))
        away = [np.abs((each.fy, each.fx) - known) * plane.shape > 2 for each in found]
        found = [each for each, far in zip(found, away, strict=True) if far.any(axis=1).all()]
        if not found:
            break
        waves.append(max(found, key=lambda wave: abs(wave.amplitude)))
        rest = without(rest, waves[-1:])  # the strongest may hide others
    return waves


def find_peaks(plane: np.ndarray, most: int) -> np.ndarray:
    """Return the frequencies of the highest peaks of the spectrum of a plane (y, x), (peak, 2).

    Along y and x in cycles per pixel, the highest above its surroundings first; at most `most`.
    """
    ny, nx = plane.shape
    windowed = plane * np.hanning(ny).astype(np.float32)[:, None]
    windowed *= np.hanning(nx).astype(np.float32)
    spectrum = rfft2(windowed, overwrite_x=True)
    level = np.square(spectrum.real)
    level += np.square(spectrum.imag)
    largest = float(level.max())
    if not largest > 0 or not math.isfinite(largest):
        return np.zeros((0, 2))
    np.log(np.maximum(level, 1e-12 * largest, out=level), out=level)
    # The mean logarithm of the power of noise is 0.577 below that of its mean.
    least = math.log(math.log(level.size) + 1) + 0.577
    # Stripes are lines in the spectrum: a peak stands out of both lines through it, and a square.
    around = np.concatenate([level[-REACH:], level, level[:REACH]])
    for step in (1, 2, 4, 8):  # sums of 16; `uniform_filter1d` takes four times as long
        around = around[:-step] + around[step:]
    around = (around[:-1] + np.roll(level, -REACH, axis=0)) / np.float32(2 * REACH + 1)
    ys, xs = np.divmod(np.flatnonzero(level - around >= least), level.shape[1])
    last = level.shape[1] - 1
    beside = last - np.abs(last - np.abs(xs[:, None] + np.arange(-REACH, REACH + 1)))
    lines = (each[ys[:, None], beside].mean(axis=1) for each in (level, around))
    ratio = level[ys, xs] - np.maximum(around[ys, xs], np.maximum(*lines))
    # Near a frequency of 0 or 1/2 along both axes, a wave cannot be told from its mirror image.
    sides = [np.minimum(2 * k % n, -2 * k % n) for k, n in ((ys, ny), (xs, nx))]
    twice = (xs == 0) & (2 * ys >= ny)
    keep = (ratio >= least) & (np.hypot(*sides) >= 2 * limits.MIN_WAVE_CYCLES) & ~twice
    highest = np.argsort(-ratio[keep], kind="stable")[:most]
    fy, fx = np.where(2 * ys > ny, ys - ny, ys)[keep], xs[keep]
    return np.stack([fy / ny, fx / nx], axis=1)[highest]


def block_amplitudes(plane: np.ndarray, frequencies: np.ndarray) -> np.ndarray:
    """Return the complex amplitudes at frequencies (wave, 2) in blocks, (wave, y, x).

    A block has a window of Hann along both axes, whose sum is 1.
    """
    down, across = map(_tables, plane.shape, frequencies.T)
    cuts = [np.arange(BLOCKS + 1) * n // BLOCKS for n in plane.shape]
    rows = np.empty((len(frequencies), BLOCKS, len(plane)), np.complex64)
    both = np.concatenate([np.real(across), np.imag(across)])
    for k in range(BLOCKS):
        some = slice(*cuts[1][k : k + 2])
        # Row by row: OpenBLAS shares larger products among threads, which wait for each other.
        real, imag = np.split((plane[:, None, some] @ both[:, some].T)[:, 0].T, 2)
        rows[:, k] = real + 1j * imag
    rows *= down[:, None]
    return np.add.reduceat(rows, cuts[0][:-1], axis=-1).swapaxes(1, 2)


def _tables(count: int, frequencies: np.ndarray) -> np.ndarray:
    """Return windows of blocks times ``exp(-2 pi i f k)``, (wave, k), complex64."""
    sizes = np.diff(np.arange(BLOCKS + 1) * count // BLOCKS)
    windows = [np.hanning(size + 2)[1:-1] for size in sizes]
    turned = np.exp(-2j * math.pi * frequencies[:, None] * np.arange(count))
    return (turned * np.concatenate([each / each.sum() for each in windows])).astype(np.complex64)


def _waves_at(plane: np.ndarray, frequencies: np.ndarray) -> list[Wave]:
    """Return the waves near frequencies (wave, 2), where the blocks of the plane agree on one."""
    if not len(frequencies):
        return []
    size = np.array(plane.shape) / BLOCKS
    for _ in range(3):
        # At its frequency the phase of a wave is the same from block to block.
        near = block_amplitudes(plane, frequencies)
        turns = [
            (near[:, 1:] * near[:, :-1].conj()).sum(axis=(1, 2)),
            (near[:, :, 1:] * near[:, :, :-1].conj()).sum(axis=(1, 2)),
        ]
        frequencies = frequencies + np.angle(turns).T / (2 * math.pi * size)
    waves: list[Wave] = []
    for (fy, fx), blocks in zip(frequencies, block_amplitudes(plane, frequencies), strict=True):
        amplitude = complex(np.median(blocks.real), np.median(blocks.imag))
        allowed = limits.MAX_WAVE_DIFFERENCE * abs(amplitude)
        others = float((np.abs(blocks - amplitude) > allowed).mean())
        if 1 - others >= limits.MIN_WAVE_BLOCKS:
            waves.append(Wave(float(fy), float(fx), 2 * amplitude))
    return waves
