"""Autocorrelation of the noise in what each pass of BM3D filters: mixtures of channels."""

from __future__ import annotations

import numpy as np

from napari_gpu_denoise.filters.channels.channel_mix import OPPONENT
from napari_gpu_denoise.noise.models import Correlated

# Above this correlation of neighbouring pixels, along the axis that has more, patches are smoothed
# before they are matched, with this threshold: nearby patches look alike for their noise alone.
ALIKE = 0.6
PREFILTER_CORRELATED = 3.0

Autocorrelation = tuple[tuple[float, ...], ...]


def spectra_of(
    models: tuple[Correlated, ...], channels: str, guide: int
) -> tuple[tuple[Autocorrelation, ...], tuple[Autocorrelation, ...]]:
    """Return the autocorrelations of the noise in what is filtered, and in what is searched.

    Parameters
    ----------
    models : tuple of Correlated
        One for all channels, or one per channel.
    channels : {"separate", "opponent", "joint"}
        How the channels are filtered.
    guide : int
        Channel that joint matching looks at; -1 for the mean of all.

    Returns
    -------
    filtered, searched : tuple
        One (5, 5) table for all that is filtered or searched, or one for each channel of it.
    """
    filtered = tuple(model.autocorrelation for model in models)
    if len(models) == 1 or channels not in ("opponent", "joint"):
        return filtered, filtered
    if channels == "opponent":
        filtered = tuple(mixed(models, row) for row in OPPONENT)
        return filtered, filtered[:1]
    return filtered, filtered[guide : guide + 1] if guide >= 0 else (_mean(models),)


def prefilter_for(models: tuple[Correlated, ...]) -> dict[str, str | float]:
    """Return the settings of the prefilter for noise of these models."""
    alike = np.mean([max(m.autocorrelation[0][1], m.autocorrelation[1][0]) for m in models])
    if alike > ALIKE:
        return {"prefilter": "on", "prefilter_threshold": PREFILTER_CORRELATED}
    return {"prefilter": "off"}


def mixed(models: tuple[Correlated, ...], weights) -> Autocorrelation:
    """Return the autocorrelation of a weighted sum of channels whose noise is independent."""
    variances = np.square([w * model.sigma for w, model in zip(weights, models, strict=True)])
    return _average([model.autocorrelation for model in models], variances)


def _mean(models: tuple[Correlated, ...]) -> Autocorrelation:
    """Return that of the mean of the channels, each divided by its sigma."""
    counted = [float(model.sigma > 0) for model in models]
    return _average([model.autocorrelation for model in models], counted)


def _average(tables, weights) -> Autocorrelation:
    # Without noise in any channel there is nothing to filter, and any table will do.
    weights = np.asarray(weights) if np.any(weights) else np.ones(len(tables))
    table = np.tensordot(weights / np.sum(weights), np.array(tables), axes=1)
    return tuple(map(tuple, table.tolist()))
