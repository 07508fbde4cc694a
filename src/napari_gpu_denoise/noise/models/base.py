"""The base class of noise models: all that the rest of the program uses of a model."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.image.levels import as_numbers, readable
from napari_gpu_denoise.image.threads import in_bands

if TYPE_CHECKING:
    from napari_gpu_denoise.noise.evidence import Evidence
    from napari_gpu_denoise.noise.patches.variance import VarianceCurve


class Parameter(NamedTuple):
    """How a parameter of a model is shown to people, and what it may be."""

    label: str = ""  # its name in words; a parameter without is not shown
    unit: str = ""  # such as "grey levels"
    low: float = -math.inf
    high: float = math.inf
    above: bool = False  # `low`, which is not valid itself
    axes: int = 0  # of a table of numbers; 0 for a number
    optional: bool = False  # not shown where it is 0
    squared: bool = False  # by kernels, so that it has to be of moderate size
    name: str = ""  # of the field

    def parse(self, given: Any, model: str) -> Any:
        """Return a value as a float, or numbers as tuples; SettingsError if it is invalid."""
        try:
            value = as_numbers(given)
        except (TypeError, ValueError, OverflowError):
            value = np.full(1, np.nan)
        fits = np.isfinite(value) & (value >= self.low) & (value <= self.high)
        fits &= (value != self.low) | (not self.above)
        if value.ndim == self.axes and value.size and fits.all():
            plain = value.tolist()
            return plain if not self.axes else tuple(map(tuple, plain) if self.axes > 1 else plain)
        wanted = ("a finite number", "finite numbers", "rows of as many finite numbers")[self.axes]
        if math.isfinite(self.high):
            wanted += f" from {self.low:g} to {self.high:g}"
        elif math.isfinite(self.low):
            wanted += f" {'above' if self.above else 'of at least'} {self.low:g}"
        raise SettingsError(f"{self.name}={given!r:.80} does not fit {model} noise: give {wanted}.")


def parameter(*shown: Any, default: Any = dataclasses.MISSING, **limits: Any) -> Any:
    """Return the dataclass field of a `Parameter`: its label, its unit, and the rest by name."""
    return dataclasses.field(default=default, metadata={"is": Parameter(*shown, **limits)})


def shared_with_colours() -> Any:
    """Return the field of the mean correlation with the noise of other colours."""
    return parameter("shared between colours", default=0.0, low=-1, high=1, optional=True)


# Functions as tables, for the host and the device, and their use on images.
REACH = 9.0  # standard deviations beyond which a normal distribution is cut off


@cache
def quadrature() -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights of a Gauss-Legendre quadrature on -1 to 1, for expected values."""
    from numpy.polynomial.legendre import leggauss  # slow to import, and rarely needed

    return leggauss(128)


class Table(NamedTuple):
    """A function at even steps from `start`, `steps` per unit, for kernels/noise/table.h."""

    values: np.ndarray
    start: float
    steps: float

    @property
    def at(self) -> np.ndarray:
        """The places of the values."""
        return self.start + np.arange(len(self.values)) / self.steps

    def __call__(self, at: np.ndarray) -> np.ndarray:
        """Return the function, linear in between, and as at the ends beyond them."""
        return np.interp(at, self.at, self.values)


def tabulated(function: Callable[[np.ndarray], np.ndarray], start: float, end: float) -> Table:
    """Return a function from start to end as a table."""
    values = function(np.linspace(start, end, 4096))
    return Table(values.astype(np.float32), float(start), float((len(values) - 1) / (end - start)))


def pointwise(function: Callable[[np.ndarray], np.ndarray], image: Any) -> np.ndarray:
    """Apply a function of float64 values to an image; the result is float32."""
    result = np.empty((image := readable(np.asarray(image))).shape, np.float32)

    def fill(source: np.ndarray, target: np.ndarray) -> None:
        target[...] = function(source.astype(np.float64))

    in_bands(fill, image, result)
    return result


class Transform(NamedTuple):
    """How a device stabilises noise: two kernels and their arguments.

    They are ``noise/stabilise_<law>.cl`` and ``noise/inverse_<law>.cl``; `forward` and `inverse`
    hold by name what they take beside ``values``, ``first`` and ``count``. A `Table`, ``table``,
    becomes the arguments ``__global const float *table, int entries, float start, float steps``.
    """

    law: str
    forward: dict[str, float | Table]
    inverse: dict[str, float | Table]


