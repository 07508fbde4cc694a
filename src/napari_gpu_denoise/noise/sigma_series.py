"""Sigma from frame to frame and from slice to slice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from napari_gpu_denoise.noise.channel import ChannelNoise
from napari_gpu_denoise.noise.models import NoiseModel
from napari_gpu_denoise.noise.models.base import Fit
from napari_gpu_denoise.noise.patches.pooling import PatchStatistics
from napari_gpu_denoise.noise.patches.statistics import read_statistics
from napari_gpu_denoise.noise.record import SigmaSeries
from napari_gpu_denoise.noise.sampling import PlaneReader, spread

MOST = 256  # frames or slices read of an array in memory
MOST_LAZY = 32  # of one that is not
PATCHES = 4096  # of each, about


def sigma_series(
    source: PlaneReader,
    axis: str,
    channels: Sequence[ChannelNoise],
    fits: Sequence[Fit],
    device: Any,
) -> SigmaSeries:
    """Return sigma along the axis "T" or "Z", at all positions or some hundreds, evenly spread.

    `channels` and `fits` belong to ``source.channels``; `device` is as `read_statistics` takes it.
    """
    number = source.axes.index(axis)
    index = spread(source.shape[number], MOST_LAZY if source.lazy else MOST)
    rows = []
    for channel, known, fit in zip(source.channels, channels, fits, strict=True):
        scale = _scale(known, fit)
        planes = source.along(number, channel, index)
        found = read_statistics(planes, PATCHES, device)
        rows.append([_sigma(each, fit.model, scale) for each in found])
    sigma, error = (tuple(map(tuple, np.array(rows)[..., k].tolist())) for k in (0, 1))
    return SigmaSeries(axis, tuple(index), sigma, error)


def _sigma(
    statistics: PatchStatistics | None, model: NoiseModel, scale: float
) -> tuple[float, float]:
    return (math.nan, math.nan) if statistics is None else model.sigma_of(statistics, scale)


def _scale(channel: ChannelNoise, fit: Fit) -> float:
    """Return the variance at all frequencies over that at the high ones, for correlated noise."""
    model = fit.model
    if not model.additive or channel.spectra is None:
        return 1.0
    if not model.models_correlation and channel.ends is None:
        return 1.0
    high, _ = model.sigma_of(channel.spectra.statistics)
    return (fit.sigma / high) ** 2 if high else 1.0
