"""The record that `estimate_noise` returns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass, replace
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.noise.correlation import LAGS, NoiseSpectrum
from napari_gpu_denoise.noise.covariance import ChannelCovariance
from napari_gpu_denoise.noise.models import NoiseModel
from napari_gpu_denoise.noise.patches.coefficients import PATCH
from napari_gpu_denoise.noise.patches.variance import VarianceCurve
from napari_gpu_denoise.noise.places import SigmaSurface

LOG_SPECKLE = "speckle on a logarithmic scale"
# What values that are no estimate raise: missing or of other types, infinity, lists in lists.
_NO_ESTIMATE = (KeyError, TypeError, AttributeError, ValueError, OverflowError, RecursionError)


def _parse(kind: Any, value: Any, name: str = "", missing: float = math.nan) -> Any:
    """Parse a plain value as one of a kind; ValueError names the field whose value does not fit.

    Lists become tuples, dicts records, and None `missing` where a number is wanted.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if NoneType in parts:
        return None if value is None else _parse(parts[0], value, name, missing)
    if kind is NoiseModel:
        return NoiseModel.from_dict(value)
    if isinstance(kind, type) and is_dataclass(kind):
        missing, kinds = math.inf if kind is NoiseSpectrum else math.nan, get_type_hints(kind)
        known = [key for key in value if key in kinds]
        found = kind(**{key: _parse(kinds[key], value[key], key, missing) for key in known})
        if not getattr(found, "valid", True):
            raise ValueError(f"{name} does not fit")
        return found
    if origin is dict:
        return {str(key): _parse(parts[1], each, name) for key, each in value.items()}
    if origin is tuple and issubclass(value.__class__, (list, tuple)):
        kinds = parts[:1] * len(value) if Ellipsis in parts else parts
        items = zip(kinds, value, strict=True)
        return tuple(_parse(one, each, name, missing) for one, each in items)
    if kind is float and isinstance(value, (float, int, NoneType)):
        return missing if value is None else float(value)
    if origin is None and isinstance(value, kind):
        return value
    raise ValueError(f"{name} does not fit")


def _check_tables(record: Any, **lengths: int) -> None:
    """Refuse a record, with ValueError, whose tables are not of the sizes they should be."""
    for names, axes in _TABLES.get(record.__class__, {}).items():
        for name in names.split():
            shape = np.shape(getattr(record, name))
            sizes = tuple(lengths.setdefault(*each) for each in zip(axes, shape, strict=False))
            if len(axes) != len(shape) or sizes != shape:
                raise ValueError(f"{name} does not fit")


@dataclass(frozen=True)
class SigmaSeries:
    """Noise standard deviation along an axis, in grey levels."""

    axis: str  # "T", "Z", or the name of another axis of planes
    index: tuple[int, ...]  # (n,), positions along the axis that were read, rising
    sigma: tuple[tuple[float, ...], ...]  # (channels, n); NaN where nothing was finite
    error: tuple[tuple[float, ...], ...]  # its standard error
    # Sigma over that which the model expects at the brightness of the plane; NaN as `sigma`.
    factor: tuple[tuple[float, ...], ...]

    def scaled(self, factors: Sequence[float]) -> SigmaSeries:
        """Return the series with the sigma of each channel multiplied by a factor."""
        tables = np.array([self.sigma, self.error]) * np.reshape(factors, (-1, 1))
        sigma, error = (tuple(tuple(row) for row in rows) for rows in tables.tolist())
        return replace(self, sigma=sigma, error=error)