class Fit(NamedTuple):
    """A model measured on one channel."""

    model: NoiseModel
    errors: dict[str, float]  # standard error of each parameter, by name; NaN where unknown
    sigma: float  # standard deviation of the noise, grey levels
    error: float  # standard error of sigma
    method: str  # how it was measured
    curve: VarianceCurve | None = None  # variance against brightness
    notes: tuple[str, ...] = ()  # for the user
    limit: float = 0.0  # sigma of the differences of repeats; 0 where there are none

    def scaled(self, scale: float) -> Fit:
        """Return the fit for noise that is `scale` times as strong."""
        old, new, curve, errors = self.model, self.model.scaled(scale), self.curve, {}
        for name, error in self.errors.items():
            value = getattr(old, name)
            errors[name] = error * (getattr(new, name) / value if value else 1.0)
        if curve is not None:
            variance = tuple(scale**2 * each for each in curve.variance)
            curve = dataclasses.replace(curve, variance=variance)
        sigma, error = scale * self.sigma, scale * self.error
        return self._replace(model=new, errors=errors, sigma=sigma, error=error, curve=curve)


class Misfit(NamedTuple):
    """How badly a model explains one channel."""

    cost: float  # squared standard errors over all levels of brightness; infinite if it is refuted
    reason: str = ""  # that speaks for the model, in words


