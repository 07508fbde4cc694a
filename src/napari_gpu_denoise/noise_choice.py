"""Which noise a filter is told of: sigma as it was given or measured, or a model of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from napari_gpu_denoise.axes import channel_axis
from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.modelled import Modelled
from napari_gpu_denoise.noise.models import (
    Correlated,
    Gaussian,
    NoiseModel,
    PoissonGaussian,
    Rician,
    Speckle,
)
from napari_gpu_denoise.noise.sampling import PlaneReader, channel_indices, plane_indices
from napari_gpu_denoise.pipeline import Filter
from napari_gpu_denoise.sigma import (
    Sigma,
    estimated,
    own_estimate,
    own_noise,
    place,
    resolve_sigma,
)

if TYPE_CHECKING:
    from napari_gpu_denoise.noise.estimate import NoiseEstimate

CHOICES = ("auto", *(model.name for model in (Gaussian, PoissonGaussian, Rician, Speckle)))
# float32 holds the squares of what lies between.
_SMALLEST, _LARGEST = 1e-15, 1e15


def resolve_noise(
    sigma: Any,
    noise: Any,
    image: Any,
    names: str,
    settings: Filter,
    *,
    dtype: np.dtype | None = None,
) -> tuple[Filter, Sigma]:
    """Decide what noise a filter is told of, and measure it if need be.

    Parameters
    ----------
    sigma : float, array_like or None
        As `resolve_sigma` takes it. Given, it is used, whatever `noise` is.
    noise : None, float, str, NoiseModel, tuple of NoiseModel or NoiseEstimate
        A number is sigma. ``"auto"`` or the name of a model measures it; ``"gaussian"`` is one
        sigma a channel, white or not. One model a channel, or one for all. None where sigma is
        None too: as the filter measures noise that it knows itself, else ``"auto"``.
    image : array
        What it belongs to; of lazy ones only a few planes are read.
    names : str
        Axes of the image, as `check_axes` returns them.
    settings : filter settings
        As `settings_for` returns them.
    dtype : dtype, optional
        Type of the result; by default that of the image. Where it holds no negative numbers, none
        are made.

    Returns
    -------
    settings : Filter
        What is to be run.
    sigma : Sigma

    Raises
    ------
    SigmaError, SettingsError, NonFiniteError
        If sigma or the noise does not fit the image or the filter.
    """
    told = own_noise(settings)
    if noise is None and (sigma is not None or told is not None):
        return settings, resolve_sigma(sigma, image, names, settings)
    if noise is None:
        own = own_estimate(settings, image, names)
        if own is not None:
            return settings, estimated(own, image, names)
        noise = "auto"
    if told is not None:
        raise SettingsError(
            f"noise={_said(noise)} was given to a filter that is set to a noise of its own (sigma "
            f"is {told}): leave one of them out."
        )
    if isinstance(noise, (int, float, np.number)) and not isinstance(noise, bool):
        return settings, resolve_sigma(noise if sigma is None else sigma, image, names, settings)
    if sigma is None and isinstance(noise, str) and noise == Gaussian.name:
        return settings, resolve_sigma(sigma, image, names, settings)
    models, estimate = _models(noise, image, names)
    if sigma is not None:
        found = resolve_sigma(sigma, image, names, settings)
        how = "given" if estimate is None else "estimated"
        note = f"sigma was given; the noise {how} is not used: {_summary(models)}"
        return settings, replace(found, notes=(*found.notes, note))
    models = _for_channels(models, image, names)
    source, notes = "given as a model", ()
    if estimate is not None:
        source, notes = f"estimated: {estimate.reason}", estimate.notes
    signed = np.dtype(image.dtype if dtype is None else dtype).kind != "u"
    applied, found = _applied(settings, models, image, names, signed)
    return applied, replace(found, source=source, notes=(*notes, *found.notes), models=models)


def _models(
    noise: Any, image: Any, names: str
) -> tuple[tuple[NoiseModel, ...], NoiseEstimate | None]:
    """Return the models that were given or are measured, and the estimate they are from."""
    if isinstance(noise, str):
        if noise not in CHOICES:
            raise SettingsError(f"noise={noise!r} is unknown: choose from {', '.join(CHOICES)}.")
        # Not before it is wanted: it is much to load.
        from napari_gpu_denoise.noise.estimate import noise_to_filter

        noise = noise_to_filter(image, names, noise)
    # Whatever else has models is an estimate.
    if hasattr(noise, "models"):
        return noise.models, noise
    models = (noise,) if isinstance(noise, NoiseModel) else noise
    if (
        not isinstance(models, (tuple, list))
        or not models
        or not all(isinstance(model, NoiseModel) for model in models)
    ):
        raise SettingsError(
            f"noise={_said(noise)} is no noise: give a model such as PoissonGaussian(0.28, 3.1), "
            "one a channel, what estimate_noise returns, 'auto', or a standard deviation."
        )
    return tuple(models), None


def _for_channels(models: tuple[NoiseModel, ...], image: Any, names: str) -> tuple[NoiseModel, ...]:
    """Check models against the image; those of speckle learn what has no logarithm."""
    axis = channel_axis(names)
    count = 1 if axis is None else image.shape[axis]
    if len(models) not in (1, count):
        raise SettingsError(
            f"{len(models)} models of noise were given for {count} channels: give one, or one for "
            "each channel."
        )
    if len({type(model) for model in models}) > 1:
        raise SettingsError(
            f"Models of several kinds were given ({_summary(models)}): give the same kind for all "
            "channels."
        )
    for model in models:
        if isinstance(model, Gaussian):
            continue  # it is nothing but sigma, which may be any number
        for name, value in model.as_dict().items():
            if name in ("gain", "sigma") and value and not _SMALLEST <= value <= _LARGEST:
                raise SettingsError(
                    f"{name}={value:.4g} is beyond what single precision can square: scale the "
                    "image to numbers of everyday size first."
                )
    if isinstance(models[0], Speckle) and not all(model.least for model in models):
        seen = image if isinstance(image, np.ndarray) else _sampled(image, names)
        models = tuple(model.for_image(seen) for model in models)
    return models[:1] if len(set(models)) == 1 else models


def _sampled(image: Any, names: str) -> np.ndarray:
    """Return a few planes of each channel of a lazy image."""
    reader = PlaneReader(image, names)
    stacks = [
        reader.stack(plane_indices(names, reader.shape, channel))
        for channel in channel_indices(names, reader.shape)
    ]
    return np.stack([stack[k] for stack in stacks for k in range(len(stack))])


def _applied(
    settings: Filter, models: tuple[NoiseModel, ...], image: Any, names: str, signed: bool
) -> tuple[Filter, Sigma]:
    """Return what is run, and the sigma that it is told."""
    for_noise = getattr(settings, "for_noise", None)
    native = None if for_noise is None else for_noise(models)
    if native is not None and own_noise(native) is not None:
        return native, resolve_sigma(None, image, names, native)
    additive = isinstance(models[0], (Gaussian, Correlated))
    if native is not None or additive:
        values = tuple(float(model.sigma) for model in models)
        notes = ()
        if native is None and isinstance(models[0], Correlated):
            notes = (
                "neighbouring pixels share noise, which this filter takes as white: BM3D allows "
                "for it",
            )
        spread = place(np.array(values), image.shape, names)
        return settings if native is None else native, Sigma(spread, values, "", notes)
    spread = place(np.array([model.sigma_after for model in models]), image.shape, names)
    numbers = None
    if len(models) > 1:
        numbers = place(np.arange(len(models)), image.shape, names)
    found = Sigma(spread, (), "", numbers=numbers, stabilised=True)
    return Modelled(settings, models, signed), found


def _summary(models: tuple[NoiseModel, ...]) -> str:
    return "; ".join(dict.fromkeys(model.summary() for model in models))


def _said(noise: Any) -> str:
    return repr(noise) if isinstance(noise, (str, int, float)) else type(noise).__name__
