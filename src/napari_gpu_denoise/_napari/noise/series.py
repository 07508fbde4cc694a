"""Series of a noise estimate for plots."""

from __future__ import annotations

import numpy as np

from napari_gpu_denoise._napari.noise.plots import Series
from napari_gpu_denoise.noise.record import NoiseEstimate, SigmaSeries

MOST_CHANNELS = 6  # drawn in one plot


def curve_series(estimate: NoiseEstimate) -> list[Series]:
    """Return variance against mean: levels used, levels left out, and the model's curve."""
    several = len(estimate.models) > 1
    found: list[Series] = []
    for k, (curve, model) in enumerate(zip(estimate.curves, estimate.models, strict=True)):
        if curve is None or k >= MOST_CHANNELS:
            continue
        rows = [
            each
            for each in zip(curve.mean, curve.variance, curve.used, curve.count, strict=True)
            if each[3] > 0
        ]
        if not rows:
            continue
        used = [(x, y) for x, y, kept, _ in rows if kept]
        left = [(x, y) for x, y, kept, _ in rows if not kept]
        names = (f"{k}", "", "") if several else ("used", "left out", "model")
        means = [row[0] for row in rows]
        grid = np.linspace(min(means), max(means), 64) if len(means) > 1 else np.array(means)
        found += [
            Series(*_columns(used), names[0], "points", k),
            Series(*_columns(left), names[1], "rings", k),
            Series(grid.tolist(), model.variance(grid).tolist(), names[2], "line", k),
        ]
    return found


def along_series(series: SigmaSeries | None) -> list[Series]:
    """Return sigma along an axis, one series a channel; none for a single frame."""
    if series is None or len(series.index) < 2:
        return []
    several = len(series.sigma) > 1
    return [
        Series(series.index, values, f"{k}" if several else "", "points", k, error)
        for k, (values, error) in enumerate(zip(series.sigma, series.error, strict=True))
        if k < MOST_CHANNELS
    ]


def autocorrelation_series(estimate: NoiseEstimate) -> list[Series]:
    """Return the correlation of noise with itself at some displacements, along x and y."""
    several = len(estimate.spectra) > 1
    found: list[Series] = []
    if not any(estimate.sigma):
        return found
    for k, spectrum in enumerate(estimate.spectra[:MOST_CHANNELS]):
        if spectrum is None:
            continue
        along_x = spectrum.autocorrelation[0]
        along_y = [row[0] for row in spectrum.autocorrelation]
        names = (str(k), "") if several else ("along x", "along y")
        colours = (k, k) if several else (0, 1)
        lags = range(len(along_x))
        found += [
            Series(lags, along_x, names[0], "line", colours[0]),
            Series(lags, along_y, names[1], "dashes", colours[1]),
        ]
    return found


def _columns(rows: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in rows], [y for _, y in rows]
