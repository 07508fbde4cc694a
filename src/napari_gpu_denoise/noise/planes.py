"""Planes whose noise differs in its spectrum, such as images that were registered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from napari_gpu_denoise.noise.along import plane_axis
from napari_gpu_denoise.noise.models import Correlated
from napari_gpu_denoise.noise.record import NoiseEstimate, SigmaSeries

MOST = 12  # kinds of spectra that are told apart
ALIKE = 0.06  # correlations that differ by no more are of one kind, if that leaves few kinds


@dataclass(frozen=True)
class PlaneNoise:
    """Which planes of an image have which spectrum of the noise.

    `kinds` has the axes of the image, each with the length there or 1: the index in `models` of
    every plane. These are one for all channels, or one for each.
    """

    kinds: np.ndarray
    models: tuple[tuple[Correlated, ...], ...]

    @property
    def axis(self) -> int | None:
        """The axis along which kinds differ, None of a single plane."""
        return next((k for k, length in enumerate(self.kinds.shape) if length > 1), None)

    def at(self, region: Sequence[slice]) -> np.ndarray:
        """Return the kinds of the planes in a region of the image, along `axis`."""
        axis = self.axis
        return self.kinds.ravel() if axis is None else self.kinds.ravel()[region[axis]]

    def whiter(self, models: Sequence[Correlated]) -> np.ndarray:
        """Return how much more `white_sigma` exceeds sigma in each plane than it does in `models`.

        The array has the shape of `kinds`.
        """

        def excess(models: Sequence[Correlated]) -> float:
            return float(np.mean([m.white_sigma / m.sigma for m in models if m.sigma] or [1.0]))

        return np.array([excess(each) for each in self.models])[self.kinds] / excess(models)

    def without(self, axis: int, position: int) -> PlaneNoise:
        """Return the same for one position along an axis."""
        length = self.kinds.shape[axis]
        return replace(self, kinds=self.kinds.take(position if length > 1 else 0, axis=axis))


def plane_noise_of(estimate: NoiseEstimate, shape: Sequence[int]) -> PlaneNoise | None:
    """Return the spectra of planes along the first axis along which they differ, if any."""
    if not estimate.models[0].models_correlation:
        return None
    axes = estimate.axes
    numbers = {"T": axes.find("T"), "Z": axes.find("Z")}
    for series in estimate.series:
        number = numbers.get(series.axis, plane_axis(axes, shape))
        if series.autocorrelation and number is not None:
            kinds, models = _kinds(series)
            index, length = np.array(series.index), shape[number]
            # Planes that were not measured are as the nearest one that was.
            nearest = np.abs(np.arange(length)[:, None] - index).argmin(axis=1)
            placed = [length if k == number else 1 for k in range(len(shape))]
            shared = [model.shared for model in estimate.models]
            told = tuple(
                tuple(replace(m, shared=s) for m, s in zip(row, shared, strict=True))
                for row in models
            )
            return PlaneNoise(kinds[nearest].reshape(placed), told)
    return None


def _kinds(series: SigmaSeries) -> tuple[np.ndarray, list[list[Correlated]]]:
    """Return the kind of each measured plane, and the models of each kind, one a channel."""
    tables = np.array(series.autocorrelation).swapaxes(0, 1)  # planes first
    sigma = np.nan_to_num(np.array(series.sigma).T)
    first = _first_of_kinds(tables, ALIKE)
    apart = np.abs(tables[:, None] - tables[first]).max(axis=(2, 3, 4))
    kinds = apart.argmin(axis=1)
    models = []
    for kind in range(len(first)):
        members = kinds == kind
        power = np.square(sigma[members])
        total = np.maximum(power.sum(axis=0), 1e-300)
        mean = (power[..., None, None] * tables[members]).sum(axis=0) / total[:, None, None]
        mean[:, 0, 0] = 1.0
        strengths = np.sqrt(power.mean(axis=0))
        models.append([Correlated(float(s), t) for s, t in zip(strengths, mean, strict=True)])
    return kinds, models


def _first_of_kinds(tables: np.ndarray, limit: float) -> list[int]:
    """Return the first plane of each kind: those before it differ by more than the limit."""
    first: list[int] = []
    for number, table in enumerate(tables):
        if all(np.abs(table - tables[k]).max() > limit for k in first):
            first.append(number)
    return first if len(first) <= MOST else _first_of_kinds(tables, 1.25 * limit)
