"""Noise models, one module each. `MODELS` lists them; nothing else in the program does."""

from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.noise.models.base import NoiseModel, Transform
from napari_gpu_denoise.noise.models.correlated import Correlated
from napari_gpu_denoise.noise.models.gaussian import Gaussian
from napari_gpu_denoise.noise.models.parameters import Parameter
from napari_gpu_denoise.noise.models.poisson_gaussian import PoissonGaussian
from napari_gpu_denoise.noise.models.rician import Rician
from napari_gpu_denoise.noise.models.speckle import Speckle

#: In the order people see them. The first one is assumed in doubt; the last one whose `evidence`
#: is found is chosen.
MODELS: tuple[type[NoiseModel], ...] = (Gaussian, Correlated, PoissonGaussian, Rician, Speckle)

AUTO = "auto"


def choices() -> tuple[str, ...]:
    """Return what may be requested by name: ``"auto"``, and the names of selectable models."""
    return (AUTO, *(model.name for model in MODELS if model.selectable))


def model_named(name: str) -> type[NoiseModel]:
    """Return the model of this name; SettingsError if it cannot be requested."""
    for model in MODELS:
        if model.selectable and model.name == name:
            return model
    raise SettingsError(f"{name!r} is not a noise model: choose from {', '.join(choices())}.")


__all__ = [
    "AUTO",
    "MODELS",
    "Correlated",
    "Gaussian",
    "NoiseModel",
    "Parameter",
    "PoissonGaussian",
    "Rician",
    "Speckle",
    "Transform",
    "choices",
    "model_named",
]
