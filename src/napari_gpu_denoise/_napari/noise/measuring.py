"""Noise of layers: estimates, statistics of flat regions, and estimates kept for all panels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from napari_gpu_denoise._napari.layers.arrays import LazyArray, is_lazy
from napari_gpu_denoise._napari.run import NoiseRequest
from napari_gpu_denoise.errors import DenoiseError, LayerError, Note
from napari_gpu_denoise.image.axes import channel_axis
from napari_gpu_denoise.noise import models as noise_models
from napari_gpu_denoise.noise.correlation import NoiseSpectrum, noise_spectrum
from napari_gpu_denoise.noise.estimate import estimate_noise
from napari_gpu_denoise.noise.models import Correlated, Gaussian, NoiseModel, Rician, Speckle
from napari_gpu_denoise.noise.patches.variance import VarianceCurve
from napari_gpu_denoise.noise.record import NoiseEstimate, is_unproven
from napari_gpu_denoise.opencl.device import choose_devices
from napari_gpu_denoise.run.progress import Progress

METHOD = "plain statistics of a flat region drawn by hand"
FEWEST = 64  # pixels
UNEVEN = "the region is not flat"
_FLAT = "a flat region has one brightness, which one sigma describes"
_RAYLEIGH = math.sqrt(math.pi / (4 - math.pi))  # mean over standard deviation
_TO_SIGMA = 1.4826  # from the median deviation of normal noise
_SKEWNESS = 0.631  # of a Rayleigh distribution

_PARTS = 6  # of a region along Y and X, whose means are compared
_SMALLEST_PART, _LARGE_PART = 4, 8  # pixels along each, from which parts are compared at all
_OUTLYING = 10.0  # spreads of the means by which one of them is away in a flat region, at most
_SMOOTH = 0.8  # of the variance of the means that a slope or a bend takes in a flat region, at most
_MORE = 2.25  # times the variance of the noise of the layer that a flat region has, at most
_EXCESS = 5.0  # variance of the means in a flat region, relative to that by the noise, at most


def flat_noise(
    region: Any,
    axes: str,
    model: str = "auto",
    expected: Sequence[tuple[NoiseModel, float]] = (),
) -> NoiseEstimate:
    """Measure noise in a region without any object: background, or an evenly lit area.

    `region` is one plane, with or without channels; `model` as `estimate_noise` takes it. One
    brightness cannot show photon noise. Of Gaussian noise `sigma` is the standard deviation of the
    pixels, of Rician noise, where the region is background, the root of half their mean square. A
    note says where its parts differ in brightness, which `sigma` then includes. `expected` is the
    noise of each channel of the layer, and how many times as much of it means of parts have as they
    would of white noise; without it the region itself tells.

    Raises `LayerError` if the region is too small, or its pixels do not determine the model.
    """
    region = np.asarray(region)
    channel = channel_axis(axes)
    planes = [region] if channel is None else list(np.moveaxis(region, channel, 0))
    low, high = -math.inf, math.inf
    if region.dtype.kind in "iu":
        low, high = np.iinfo(region.dtype).min, np.iinfo(region.dtype).max
    finite = []
    for plane in planes:
        values = np.asarray(plane, np.float64)
        finite.append(values[np.isfinite(values)])
        if finite[-1].size < FEWEST:
            raise LayerError(
                f"Only {finite[-1].size} pixels of the region are finite: draw one of at least "
                f"{FEWEST}."
            )
    if model == "auto":
        model = "rician" if all(map(_is_background, finite)) else "gaussian"
    spectra = tuple(map(_spectrum, planes))
    white = [each.white for each in spectra if each is not None]
    if model == "gaussian" and len(white) == len(spectra) and not all(white):
        model = "correlated"
    found = [_measured(v, model, s) for v, s in zip(finite, spectra, strict=True)]
    models, sigma, error, errors = zip(*found, strict=True)
    found_notes = map(_unevenness, planes, expected or [None] * len(planes))
    notes = tuple(dict.fromkeys(each for each in found_notes if each is not None))
    reasons = {
        "rician": "the pixels of the region are distributed like magnitudes without signal",
        "speckle": "the model was chosen by hand",
    }
    return NoiseEstimate(
        sigma=sigma,
        standard_error=error,
        method=METHOD,
        planes=len(planes),
        notes=notes,
        axes=axes,
        models=models,
        reason=UNEVEN if notes else reasons.get(model, _FLAT),
        errors=errors,
        curves=tuple(
            VarianceCurve((float(v.mean()),), (float(v.var(ddof=1)),), (v.size,), (True,))
            for v in finite
        ),
        frames=None,
        slices=None,
        others=None,
        shape=region.shape,
        spectra=spectra,
        covariance=None,
        clipped=tuple((float(np.mean(v == low)), float(np.mean(v == high))) for v in finite),
    )


def _unevenness(plane: np.ndarray, known: tuple[NoiseModel, float] | None = None) -> Note | None:
    """Return a note if a region has more than noise: than is `known`, or between its parts.

    The noise may be correlated, and skewed (docs/methods/noise.md). Parts of regions of less than
    24 pixels along Y or X are not compared.
    """
    usual, remedy = 0.0, "draw it where there is no object"
    if known is not None:
        values = np.asarray(plane, np.float64)
        values = values[np.isfinite(values)]
        usual = float(known[0].variance(np.array([values.mean()]))[0])
        if values.var() > _MORE * usual:
            sigma, told = math.sqrt(values.var()), math.sqrt(usual)
            text = f"{UNEVEN}: its sigma is {sigma:.3g}, that of the layer here {told:.3g}"
            return Note(text, remedy)
    ny, nx = (n // _PARTS for n in plane.shape)
    if min(ny, nx) < _SMALLEST_PART:
        return None
    blocks = np.asarray(plane, np.float64)[: ny * _PARTS, : nx * _PARTS]
    blocks = np.where(np.isfinite(blocks), blocks, np.median(blocks[np.isfinite(blocks)]))
    blocks = blocks.reshape(_PARTS, ny, _PARTS, nx).swapaxes(1, 2)
    means = blocks.mean((2, 3))
    rest = blocks - means[..., None, None]
    variance = float(np.median(rest.var((2, 3)))) * ny * nx / (ny * nx - 1)
    if variance == 0:
        return None
    away = np.abs(means - np.median(means))
    expected = variance / (ny * nx)
    spread = max(_TO_SIGMA * float(np.median(away)), math.sqrt(expected) / 2)
    y, x = np.indices(means.shape).reshape(2, -1) - (_PARTS - 1) / 2
    basis, _ = np.linalg.qr(np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=1))
    centred = means.ravel() - means.mean()
    smooth = float(np.sum((basis.T @ centred) ** 2)) / max(float(np.sum(centred**2)), expected)
    if known is not None:
        expected = usual * known[1] / (ny * nx)
    # By the correlation of neighbours within parts the noise of their means is larger. Objects
    # correlate, too, and are no excuse where the noise is known.
    for first, second in ((rest[..., 1:], rest[..., :-1]), (rest[:, :, 1:], rest[:, :, :-1])):
        shared = min(max(float(np.median((first * second).mean((2, 3)))) / variance, 0.0), 0.95)
        expected *= 1.0 if known is not None else (1 + shared) / (1 - shared)
    excess = float(means.var(ddof=1)) / expected if min(ny, nx) >= _LARGE_PART else 0.0
    if away.max() <= _OUTLYING * spread and smooth <= _SMOOTH and excess <= _EXCESS:
        return None
    return Note(
        f"{UNEVEN}: its parts differ by {np.ptp(means):.3g} grey levels, which sigma includes "
        f"(within them it is about {math.sqrt(variance):.3g})",
        remedy,
    )


def _measured(
    values: np.ndarray, model: str, spectrum: NoiseSpectrum | None
) -> tuple[NoiseModel, float, float, dict[str, float]]:
    """Return the model, sigma, its standard error, and the errors of the parameters."""
    count, variance = values.size, float(values.var(ddof=1))
    sigma = math.sqrt(variance)
    fourth = float(np.mean((values - values.mean()) ** 4))
    spread = math.sqrt(max(fourth - variance**2, 0.0) / count)  # of the variance
    error = spread / (2 * sigma) if sigma else 0.0
    if model == "rician" and np.any(values):
        sigma = math.sqrt(float(np.mean(values**2)) / 2)
        error = sigma / (2 * math.sqrt(count))
        return Rician(sigma), sigma, error, {"sigma": error}
    if model == "speckle" and variance > 0 and values.mean() > 0:
        looks = float(values.mean()) ** 2 / variance
        relative = math.hypot(spread / variance, 2 * sigma / (values.mean() * math.sqrt(count)))
        return Speckle(looks), sigma, error, {"looks": looks * relative}
    kind: Any = next(each for each in noise_models.MODELS if each.name == model)
    if not kind.additive:
        raise LayerError(
            f"The region is constant or dark, which does not determine {model} noise: draw another."
            if kind in (Rician, Speckle)
            else "A flat region has one brightness, which does not show how noise grows with it: "
            "choose another model, or a region with dark and bright parts."
        )
    found = Gaussian(sigma) if kind.models_correlation else kind.of_sigma(sigma)
    if kind.models_correlation and spectrum is not None:
        found = replace(Correlated.of_spectrum(spectrum), sigma=sigma)
    return found, sigma, error, {"sigma": error}


def _is_background(values: np.ndarray) -> bool:
    """Return whether pixels are magnitudes of pure noise: Rayleigh-distributed."""
    sigma = float(values.std(ddof=1))
    if sigma == 0 or values.min() < 0:
        return False
    ratio = float(values.mean()) / sigma
    skewness = float(np.mean((values - values.mean()) ** 3)) / sigma**3
    slack = 4 / math.sqrt(values.size)  # some four standard errors; pixels may be correlated
    return (
        abs(ratio / _RAYLEIGH - 1) < max(slack, 0.03)
        and abs(skewness - _SKEWNESS) < max(3 * slack, 0.2)
        and values.size >= 4 * FEWEST
    )


def _spectrum(plane: np.ndarray) -> NoiseSpectrum | None:
    try:
        return noise_spectrum(plane)
    except DenoiseError:
        return None


def verdict(estimate: NoiseEstimate) -> str:
    """Return an estimate in one line."""
    uneven = f"{UNEVEN}: draw it where there is no object"
    words = uneven if estimate.reason == UNEVEN else estimate.verdict()
    return f"{words[:1].upper()}{words[1:]}."


def _noise_of_layer(request: NoiseRequest, progress: Progress) -> list[tuple[NoiseModel, float]]:
    """Return the noise of the channels of a region's layer; none where it is not known for sure.

    Beside each model is how many times as much noise means of parts have as of white noise.
    """
    try:
        pixels = request.source.pixels(progress)
        device, *_ = choose_devices(request.device)
        found = request.memory.measured(pixels, request.axes, device)
    except DenoiseError:
        return []
    if is_unproven(found.notes) or not all(found.sigma):
        return []
    factors = []
    for each in found.spectra:
        table = ((1.0, 0.0), (0.0, 0.0)) if each is None else each.autocorrelation
        shared = (min(max(lag, 0.0), 0.95) for lag in (table[0][1], table[1][0]))
        factors.append(math.prod((1 + lag) / (1 - lag) for lag in shared))
    return list(zip(found.models, factors, strict=True))


def measure(request: NoiseRequest, progress: Progress) -> NoiseEstimate:
    """Measure noise.

    Lazy data can be stopped before each plane is read; other data do not take long.
    """
    data, part = request.source.data, request.part
    data = LazyArray(data, progress, part.index) if is_lazy(data) else data[part.index]
    if request.flat:
        return flat_noise(data, part.axes, request.model, _noise_of_layer(request, progress))
    return estimate_noise(data, part.axes, request.model, device=request.device)
