"""Noise whose strength is any function of the grey level: it may fall, bend or saturate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.noise import limits
from napari_gpu_denoise.noise.models import base
from napari_gpu_denoise.noise.models.gaussian import Gaussian
from napari_gpu_denoise.noise.patches.laws import KNOT
from napari_gpu_denoise.noise.patches.spectra import METHOD

if TYPE_CHECKING:
    from napari_gpu_denoise.noise.evidence import Evidence

_LEAST_SIGMA = 1e-6  # grey levels, of an image without noise
_MEANS = 1024  # at which the expected stabilised value is computed


@dataclass(frozen=True)
class SignalDependent(base.NoiseModel):
    """White noise whose standard deviation is a table over grey levels.

    Parameters
    ----------
    levels : sequence of float
        Grey levels, rising; at least two.
    sigmas : sequence of float
        Standard deviation at each of them, above 0. Linear in between, constant beyond the ends.
    shared : float, optional
        As of `Gaussian`.

    Notes
    -----
    `stabilise` is the integral of 1 / sigma from the first level on. `inverse` is unbiased for
    Gaussian noise of that sigma. Both are tables. The standard deviation after stabilisation is
    about 1 where sigma changes little over a range of sigma.
    """

    levels: tuple[float, ...] = base.parameter(base.LINE)
    sigmas: tuple[float, ...] = base.parameter(base.LINE)
    shared: float = base.parameter(base.SHARE, "shared between colours", default=0.0, optional=True)
    price: ClassVar[float] = limits.MIN_COST_GAIN - KNOT
    shown_white: ClassVar[bool] = True
    name: ClassVar[str] = "signal-dependent"
    title: ClassVar[str] = "Signal-dependent"
    description: ClassVar[str] = (
        "Noise that falls, bends or saturates with brightness, as a table over grey levels."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.levels) != len(self.sigmas) or len(self.levels) < 2:
            raise SettingsError(
                f"{len(self.levels)} levels and {len(self.sigmas)} sigmas are not a table: give "
                "one sigma for each of at least two levels."
            )
        if not (np.diff(self.levels) > 0).all() or min(self.sigmas) <= 0:
            raise SettingsError(
                f"levels={self.levels} and sigmas={self.sigmas} are not a table: give rising "
                "levels, and sigmas above 0."
            )

    def scaled(self, factor: float) -> Self | None:
        sigmas = tuple(factor * each for each in self.sigmas)
        return replace(self, sigmas=sigmas) if min(sigmas) > 0 else None

    def variance(self, mean: Any) -> np.ndarray:
        return np.square(np.interp(np.asarray(mean, np.float64), self.levels, self.sigmas))

    def stabilise(self, image: Any) -> np.ndarray:
        forward, _ = _curves(self.levels, self.sigmas)
        return base.pointwise(forward, base.numbers(image))

    def inverse(self, stabilised: Any) -> np.ndarray:
        _, inverse = _curves(self.levels, self.sigmas)
        return base.pointwise(inverse, base.numbers(stabilised))

    def transform(self, signed: bool = True) -> base.Transform:
        forward, inverse = _curves(self.levels, self.sigmas)
        return base.Transform("levels", forward.arguments, inverse.arguments)

    @classmethod
    def misfit(cls, channel: Evidence) -> base.Misfit:
        laws = channel.laws
        # Planes of unlike noise have most of it at the ends of their common range of brightness.
        alike = channel.levelled is None and channel.temporal is None
        if not alike or laws is None or laws.flatness < limits.MIN_FREE_FLATNESS:
            return Gaussian.misfit(channel)._replace(reason="")
        # The square of the brightness is that of speckle, or of texture of one contrast.
        if laws.is_quadratic and laws.square <= laws.free + limits.MIN_COST_GAIN:
            return Gaussian.misfit(channel)._replace(reason="")
        return base.Misfit(laws.free, f"the variance changes with brightness, {laws.range()}")

    @classmethod
    def fit(cls, channel: Evidence) -> base.Fit:
        """Read sigma at levels of brightness."""
        laws = channel.laws
        levels, sigmas = laws.table if laws is not None and laws.proven else ((), ())
        if not levels:
            # One level of brightness, or none: a table of one sigma around it.
            middle, sigma = float(np.nanmean(channel.planes[0])), channel.sigma or _LEAST_SIGMA
            levels, sigmas = (middle - sigma, middle + sigma), (sigma, sigma)
        model = cls(levels, sigmas)
        sigma, error = model.mean_sigma(channel)
        return base.Fit(model, {}, sigma, error, METHOD, channel.curve)

    def details(self) -> str:
        low, high = self.levels[0], self.levels[-1]
        places = dict.fromkeys((low, *self._extremes(), high))
        rows = [f"{self.sigmas[self.levels.index(each)]:.3g} at {each:.4g}" for each in places]
        return f"sigma {rows[0].replace(' at ', ' at grey level ')} to {' to '.join(rows[1:])}"

    def _extremes(self) -> list[float]:
        """Return the level inside the table with a sigma clearly beyond those of both ends."""
        ends = self.sigmas[0], self.sigmas[-1]
        ratios = np.array([max(each / max(ends), min(ends) / each) for each in self.sigmas])
        largest = int(ratios.argmax())
        return [self.levels[largest]] if ratios[largest] > 1.1 else []

    def summary(self) -> str:
        return f"signal-dependent noise, {self.details()}"


class _Continued:
    """A table at even steps, continued along straight lines beyond its ends."""

    def __init__(self, table: base.Table, below: float, above: float) -> None:
        self.table, self.slopes = table, (below, above)

    @property
    def arguments(self) -> tuple[np.generic | base.Table, ...]:
        """The arguments of the kernels."""
        return (*map(np.float32, self.slopes), self.table)

    def __call__(self, values: np.ndarray) -> np.ndarray:
        table, (below, above) = self.table, self.slopes
        at = table.start + np.arange(len(table.values)) / table.steps
        beyond = values - np.clip(values, at[0], at[-1])
        return np.interp(values, at, table.values) + beyond * np.where(beyond < 0, below, above)


@lru_cache(maxsize=64)
def _curves(levels: tuple[float, ...], sigmas: tuple[float, ...]) -> tuple[_Continued, _Continued]:
    """Return the integral of 1 / sigma, and the inverse of its expected value."""
    ends = levels[0], levels[-1]
    # Sigma is linear between neighbouring levels: each integral has a closed form.
    width, first, last = np.diff(levels), np.array(sigmas[:-1]), np.array(sigmas[1:])
    slope = (last - first) / width
    rising = np.abs(last / first - 1) > 1e-6
    safe = np.where(rising, slope, 1.0)
    whole = np.where(rising, np.log(last / first) / safe, width / first)
    begin = np.append(0.0, np.cumsum(whole))

    def integral(at: np.ndarray) -> np.ndarray:
        part = np.clip(np.searchsorted(levels, at, "right") - 1, 0, len(first) - 1)
        inside = np.clip(at, *ends) - np.array(levels)[part]
        curved = np.log1p(inside * slope[part] / first[part]) / safe[part]
        found = begin[part] + np.where(rising[part], curved, inside / first[part])
        beyond = at - np.clip(at, *ends)
        return found + beyond / np.where(beyond < 0, sigmas[0], sigmas[-1])

    forward = _Continued(base.tabulated(integral, *ends), 1 / sigmas[0], 1 / sigmas[-1])
    # Where no noise reaches into the table the expected value is the line beyond its end.
    means = np.linspace(ends[0] - base.REACH * sigmas[0], ends[1] + base.REACH * sigmas[-1], _MEANS)
    nodes, weights = base.quadrature()
    normal, chances = base.REACH * nodes, weights * np.exp(-np.square(base.REACH * nodes) / 2)
    spread = np.interp(means, levels, sigmas)
    expected = integral(means[:, None] + spread[:, None] * normal) @ (chances / chances.sum())
    expected = np.maximum.accumulate(expected)
    table = base.tabulated(
        lambda at: np.interp(at, expected, means), float(expected[0]), float(expected[-1])
    )
    return forward, _Continued(table, sigmas[0], sigmas[-1])
