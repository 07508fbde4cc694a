"""Photon and read noise of a sensor, from single images.

A first line is fitted to the noise at levels of brightness, texture included. Relative to that line
the strength of texture is measured, which is then subtracted (`photon.texture`).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from napari_gpu_denoise.noise.patches.blank import not_image, number_of_patches
from napari_gpu_denoise.noise.patches.parts import MEMBERS, Parts, brightness_levels
from napari_gpu_denoise.noise.patches.spectra import PatchSpectra, read_spectra
from napari_gpu_denoise.noise.patches.variance import (
    LEAST_LEVELS,
    LevelNoise,
    VarianceCurve,
    level_noise,
)
from napari_gpu_denoise.noise.patches.white import MAX_PATCHES, PATCH
from napari_gpu_denoise.noise.photon.curve import (
    SYSTEMATIC,
    PhotonNoise,
    least_variance,
    line_values,
    photon_noise,
    robust_line,
)
from napari_gpu_denoise.noise.photon.readings import read_levels
from napari_gpu_denoise.noise.photon.surroundings import surroundings
from napari_gpu_denoise.noise.photon.texture import LevelVariances, level_variances
from napari_gpu_denoise.noise.sampling import sample_planes

TEXTURED = 1.0  # standard errors above the line from which texture is suspected
ROUNDS = 2
SINGLE = 0.025  # relative error of a gain from one image that statistics do not show
MOST_FLATTENED = 0.95  # share of a line's spread that noise is held for, at most
METHOD = "high frequencies of smooth patches"


def single_image_noise(image: Any, known: PatchSpectra | None = None) -> PhotonNoise:
    """Estimate gain and read noise from images of one sensor, (y, x) or (..., y, x).

    At most 8 planes are read, which together make one curve. A constant image gives 0.
    NonFiniteError if NaN or infinity leave no patch.

    About 40 000 patches of 8 x 8 pixels are read. Noise is assumed white: where it is correlated,
    gain and read noise are too low. Fixed pattern counts as noise. `gain_error` is large where the
    image has hardly more than one level of brightness, or texture everywhere, and infinite where
    there is one level only, or nothing without clipped pixels.

    Patches are sorted by their own brightness, unless its noise is what mostly sets them apart;
    then by that of their surroundings. `known` are the patches that would be read, if they were
    before.
    """
    spectra = read_spectra(sample_planes(image)) if known is None else known
    if not spectra.energy_of("high").any():
        return _nothing(spectra)
    found, flattened = _line(spectra, spectra.seen, spectra.levels, spectra.level_noise)
    if flattened > 0.5 * found.gain_error:
        found = dataclasses.replace(found, gain_error=math.hypot(found.gain_error, flattened))
        planes = sample_planes(image)
        blanks = not_image(planes)
        limit = number_of_patches(MAX_PATCHES, blanks)
        key = surroundings(planes, limit, blanks)
        levels = brightness_levels(key, order=spectra.statistics.order)
        noise = level_noise(spectra.statistics, levels, spectra.seen)
        other, _ = _line(spectra, key, levels, noise)
        found = min(found, other, key=lambda each: each.gain_error)
    error = math.hypot(found.gain_error, SINGLE * found.gain)
    return dataclasses.replace(found, gain_error=error)


def _nothing(spectra: PatchSpectra) -> PhotonNoise:
    """Return no noise at the levels of brightness there are."""
    levels = brightness_levels(spectra.mean)
    means = levels.sums(spectra.mean) / levels.count
    found = LevelVariances(means, 0.0 * means, 0.0 * means, levels.count)
    curve = _curve(spectra.mean, levels, found, levels.count > 0)
    return photon_noise((0.0, 0.0, np.zeros((2, 2))), None, curve, METHOD)


def _line(
    spectra: PatchSpectra, key: np.ndarray, levels: Parts, noise: LevelNoise
) -> tuple[PhotonNoise, float]:
    """Return the noise along levels of a key, and how much the key's own noise flattens the line.

    The brightness of a patch is that which its high frequencies see, and `noise` is read at it.
    """
    known = np.count_nonzero(noise.open) > 1
    # If none is open: a mask, a drawing, whose extremes are what there is.
    used = noise.open if noise.open.any() else ~noise.open
    open_levels = levels.kept(used)
    found = _first_variances(noise, used)
    line = robust_line(found.mean, found.variance, found.error, TEXTURED)
    flattened = 0.0
    if spectra.whole:
        power = spectra.energy_of("high") / len(spectra.upper)
        expected = line_values(spectra.seen, *line[:2], least_variance(power))
        readings = read_levels(spectra, expected, open_levels)
        for _ in range(ROUNDS):
            found = level_variances(readings, *line[:2], spectra.overlap)
            line = robust_line(found.mean, found.variance, found.error, TEXTURED)
        flattened = _flattened(line[0], found, _variances(key, open_levels))
    result = photon_noise(line[:3], None, _curve(spectra.seen, levels, found, line[3]), METHOD)
    if not known:
        result = dataclasses.replace(result, gain_error=math.inf)
    return result, flattened


def _variances(values: np.ndarray, parts: Parts) -> np.ndarray:
    """Return the variance of values (patch,) in each part."""
    middle = float(values.mean())
    mean = parts.sums(values) / parts.count
    return parts.sums(np.square(values - middle)) / parts.count - np.square(mean - middle)


def _flattened(gain: float, found: LevelVariances, within: np.ndarray) -> float:
    """Return by how much a gain may be too low, as patches of the same light are in many levels.

    The noise of a mean that is not within the levels, `within`, sets them apart.
    """
    weight = 1 / np.square(found.error * np.maximum(found.variance, 1e-300))
    weight /= weight.sum()
    spread = weight @ np.square(found.mean - weight @ found.mean)
    between = weight @ np.maximum(found.variance / PATCH**2 - within, 0.0)
    share = min(float(between / max(spread, 1e-300)), MOST_FLATTENED)
    return abs(gain) * share / (1 - share)


def _first_variances(noise: LevelNoise, used: np.ndarray) -> LevelVariances:
    """Return the noise of each level of brightness that is used, texture included."""
    many = used & (noise.count >= MEMBERS)
    used = many if many.any() else used
    white = used & noise.white
    if np.count_nonzero(white) < LEAST_LEVELS:
        white = used
    error = np.hypot(noise.error, 2 * SYSTEMATIC)
    return LevelVariances(
        *(each[white] for each in (noise.mean, noise.variance, error, noise.count))
    )


def _curve(
    mean: np.ndarray, levels: Parts, found: LevelVariances, used: np.ndarray
) -> VarianceCurve:
    """Return the noise of each level of brightness, with empty levels where nothing was found."""
    rows = [
        (mean, max(variance, 0.0), int(count), fits)
        for mean, variance, count, fits in zip(
            *(each.tolist() for each in (found.mean, found.variance, found.count, used)),
            strict=True,
        )
    ]
    inside = mean[levels.members]
    low, high = (each.reduceat(inside, levels.first)[:, None] for each in (np.minimum, np.maximum))
    empty = ~((found.mean >= low) & (found.mean <= high)).any(axis=1)
    means = np.add.reduceat(inside, levels.first) / levels.count
    rows += [(level, 0.0, 0, False) for level in means[empty].tolist()]
    return VarianceCurve(*zip(*sorted(rows), strict=True))
