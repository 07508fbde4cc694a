"""What BM3D makes of correlated noise: its spectra, whether to prefilter, and on which scales."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from napari_gpu_denoise.filters.bm3d.patch_noise import extended_autocorrelation
from napari_gpu_denoise.filters.channels import OPPONENT
from napari_gpu_denoise.noise.correlation import LAGS
from napari_gpu_denoise.noise.models import Correlated

# If neighbouring pixels are correlated by more than this, along the axis that has more, patches are
# prefiltered with this threshold for matching: noise alone makes nearby patches look similar.
ALIKE = 0.6
PREFILTER_CORRELATED = 3.0

MOST_SCALES = 3
LEAST_SIDE = 32  # pixels of a halved image
# Sigma in a halved image, relative to that in the image, from which the halved image is filtered,
# too; it is 0.5 for white noise.
BLOTCHY = 0.7

# Noise that colours share by more than this comes from a camera, whose processing and compression
# leave more noise beside edges and texture than in the smooth places where it is measured, and
# with another spectrum: sigma is multiplied, and a part of the noise is taken for white.
SHARED = 0.25
CAMERA = 1.9
WHITE = 0.55

Autocorrelation = tuple[tuple[float, ...], ...]
_WHITE = tuple(tuple(float(y == x == 0) for x in range(LAGS + 1)) for y in range(LAGS + 1))


def spectra(
    models: tuple[Correlated, ...], channels: str, guide: int
) -> tuple[tuple[Autocorrelation, ...], tuple[Autocorrelation, ...]]:
    """Return the autocorrelations of the noise in what is filtered, and in what is searched.

    `models`, and each result, are one for all channels or one for each.
    """
    filtered = searched = tuple(model.autocorrelation for model in models)
    sigmas = np.array([model.sigma for model in models])
    if len(models) > 1 and channels == "opponent":
        # The noise of channels is independent: variances add up.
        filtered = tuple(_average(filtered, np.square(row * sigmas)) for row in OPPONENT)
        if shared_noise(models) > SHARED:
            filtered = tuple(
                _average((one, _WHITE), np.array([1 - WHITE, WHITE])) for one in filtered
            )
        searched = filtered[:1]
    elif len(models) > 1 and channels == "joint":
        # The guide is a channel, or the mean of all channels, each divided by its sigma.
        mean = _average(filtered, np.sign(sigmas))
        searched = filtered[guide : guide + 1] if guide >= 0 else (mean,)
    return filtered, searched


def shared_noise(models: tuple[Correlated, ...]) -> float:
    """Return the mean correlation of the noise of these channels with that of others."""
    return float(np.mean([model.shared for model in models]))


def opponent_strengths(models: tuple[Correlated, ...]) -> tuple[float, float, float]:
    """Return sigma of opponent colours over what it would be if channels were independent.

    Variances of luminance add up with the covariances of the channels. Those of chrominance could
    be reduced by as much, but not at low frequencies, where the correlation is not measured.
    """
    shared = shared_noise(models)
    if shared <= SHARED:
        return (1.0, 1.0, 1.0)
    return (CAMERA * math.sqrt(1 + 2 * shared), CAMERA, CAMERA)


def prefilter_settings(models: tuple[Correlated, ...]) -> dict[str, str | float]:
    """Return the settings that decide ``prefilter="auto"`` for noise of these models."""
    alike = np.mean([max(m.autocorrelation[0][1], m.autocorrelation[1][0]) for m in models])
    if alike > ALIKE:
        return {"prefilter": "on", "prefilter_threshold": PREFILTER_CORRELATED}
    return {"prefilter": "off"}


def most_scales(side: int, least: int = LEAST_SIDE) -> int:
    """Return on how many scales an image `side` pixels wide may be filtered, down to `least`."""
    return next(n for n in range(MOST_SCALES, 0, -1) if n == 1 or side >> (n - 1) >= least)


def scale_count(models: tuple[Correlated, ...], most: int) -> int:
    """Return on how many scales to filter noise of these models."""
    scales = 1
    while scales < most:
        halves = tuple(map(halved, models))
        before, after = (np.linalg.norm([m.sigma for m in each]) for each in (models, halves))
        if after <= BLOTCHY * before:
            break
        models, scales = halves, scales + 1
    return scales


@lru_cache(maxsize=64)
def halved(model: Correlated) -> Correlated:
    """Return the noise in an image whose pixels are means of 2 x 2."""
    lags = len(model.autocorrelation)
    near = extended_autocorrelation(model.autocorrelation)
    # Means of two pixels, two pixels apart, share none; their covariance is a sum over three lags.
    places, weights = 2 * np.arange(lags)[:, None] + [-1, 0, 1], [0.25, 0.5, 0.25]
    along = np.zeros((lags, len(near)))
    for row, at in zip(along, np.abs(places), strict=True):
        np.add.at(row, at, weights)
    table = along @ near @ along.T
    correlation = np.clip(table / table[0, 0], -1, 1)
    return Correlated(model.sigma * math.sqrt(table[0, 0]), correlation, model.shared)


def _average(tables: tuple[Autocorrelation, ...], weights: np.ndarray) -> Autocorrelation:
    # Without noise in any channel there is nothing to filter, and any table will do.
    weights = weights if np.any(weights) else np.ones(len(tables))
    table = np.tensordot(weights / np.sum(weights), np.array(tables), axes=1)
    return tuple(map(tuple, table.tolist()))
