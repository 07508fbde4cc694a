"""Noise models, one module each. `MODELS` lists them; nothing else in the program does."""

from collections.abc import Iterable
from typing import Any

from napari_gpu_denoise.noise.models.base import NoiseModel
from napari_gpu_denoise.noise.models.gaussian import Correlated, Gaussian
from napari_gpu_denoise.noise.models.poisson_gaussian import CorrelatedPhotons, PoissonGaussian
from napari_gpu_denoise.noise.models.rician import Rician
from napari_gpu_denoise.noise.models.signal_dependent import SignalDependent
from napari_gpu_denoise.noise.models.speckle import Speckle

#: In the order people see them. The one of least price and misfit is chosen.
MODELS: tuple[type[NoiseModel], ...] = (
    Gaussian,
    Correlated,
    PoissonGaussian,
    CorrelatedPhotons,
    SignalDependent,
    Rician,
    Speckle,
)

AUTO = "auto"


def summary_of(models: Iterable[dict[str, Any]]) -> str:
    """Return models, as `NoiseModel.as_dict` describes them, in words; equal ones once."""
    return "; ".join(dict.fromkeys(NoiseModel.from_dict(model).summary() for model in models))


def choices() -> tuple[str, ...]:
    """Return the names that may be requested: ``"auto"``, and those of models."""
    return (AUTO, *(model.name for model in MODELS))
