"""Photon and read noise of a sensor, from single images.

A first line goes through the noise of levels of brightness, texture in it or not. Relative to that
line it is told how strong texture is, which is then taken away (`photon_texture`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from napari_gpu_denoise.noise.patch_spectra import PatchSpectra, read_spectra, sample_planes
from napari_gpu_denoise.noise.photon_curve import (
    MEMBERS,
    SYSTEMATIC,
    PhotonNoise,
    VarianceCurve,
    brightness_levels,
    line_values,
    photon_noise,
    robust_line,
)
from napari_gpu_denoise.noise.photon_texture import (
    COEFFICIENTS,
    LevelVariances,
    level_variances,
    read_levels,
)
from napari_gpu_denoise.noise.pooling import pooled_variance
from napari_gpu_denoise.noise.strata import CLIPPED, LEAST_STRATA, WHITE

TEXTURED = 1.0  # standard errors above the line from which texture is suspected
ROUNDS = 2


def single_image_noise(image: Any) -> PhotonNoise:
    """Estimate gain and read noise from one image, or from several of the same sensor.

    Parameters
    ----------
    image : array, (y, x) or (..., y, x), any real dtype
        Anything with ``shape``, ``dtype`` and NumPy indexing; at most 8 planes are read, which
        together make one curve. Not modified.

    Returns
    -------
    PhotonNoise
        In grey levels. A constant image gives 0.

    Raises
    ------
    ImageError
        If there are no pixels, or no plane.
    NonFiniteError
        If NaN or infinity leave no patch.

    Notes
    -----
    About 40 000 patches of 8 x 8 pixels are read. Noise is assumed white: where neighbouring pixels
    share noise, gain and read noise are too low. Fixed pattern counts as noise. Where the image has
    hardly more than one level of brightness, or texture everywhere, the line is uncertain, and
    `gain_error` says so.
    """
    spectra = read_spectra(sample_planes(image))
    method = "high frequencies of smooth patches"
    energy = np.square(spectra.high)
    power = energy.mean(axis=1)
    levels = brightness_levels(spectra.mean)
    open_levels = [part for part in levels if spectra.clipped[part].mean() <= CLIPPED]
    if not open_levels:  # a mask, a drawing: its extremes are what there is
        open_levels = levels
    members = np.concatenate(open_levels)
    if not power[members].any():
        nothing = np.zeros(len(open_levels))
        means = np.array([spectra.mean[part].mean() for part in open_levels])
        counts = np.array([len(part) for part in open_levels])
        curve = _curve(spectra, levels, LevelVariances(means, nothing, nothing, counts), counts > 0)
        return photon_noise((0.0, 0.0, np.zeros((2, 2))), None, curve, method)
    found = _first_variances(spectra, energy, open_levels)
    line = robust_line(found.mean, found.variance, found.error, TEXTURED)
    if spectra.low.shape[1] + spectra.high.shape[1] == COEFFICIENTS:
        energy = np.concatenate([np.square(spectra.low), energy], axis=1)
        expected = line_values(spectra.mean, *line[:2], power[power > 0])
        readings = read_levels(spectra.mean, energy, expected, open_levels)
        for _ in range(ROUNDS):
            found = level_variances(readings, *line[:2], spectra.overlap)
            line = robust_line(found.mean, found.variance, found.error, TEXTURED)
    return photon_noise(line[:3], None, _curve(spectra, levels, found, line[3]), method)


def _first_variances(
    spectra: PatchSpectra, energy: np.ndarray, levels: list[np.ndarray]
) -> LevelVariances:
    """Return the noise of each level of brightness, texture in it or not."""
    rank = np.square(spectra.low).sum(axis=1)
    parts = [part for part in levels if len(part) >= MEMBERS or len(levels) == 1]
    parts = parts or [np.concatenate(levels)]
    found = [pooled_variance(rank, energy, spectra.overlap, part) for part in parts]
    white = np.ones(len(found), bool)
    upper = spectra.upper
    if upper.any() and not upper.all():
        power = np.array([each.power for each in found])
        white = power[:, ~upper].mean(axis=1) <= WHITE * power[:, upper].mean(axis=1)
    if np.count_nonzero(white) < LEAST_STRATA:
        white[:] = True
    return LevelVariances(
        np.array([spectra.mean[part].mean() for part in parts])[white],
        np.array([each.variance for each in found])[white],
        np.hypot(2 * np.array([each.error for each in found])[white], 2 * SYSTEMATIC),
        np.array([len(part) for part in parts])[white],
    )


def _curve(
    spectra: PatchSpectra, levels: list[np.ndarray], found: LevelVariances, used: np.ndarray
) -> VarianceCurve:
    """Return what was found at each level of brightness, and where nothing was."""
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
