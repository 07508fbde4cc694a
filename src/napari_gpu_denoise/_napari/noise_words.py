"""An estimate of noise in words, as rows of a panel, and as series of plots."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from napari_gpu_denoise._napari.plots import Series
from napari_gpu_denoise.noise.models import NoiseModel
from napari_gpu_denoise.noise.noise_estimate import TITLES, NoiseEstimate, SigmaSeries

MOST_CHANNELS = 6  # drawn in one plot

_LABELS = {
    "gain": ("Gain", "grey levels per electron"),
    "read_noise": ("Read noise", "grey levels"),
    "offset": ("Offset", "grey levels"),
    "sigma": ("Sigma", "grey levels"),
    "looks": ("Looks", ""),
}


def measured(value: float, error: float = math.nan) -> str:
    """Write a value with its standard error, to as many places as the error tells something of."""
    if not math.isfinite(error) or error <= 0:
        return f"{value:.4g}"
    places = min(max(1 - math.floor(math.log10(error)), 0), 6)
    if abs(value) >= 1e6 or (value and abs(value) < 1e-4):
        return f"{value:.4g} ± {error:.2g}"
    return f"{value:.{places}f} ± {error:.{places}f}"


def title(model: NoiseModel) -> str:
    """Return what a model is called, such as ``"Poisson-Gaussian"``."""
    name = TITLES[model.name]
    return name[:1].upper() + name[1:]


def parameters(estimate: NoiseEstimate) -> list[tuple[str, str]]:
    """Return each parameter of the model and what was measured: one value a channel."""
    rows = []
    fields = [name for name in _LABELS if hasattr(estimate.models[0], name)]
    for name in fields:
        values = [getattr(model, name) for model in estimate.models]
        if name == "offset" and not any(values):
            continue
        label, unit = _LABELS[name]
        errors = [each.get(name, math.nan) for each in estimate.errors]
        said = ", ".join(map(measured, values, errors))
        rows.append((label, f"{said} {unit}".strip()))
    if "sigma" not in fields:
        said = ", ".join(map(measured, estimate.sigma, estimate.standard_error))
        rows.append(("Sigma, mean", f"{said} grey levels"))
    return rows


def short(estimate: NoiseEstimate) -> str:
    """Return model and parameters in one line, such as ``"Poisson-Gaussian, gain 2.21"``."""
    said = []
    for name, (label, _) in _LABELS.items():
        values = [getattr(model, name, None) for model in estimate.models]
        if values[0] is None or (name == "offset" and not any(values)):
            continue
        said.append(f"{label.lower()} {_alike(values, '.3g')}")
    return ", ".join([title(estimate.models[0]), *said])


def used(models: Sequence[NoiseModel], sigma: Sequence[float]) -> str:
    """Return what a run has used, in one line; one model said once for channels that share it."""
    if not models:
        return f"One sigma: {_alike(sigma, '.4g')}"
    names = dict.fromkeys(each.name for each in models)
    if len(names) > 1 or len(dict.fromkeys(models)) == 1:
        return "; ".join(dict.fromkeys(each.summary() for each in models))
    said = [
        f"{label.lower()} {_alike([getattr(each, name) for each in models], '.4g')}"
        for name, (label, _) in _LABELS.items()
        if any(getattr(each, name, 0) for each in models)
    ]
    return ", ".join([f"{title(models[0])} noise", *said])


def _alike(values: Sequence[float], digits: str) -> str:
    """Return the values of the channels; one where they are the same."""
    values = values[:1] if len(set(values)) == 1 else values
    return " / ".join(f"{value:{digits}}" for value in values)


def sigma(estimate: NoiseEstimate) -> str:
    """Return sigma with its standard error, one value a channel."""
    return ", ".join(map(measured, estimate.sigma, estimate.standard_error))


def whiteness(estimate: NoiseEstimate) -> str:
    """Return whether the noise is white, in a sentence; empty where it was not looked at."""
    found = [each for each in estimate.spectra if each is not None]
    if not found or not any(estimate.sigma):
        return ""
    worst = max(found, key=lambda each: abs(each.autocorrelation[0][1]))
    # No minus before what is written as 0.
    x, y = (
        round(each, 2) + 0.0 for each in (worst.autocorrelation[0][1], worst.autocorrelation[1][0])
    )
    said = "white" if estimate.white else "correlated"
    return f"{said}: neighbours correlate {x:.2f} along x, {y:.2f} along y"


def clipped(estimate: NoiseEstimate) -> str:
    """Return the largest shares of clipped pixels of a channel; empty where there are none."""
    shares = [(each[0], each[1]) for each in estimate.clipped if any(each)]
    if not shares:
        return ""
    dark, bright = (max(each) for each in zip(*shares, strict=True))
    return f"{dark:.2%} of the pixels at the dark end, {bright:.2%} at the bright end"


def shared(estimate: NoiseEstimate) -> str:
    """Return how much of the noise channels share, in words; empty for one channel."""
    if estimate.covariance is None:
        return ""
    table = estimate.covariance.correlation
    pairs = [abs(table[i][j]) for i in range(len(table)) for j in range(i)]
    return f"noise of two of them correlates by at most {max(pairs, default=0.0):.2f}"


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
