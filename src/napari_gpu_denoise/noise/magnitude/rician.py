"""Noise of magnitude images: Rayleigh in the background, Rician in the object.

The correction for the object after C. G. Koay and P. J. Basser, *Analytically exact correction
scheme for signal extraction from noisy magnitude MR signals*, Journal of Magnetic Resonance 179
(2006).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from napari_gpu_denoise.noise.magnitude.piesno import (
    MAX_GROUPS,
    TRIALS,
    noise_only,
    standard_error,
)
from napari_gpu_denoise.noise.patches.blank import not_image
from napari_gpu_denoise.noise.patches.parts import MEMBERS, brightness_levels
from napari_gpu_denoise.noise.patches.selection import clipping_levels
from napari_gpu_denoise.noise.patches.spectra import read_spectra
from napari_gpu_denoise.noise.patches.variance import level_noise, pooled_variance
from napari_gpu_denoise.noise.sampling import sample_planes

BLOCK = 4  # width of the blocks that a single image is cut into
LEAST_BACKGROUND = 0.02  # smallest share of the blocks that counts as a background
LEAST_BLOCKS = 30
SOME_GROUPS = 10_000  # blocks that decide whether there is a background, about,
FEW_GROUPS, FEW_TRIALS = 1250, 16  # those looked at first, from so many values of sigma,
UNLIKE_NOISE = 0.03  # and their deviation from noise alone, but for chance, that shows none
FEW_LINES = 128  # rows and columns of pixels that show whether any is negative, about
LEAST_CONTRAST = 0.12  # squared, of the darkest blocks, in a background; of all of it 0.21
LIKE_NOISE = 0.044  # by which the squared contrast may be below that of noise, relative
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
    from scipy.special import ive

    ratio = np.asarray(ratio, np.float64)
    quarter = np.square(ratio) / 4
    bessel = (2 + 4 * quarter) * ive(0, quarter) + 4 * quarter * ive(1, quarter)
    exact = 2 + 4 * quarter - np.pi / 8 * np.square(bessel)
    # At high ratios the difference of two large numbers is lost to rounding.
    return np.where(ratio > 30, 1 - 0.5 / np.maximum(np.square(ratio), 1), exact)


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
    (outside, share), inside = _background(planes), _object(planes)
    sigma, error = outside or inside or (0.0, 0.0)
    return RicianNoise(sigma, error, outside and outside[0], inside and inside[0], share)


class RayleighBackground(NamedTuple):
    """Blocks that look like the background of magnitude images, and how well they fit."""

    sigma: float  # of the real and of the imaginary part, grey levels
    share: float  # of the blocks
    deviation: float  # largest difference of the cumulative distribution from that of noise alone
    values: int  # number of values that it was read from


def rayleigh_background(
    planes: list[np.ndarray],
    blanks: Sequence[np.ndarray | None] | None = None,
    levels: Sequence[list] | None = None,
) -> RayleighBackground | None:
    """Return the background of magnitude images of one coil; None where nothing looks like one.

    About 10 000 blocks of 4 x 4 pixels are looked at, fewer where these already show that there is
    none. `blanks` and `levels` are what `not_image` and `clipping_levels` returned, if known.
    """
    blanks = not_image(planes) if blanks is None else blanks
    levels = list(map(clipping_levels, planes, blanks)) if levels is None else levels
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
    sigma, accepted = noise_only(groups, 1, LIKE_NOISE, trials)
    if np.count_nonzero(accepted) < LEAST_BLOCKS:
        return None
    values = np.sort(groups[accepted], axis=None)
    expected = -np.expm1(-np.square(values) / (2 * sigma**2))
    # Rounded values repeat; the middle of each step counts.
    steps = np.searchsorted(values, values, "left") + np.searchsorted(values, values, "right")
    deviation = float(np.abs(steps / (2 * len(values)) - expected).max())
    return RayleighBackground(sigma, float(accepted.mean()), deviation, len(values))


def _background(planes: list[np.ndarray]) -> tuple[tuple[float, float] | None, float]:
    """Return sigma with its standard error, and the share of blocks that are background."""
    blanks = not_image(planes)
    values = _blocks(planes, MAX_GROUPS, blanks, list(map(clipping_levels, planes, blanks)))
    if len(values) < LEAST_BLOCKS:
        return None, 0.0
    sigma, accepted = noise_only(values, 1, LIKE_NOISE)
    number = int(np.count_nonzero(accepted))
    if number < max(LEAST_BLOCKS, LEAST_BACKGROUND * len(values)):
        return None, 0.0
    return (sigma, standard_error(sigma, number * BLOCK * BLOCK, 1)), number / len(values)


def _blocks(
    planes: list[np.ndarray],
    most: int,
    blanks: Sequence[np.ndarray | None],
    levels: Sequence[list],
) -> np.ndarray:
    """Return about `most` blocks of 4 x 4 pixels, (block, pixel), without filled ones."""
    groups = []
    for plane, blank, ends in zip(planes, blanks, levels, strict=True):
        rows, columns = (length // BLOCK for length in plane.shape)
        if not rows or not columns:
            continue
        step = math.ceil(math.sqrt(rows * columns * len(planes) / most))
        blocks = _cut(plane, step)
        keep = np.isfinite(blocks).all(axis=1)
        if blank is not None:
            keep &= ~_cut(blank, step).any(axis=1)
        for level in ends:
            # Rounding piles up zeros too; a fill is flat.
            keep &= (blocks == level).mean(axis=1) <= 0.5
        groups.append(blocks[keep].astype(np.float64))
    return np.concatenate(groups) if groups else np.empty((0, BLOCK * BLOCK))


def _cut(pixels: np.ndarray, step: int) -> np.ndarray:
    """Return every `step`-th block of a plane along both axes, (block, pixel)."""
    rows, columns = (length // BLOCK for length in pixels.shape)
    held = pixels[: rows * BLOCK, : columns * BLOCK].reshape(rows, BLOCK, columns, BLOCK)
    return held[::step, :, ::step].transpose(0, 2, 1, 3).reshape(-1, BLOCK * BLOCK)


def _object(planes: list[np.ndarray]) -> tuple[float, float] | None:
    """Return sigma and its standard error from the variance at each level of brightness."""
    patches = read_spectra(planes).statistics
    found, errors = [], []
    levels = brightness_levels(patches.mean, order=patches.order)
    found_at = level_noise(patches, levels, patches.mean)
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
        return (sigma, sigma * error) if sigma > 0 else None
    order = np.argsort(found)
    weight = np.cumsum(1 / np.array(errors)[order])
    sigma = float(np.array(found)[order][np.searchsorted(weight, weight[-1] / 2)])
    spread = float(np.median(np.abs(np.array(found) - sigma))) / 0.6745
    statistical = sigma * float(np.median(errors))
    error = max(spread, statistical) * math.sqrt(math.pi / 2 / len(found))
    return sigma, error


def _from_moments(mean: float, variance: float) -> tuple[float, float]:
    """Return sigma, and the ratio of signal to sigma, from the moments of magnitudes."""
    if variance <= 0:
        return 0.0, 0.0
    # The mean square is signal^2 + 2 sigma^2, and the variance sigma^2 * factor(signal / sigma).
    sigma = math.sqrt(variance)
    ratio = 0.0
    for _ in range(100):
        ratio = math.sqrt(max((mean**2 + variance) / sigma**2 - 2, 0.0))
        now = math.sqrt(variance / float(koay_factor(ratio)))
        if abs(now - sigma) <= 1e-9 * sigma:
            break
        sigma = now
    return sigma, ratio