@dataclass(frozen=True)
class NoiseEstimate:
    """Noise of an image: the model, its parameters, and how they were measured.

    Of each channel, or once for an image without channels, in grey levels:

    - `sigma`, the standard deviation, correlated noise included: the root mean variance where noise
      depends on brightness, that of the real and of the imaginary part of magnitudes. Its
      `standard_error` is a statistical one, without bias by texture that looks like noise.
    - `models`, all of one class; `errors`, the standard error of each parameter by name, NaN where
      unknown; `curves`, noise variance against mean and which levels were used, or None;
    - `spectra`, None where planes are too small;
    - `clipped`, the shares of pixels that are clipped at the dark and at the bright end.

    Of the whole: `method` and `reason`, how and why, and `notes`, in words; the number of `planes`
    read; `axes` and `shape` of the image; `frames`, `slices` and `others`, sigma along T, Z and the
    longest other axis of planes, or None; `covariance` of the noise of channels, or None;
    `blank_width`, the width of constant squares that are not part of the image, which filters leave
    unchanged, or 0; `places`, how noise clearly differs between places independently of brightness,
    or None: `sigma` is then its root mean square.
    """

    sigma: tuple[float, ...]
    standard_error: tuple[float, ...]
    method: str
    planes: int
    notes: tuple[str, ...]
    axes: str
    models: tuple[NoiseModel, ...]
    reason: str
    errors: tuple[dict[str, float], ...]
    curves: tuple[VarianceCurve | None, ...]
    frames: SigmaSeries | None
    slices: SigmaSeries | None
    others: SigmaSeries | None
    shape: tuple[int, ...]
    spectra: tuple[NoiseSpectrum | None, ...]
    covariance: ChannelCovariance | None
    clipped: tuple[tuple[float, float], ...]
    blank_width: int = 0
    places: SigmaSurface | None = None

    @property
    def name(self) -> str:
        """Name of the model, such as ``"poisson-gaussian"``."""
        return self.models[0].name

    @property
    def series(self) -> tuple[SigmaSeries, ...]:
        """Sigma along each axis of planes."""
        along = self.frames, self.slices, self.others
        return tuple(each for each in along if each is not None and len(each.index) > 1)

    @property
    def white(self) -> bool:
        """Whether the noise of every channel passes as white."""
        white = all(each is None or each.white for each in self.spectra)
        return white or self.models[0].shown_white

    @property
    def log_speckle(self) -> bool:
        """Whether the noise is speckle on a logarithmic scale, as ultrasound images have it."""
        return any(each is not None and each.log_speckle for each in self.spectra)

    def verdict(self) -> str:
        """Return a line such as ``"Poisson-Gaussian, gain 0.28, read noise 3; noise is white"``."""
        if not any(self.sigma):
            unproven = "no noise is proven: it may be fine texture"
            found = unproven if is_unproven(self.notes) else "no noise was found"
            return f"{found}; there is nothing to remove"
        model = self.models[0]
        title = LOG_SPECKLE.capitalize() if self.log_speckle else model.title
        parts = [title, *self._parameters(False)]
        white = "white" if self.white else "correlated"
        if model.is_one_sigma() and not self.white:
            white = "at most slightly correlated"
        if all(each is None for each in self.spectra):
            white = "assumed white"
        return f"{', '.join(parts)}; noise is {white}"

    def lines(self, said: Callable[[str], str] = str) -> list[tuple[str, str]]:
        """Return all that is known as names and texts, with standard errors and notes.

        `said` returns the wording of a note for a front end.
        """
        rows = [("model", ", ".join([self.models[0].title, *self._parameters(True)]))]
        rows.append(("because", self.reason))
        sigma = ", ".join(map(measured, self.sigma, self.standard_error))
        planes = f"{self.planes} plane{'s' * (self.planes != 1)}"
        rows.append(("sigma", f"{sigma} ({self.method}, {planes})"))
        names = {"T": "frame", "Z": "slice"}
        rows += [(f"per {names.get(each.axis, 'plane')}", _span(each)) for each in self.series]
        if self.places is not None:
            rows.append(("places", self.places.words()))
        found = [each.summary() for each in self.spectra if each is not None]
        rows += [("spectrum", text) for text in _by_channel(found)]
        if self.covariance is not None:
            rows.append(("channels", self.covariance.summary()))
        dark, bright = np.max(self.clipped, axis=0)
        if dark or bright:
            rows.append(("clipped", f"{dark:.2%} of the pixels dark, {bright:.2%} bright"))
        return rows + [("note", said(note)) for note in self.notes]

    def summary(self) -> str:
        """Return `lines` as text."""
        return "\n".join(f"{name:<11} {text}" for name, text in self.lines())

    def as_dict(self) -> dict[str, Any]:
        """Return all fields, ``model``, ``white`` and ``verdict``, ready for JSON.

        They are plain lists and text, and numbers that are finite or None.
        """
        summary = {"model": self.name, "white": self.white, "verdict": self.verdict()}
        models = [model.as_dict() for model in self.models]
        return plain({**summary, **asdict(self), "models": models})

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> NoiseEstimate:
        """Return the estimate that `as_dict` described, or JSON made of it.

        Other keys are ignored. SettingsError if something is missing or invalid.
        """
        try:
            needed = [f.name for f in fields(cls) if f.default is MISSING or f.name in values]
            known = {name: values[name] for name in needed}
            found = _parse(cls, known)
            along = found.frames, found.slices, found.others
            for each in (found, *found.curves, *found.spectra, found.covariance, *along):
                _check_tables(each, c=len(found.models), l=LAGS + 1, p=PATCH, **{"2": 2})
            if len({model.__class__ for model in found.models}) != 1:
                raise ValueError("models does not fit")
        except _NO_ESTIMATE as error:
            raise SettingsError(
                f"This is not a noise estimate ({error})",
                "give the output of estimate_noise(…).as_dict()",
                code="noise-estimate",
            ) from error
        return found

    def _parameters(self, exact: bool) -> list[str]:
        """Return the parameters in words: with errors if `exact`, else those well known."""
        found: list[str] = []
        for parameter in self.models[0].parameters():
            values = [getattr(model, parameter.name) for model in self.models]
            if parameter.optional and not any(values):
                continue
            errors = [each.get(parameter.name, math.nan) for each in self.errors]
            if exact:
                found.append(f"{parameter.label} {', '.join(map(measured, values, errors))}")
            elif not all(5 * e > abs(v) for v, e in zip(values, errors, strict=True)):
                low, high = f"{min(values):.3g}", f"{max(values):.3g}"
                found.append(f"{parameter.label} {low}" + f" to {high}" * (low != high))
        details = "; ".join(dict.fromkeys(model.details() for model in self.models))
        return [*found, details] if details else found


