"""The noise that a filter assumes: sigma or a model, given or measured."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.image.axes import channel_axis
from napari_gpu_denoise.noise.models import Gaussian, NoiseModel, choices
from napari_gpu_denoise.noise.patches.white import SigmaEstimate, estimate_sigma
from napari_gpu_denoise.noise.sampling import LARGEST_PLANE, PlaneReader
from napari_gpu_denoise.run.filter import Filter
from napari_gpu_denoise.run.sigma import Sigma, estimated, place, resolve_sigma

if TYPE_CHECKING:
    from napari_gpu_denoise.noise.estimate import NoiseEstimate
    from napari_gpu_denoise.noise.series import PlaneSpectra

# Numbers between these can be squared in float32.
_SMALLEST, _LARGEST = 1e-15, 1e15


class NoiseMemory:
    """Stands for the noise of one image: the first run measures it, others know it.

    It belongs to an image and to everything a measurement depends on, which is for the owner to
    keep apart. `model` is what is measured: ``"auto"``, or ``"gaussian"``, one sigma.
    """

    def __init__(self, model: str = "auto") -> None:
        self.model = model
        self.estimate: NoiseEstimate | None = None
        self._sigmas: dict[Any, SigmaEstimate | None] = {}
        self._measuring = Lock()

    def knows(self, filter: Filter) -> bool:
        """Return whether the noise for a filter has been measured."""
        own = self._sigmas.get(_own_noise(filter))
        return own is not None or (self.model == "auto" and self.estimate is not None)

    def own_sigma(self, filter: Filter, image: Any, names: str) -> SigmaEstimate | None:
        """Return one sigma, or sigma as the filter itself measures it; None for the estimate."""
        key = _own_noise(filter)
        with self._measuring:
            if key not in self._sigmas:
                found = filter.estimate_sigma(image, names)
                if found is None and self.model == Gaussian.name:
                    found = estimate_sigma(image, names)
                self._sigmas[key] = found
            return self._sigmas[key]

    def measured(self, image: Any, names: str, device: Any) -> NoiseEstimate:
        """Return the estimate; of runs at the same time one measures it."""
        # Imported only when needed: it takes long to load.
        from napari_gpu_denoise.noise.estimate import measure_noise

        with self._measuring:
            if self.estimate is None:
                self.estimate = measure_noise(image, names, "auto", device)
            return self.estimate


def _own_noise(filter: Filter) -> tuple:
    """Return what an estimate of sigma depends on: whether it is the filter's own, and its unit."""
    return filter.name, filter.keeps_zero, filter.sigma_power


def is_measured(sigma: Any, noise: Any, filter: Filter) -> bool:
    """Return whether a run measures noise."""
    if sigma is not None or filter.sigma_unused:
        return False
    if isinstance(noise, NoiseMemory):
        return not noise.knows(filter)
    return noise is None or isinstance(noise, str)


def resolve_noise(
    sigma: Any, noise: Any, image: Any, names: str, filter: Filter, device: Any = None
) -> tuple[Filter, Sigma]:
    """Decide which noise a filter assumes, measuring it if needed; return the filter to run, too.

    `sigma` and `noise` are those of `denoise`, and `filter` is what `Filter.for_array` returned. If
    both are None, the filter's own estimate is used if it has one, else ``"auto"``. Of lazy images,
    a few planes are read. Many planes are analysed on `device`, as `choose` takes it.
    """
    memory, noise = (noise, None) if isinstance(noise, NoiseMemory) else (None, noise)
    if noise is None and (sigma is not None or filter.sigma_unused):
        return filter, resolve_sigma(sigma, image, names, filter)
    if noise is None:
        measure = filter.estimate_sigma
        if memory is not None:
            measure = partial(memory.own_sigma, filter)
        own = measure(image, names)
        if own is not None:
            return filter, estimated(own, image, names)
        noise = "auto" if memory is None else memory.measured(image, names, device)
    if filter.sigma_unused:
        raise SettingsError(
            f"noise={_said(noise)} was given to a filter that does not use it (sigma is "
            f"{filter.sigma_unused})",
            "leave one of them out",
            code="own-noise",
        )
    if isinstance(noise, (int, float, np.number)) and not isinstance(noise, bool):
        return filter, resolve_sigma(noise if sigma is None else sigma, image, names, filter)
    if sigma is None and isinstance(noise, str) and noise == Gaussian.name:
        return filter, resolve_sigma(sigma, image, names, filter)
    models, estimate = _models(noise, image, names, device)
    if sigma is not None:
        found = resolve_sigma(sigma, image, names, filter)
        how = "given" if estimate is None else "estimated"
        note = f"sigma was given; the noise {how} is not used: {_summary(models)}"
        return filter, replace(found, notes=(*found.notes, note))
    models = _for_channels(models, image, names)
    own = estimate is not None and (estimate.axes, estimate.shape) == (names, tuple(image.shape))
    planes = _plane_noise(estimate) if own else None
    source, notes, width = "given as a model", (), 0
    if estimate is not None:
        source, notes = f"estimated: {estimate.reason}", estimate.notes
        width = estimate.blank_width
    applied, found = _applied(filter, models, image, names)
    if own and not applied.sigma_unused:
        found = _per_plane_or_position(found, estimate, names)
        if planes is not None and applied is filter:
            excess = planes.white_sigma_ratio([model.spectral for model in models])
            found = replace(found, array=found.array * excess)
    notes = (*notes, *found.notes)
    found = replace(found, source=source, notes=notes, models=models, blank_width=width)
    # A filter for white noise has taken them into account.
    return applied, found if applied is filter else replace(found, planes=planes)


