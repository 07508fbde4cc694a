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
from napari_gpu_denoise.noise.patches.spectra import PatchSpectra, read_spectra
from napari_gpu_denoise.noise.patches.variance import (
    CLIPPED,
    LEAST_LEVELS,
    MEMBERS,
    PatchStatistics,
    VarianceCurve,
    brightness_levels,
    level_noise,
)
from napari_gpu_denoise.noise.patches.white import MAX_PATCHES, PATCH
from napari_gpu_denoise.noise.photon.curve import (
    SYSTEMATIC,
    PhotonNoise,
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
    planes, blanks = sample_planes(image), None
    if known is None:
        blanks = not_image(planes)
    spectra = read_spectra(planes, blanks=blanks) if known is None else known
    if not spectra.energy_of("high").any():
        return _nothing(spectra)
    found, flattened = _line(spectra, spectra.seen)
    if flattened > 0.5 * found.gain_error:
        found = dataclasses.replace(found, gain_error=math.hypot(found.gain_error, flattened))
        blanks = not_image(planes) if blanks is None else blanks
        limit = number_of_patches(MAX_PATCHES, blanks)
        other, _ = _line(spectra, surroundings(planes, limit, blanks))
        found = min(found, other, key=lambda each: each.gain_error)
    error = math.hypot(found.gain_error, SINGLE * found.gain)
    return dataclasses.replace(found, gain_error=error)


def _nothing(spectra: PatchSpectra) -> PhotonNoise:
    """Return no noise at the levels of brightness there are."""
    levels = brightness_levels(spectra.mean)
    means = np.array([spectra.mean[part].mean() for part in levels])
    counts = np.array([len(part) for part in levels])
    found = LevelVariances(means, 0.0 * means, 0.0 * means, counts)
    curve = _curve(spectra.mean, levels, found, counts > 0)
    return photon_noise((0.0, 0.0, np.zeros((2, 2))), None, curve, METHOD)


def _line(spectra: PatchSpectra, key: np.ndarray) -> tuple[PhotonNoise, float]:
    """Return the noise along levels of a key, and how much the key's own noise flattens the line.

    The brightness of a patch is that which its high frequencies see.
    """
    patches = spectra.at(spectra.seen)
    levels = brightness_levels(key)
    open_levels = [part for part in levels if spectra.clipped[part].mean() <= CLIPPED]
    known = len(open_levels) > 1
    if not open_levels:  # a mask, a drawing: its extremes are what there is
        open_levels = levels
    found = _first_variances(patches, open_levels)
    line = robust_line(found.mean, found.variance, found.error, TEXTURED)
    flattened = 0.0
    if spectra.whole:
        power = spectra.energy_of("high") / patches.energy.shape[1]
        expected = line_values(spectra.seen, *line[:2], power[power > 0])
        readings = read_levels(spectra, expected, open_levels)
        for _ in range(ROUNDS):
            found = level_variances(readings, *line[:2], spectra.overlap)
            line = robust_line(found.mean, found.variance, found.error, TEXTURED)
        flattened = _flattened(line[0], found, [key[part].var() for part in open_levels])
    result = photon_noise(line[:3], None, _curve(spectra.seen, levels, found, line[3]), METHOD)
    if not known:
        result = dataclasses.replace(result, gain_error=math.inf)
    return result, flattened


def _flattened(gain: float, found: LevelVariances, within: list[float]) -> float:
    """Return by how much a gain may be too low, as patches of the same light are in many levels.

    The noise of a mean that is not within the levels, `within`, sets them apart.
    """
    weight = 1 / np.square(found.error * np.maximum(found.variance, 1e-300))
    weight /= weight.sum()
    spread = weight @ np.square(found.mean - weight @ found.mean)
    between = weight @ np.maximum(found.variance / PATCH**2 - within, 0.0)
    share = min(float(between / max(spread, 1e-300)), MOST_FLATTENED)
    return abs(gain) * share / (1 - share)


def _first_variances(patches: PatchStatistics, levels: list[np.ndarray]) -> LevelVariances:
    """Return the noise of each level of brightness, texture included."""
    parts = [part for part in levels if len(part) >= MEMBERS or len(levels) == 1]
    found = level_noise(patches, parts or [np.concatenate(levels)])
    white = found.white
    if np.count_nonzero(white) < LEAST_LEVELS:
        white[:] = True
    error = np.hypot(found.error, 2 * SYSTEMATIC)
    return LevelVariances(
        *(each[white] for each in (found.mean, found.variance, error, found.count))
    )


def _curve(
    mean: np.ndarray, levels: list[np.ndarray], found: LevelVariances, used: np.ndarray
) -> VarianceCurve:
    """Return the noise of each level of brightness, with empty levels where nothing was found."""
    rows = [
        (float(mean), max(float(variance), 0.0), int(count), bool(fits))
        for mean, variance, count, fits in zip(
            found.mean, found.variance, found.count, used, strict=True
        )
    ]
    for part in levels:
        inside = mean[part]
        if not np.any((found.mean >= inside.min()) & (found.mean <= inside.max())):
            rows.append((float(inside.mean()), 0.0, 0, False))
    return VarianceCurve(*zip(*sorted(rows), strict=True))
