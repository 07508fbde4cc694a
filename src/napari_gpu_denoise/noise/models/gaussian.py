"""White Gaussian noise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from napari_gpu_denoise.noise.models.base import Fit, NoiseModel, numbers
from napari_gpu_denoise.noise.models.parameters import NOT_NEGATIVE, parameter
from napari_gpu_denoise.noise.patches.white import METHOD
from napari_gpu_denoise.noise.sigma_estimate import MIXED_METHOD, uneven_note

if TYPE_CHECKING:
    from napari_gpu_denoise.noise.channel import ChannelNoise


class Additive:
    """Mixin for models of additive noise of one `sigma`: there is nothing to stabilise."""

    additive: ClassVar[bool] = True
    sigma: float

    @property
    def sigma_after(self) -> float:
        return self.sigma

    def scaled(self, factor: float) -> Self:
        return replace(self, sigma=factor * self.sigma)

    def variance(self, mean: Any) -> np.ndarray:
        return np.zeros_like(mean, np.float64) + self.sigma**2

    def stabilise(self, image: Any) -> np.ndarray:
        return numbers(image).astype(np.float32)

    def inverse(self, stabilised: Any) -> np.ndarray:
        return numbers(stabilised).astype(np.float32)


@dataclass(frozen=True)
class Gaussian(Additive, NoiseModel):
    """Additive white Gaussian noise of the same strength everywhere.

    There is nothing to stabilise.

    Parameters
    ----------
    sigma : float
        Standard deviation, grey levels; 0 for no noise.
    """

    sigma: float = parameter(NOT_NEGATIVE, "sigma", "grey levels")
    name: ClassVar[str] = "gaussian"
    title: ClassVar[str] = "Gaussian"
    description: ClassVar[str] = "One standard deviation for all grey levels."

    @classmethod
    def evidence(cls, channel: ChannelNoise) -> str:
        """Return a reason always: this is the model to assume in doubt."""
        laws = channel.laws
        if channel.spectra is None:
            return "there are too few pixels to distinguish other noise from Gaussian noise"
        if laws is None:
            return (
                "there are too few levels of brightness without clipped pixels to distinguish "
                "other noise from Gaussian noise"
            )
        if channel.grows_over_time is False and laws.is_linear:
            return "the variance grows with brightness, but not that of differences between frames"
        if not laws.tells:
            return (
                "there is hardly more than one level of brightness, which does not show whether "
                "noise grows with it"
            )
        if laws.is_irregular:
            return (
                "the variance depends irregularly on brightness, perhaps because texture "
                "hides the noise"
            )
        return "the variance does not clearly grow with brightness"

    @classmethod
    def fit(cls, channel: ChannelNoise) -> Fit:
        """Return the sigma that filters measure where none is given."""
        method, notes = METHOD, ()
        if channel.ends is not None:
            method, notes = MIXED_METHOD, (uneven_note("", *channel.ends),)
        if channel.compressed:
            notes = (
                *notes,
                "the image was compressed as JPEG: sigma is that of the noise before compression",
            )
        sigma, error = channel.sigma, channel.error
        return Fit(cls(sigma), {"sigma": error}, sigma, error, method, channel.curve, notes)

    @classmethod
    def suggestion(cls, video: bool, volume: bool = False) -> str:
        return "VBM3D" if video else "BM4D" if volume else "BM3D"

    def summary(self) -> str:
        return f"Gaussian noise, sigma {self.sigma:.4g}"
