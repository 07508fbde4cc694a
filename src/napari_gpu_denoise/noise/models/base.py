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
from napari_gpu_denoise.image.levels import as_number, as_numbers, check_numbers
from napari_gpu_denoise.image.threads import in_bands

if TYPE_CHECKING:
    from napari_gpu_denoise.noise.evidence import Evidence
    from napari_gpu_denoise.noise.patches.variance import VarianceCurve


# Parameters of noise models: how they are shown, and what their values may be.
ANY, POSITIVE, NOT_NEGATIVE, TABLE = "any", "positive", "not negative", "table"
SHARE, LINE, LOOKS = "share", "line", "looks"
LEAST_LOOKS = 0.1  # of fewer, logarithms have means far beyond what float32 holds
_WANTED: dict[str, tuple[str, Callable[[float], bool]]] = {
    ANY: ("a finite number", math.isfinite),
    POSITIVE: ("a finite number above 0", lambda value: value > 0),
    NOT_NEGATIVE: ("a finite number of at least 0", lambda value: value >= 0),
    SHARE: ("a number from -1 to 1", lambda value: -1 <= value <= 1),
    LOOKS: (f"a finite number of at least {LEAST_LOOKS}", lambda value: value >= LEAST_LOOKS),
}


class Parameter(NamedTuple):
    """A parameter as it is shown to people."""

    name: str  # of the field
    label: str  # its name in words
    unit: str  # such as "grey levels", or empty
    optional: bool  # not shown where it is 0
    squared: bool  # by kernels, so that it has to be of moderate size


def parameter(
    limit: str,
    label: str = "",
    unit: str = "",
    *,
    default: Any = dataclasses.MISSING,
    optional: bool = False,
    squared: bool = False,
) -> Any:
    """Return the dataclass field of a parameter.

    `limit` is `ANY`, `POSITIVE` or `NOT_NEGATIVE` number, a `SHARE`, a number of `LOOKS`, a `TABLE`
    of numbers, or a `LINE` of them; the rest is as in `Parameter`. A parameter without a label is
    not shown.
    """
    shown = {"label": label, "unit": unit, "optional": optional, "squared": squared}
    return dataclasses.field(default=default, metadata={"limit": limit, "shown": shown})


def checked(field: dataclasses.Field, given: Any, model: str) -> Any:
    """Return a field as a float, or numbers as tuples; SettingsError if it is invalid."""
    limit = field.metadata.get("limit", ANY)
    try:
        value = as_numbers(given) if limit in (TABLE, LINE) else as_number(given)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if limit == TABLE:
        if np.ndim(value) == 2 and value.size and np.isfinite(value).all():
            return tuple(map(tuple, value.tolist()))
        raise SettingsError(
            f"{field.name} does not fit {model} noise: give rows of finite numbers, all of the "
            "same length."
        )
    if limit == LINE:
        if np.ndim(value) == 1 and value.size and np.isfinite(value).all():
            return tuple(value.tolist())
        raise SettingsError(f"{field.name} does not fit {model} noise: give finite numbers.")
    wanted, fits = _WANTED[limit]
    if not (math.isfinite(value) and fits(value)):
        raise SettingsError(f"{field.name}={given!r} does not fit {model} noise: give {wanted}.")
    return value


# Functions as tables, for the host and the device, and their use on images.
TABLE_ENTRIES = 4096
REACH = 9.0  # standard deviations beyond which a normal distribution is cut off

_BLOCK = 1 << 16  # values worked on at once: float64 of a few of them fit a cache


