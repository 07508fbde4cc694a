"""Sigma from frame to frame and from slice to slice."""

from __future__ import annotations

import math

import numpy as np

from napari_gpu_denoise.noise.model_fit import patches_sigma
from napari_gpu_denoise.noise.models import NoiseModel
from napari_gpu_denoise.noise.noise_estimate import SigmaSeries
from napari_gpu_denoise.noise.patch_statistics import PatchStatistics
from napari_gpu_denoise.noise.sampling import spread

MOST = 256  # frames or slices read of an array in memory
MOST_LAZY = 32  # of one that is not
PATCHES = 4096  # of each, about


def positions(length: int, lazy: bool) -> list[int]:
    """Return which frames or slices are read: all, or some hundreds, spread evenly."""
    return spread(length, MOST_LAZY if lazy else MOST)


def sigma_series(
    axis: str,
    index: list[int],
    statistics: list[list[PatchStatistics | None]],
    models: tuple[NoiseModel, ...],
    scales: tuple[float, ...],
) -> SigmaSeries:
    """Return sigma along an axis.

    Parameters
    ----------
    axis : str
        T or Z.
    index : list of int
        Positions that were read.
    statistics : list, (channel, position)
        Patches there; None where nothing is finite.
    models : tuple of NoiseModel
        Of each channel.
    scales : tuple of float
        Of each channel, the variance of all frequencies over that of the high ones.
    """
    rows = []
    for channel, model, scale in zip(statistics, models, scales, strict=True):
        rows.append([_sigma(each, model, scale) for each in channel])
    found = np.array(rows)
    sigma, error = (tuple(map(tuple, found[..., k].tolist())) for k in (0, 1))
    return SigmaSeries(axis, tuple(index), sigma, error)


def _sigma(
    statistics: PatchStatistics | None, model: NoiseModel, scale: float
) -> tuple[float, float]:
    if statistics is None:
        return math.nan, math.nan
    return patches_sigma(model, scale, *statistics)
