"""Photon and read noise of a sensor, from single images.

The noise is read at the high frequencies of smooth patches. How smooth a patch is is told by its
low frequencies, relative to the noise expected at its brightness, so that bright patches are not
left out for their noise.
"""

from __future__ import annotations

import math
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
    weighted_line,
)
from napari_gpu_denoise.noise.pooling import pooled_variance
from napari_gpu_denoise.noise.strata import CLIPPED, LEAST_STRATA, WHITE

TEXTURED = 1.0  # standard errors above the line from which texture is suspected
LEAST_SHARE = 0.02  # of the patches, that the line is fitted to at least
MOST_SHARE = 0.6
FAR = 3.5  # standard deviations above the line that a smooth patch hardly ever has
STANDING_OUT = 3.0  # standard errors by which a frequency may exceed the median of all
ROUNDS = 4


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
    hardly more than one level of brightness the line is uncertain, and `gain_error` says so.
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
        return photon_noise((0.0, 0.0, np.zeros((2, 2))), None, _curve(spectra, levels), method)
    rank = np.square(spectra.low).sum(axis=1)
    gain, intercept = _first_line(spectra, rank, energy, open_levels)
    for _ in range(ROUNDS):
        line = line_values(spectra.mean, gain, intercept, power)
        chosen = _smooth(rank / line, energy / line[:, None], spectra.overlap, members)
        kept = _frequencies_of_noise(energy[chosen] / line[chosen, None], spectra.overlap)
        power = energy[:, kept].mean(axis=1)
        near = power[chosen] < line[chosen] * (1 + FAR * math.sqrt(2 / kept.sum()))
        if 2 * np.count_nonzero(near) > len(chosen):
            chosen = chosen[near]
        error = line * math.sqrt(2 * spectra.overlap / kept.sum())
        gain, intercept, covariance = weighted_line(
            spectra.mean[chosen], power[chosen], error[chosen]
        )
    curve = _curve(spectra, levels, power, chosen)
    scatter = _scatter(curve, gain, intercept, spectra)
    return photon_noise((gain, intercept, covariance * scatter**2), None, curve, method)


def _first_line(
    spectra: PatchSpectra, rank: np.ndarray, energy: np.ndarray, levels: list[np.ndarray]
) -> tuple[float, float]:
    """Return the line through the noise of each level of brightness."""
    mean, found = [], []
    for part in levels:
        if len(part) >= MEMBERS or len(levels) == 1:
            mean.append(spectra.mean[part].mean())
            found.append(pooled_variance(rank, energy, spectra.overlap, part))
    if not found:
        part = np.concatenate(levels)
        mean.append(spectra.mean[part].mean())
        found.append(pooled_variance(rank, energy, spectra.overlap, part))
    white = np.ones(len(found), bool)
    upper = spectra.upper
    if upper.any() and not upper.all():
        power = np.array([each.power for each in found])
        white = power[:, ~upper].mean(axis=1) <= WHITE * power[:, upper].mean(axis=1)
    if np.count_nonzero(white) < LEAST_STRATA:
        white[:] = True
    x, y = np.array(mean)[white], np.array([each.variance for each in found])[white]
    error = np.hypot(2 * np.array([each.error for each in found])[white], 2 * SYSTEMATIC)
    return robust_line(x, y, error, TEXTURED)[:2]


def _smooth(
    rank: np.ndarray, energy: np.ndarray, overlap: float, members: np.ndarray
) -> np.ndarray:
    """Return the smoothest of the members, as many as texture leaves alone."""
    error = pooled_variance(rank, energy, overlap, members).error
    number = 0.5 / error**2 / energy.shape[1] * overlap if error else len(members)
    least = max(LEAST_SHARE * len(members), MEMBERS)
    number = int(min(max(number, least), max(MOST_SHARE * len(members), MEMBERS)))
    return members[np.argsort(rank[members], kind="stable")[:number]]


def _frequencies_of_noise(energy: np.ndarray, overlap: float) -> np.ndarray:
    """Return which frequencies stand out no more than chance has it.

    Fine regular texture fills a few of the high frequencies, and smooth patches do not tell, as
    their low ones are free of it. `energy` (patch, frequency) is relative to the line.
    """
    power = energy.mean(axis=0)
    middle = float(np.median(power))
    return power <= middle * (1 + STANDING_OUT * math.sqrt(2 * overlap / len(energy)))


def _curve(
    spectra: PatchSpectra,
    levels: list[np.ndarray],
    power: np.ndarray | None = None,
    chosen: np.ndarray | None = None,
) -> VarianceCurve:
    """Return what the chosen patches say at each level of brightness."""
    mark = np.zeros(len(spectra.mean), bool)
    mark[chosen if chosen is not None else slice(None)] = True
    rows = []
    for part in levels:
        inside = part[mark[part]]
        known = power is not None and len(inside)
        variance = float(power[inside].mean()) if known else 0.0
        mean = float(spectra.mean[inside if len(inside) else part].mean())
        rows.append((mean, variance, len(inside), bool(len(inside))))
    return VarianceCurve(*zip(*rows, strict=True))


def _scatter(curve: VarianceCurve, gain: float, intercept: float, spectra: PatchSpectra) -> float:
    """Return by how much the levels scatter more about the line than chance has it, at least 1."""
    used = np.array(curve.used)
    x, y = np.array(curve.mean)[used], np.array(curve.variance)[used]
    if len(x) < 4:
        return 1.0
    independent = np.array(curve.count)[used] * spectra.high.shape[1] / spectra.overlap
    line = line_values(x, gain, intercept, y)
    square = np.square(y / line - 1) * independent / 2
    return math.sqrt(max(1.0, float(square.sum()) / (len(x) - 2)))
