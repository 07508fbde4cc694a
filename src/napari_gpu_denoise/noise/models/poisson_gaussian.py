"""Photon noise and read noise of a camera or a detector, white or correlated."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, asdict, dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np

from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.noise import limits
from napari_gpu_denoise.noise.correlation import noise_spectrum
from napari_gpu_denoise.noise.models import base
from napari_gpu_denoise.noise.models.gaussian import Correlated, Gaussian
from napari_gpu_denoise.noise.patches.spectra import METHOD

MAX_READ_NOISE = 1e5  # electrons; float32 of stabilised values resolves 0.01 there
LARGE_VARIANCE = 400.0  # electrons²; above it the expansion is as exact as a table


@dataclass(frozen=True)
class PoissonGaussian(base.NoiseModel):
    """Photon noise and read noise of a detector: variance = gain (mean - offset) + read_noise².

    Parameters
    ----------
    gain : float
        Grey levels per electron, above 0.
    read_noise : float
        Standard deviation of the noise without light, grey levels; at most 100 000 gains.
    offset : float
        Mean grey level without light.
    shared : float, optional
        As of `Gaussian`.

    Notes
    -----
    `stabilise` is the generalised Anscombe transform, 2/gain √(gain z + 3/8 gain² + read_noise² -
    gain offset). `inverse` never gives less than `offset`. The standard deviation after
    stabilisation is within 2 % of 1 for 6 electrons or more, or 4 of read noise.

    References
    ----------
    M. Mäkitalo, A. Foi, "Optimal inversion of the generalized Anscombe transformation for
    Poisson-Gaussian noise", IEEE Trans. Image Process. 22 (2013), doi:10.1109/TIP.2012.2202675.
    """

    gain: float = base.parameter(
        "gain", "grey levels per electron", low=0, above=True, squared=True
    )
    read_noise: float = base.parameter("read noise", "grey levels", low=0)
    offset: float = base.parameter("offset", "grey levels", default=0.0, optional=True)
    shared: float = base.shared_with_colours()
    price: ClassVar[float] = limits.MIN_COST_GAIN_BESIDE_PROOF
    name: ClassVar[str] = "poisson-gaussian"
    title: ClassVar[str] = "Poisson-Gaussian"
    description: ClassVar[str] = "Photon noise and read noise of a camera or a detector."

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.read_noise > MAX_READ_NOISE * self.gain:
            raise SettingsError(
                f"gain={self.gain:.4g} is negligible compared with read_noise="
                f"{self.read_noise:.4g}: use Gaussian(sigma={self.read_noise:.4g}) instead."
            )

    @property
    def _electrons(self) -> float:
        return self.read_noise / self.gain

    def scaled(self, factor: float) -> Self | None:
        gain, read_noise = factor**2 * self.gain, factor * self.read_noise
        if read_noise > MAX_READ_NOISE * gain:
            return None
        return replace(self, gain=gain, read_noise=read_noise)

    def variance(self, mean: np.typing.ArrayLike) -> np.ndarray:
        light = np.maximum(np.asarray(mean, np.float64) - self.offset, 0)
        return self.gain * light + self.read_noise * self.read_noise

    def variance_told_by(self, pixels: np.typing.ArrayLike) -> np.ndarray:
        light = np.asarray(pixels, np.float64) - self.offset
        return self.gain * light + self.read_noise * self.read_noise

    def forward(self, levels: np.ndarray) -> np.ndarray:
        return anscombe((levels - self.offset) / self.gain, self._electrons)

    def backward(self, means: np.ndarray) -> np.ndarray:
        return self.offset + self.gain * unbiased_electrons(means, self._electrons)

    def transform(self, signed: bool = True) -> base.Transform:
        read, there = self._electrons, {"offset": self.offset, "electrons": 1 / self.gain}
        back: dict[str, Any] = {"offset": self.offset, "gain": self.gain, "read_noise": read}
        back["table"] = correction(read)
        return base.Transform("photons", {**there, "added": 0.375 + read**2}, back)

    @classmethod
    def misfit(cls, channel: base.Evidence) -> base.Misfit:
        """Return that of a line, or of a constant where nothing shows that the variance grows."""
        laws, constant = channel.laws, Gaussian.misfit(channel).cost
        best = constant if laws is None else min(constant, laws.line)
        if channel.grows_over_time:
            why = "the variance of differences between still frames grows with brightness"
            return base.Misfit(best - limits.PROOF_WORTH, why)
        unknown = channel.grows_over_time is None
        if unknown and channel.photons is not None:
            why = "the values are photon counts: at low counts, the variance equals the mean"
            return base.Misfit(best - limits.PROOF_WORTH, why)
        if unknown and laws and laws.proven and laws.growth >= limits.MIN_VARIANCE_GROWTH:
            why = f"the variance grows linearly with brightness, {laws.range()}"
            return base.Misfit(laws.line, why)
        return base.Misfit(constant)

    @classmethod
    def fit(cls, channel: base.Evidence) -> base.Fit:
        """Measure gain and read noise on differences of still frames, else on single images."""
        found = channel.temporal or channel.single
        notes: tuple[str, ...] = ()
        gain, read, offset = found.gain, found.read_noise, found.offset
        errors = {"gain": found.gain_error, "read_noise": found.read_noise_error}
        errors["offset"] = (found.most_offset - offset) / 2 if offset else math.nan
        method, curve = found.method, found.curve
        if not gain > 0:
            notes = ("the noise does not clearly grow with brightness: the gain is not known",)
            read, gain = channel.sigma, 1e-6 * channel.sigma or 1e-12
            offset = min(0.0, *(float(np.nanmin(plane)) for plane in channel.planes))
            errors = {"gain": math.nan, "read_noise": channel.error, "offset": math.nan}
            method, curve = METHOD, channel.curve
        elif offset:
            notes = (
                f"the offset is {offset:.4g} to {found.most_offset:.4g}, and the read noise "
                f"accordingly 0 to {2 * found.read_noise_error:.3g}: dark frames would tell, but "
                "results hardly differ",
            )
        read = read if read > 1e-5 * gain else 0.0  # what is left of rounding
        # With more electrons of read noise than this, photon noise does not matter.
        model = PoissonGaussian(max(gain, 1e-4 * read), read, offset)
        sigma, error = model.mean_sigma(channel)
        return base.Fit(model, errors, sigma, error, method, curve, notes)

    def summary(self) -> str:
        text = f"Poisson-Gaussian noise, gain {self.gain:.4g}, read noise {self.read_noise:.4g}"
        return f"{text}, offset {self.offset:.4g}" if self.offset else text


def anscombe(electrons: np.ndarray, read_noise: float) -> np.ndarray:
    """Return 2 √(x + 3/8 + s²), or 0 where the root is not real."""
    return 2 * np.sqrt(np.maximum(electrons + (0.375 + read_noise**2), 0))


def expected_anscombe(electrons: np.ndarray, read_noise: float) -> np.ndarray:
    """Return the mean of `anscombe` under photon and read noise, for expected electrons (n,)."""
    largest, electrons = float(electrons.max()), electrons[:, None]
    counts = np.arange(math.ceil(largest + 10 * math.sqrt(largest) + 30))
    factorials = np.cumsum(np.log(np.maximum(counts, 1)))  # their logarithms
    chances = np.exp(counts * np.log(np.maximum(electrons, 1e-300)) - electrons - factorials)
    return chances @ _mean_over_read_noise(counts, read_noise)


def _mean_over_read_noise(counts: np.ndarray, read_noise: float) -> np.ndarray:
    """Return the expected value of `anscombe` for each number of electrons counted."""
    if read_noise == 0:
        return anscombe(counts, 0.0)
    # In the root of the distance from where the curve begins the integrand has no corner.
    start = np.maximum(-base.REACH, -(counts + 0.375) / read_noise - read_noise)[:, None]
    nodes, weights = base.quadrature()
    root = (nodes + 1) / 2
    normal = start + (base.REACH - start) * root**2
    weights = weights * root * (base.REACH - start) * np.exp(-(normal**2) / 2)
    curve = anscombe(counts[:, None] + read_noise * normal, read_noise)
    return (weights * curve).sum(axis=1) / math.sqrt(2 * math.pi)


def expansion(stabilised: np.ndarray, read_noise: float) -> np.ndarray:
    """Return the inverse of `anscombe` for a large variance V, exact to the order 1 / V."""
    square = stabilised**2 / 4
    return square - 0.125 - read_noise**2 + read_noise**2 / (8 * square**2)


@lru_cache(maxsize=64)
def correction(read_noise: float) -> base.Table:
    """Return what `expansion` lacks of the electrons at stabilised values; 0 where that is none."""
    end = math.sqrt(max(LARGE_VARIANCE - read_noise**2, 1.0))
    electrons = np.linspace(0, end, math.ceil(100 * end) + 1) ** 2
    expected = expected_anscombe(electrons, read_noise)
    lacking = electrons - expansion(expected, read_noise)
    # A large read noise leaves hardly a range: the table is then nearly 0.
    last = max(2 * math.sqrt(LARGE_VARIANCE + 1), expected[0] + 1)
    return base.tabulated(lambda at: np.interp(at, expected, lacking, right=0), expected[0], last)


def unbiased_electrons(stabilised: np.ndarray, read_noise: float) -> np.ndarray:
    """Return the expected number of electrons for an expected value of `anscombe`.

    Below the value without light it is 0.
    """
    table = correction(read_noise)
    inside = np.maximum(stabilised, table.start)
    return np.maximum(expansion(inside, read_noise) + table(inside), 0)


@dataclass(frozen=True)
class CorrelatedPhotons(PoissonGaussian, base.NoiseModel):
    """Photon noise and read noise, correlated between neighbouring pixels.

    As in images that a camera or software has interpolated, registered or filtered.

    Gain, read noise and offset are as in `PoissonGaussian`, `autocorrelation`, the same at every
    brightness, and `along_z` as in `Correlated`.

    `BM3D`, `VBM3D` and `BM4D` take the spectrum into account after stabilisation; other filters
    treat stabilised noise as white noise that is strong enough to cover it.
    """

    _: KW_ONLY
    autocorrelation: tuple[tuple[float, ...], ...] = base.parameter(axes=2, low=-1, high=1)
    along_z: tuple[float, ...] = base.parameter(axes=1, low=-1, high=1, default=(1.0,))
    name: ClassVar[str] = "correlated-photons"
    title: ClassVar[str] = "Correlated Poisson-Gaussian"
    description: ClassVar[str] = "Photon noise that is correlated between neighbouring pixels."
    models_correlation: ClassVar[bool] = True
    white_form: ClassVar[type[base.NoiseModel]] = PoissonGaussian

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "along_z", self.spectral.along_z)

    @property
    def spectral(self) -> Correlated:
        """The noise after stabilisation."""
        return Correlated(1.0, self.autocorrelation, self.shared, self.along_z)

    @classmethod
    def misfit(cls, channel: base.Evidence) -> base.Misfit:
        if channel.temporal is not None:
            return base.Misfit(math.inf)  # frames only pass as still if differences are white
        laws, least = channel.laws, limits.MIN_NOISE_SHARE_OF_PHOTONS
        alone = channel.is_correlated and channel.frames is None and not channel.proven_by_colours
        if laws is None or not (alone and laws.grows) or channel.proof < least:
            return PoissonGaussian.misfit(channel)
        why = f"the variance grows {laws.growth:.2g} times with brightness"
        return base.Misfit(laws.line, why)

    @classmethod
    def fit(cls, channel: base.Evidence) -> base.Fit:
        """Read how noise grows with brightness; see ``docs/methods/noise.md``."""
        photons = PoissonGaussian.fit(channel)
        stable = np.stack([photons.model.stabilise(plane) for plane in channel.planes])
        spectrum = noise_spectrum(stable)
        if channel.frames is not None:
            changed = channel.frames.changed(photons.model.stabilise)
            spectrum = changed.spectrum(spectrum) or spectrum
        found = Correlated.of_spectrum(spectrum)
        # Noise read at the high frequencies has this standard deviation at all of them, not 1.
        fit = photons.scaled(found.sigma)
        model = cls(**asdict(fit.model), autocorrelation=found.autocorrelation)
        method = f"{photons.method}, and {channel.spectrum_of}"
        curve = channel.at_all_frequencies(photons.curve)
        return fit._replace(model=model, curve=curve, method=method)

    def summary(self) -> str:
        x, y = self.autocorrelation[0][1], self.autocorrelation[1][0]
        text = super().summary()
        return f"{text}, correlation of neighbours {x:.2f} along x, {y:.2f} along y"
