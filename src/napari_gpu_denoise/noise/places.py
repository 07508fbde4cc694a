"""Noise that differs between places, as after the correction of uneven illumination.

The smoothest patches of each cell of the plane show the noise there, relative to what the model
expects at their brightness. A smooth surface through the cells is believed only where it is known
everywhere, far better than one value for all, and better than a curve over the brightness of the
cells. Texture raises cells, but hardly ever as such a surface.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from napari_gpu_denoise.noise import limits
from napari_gpu_denoise.noise.patches.coefficients import HIGHS, LOWS
from napari_gpu_denoise.noise.patches.laws import capped_cost
from napari_gpu_denoise.noise.patches.variance import grouped
from napari_gpu_denoise.noise.robust import huber_weights

if TYPE_CHECKING:
    from napari_gpu_denoise.noise.evidence import Evidence
    from napari_gpu_denoise.noise.models import NoiseModel
    from napari_gpu_denoise.noise.patches.spectra import PatchSpectra


@dataclass(frozen=True)
class SigmaSurface:
    """Sigma at each place relative to its root mean square over the plane.

    Its logarithm is a polynomial of the second degree.
    """

    # Of 1, y, x, y y, y x and x x, each of y and x from -1 to 1 over the plane.
    coefficients: tuple[float, ...]
    low: float  # smallest and largest value
    high: float

    def factors(self, ny: int, nx: int) -> np.ndarray:
        """Return the factor of sigma at each pixel of a plane, (ny, nx)."""
        y, x = (np.linspace(-1, 1, 2 * n + 1)[1::2] for n in (ny, nx))
        one, down, across, curved, both, wide = self.coefficients
        rows = one + down * y + curved * y**2
        found = rows[:, None] + (across + both * y[:, None]) * x + wide * x**2
        return np.exp(np.clip(found, math.log(self.low), math.log(self.high)))

    @property
    def valid(self) -> bool:
        """Whether the numbers, which may come from a file, are those of a surface."""
        known = len(self.coefficients) == 6 and all(map(math.isfinite, self.coefficients))
        return known and 1 / 64 <= self.low <= self.high <= 64

    def words(self) -> str:
        """Say by how much sigma differs, and where it is smallest and largest."""
        table = self.factors(3, 3)
        rows, columns = ("top", "", "bottom"), ("left", "", "right")
        ends: list[str] = []
        for extreme in (table.min(), table.max()):
            there = np.argwhere(table == extreme)
            y, x = there[np.abs(there - there.mean(axis=0)).sum(axis=1).argmin()]  # the middle one
            ends.append(f"{rows[y]} {columns[x]}".strip() or "middle")
        return (
            f"the noise differs between places, by a factor of {self.high / self.low:.2g}: "
            f"it is weakest at the {ends[0]} and strongest at the {ends[1]}, "
            "independently of brightness"
        )


def noise_surface(
    channels: list[Evidence], models: list[NoiseModel]
) -> tuple[SigmaSurface, list[float]] | None:
    """Return the surface of sigma, if it clearly differs between places and is known everywhere.

    All channels have the same surface; what the sigma of each is multiplied by to get its root mean
    square comes with it.
    """
    counts = tuple(min(n // 32, 6) for n in channels[0].planes[0].shape)
    if min(counts) < 4 or any(model.scaled(1.0) is None for model in models):
        return None
    readable = [each.spectra if each.sigma > 0 else None for each in channels]
    cells = [
        _read_cells(there, model, counts) if there else None
        for model, there in zip(models, readable, strict=True)
    ]
    known = [each for each in cells if each is not None]
    # Channels of one scene share its texture: several are no more certain than one.
    fit = _fit_surface(np.mean(known, axis=0), counts) if known else None
    if fit is None:
        return None
    surface, low, high = fit
    plane = np.clip(_powers(_cell_middles((64, 64))) @ surface, low, high)
    mean = math.log(np.mean(np.exp(2 * plane))) / 2
    level = _powers(_cell_middles(counts)) @ surface - mean
    scales = [1.0 if each is None else math.exp(np.nanmedian(each[0] - level)) for each in cells]
    surface[0] -= mean
    found = SigmaSurface(tuple(surface.tolist()), math.exp(low - mean), math.exp(high - mean))
    return found, scales


def _cell_middles(counts: tuple[int, ...]) -> np.ndarray:
    """Return y and x of the middle of cells, from -1 to 1, (cell, 2)."""
    along = [(2 * np.arange(count) + 1) / count - 1 for count in counts]
    return np.stack(np.meshgrid(*along, indexing="ij"), axis=-1).reshape(-1, 2)


def _powers(place: np.ndarray) -> np.ndarray:
    y, x = place.T
    return np.column_stack([np.ones(len(y)), y, x, y * y, y * x, x * x])


def _read_cells(spectra: PatchSpectra, model: NoiseModel, counts: tuple[int, ...]) -> np.ndarray:
    """Return the logarithm of sigma, its error, and the brightness of cells, (3, cell).

    Sigma is relative to what the model expects; NaN where there are not enough patches. It is read
    at high frequencies of smooth patches, and texture subtracted in proportion to low frequencies.
    """
    line = model.positive_variance(spectra.seen)
    down, across = (
        (along * n).astype(np.uint8) for along, n in zip(spectra.place, counts, strict=True)
    )
    cell = down * np.uint8(counts[1]) + across
    parts = grouped(cell, math.prod(counts), spectra.order)
    least = math.ceil(6 * spectra.overlap)  # patches, of which six share no pixel
    clipped = parts.sums(spectra.clipped) > limits.MAX_CLIPPED_SHARE * parts.count
    parts = parts.kept((parts.count > least) & ~clipped)
    found = np.full((3, math.prod(counts)), np.nan)
    if not len(parts.count):
        return found
    if line.min() < line.max():
        parts = parts.by_rank(spectra.energy_of("low") / line)
    read = np.maximum((parts.count / 8).astype(int), least)
    high, low = (  # of the smoothest
        parts.sums(spectra.energy_of(name) / line, read) / (read * n)
        for name, n in (("high", HIGHS), ("low", LOWS))
    )
    # The smoothest of white patches have less power there by chance.
    texture = np.maximum(low / (read / parts.count) ** 0.19 - high, 0)
    variance = np.maximum(high - 0.1 * texture, 0.1 * high)
    error = np.sqrt(0.5 * spectra.overlap / (read * HIGHS))
    error = np.hypot(np.hypot(error, 0.03), 0.06 * texture / variance)
    bright = parts.sums(spectra.seen) / parts.count
    found[:, cell[parts.members[parts.first]]] = np.log(variance) / 2, error, bright
    return found


def _fit_surface(
    cells: np.ndarray, counts: tuple[int, ...]
) -> tuple[np.ndarray, float, float] | None:
    """Return the surface through cells, and its smallest and largest value; None if unsure."""
    used = np.isfinite(cells[0])
    if used.mean() < 0.75:
        return None
    sigma, error, bright = cells[:, used]
    place = _cell_middles(counts)[used]
    found, covariance, cost = _robust_fit(_powers(place), sigma, error)
    # The outer corners of the cells.
    outer = _powers(place + np.sign(place) / counts)
    values = outer @ found
    across = outer[values.argmax()] - outer[values.argmin()]
    apart, unsure = float(np.ptp(values)), math.sqrt(across @ covariance @ across)
    unknown = math.sqrt(np.einsum("ij,jk,ik->i", outer, covariance, outer).max())
    if (
        apart < max(math.log(limits.MIN_SIGMA_RATIO), limits.MIN_SURFACE_ERRORS * unsure)
        or unknown > limits.MAX_SURFACE_ERROR
    ):
        return None
    bright = (bright - bright.mean()) / (np.ptp(bright) or 1.0)
    for degree in (0, 2):
        _, _, other = _robust_fit(bright[:, None] ** np.arange(degree + 1), sigma, error)
        if cost + limits.MIN_SURFACE_GAIN > other:
            return None
    return found, float(values.min()), float(values.max())


def _robust_fit(
    terms: np.ndarray, values: np.ndarray, error: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Fit values by a sum of terms (value, term); return it, its covariance and its cost.

    Texture, which only raises a value, counts little.
    """
    terms, values, weight = terms / error[:, None], values / error, np.ones(len(values))
    for _ in range(10):
        weighted = terms.T * weight**2
        # A brightness that is the same everywhere gets a factor of 0.
        normal = weighted @ terms + 1e-9 * np.eye(terms.shape[1])
        found = np.linalg.solve(normal, weighted @ values)
        distance = values - terms @ found
        weight = huber_weights(distance, 1.0, 3.0)
    scatter = max(1.0, float(np.mean(np.square(weight * distance))))  # pyright: ignore[reportPossiblyUnboundVariable]
    return found, np.linalg.inv(normal) * scatter, float(capped_cost(distance))  # pyright: ignore[reportPossiblyUnboundVariable]
