"""Speckle: multiplicative noise of intensity images."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from napari_gpu_denoise.image.levels import readable
from napari_gpu_denoise.noise import limits
from napari_gpu_denoise.noise.models import base

MIN_LOOKS = 0.1  # of fewer, logarithms have means far beyond what float32 holds


@dataclass(frozen=True)
class Speckle(base.NoiseModel):
    """Multiplicative gamma noise of mean 1 and variance 1 / looks, as in images of echo intensity.

    Parameters
    ----------
    looks : float
        Equivalent number of looks, at least 0.1.
    least : float
        Lower limit of grey levels, since the logarithm of 0 does not exist. By default 0: the
        smallest positive value of a float image, and for an integer image 1 / (2 e), the geometric
        mean of the values that are rounded to 0.

    Notes
    -----
    `stabilise` is the logarithm; `inverse` gives pixels below `least` as nearly 0, not as 0.
    """

    looks: float = base.parameter("looks", low=MIN_LOOKS)
    least: float = base.parameter(default=0.0, low=0)
    name: ClassVar[str] = "speckle"
    title: ClassVar[str] = "Speckle"
    price: ClassVar[float] = limits.MIN_COST_GAIN - limits.MAX_COST_OF_SQUARE_OVER_LINE
    description: ClassVar[str] = "Multiplicative noise of ultrasound, radar or OCT intensities."

    @property
    def needs_image(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return not self.least

    def for_image(self, image: np.typing.ArrayLike) -> Speckle:
        return self if self.least else replace(self, least=_darkest(readable(np.asarray(image))))

    @property
    def sigma_after(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        from scipy.special import polygamma

        return math.sqrt(polygamma(1, self.looks))

    @property
    def bias(self) -> float:
        """Mean logarithm of the noise, by which the mean logarithm of an intensity is lower."""
        from scipy.special import digamma

        return float(digamma(self.looks)) - math.log(self.looks)

    def variance(self, mean: np.typing.ArrayLike) -> np.ndarray:
        return np.square(np.asarray(mean, np.float64)) / self.looks

    def variance_told_by(self, pixels: np.typing.ArrayLike) -> np.ndarray:
        return self.variance(pixels) / (1 + 1 / self.looks)

    def stabilise(self, image: np.typing.ArrayLike) -> np.ndarray:
        return base.pointwise(self.for_image(image).forward, image)

    def forward(self, levels: np.ndarray) -> np.ndarray:
        return np.log(np.maximum(levels, self.least))

    def backward(self, means: np.ndarray) -> np.ndarray:
        return np.exp(means - self.bias)

    def transform(self, signed: bool = True) -> base.Transform:
        return base.Transform("speckle", {"least": self.least}, {"bias": self.bias})

    @classmethod
    def misfit(cls, channel: base.Evidence) -> base.Misfit:
        laws = channel.laws
        # Texture of one contrast has this variance as well, but not in half of an image.
        if laws is None or not laws.is_quadratic or channel.proof < 0.5:
            return base.Misfit(math.inf)
        reason = f"the variance is proportional to the squared mean, {laws.range()}"
        return base.Misfit(laws.square, reason)

    @classmethod
    def fit(cls, channel: base.Evidence) -> base.Fit:
        """Measure the number of looks on windows of 8 x 8 pixels."""
        from napari_gpu_denoise.noise.speckle import speckle_looks

        looks, spread = speckle_looks(channel.examined)
        looks = max(looks, MIN_LOOKS) if math.isfinite(looks) else 1e9
        model = cls(looks)
        sigma, _ = model.mean_sigma(channel)
        error = sigma * spread / (2 * looks)
        method = "most frequent contrast of windows"
        curve = channel.at_all_frequencies(channel.curve)
        return base.Fit(model, {"looks": spread}, sigma, error, method, curve)

    def summary(self) -> str:
        text = f"speckle, {self.looks:.4g} look{'s' * (self.looks != 1)}"
        return f"{text}, grey levels of at least {self.least:.4g}" if self.least else text


def _darkest(image: np.ndarray) -> float:
    """Return the lower limit of grey levels before the logarithm."""
    if image.dtype.kind in "iu":
        return 0.5 / math.e
    darkest = float(np.min(image, where=image > 0, initial=np.inf))
    return darkest if math.isfinite(darkest) else float(np.finfo(np.float32).tiny)