@cache
def quadrature() -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights of a Gauss-Legendre quadrature on -1 to 1, for expected values."""
    from numpy.polynomial.legendre import leggauss  # slow to import, and rarely needed

    return leggauss(128)


class Curve(NamedTuple):
    """A function tabulated at rising places `at`, linear in between."""

    at: np.ndarray
    value: np.ndarray


class Table(NamedTuple):
    """A function at even steps from `start`, `steps` per unit, for kernels/noise/table.h."""

    values: np.ndarray
    start: float
    steps: float


def tabulated(function: Callable[[np.ndarray], np.ndarray], start: float, end: float) -> Table:
    """Return a function from start to end as a table for the device."""
    values = function(np.linspace(start, end, TABLE_ENTRIES))
    return Table(values.astype(np.float32), start, (len(values) - 1) / (end - start))


def pointwise(function: Callable[[np.ndarray], np.ndarray], image: np.ndarray) -> np.ndarray:
    """Apply a function of float64 values (n,) to an image; the result is float32.

    It runs in several threads, and on blocks, so that it takes little memory.
    """
    result = np.empty(image.shape, np.float32)

    def fill(source: np.ndarray, target: np.ndarray) -> None:
        blocks = np.nditer(
            [source, target],
            flags=["external_loop", "buffered", "zerosize_ok"],
            op_flags=[["readonly"], ["writeonly"]],
            op_dtypes=[np.float64, np.float32],
            casting="same_kind",
            buffersize=_BLOCK,
        )
        with blocks:
            for values, changed in blocks:
                changed[...] = function(values)

    in_bands(fill, image, result)
    return result


class Transform(NamedTuple):
    """How a device stabilises noise: two kernels and their arguments.

    They are ``noise/stabilise_<law>.cl`` and ``noise/inverse_<law>.cl``; `forward` and `inverse`
    hold what they take after ``(values, first, count)``, in order. Each `Table` becomes the four
    arguments ``__global const float *table, int entries, float start, float steps``.
    """

    law: str
    forward: tuple[np.generic | Table, ...]
    inverse: tuple[np.generic | Table, ...]


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
        old, new, curve = self.model, self.model.scaled(scale), self.curve
        errors = {
            name: error * (getattr(new, name) / value if (value := getattr(old, name)) else 1.0)
            for name, error in self.errors.items()
        }
        if curve is not None:
            curve = dataclasses.replace(
                curve, variance=tuple(scale**2 * each for each in curve.variance)
            )
        return self._replace(
            model=new,
            errors=errors,
            sigma=scale * self.sigma,
            error=scale * self.error,
            curve=curve,
        )


PROVEN = 100.0  # squared standard errors that proof by something else than the variance counts as


class Misfit(NamedTuple):
    """How badly a model explains one channel."""

    cost: float  # squared standard errors over all levels of brightness; infinite if it is refuted
    reason: str = ""  # that speaks for the model, in words


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
    #: Whether it can be requested by name; else it is only found automatically.
    selectable: ClassVar[bool] = True
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

    def __post_init__(self) -> None:
        """Convert parameters to floats, and refuse those that do not fit."""
        for field in dataclasses.fields(self):
            value = checked(field, getattr(self, field.name), self.name)
            object.__setattr__(self, field.name, value)

    # Stabilisation

    @property
    def sigma_after(self) -> float:
        """Standard deviation of the noise after `stabilise`."""
        return 1.0

    @abstractmethod
    def variance(self, mean: Any) -> np.ndarray:
        """Return the variance of pixels.

        Parameters
        ----------
        mean : array or float
            Expected value of the pixels as measured, grey levels.

        Returns
        -------
        ndarray, float64
            Of the shape of `mean`, squared grey levels.
        """

    def positive_variance(self, mean: np.ndarray) -> np.ndarray:
        """Return the variance, at least a small share of its mean, so that it can be divided by."""
        found = self.variance(mean)
        return np.maximum(found, 1e-3 * float(found.mean()) or 1e-300)

    def variance_told_by(self, pixels: Any) -> np.ndarray:
        """Return an unbiased estimate of the variance of each pixel, of pixels as measured.

        It may be negative. Here it is for a variance that does not depend on the mean.
        """
        return self.variance(pixels)

    @abstractmethod
    def stabilise(self, image: Any) -> np.ndarray:
        """Return an image whose noise is the same everywhere.

        Parameters
        ----------
        image : array, any shape and real dtype
            Grey levels. Not modified. NaN stays NaN.

        Returns
        -------
        ndarray, float32
            Of the shape of `image`, with noise of standard deviation `sigma_after`.

        Raises
        ------
        ImageError
            If the image is empty, or not of real numbers.
        """

    @abstractmethod
    def inverse(self, stabilised: Any) -> np.ndarray:
        """Return the expected grey levels of stabilised pixels with these means.

        This is the exact unbiased inverse, not the algebraic one: it allows for the mean of a
        curve being different from the curve of the mean.

        Parameters
        ----------
        stabilised : array, any shape
            Result of a filter applied to the output of `stabilise`. Not modified.

        Returns
        -------
        ndarray, float32
            Of the shape of `stabilised`, grey levels.

        Raises
        ------
        ImageError
            If the array is empty, or not of real numbers.
        """

    def transform(self, signed: bool = True) -> Transform | None:
        """Return the kernels for `stabilise` and `inverse`; None where there is nothing to do.

        Parameters
        ----------
        signed : bool, optional
            Whether results may be negative, where the noise itself cannot be.
        """
        return None

    @property
    def spectral(self) -> NoiseModel:
        """The noise after stabilisation, if `models_correlation`: a `Correlated`."""
        return self

    @property
    def needs_image(self) -> bool:
        """Whether a parameter is still to be read from the image, by `for_image`."""
        return False

    def for_image(self, image: Any) -> Self:
        """Return the model with parameters filled in that depend on the whole image."""
        return self

    def scaled(self, factor: float) -> Self | None:
        """Return the model for a standard deviation `factor` times as large, where there is one."""
        return None

    # Measurement

    @classmethod
    @abstractmethod
    def misfit(cls, channel: Evidence) -> Misfit:
        """Return how badly the model explains a channel, and what speaks for it.

        The channel has at least some patches of 8 x 8 pixels.
        """

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
    def parameters(cls) -> tuple[Parameter, ...]:
        """Return the parameters that are shown to people, in order."""
        fields = [each for each in dataclasses.fields(cls) if each.metadata.get("shown")]
        found = [Parameter(each.name, **each.metadata["shown"]) for each in fields]
        return tuple(each for each in found if each.label)

    def details(self) -> str:
        """Return in words the parameters that are tables; empty where there are none."""
        return ""

    @abstractmethod
    def summary(self) -> str:
        """Return the model as one line of text."""

    def as_dict(self) -> dict[str, Any]:
        """Return the name of the model and its parameters, ready for JSON.

        Returns
        -------
        dict
            Key ``model``, and one for each field.
        """
        return {"model": self.name, **dataclasses.asdict(self)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the model that `as_dict` described.

        Parameters
        ----------
        values : dict
            As from `as_dict`. ``NoiseModel.from_dict`` makes whichever model it names.

        Returns
        -------
        NoiseModel

        Raises
        ------
        SettingsError
            If it names another model, or its parameters do not fit.
        """
        if not isinstance(values, Mapping):
            raise SettingsError(f"{values!r:.80} is not a noise model: give a dict of as_dict().")
        name = (fields := dict(values)).pop("model", None)
        each = cls.__subclasses__() if cls is NoiseModel else [cls]
        known = {model.name: model for model in each}
        if not isinstance(name, str) or name not in known:
            raise SettingsError(f"model={name!r} is not a noise model: give {' or '.join(known)}.")
        try:
            return known[name](**fields)
        except TypeError as error:
            wanted = ", ".join(field.name for field in dataclasses.fields(known[name]))
            raise SettingsError(
                f"{name} noise was given {', '.join(map(str, fields)) or 'no parameters'}: "
                f"give {wanted}."
            ) from error


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


def numbers(image: Any) -> np.ndarray:
    """Return an image as an array of real numbers; ImageError if it is empty or not real."""
    image = np.asarray(image)
    check_numbers(image)
    return image