def measured(value: float, error: float) -> str:
    """Return a value with its standard error, if that is known."""
    return f"{value:.4g} ± {error:.2g}" if math.isfinite(error) else f"{value:.4g}"


def _by_channel(texts: list[str]) -> list[str]:
    if len(texts) < 2:
        return texts
    return [f"channel {number}: {text}" for number, text in enumerate(texts)]


def _span(series: SigmaSeries) -> str:
    """Return the least and the largest sigma of a series, and how many were read."""
    texts: list[str] = []
    for values in series.sigma:
        known = [value for value in values if math.isfinite(value)]
        texts.append(f"{min(known):.4g} to {max(known):.4g}" if known else "not known")
    read = f"{len(series.index)} read along {series.axis}"
    return f"{'; '.join(_by_channel(texts))} ({read})"


def is_unproven(notes: Iterable[str]) -> bool:
    """Return whether one of the notes says that noise is not proven."""
    return any("is not proven" in note for note in notes)  # from JSON, they have no code


def plain(value: Any) -> Any:
    """Return containers as lists and dicts, and numbers that are not finite as None."""
    if issubclass(value.__class__, dict):
        return {key: plain(each) for key, each in value.items()}
    if issubclass(value.__class__, Iterable) and not isinstance(value, str):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value


_TABLES: dict[type, dict[str, str]] = {
    NoiseSpectrum: {"power": "pp", "autocorrelation": "ll"},
    ChannelCovariance: {"covariance error correlation": "cc"},
    VarianceCurve: {"mean variance count used": "m"},
    SigmaSeries: {"index": "n", "sigma error factor": "cn"},
    NoiseEstimate: {"sigma standard_error errors curves spectra": "c", "clipped": "c2"},
}
