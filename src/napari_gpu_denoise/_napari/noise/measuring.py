"""Noise of layers: estimates, statistics of flat regions, and estimates kept for all panels."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np
from napari.layers import Image

from napari_gpu_denoise._napari.layers.arrays import LazyArray, is_lazy
from napari_gpu_denoise._napari.layers.regions import Part
from napari_gpu_denoise._napari.layers.source import Source, finest
from napari_gpu_denoise._napari.noise.plots import load_library
from napari_gpu_denoise._napari.tasks import Stage
from napari_gpu_denoise.assessment.recommend import Advice, recommend
from napari_gpu_denoise.errors import DenoiseError, LayerError
from napari_gpu_denoise.image.axes import channel_axis
from napari_gpu_denoise.noise.correlation import NoiseSpectrum, noise_spectrum
from napari_gpu_denoise.noise.estimate import estimate_noise
from napari_gpu_denoise.noise.models import Correlated, Gaussian, NoiseModel, Rician, Speckle
from napari_gpu_denoise.noise.patches.variance import VarianceCurve
from napari_gpu_denoise.noise.record import NoiseEstimate
from napari_gpu_denoise.run.noise import NoiseMemory

METHOD = "plain statistics of a flat region drawn by hand"
FEWEST = 64  # pixels
_RAYLEIGH = math.sqrt(math.pi / (4 - math.pi))  # mean over standard deviation
_SKEWNESS = 0.631  # of a Rayleigh distribution

_SAMPLED = 1 << 16  # pixels compared to notice that an array was changed in place

_kept: WeakKeyDictionary[Image, tuple[Any, int, dict[Any, NoiseMemory]]] = WeakKeyDictionary()


def flat_noise(region: Any, axes: str, model: str = "auto") -> NoiseEstimate:
    """Measure noise in a region without any object: background, or an evenly lit area.

    `region` is one plane, with or without channels; `model` as `estimate_noise` takes it. One
    brightness cannot show photon noise. Of Gaussian noise `sigma` is the standard deviation of the
    pixels, of Rician noise, where the region is background, the root of half their mean square.

    Raises `LayerError` if the region is too small, or its pixels do not determine the model.
    """
    if model == "poisson-gaussian":
        raise LayerError(
            "A flat region has one brightness, which does not show how noise grows with it: choose "
            "another model, or a region with dark and bright parts."
        )
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
    if model == "gaussian" and None not in spectra and not all(each.white for each in spectra):
        model = "correlated"
    found = [_measured(v, model, s) for v, s in zip(finite, spectra, strict=True)]
    models, sigma, error, errors = zip(*found, strict=True)
    reasons = {
        "rician": "the pixels of the region are distributed like magnitudes without signal",
        "speckle": "the model was chosen by hand",
    }
    return NoiseEstimate(
        sigma=sigma,
        standard_error=error,
        method=METHOD,
        planes=len(planes),
        notes=(),
        axes=axes,
        models=models,
        reason=reasons.get(model, "a flat region has one brightness, which one sigma describes"),
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
    if model not in ("gaussian", "correlated"):
        raise LayerError(
            f"The region is constant or dark, which does not determine {model} noise: draw another."
        )
    if model == "correlated" and spectrum is not None:
        found = replace(Correlated.of_spectrum(spectrum), sigma=sigma)
        return found, sigma, error, {"sigma": error}
    return Gaussian(sigma), sigma, error, {"sigma": error}


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


def memory_of(layer: Image, model: str, *key: Any) -> NoiseMemory:
    """Return the memory of the noise of a layer, which a run fills in.

    It is that of the data as they are now. `model` is as in `NoiseMemory`, `key` holds all else
    that the measurement depends on: axes, what is corrected first, treatment of NaN, device.
    """
    data = finest(layer)
    sample = 0 if is_lazy(data) else _checksum(data)
    same, before, known = _kept.get(layer, (lambda: None, 0, {}))
    if same() is not data or before != sample:
        known = {}
        _kept[layer] = _reference(data), sample, known
    return known.setdefault((model, *key), NoiseMemory(model))


def _checksum(data: np.ndarray) -> int:
    step = math.ceil((data.size / _SAMPLED) ** (1 / data.ndim))
    return zlib.crc32(data[(slice(None, None, max(step, 1)),) * data.ndim].tobytes())


def _reference(data: Any) -> Any:
    try:
        return ref(data)
    except TypeError:
        return lambda: data


@dataclass(frozen=True)
class NoiseRequest:
    """All that a measurement needs: a part of a layer, without alpha, and how to measure it.

    It holds no napari or Qt objects. `axes` are those of the whole layer, `model` and
    `device` as `estimate_noise` takes them. A `flat` part holds no object.
    """

    source: Source
    axes: str
    part: Part
    model: str
    flat: bool
    device: int | str | None


@dataclass(frozen=True)
class Measurement:
    """An estimate of noise, and the filter that is recommended, if there is a device."""

    estimate: NoiseEstimate
    advice: Advice | None

    @property
    def verdict(self) -> str:
        """The model, and what is recommended, in one line."""
        verdict, advice = self.estimate.verdict(), self.advice
        if advice is None or not any(self.estimate.sigma):
            return verdict
        return f"{verdict}; recommended: {advice.filter.title}, because {advice.reason}"


def measure(
    request: NoiseRequest, stopped: Callable[[], bool] = lambda: False
) -> Generator[Stage, None, Measurement]:
    """Measure noise.

    Lazy data can be stopped before each plane is read; other data do not take long.
    """
    yield Stage("Measuring")
    load_library()  # not in the GUI thread, when there is something to draw
    data, part = request.source.data, request.part
    data = LazyArray(data, stopped, part.index) if is_lazy(data) else data[part.index]
    if request.flat:
        estimate = flat_noise(data, part.axes, request.model)
    else:
        estimate = estimate_noise(data, part.axes, request.model, device=request.device)
    advice = None
    with suppress(DenoiseError):
        advice = recommend(data, part.axes, noise=estimate, device=request.device)
    return Measurement(estimate, advice)