def _per_plane_or_position(found: Sigma, estimate: NoiseEstimate, names: str) -> Sigma:
    """Return the sigma of an image whose planes or places differ in their noise."""
    # Imported only when needed: it takes long to load.
    from napari_gpu_denoise.noise.series import plane_factors

    factors = plane_factors(estimate, estimate.shape)
    if factors is not None:
        low, high = factors[factors > 0].min(), factors.max()
        note = (
            f"the noise differs between planes, by a factor of {high / low:.2g}: each has "
            "its own sigma"
        )
    elif estimate.places is not None:
        plane = [estimate.shape[names.index(axis)] for axis in "YX"]
        if math.prod(plane) > LARGEST_PLANE:
            # A map of sigma would take more memory than the plane.
            note = (
                f"{estimate.places.words()}: planes of this size are filtered with the mean sigma"
            )
            return replace(found, notes=(note, *found.notes))
        factors = place(estimate.places.factors(*plane), estimate.shape, names)
        note = f"{estimate.places.words()}: each pixel has its own sigma"
    else:
        return found
    return replace(found, array=found.array * factors, notes=(note, *found.notes))


def _plane_noise(estimate: NoiseEstimate) -> PlaneSpectra | None:
    """Return the spectra of planes that differ in theirs."""
    from napari_gpu_denoise.noise.series import plane_noise_of

    return plane_noise_of(estimate, estimate.shape)


def _models(
    noise: Any, image: Any, names: str, device: Any
) -> tuple[tuple[NoiseModel, ...], NoiseEstimate | None]:
    """Return the models that were given or estimated, and the estimate, if any."""
    if isinstance(noise, str):
        if noise not in choices():
            raise SettingsError(
                f"noise={noise!r} is not a noise model", f"choose from {', '.join(choices())}"
            )
        # Imported only when needed: it takes long to load.
        from napari_gpu_denoise.noise.estimate import measure_noise

        noise = measure_noise(image, names, noise, device)
    if hasattr(noise, "models"):  # a NoiseEstimate
        return noise.models, noise
    models = (noise,) if isinstance(noise, NoiseModel) else noise
    if (
        not isinstance(models, (tuple, list))
        or not models
        or not all(isinstance(model, NoiseModel) for model in models)
    ):
        raise SettingsError(
            f"noise={_said(noise)} is not a noise model",
            "give one such as PoissonGaussian(0.28, 3.1), one per channel, the result of "
            "estimate_noise, 'auto', or a standard deviation",
        )
    return tuple(models), None


def _for_channels(models: tuple[NoiseModel, ...], image: Any, names: str) -> tuple[NoiseModel, ...]:
    """Check models against the image, and fill in parameters that depend on it."""
    axis = channel_axis(names)
    count = 1 if axis is None else image.shape[axis]
    if len(models) not in (1, count):
        raise SettingsError(
            f"{len(models)} noise models were given for {count} channels: give one, or one for "
            "each channel."
        )
    if len({type(model) for model in models}) > 1:
        raise SettingsError(
            f"Models of several kinds were given ({_summary(models)}): give the same kind for all "
            "channels."
        )
    for model in models:
        for parameter in model.parameters():
            value = getattr(model, parameter.name)
            if parameter.squared and value and not _SMALLEST <= value <= _LARGEST:
                raise SettingsError(
                    f"{parameter.name}={value:.4g} is out of the range of single precision when "
                    "squared: scale the image to moderate numbers first."
                )
    if any(model.needs_image for model in models):
        if not isinstance(image, np.ndarray):
            # A few planes of each channel of a lazy image.
            reader = PlaneReader(image, names)
            image = np.stack(
                [one for channel in reader.channels for one in reader.sampled(channel)]
            )
        models = tuple(model.for_image(image) for model in models)
    return models[:1] if len(set(models)) == 1 else models


def _applied(
    filter: Filter, models: tuple[NoiseModel, ...], image: Any, names: str
) -> tuple[Filter, Sigma]:
    """Return the filter to run, and the sigma that it assumes."""
    own = filter.for_noise(models)
    if own is not None and own.sigma_unused:
        return own, resolve_sigma(None, image, names, own)
    spectral = models[0].models_correlation
    # A filter that takes correlation into account still needs noise that is stabilised.
    in_levels = models[0].additive or (own is not None and not spectral)
    values = [model.sigma if in_levels else model.sigma_after for model in models]
    notes = ()
    if own is None and spectral:
        values = [model.spectral.white_sigma for model in models]
        factor = values[0] / (models[0].spectral.sigma or 1.0)
        notes = (
            f"the noise of neighbouring pixels is correlated: sigma is multiplied by {factor:.2g} "
            "for this filter, which assumes white noise; BM3D, VBM3D and BM4D take the "
            "correlation into account",
        )
    spread = place(np.array(values, np.float64), image.shape, names)
    numbers = place(np.arange(len(models)), image.shape, names) if len(models) > 1 else None
    if in_levels:
        return own or filter, Sigma(spread, tuple(map(float, values)), "", notes, numbers=numbers)
    return own or filter, Sigma(spread, (), "", notes, numbers=numbers, stabilised=True)


def _summary(models: tuple[NoiseModel, ...]) -> str:
    return "; ".join(dict.fromkeys(model.summary() for model in models))


def _said(noise: Any) -> str:
    return repr(noise) if isinstance(noise, (str, int, float)) else type(noise).__name__