@dataclasses.dataclass(frozen=True)
class NoiseModel(ABC):
    """Base class of the noise models in this package.

    A filter for additive noise is used in three steps: `stabilise` the image, filter the result
    with a sigma of `sigma_after`, and apply `inverse`. Subclasses are frozen dataclasses whose
    fields are made by `parameter`.
    """

    #: Name in ``noise=...``, on the command line and in records, such as ``"poisson-gaussian"``.
    name: ClassVar[str]
    #: Name for people, such as ``"Poisson-Gaussian"``.
    title: ClassVar[str]
    #: What the model is for, in one line.
    description: ClassVar[str] = ""
    #: Whether the noise is additive and the same everywhere, so that there is nothing to stabilise.
    additive: ClassVar[bool] = False
    #: Whether it describes how the noise of neighbouring pixels is correlated.
    models_correlation: ClassVar[bool] = False
    #: Whether it is only chosen where levels of brightness show that noise is white.
    shown_white: ClassVar[bool] = False
    #: Squared standard errors by which it has to explain an image better than a constant does.
    price: ClassVar[float] = 0.0
    #: The model of the same noise without correlation between pixels, if `models_correlation`.
    white_form: ClassVar[type[NoiseModel] | None] = None
    #: Standard deviation of the noise after `stabilise`.
    sigma_after: ClassVar[float] = 1.0
    #: Whether a parameter is still to be read from the image, by `for_image`.
    needs_image: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Convert parameters to floats, and refuse those that do not fit."""
        for each in self._all_parameters():
            object.__setattr__(self, each.name, each.parse(getattr(self, each.name), self.name))

    # Stabilisation

    @abstractmethod
    def variance(self, mean: np.typing.ArrayLike) -> np.ndarray:
        """Return the variance of pixels whose expected values are an array, as float64."""

    def positive_variance(self, mean: np.ndarray) -> np.ndarray:
        """Return the variance, at least a small share of its mean, so that it can be divided by."""
        found = self.variance(mean)
        return np.maximum(found, 1e-3 * float(found.mean()) or 1e-300)

    def variance_told_by(self, pixels: np.typing.ArrayLike) -> np.ndarray:
        """Return an unbiased estimate of the variance of each pixel, of pixels as measured.

        It may be negative. Here it is for a variance that does not depend on the mean.
        """
        return self.variance(pixels)

    @abstractmethod
    def forward(self, levels: np.ndarray) -> np.ndarray:
        """Return grey levels, float64, such that their noise is the same everywhere."""

    @abstractmethod
    def backward(self, means: np.ndarray) -> np.ndarray:
        """Return the expected grey levels, float64, of stabilised pixels with these means.

        This is the exact unbiased inverse, not the algebraic one: it allows for the mean of a
        curve being different from the curve of the mean.
        """

    def stabilise(self, image: np.typing.ArrayLike) -> np.ndarray:
        """Return an image, float32, whose noise is `sigma_after`: `forward` of each pixel.

        ImageError if it is empty, or not of real numbers. NaN stays NaN.
        """
        return pointwise(self.forward, image)

    def inverse(self, stabilised: np.typing.ArrayLike) -> np.ndarray:
        """Return the grey levels, float32, of a filtered image: `backward` of each pixel."""
        return pointwise(self.backward, stabilised)

    def expected(self, result: np.typing.ArrayLike) -> np.ndarray:
        """Return the mean of pixels, as measured, where this is the result."""
        return np.asarray(result)

    def transform(self, signed: bool = True) -> Transform | None:
        """Return the kernels for `stabilise` and `inverse`; None where there is nothing to do.

        Without `signed`, results may not be negative where the noise itself cannot be.
        """
        return None

    @property
    def spectral(self) -> NoiseModel:
        """The noise after stabilisation, if `models_correlation`: a `Correlated`."""
        return self

    def for_image(self, image: np.typing.ArrayLike) -> Self:
        """Return the model with parameters filled in that depend on the whole image."""
        return self

    def scaled(self, factor: float) -> Self | None:
        """Return the model for a standard deviation `factor` times as large, where there is one."""
        return None

    @classmethod
    def is_one_sigma(cls) -> bool:
        """Return whether one sigma says all of the noise: it is additive, and white."""
        return cls.additive and not cls.models_correlation

    # Measurement

    @classmethod
    @abstractmethod
    def misfit(cls, channel: Evidence) -> Misfit:
        """Return how badly the model explains a channel with patches, and what speaks for it."""

    @classmethod
    @abstractmethod
    def fit(cls, channel: Evidence) -> Fit:
        """Measure the parameters of the model on a channel."""

    def representative(self, variance: np.ndarray) -> float:
        """Return the variance, of those of patches (n,), whose root is reported as sigma."""
        return float(variance.mean())

    def mean_sigma(self, channel: Evidence) -> tuple[float, float]:
        """Return the root of the mean variance over a channel, and its standard error."""
        if channel.spectra is None or not channel.sigma:
            return channel.sigma, channel.error
        expected = math.sqrt(float(self.variance(channel.spectra.mean).mean()))
        return expected, expected * channel.error / channel.sigma

    # Text and records

    @classmethod
    def _all_parameters(cls) -> list[Parameter]:
        return [each.metadata["is"]._replace(name=each.name) for each in dataclasses.fields(cls)]

    @classmethod
    def parameters(cls) -> tuple[Parameter, ...]:
        """Return the parameters that are shown to people, in order."""
        return tuple(each for each in cls._all_parameters() if each.label)

    def details(self) -> str:
        """Return in words the parameters that are tables; empty where there are none."""
        return ""

    @abstractmethod
    def summary(self) -> str:
        """Return the model as one line of text."""

    def as_dict(self) -> dict[str, Any]:
        """Return key ``model``, its name, and one for each field, ready for JSON."""
        return {"model": self.name, **dataclasses.asdict(self)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the model that `as_dict` described; of ``NoiseModel``, whichever it names.

        SettingsError if it names another model, or its parameters do not fit.
        """
        fields = dict(values) if isinstance(values, Mapping) else {"model": values}  # pyright: ignore[reportUnnecessaryIsInstance] untyped callers
        name = fields.pop("model", None)
        known = cls.__subclasses__() if cls is NoiseModel else [cls]
        kind = next((each for each in known if each.name == name), None)
        if kind is None:
            names = " or ".join(each.name for each in known)
            raise SettingsError(f"model={name!r:.80} is not a noise model: give {names}.")
        try:
            return kind(**fields)
        except TypeError as error:
            given = ", ".join(map(str, fields)) or "no parameters"
            wanted = ", ".join(field.name for field in dataclasses.fields(kind))
            raise SettingsError(f"{name} noise was given {given}: give {wanted}.") from error


def channel_correlations(models: Sequence[NoiseModel], count: int) -> np.ndarray:
    """Return the correlation of the noise of channels with that of others, (count, count).

    That of two channels is the sum of a number for each, found from their means, `shared`: of three
    channels the means tell all.
    """
    shared = np.resize([getattr(model, "shared", 0.0) for model in models], count)
    each = shared / 2
    if count > 2:
        each = ((count - 1) * shared - shared.sum() / 2) / (count - 2)
    table = np.clip(np.add.outer(each, each), -1, 1)
    np.fill_diagonal(table, 1.0)
    return table
