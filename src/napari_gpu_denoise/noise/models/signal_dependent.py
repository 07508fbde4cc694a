"""Noise whose strength is any function of the grey level: it may fall, bend or saturate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Self

import numpy as np

from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.noise import limits
from napari_gpu_denoise.noise.models import base
from napari_gpu_denoise.noise.models.gaussian import Gaussian
from napari_gpu_denoise.noise.patches.laws import KNOT
from napari_gpu_denoise.noise.patches.spectra import METHOD


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

    levels: tuple[float, ...] = base.parameter(axes=1)
    sigmas: tuple[float, ...] = base.parameter(axes=1)
    shared: float = base.shared_with_colours()
    price: ClassVar[float] = limits.MIN_COST_GAIN - KNOT
    shown_white: ClassVar[bool] = True
    name: ClassVar[str] = "signal-dependent"
    title: ClassVar[str] = "Signal-dependent"
    description: ClassVar[str] = (
        "Noise that falls, bends or saturates with brightness, as a table over grey levels."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        pairs = len(self.levels) == len(self.sigmas) > 1
        if not pairs or not (np.diff(self.levels) > 0).all() or min(self.sigmas) <= 0:
            raise SettingsError(
                f"levels={self.levels} and sigmas={self.sigmas} are not a table: give at least two "
                "rising levels, and a sigma above 0 for each."
            )

    def scaled(self, factor: float) -> Self | None:
        return replace(self, sigmas=tuple(factor * each for each in self.sigmas))

    def variance(self, mean: np.typing.ArrayLike) -> np.ndarray:
        return np.square(np.interp(np.asarray(mean, np.float64), self.levels, self.sigmas))

    def forward(self, levels: np.ndarray) -> np.ndarray:
        forward, _ = _tables(self.levels, self.sigmas)
        first, last = self.sigmas[0], self.sigmas[-1]
        return _continued(forward, levels, 1 / first, 1 / last)

    def backward(self, means: np.ndarray) -> np.ndarray:
        _, backward = _tables(self.levels, self.sigmas)
        return _continued(backward, means, self.sigmas[0], self.sigmas[-1])

    def transform(self, signed: bool = True) -> base.Transform:
        forward, backward = _tables(self.levels, self.sigmas)
        below, above = np.array([self.sigmas[0], self.sigmas[-1]], np.float32)
        there = {"below": 1 / below, "above": 1 / above, "table": forward}
        return base.Transform("levels", there, {"below": below, "above": above, "table": backward})

    @classmethod
    def misfit(cls, channel: base.Evidence) -> base.Misfit:
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
    def fit(cls, channel: base.Evidence) -> base.Fit:
        """Read sigma at levels of brightness."""
        laws = channel.laws
        levels, sigmas = laws.table if laws is not None and laws.proven else ((), ())
        if not levels:
            # One level of brightness, or none: a table of one sigma around it.
            middle, sigma = float(np.nanmean(channel.planes[0])), channel.sigma or 1e-6
            levels, sigmas = (middle - sigma, middle + sigma), (sigma, sigma)
        model = cls(levels, sigmas)
        sigma, error = model.mean_sigma(channel)
        return base.Fit(model, {}, sigma, error, METHOD, channel.curve)

    def details(self) -> str:
        ends = self.sigmas[0], self.sigmas[-1]
        beyond = [max(each / max(ends), min(ends) / each) for each in self.sigmas]
        odd = beyond.index(max(beyond))  # the level farthest beyond the ends
        places = [0, *([odd] if beyond[odd] > 1.1 else []), -1]
        rows = [f"{self.sigmas[k]:.3g} at {self.levels[k]:.4g}" for k in places]
        return f"sigma {rows[0].replace(' at ', ' at grey level ')} to {' to '.join(rows[1:])}"

    def summary(self) -> str:
        return f"signal-dependent noise, {self.details()}"


def _continued(table: base.Table, values: np.ndarray, below: float, above: float) -> np.ndarray:
    """Return the function of a table, continued with these slopes beyond its ends."""
    beyond = values - np.clip(values, table.start, table.at[-1])
    return table(values) + beyond * np.where(beyond < 0, below, above)


@lru_cache(maxsize=64)
def _tables(levels: tuple[float, ...], sigmas: tuple[float, ...]) -> tuple[base.Table, base.Table]:
    """Return the integral of 1 / sigma, and the inverse of its expected value."""
    ends, fine = (levels[0], levels[-1]), np.linspace(levels[0], levels[-1], 1 << 16)
    density = 1 / np.interp(fine, levels, sigmas)
    inside = np.append(0.0, np.cumsum(density[1:] + density[:-1])) * (fine[1] - fine[0]) / 2

    def integral(at: np.ndarray) -> np.ndarray:
        beyond = at - np.clip(at, *ends)
        return np.interp(at, fine, inside) + beyond / np.where(beyond < 0, sigmas[0], sigmas[-1])  # pyright: ignore[reportUnknownVariableType]

    # Where no noise reaches into the table the expected value is the line beyond its end.
    means = np.linspace(ends[0] - base.REACH * sigmas[0], ends[1] + base.REACH * sigmas[-1], 1024)
    nodes, weights = base.quadrature()
    normal, chances = base.REACH * nodes, weights * np.exp(-np.square(base.REACH * nodes) / 2)
    spread = np.interp(means, levels, sigmas)
    expected = integral(means[:, None] + spread[:, None] * normal) @ (chances / chances.sum())
    expected = np.maximum.accumulate(expected)
    backward = base.tabulated(lambda at: np.interp(at, expected, means), *expected[[0, -1]])
    return base.tabulated(integral, *ends), backward
