"""Autocorrelation of the noise in channels and their mixtures, for the passes of BM3D."""

from __future__ import annotations

import numpy as np

from napari_gpu_denoise.filters.channels.channel_mix import OPPONENT
from napari_gpu_denoise.noise.models import Correlated

# If neighbouring pixels are correlated by more than this, along the axis that has more, patches are
# prefiltered with this threshold for matching: noise alone makes nearby patches look similar.
ALIKE = 0.6
PREFILTER_CORRELATED = 3.0

Autocorrelation = tuple[tuple[float, ...], ...]


def spectra_of(
    models: tuple[Correlated, ...], channels: str, guide: int
) -> tuple[tuple[Autocorrelation, ...], tuple[Autocorrelation, ...]]:
    """Return the autocorrelations of the noise in what is filtered, and in what is searched.

    `models`, and each result, are one for all channels or one for each.
    """
    filtered = tuple(model.autocorrelation for model in models)
    if len(models) == 1 or channels not in ("opponent", "joint"):
        return filtered, filtered
    if channels == "opponent":
        filtered = tuple(mixed(models, row) for row in OPPONENT)
        return filtered, filtered[:1]
    return filtered, filtered[guide : guide + 1] if guide >= 0 else (_mean(models),)


def prefilter_for(models: tuple[Correlated, ...]) -> dict[str, str | float]:
    """Return the settings that decide ``prefilter="auto"`` for noise of these models."""
    alike = np.mean([max(m.autocorrelation[0][1], m.autocorrelation[1][0]) for m in models])
    if alike > ALIKE:
        return {"prefilter": "on", "prefilter_threshold": PREFILTER_CORRELATED}
    return {"prefilter": "off"}


def mixed(models: tuple[Correlated, ...], weights) -> Autocorrelation:
    """Return the autocorrelation in a weighted sum of channels with independent noise."""
    variances = np.square([w * model.sigma for w, model in zip(weights, models, strict=True)])
    return _average([model.autocorrelation for model in models], variances)


def _mean(models: tuple[Correlated, ...]) -> Autocorrelation:
    """Return the autocorrelation in the mean of the channels, each divided by its sigma."""
    counted = [float(model.sigma > 0) for model in models]
    return _average([model.autocorrelation for model in models], counted)


def _average(tables, weights) -> Autocorrelation:
    # Without noise in any channel there is nothing to filter, and any table will do.
    weights = np.asarray(weights) if np.any(weights) else np.ones(len(tables))
    table = np.tensordot(weights / np.sum(weights), np.array(tables), axes=1)
    return tuple(map(tuple, table.tolist()))
