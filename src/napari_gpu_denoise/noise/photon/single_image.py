"""Photon and read noise of a sensor, from single images.

A first line is fitted to the noise at levels of brightness, texture included. Relative to that line
the strength of texture is measured, which is then subtracted (`photon.texture`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

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
from napari_gpu_denoise.noise.photon.curve import (
    SYSTEMATIC,
    PhotonNoise,
    line_values,
    photon_noise,
    robust_line,
)
from napari_gpu_denoise.noise.photon.texture import (
    COEFFICIENTS,
    LevelVariances,
    level_variances,
    read_levels,
    weights,
)
from napari_gpu_denoise.noise.sampling import sample_planes

TEXTURED = 1.0  # standard errors above the line from which texture is suspected
ROUNDS = 2


def single_image_noise(image: Any) -> PhotonNoise:
    """Estimate gain and read noise from images of one sensor, (y, x) or (..., y, x).

    At most 8 planes are read, which together make one curve. A constant image gives 0.
    NonFiniteError if NaN or infinity leave no patch.

    About 40 000 patches of 8 x 8 pixels are read. Noise is assumed white: where it is correlated,
    gain and read noise are too low. Fixed pattern counts as noise. `gain_error` is large where the
    image has hardly more than one level of brightness, or texture everywhere.
    """
    spectra = read_spectra(sample_planes(image))
    patches = spectra.statistics
    plain = spectra.mean
    whole = spectra.low.shape[1] + spectra.high.shape[1] == COEFFICIENTS
    coefficients = np.concatenate([spectra.low, spectra.high], axis=1)
    if whole:
        seen = spectra.mean + coefficients @ weights()[spectra.low.shape[1] :].mean(axis=0)
        patches = patches._replace(mean=seen)
        spectra = spectra._replace(mean=seen)
    method = "high frequencies of smooth patches"
    power = patches.energy.mean(axis=1)
    levels = brightness_levels(spectra.mean)
    open_levels = [part for part in levels if spectra.clipped[part].mean() <= CLIPPED]
    if not open_levels:  # a mask, a drawing: its extremes are what there is
        open_levels = levels
    if not power[np.concatenate(open_levels)].any():
        nothing = np.zeros(len(open_levels))
        means = np.array([spectra.mean[part].mean() for part in open_levels])
        counts = np.array([len(part) for part in open_levels])
        curve = _curve(spectra, levels, LevelVariances(means, nothing, nothing, counts), counts > 0)
        return photon_noise((0.0, 0.0, np.zeros((2, 2))), None, curve, method)
    found = _first_variances(patches, open_levels)
    line = robust_line(found.mean, found.variance, found.error, TEXTURED)
    if whole:
        expected = line_values(spectra.mean, *line[:2], power[power > 0])
        readings = read_levels(plain, coefficients, expected, open_levels)
        for _ in range(ROUNDS):
            found = level_variances(readings, *line[:2], spectra.overlap)
            line = robust_line(found.mean, found.variance, found.error, TEXTURED)
    return photon_noise(line[:3], None, _curve(spectra, levels, found, line[3]), method)


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
    spectra: PatchSpectra, levels: list[np.ndarray], found: LevelVariances, used: np.ndarray
) -> VarianceCurve:
    """Return the noise of each level of brightness, with empty levels where nothing was found."""
    rows = [
        (float(mean), max(float(variance), 0.0), int(count), bool(fits))
        for mean, variance, count, fits in zip(
            found.mean, found.variance, found.count, used, strict=True
        )
    ]
    for part in levels:
        inside = spectra.mean[part]
        if not np.any((found.mean >= inside.min()) & (found.mean <= inside.max())):
            rows.append((float(inside.mean()), 0.0, 0, False))
    return VarianceCurve(*zip(*sorted(rows), strict=True))
