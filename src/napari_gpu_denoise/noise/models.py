"""Models of noise: how it depends on brightness, and how to make it the same everywhere."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from napari_gpu_denoise.axes import check_numbers
from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.noise import stabilising
from napari_gpu_denoise.noise.noise_model import NoiseModel

LAGS = 4  # pixels up to which correlated noise is told
_MOST_READ_NOISE = 1e5  # electrons; float32 of stabilised values resolves 0.01 there


class _Additive:
    """What noise of one sigma is like everywhere: there is nothing to stabilise."""

    sigma: float

    @property
    def sigma_after(self) -> float:
        return self.sigma

    def variance(self, mean: Any) -> np.ndarray:
        return np.zeros_like(mean, np.float64) + self.sigma**2

    def stabilise(self, image: Any) -> np.ndarray:
        return _numbers(image).astype(np.float32)

    def unstabilise(self, stabilised: Any) -> np.ndarray:
        return _numbers(stabilised).astype(np.float32)


@dataclass(frozen=True)
class Gaussian(_Additive, NoiseModel):
    """Additive Gaussian noise, the same everywhere: there is nothing to stabilise.

    Parameters
    ----------
    sigma : float
        Standard deviation, grey levels; 0 for no noise.
    """

    sigma: float
    name: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        self._check(not_negative=("sigma",))

    def summary(self) -> str:
        return f"Gaussian noise, sigma {self.sigma:.4g}"


@dataclass(frozen=True)
class Correlated(_Additive, NoiseModel):
    """Additive Gaussian noise, the same everywhere, whose neighbours are alike.

    Parameters
    ----------
    sigma : float
        Standard deviation of a pixel, grey levels; 0 for no noise.
    autocorrelation : sequence, (5, 5)
        For displacements of 0 to 4 pixels along y and x: 1 at no displacement, between -1 and 1 at
        others. Noise is the same seen in a mirror, and taken for independent further apart.

    Notes
    -----
    There is nothing to stabilise. `BM3D` takes the spectrum into account; other filters see noise
    of this sigma.
    """

    sigma: float
    autocorrelation: tuple[tuple[float, ...], ...]
    name: ClassVar[str] = "correlated"

    def __post_init__(self) -> None:
        self._check(not_negative=("sigma",), tables=("autocorrelation",))
        table = np.array(self.autocorrelation)
        if table.shape != (LAGS + 1, LAGS + 1) or table[0, 0] != 1 or np.abs(table).max() > 1:
            raise SettingsError(
                f"An autocorrelation of shape {table.shape} with {table.flat[0]:.4g} at no "
                f"displacement is none: give {LAGS + 1} x {LAGS + 1} values of -1 to 1, the first "
                "one 1."
            )

    @property
    def white(self) -> bool:
        """Whether no pixel tells anything about another."""
        return not any(map(any, self.autocorrelation[1:])) and not any(self.autocorrelation[0][1:])

    def summary(self) -> str:
        x, y = self.autocorrelation[0][1], self.autocorrelation[1][0]
        return (
            f"correlated noise, sigma {self.sigma:.4g}, neighbours correlate {x:.2f} along x, "
            f"{y:.2f} along y"
        )


@dataclass(frozen=True)
class PoissonGaussian(NoiseModel):
    """Photon noise and read noise of a sensor: variance = gain (mean - offset) + read_noise².

    Parameters
    ----------
    gain : float
        Grey levels an electron, above 0.
    read_noise : float
        Standard deviation of what does not depend on light, grey levels; at most 100 000 gains.
    offset : float
        Mean grey level without light.

    Notes
    -----
    `stabilise` is the generalised Anscombe transform, 2/gain √(gain z + 3/8 gain² + read_noise² -
    gain offset). `unstabilise` never gives less than `offset`. The standard deviation after
    stabilising is within 2 % of 1 from 6 electrons on, within 6 % from 2, and within 2 % everywhere
    with a read noise of at least 4 electrons. Without light it is at most 1.1, at a read noise of
    1.8 electrons, and falls to 0 with less read noise.

    References
    ----------
    M. Mäkitalo, A. Foi, "Optimal inversion of the generalized Anscombe transformation for
    Poisson-Gaussian noise", IEEE Trans. Image Process. 22 (2013), doi:10.1109/TIP.2012.2202675.
    """

    gain: float
    read_noise: float
    offset: float = 0.0
    name: ClassVar[str] = "poisson-gaussian"

    def __post_init__(self) -> None:
        self._check(positive=("gain",), not_negative=("read_noise",))
        if self.read_noise > _MOST_READ_NOISE * self.gain:
            raise SettingsError(
                f"gain={self.gain:.4g} is lost in read_noise={self.read_noise:.4g}: use "
                f"Gaussian(sigma={self.read_noise:.4g}) instead."
            )

    @property
    def _electrons(self) -> float:
        """Read noise in electrons."""
        return self.read_noise / self.gain

    def variance(self, mean: Any) -> np.ndarray:
        light = np.maximum(np.asarray(mean, np.float64) - self.offset, 0)
        return self.gain * light + self.read_noise**2

    def stabilise(self, image: Any) -> np.ndarray:
        return stabilising.pointwise(
            lambda z: stabilising.anscombe((z - self.offset) / self.gain, self._electrons),
            _numbers(image),
        )

    def unstabilise(self, stabilised: Any) -> np.ndarray:
        return stabilising.pointwise(
            lambda d: self.offset + self.gain * stabilising.unbiased_electrons(d, self._electrons),
            _numbers(stabilised),
        )

    def summary(self) -> str:
        text = f"Poisson-Gaussian noise, gain {self.gain:.4g}, read noise {self.read_noise:.4g}"
        return f"{text}, offset {self.offset:.4g}" if self.offset else text


@dataclass(frozen=True)
class Rician(NoiseModel):
    """Noise of magnitudes of a complex signal, as MRI with one coil has.

    Parameters
    ----------
    sigma : float
        Standard deviation of the real and of the imaginary part, grey levels, above 0.

    Notes
    -----
    `unstabilise` gives the signal itself, not the mean of its magnitudes: 0 where there is noise
    alone, and what a filter left of the noise there with both signs, so that means over regions are
    right. ``numpy.maximum(result, 0)`` takes the negative values out, and leaves a background of
    about 0.15 sigma. The standard deviation after stabilising is within 2 % of 1 from a signal of
    1.25 sigma on, 0.96 at one sigma and 0.87 without signal; a curve that reached 1 there would
    give the noise a long tail, which filters take for signal. This one keeps it symmetric.

    References
    ----------
    A. Foi, "Noise estimation and removal in MR imaging: the variance-stabilization approach",
    IEEE ISBI 2011, doi:10.1109/ISBI.2011.5872758. The curve here is fitted anew.
    """

    sigma: float
    name: ClassVar[str] = "rician"

    def __post_init__(self) -> None:
        self._check(positive=("sigma",))

    def variance(self, mean: Any) -> np.ndarray:
        curve = stabilising.magnitude_variance()
        return self.sigma**2 * np.interp(np.asarray(mean, np.float64) / self.sigma, *curve)

    def stabilise(self, image: Any) -> np.ndarray:
        return stabilising.pointwise(
            lambda z: stabilising.stabilised_magnitude(z / self.sigma), _numbers(image)
        )

    def unstabilise(self, stabilised: Any, *, signed: bool = True) -> np.ndarray:
        """Return the signal whose stabilised magnitudes have these means.

        Parameters
        ----------
        stabilised : array, any shape
            What a filter made of the result of `stabilise`. Not modified.
        signed : bool, optional
            What lies below the mean of pure noise is by default as far below 0 as it would lie
            above: errors that a filter left in a background cancel in means over a region. False
            gives 0 instead; then all errors are positive, and so is the mean of a background.

        Returns
        -------
        ndarray, float32
            Of the shape of `stabilised`, grey levels.

        Raises
        ------
        ImageError
            If the array is empty, or not of real numbers.
        """
        return stabilising.pointwise(
            lambda d: self.sigma * stabilising.unbiased_signal(d, signed), _numbers(stabilised)
        )

    def summary(self) -> str:
        return f"Rician noise, sigma {self.sigma:.4g}"


@dataclass(frozen=True)
class Speckle(NoiseModel):
    """Multiplicative gamma noise of mean 1 and variance 1 / looks, as intensities of echoes have.

    Parameters
    ----------
    looks : float
        Equivalent number of looks, above 0.
    least : float
        Grey level that those below it, as 0, are taken as, for they have no logarithm. By default
        0: the smallest positive value of a float image, and for an integer image 1 / (2 e), the
        geometric mean of what is rounded to 0.

    Notes
    -----
    `stabilise` is the logarithm; `unstabilise` gives dark places that have none as nearly 0, not
    as 0.
    """

    looks: float
    least: float = 0.0
    name: ClassVar[str] = "speckle"

    def __post_init__(self) -> None:
        self._check(positive=("looks",), not_negative=("least",))

    def for_image(self, image: Any) -> Speckle:
        """Return the model with `least` as it is for an image.

        Parameters
        ----------
        image : array, any shape and real dtype
            All of it, where `least` is 0. Not modified.

        Returns
        -------
        Speckle
        """
        return self if self.least else replace(self, least=_darkest(_numbers(image)))

    @property
    def sigma_after(self) -> float:
        from scipy.special import polygamma

        return math.sqrt(polygamma(1, self.looks))

    def variance(self, mean: Any) -> np.ndarray:
        return np.square(np.asarray(mean, np.float64)) / self.looks

    def stabilise(self, image: Any) -> np.ndarray:
        image = _numbers(image)
        least = self.for_image(image).least
        return stabilising.pointwise(lambda z: np.log(np.maximum(z, least)), image)

    def unstabilise(self, stabilised: Any) -> np.ndarray:
        return stabilising.pointwise(lambda d: np.exp(d - self.bias), _numbers(stabilised))

    @property
    def bias(self) -> float:
        """Mean logarithm of the noise: that of an intensity is lower by it than its mean's is."""
        from scipy.special import digamma

        return float(digamma(self.looks)) - math.log(self.looks)

    def summary(self) -> str:
        text = f"speckle, {self.looks:.4g} look{'s' * (self.looks != 1)}"
        return f"{text}, grey levels of at least {self.least:.4g}" if self.least else text


def _numbers(image: Any) -> np.ndarray:
    """Return an image as an array of real numbers, or refuse it."""
    image = np.asarray(image)
    check_numbers(image)
    return image


def _darkest(image: np.ndarray) -> float:
    """Return what the values of an image that have no logarithm are taken as."""
    if image.dtype.kind in "iu":
        return 0.5 / math.e
    darkest = float(np.min(image, where=image > 0, initial=np.inf))
    return darkest if math.isfinite(darkest) else float(np.finfo(np.float32).tiny)
