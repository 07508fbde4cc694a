"""Patches of planes by their cosine spectra, and the white noise that planes show."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import ImageError, NonFiniteError
from napari_gpu_denoise.noise import limits
from napari_gpu_denoise.noise.patches import selection, variance
from napari_gpu_denoise.noise.patches.coefficients import (
    HIGHS,
    LOWS,
    PATCH,
    SETS,
    Squares,
    flatness_of,
    frequency_sets,
    ranked,
)
from napari_gpu_denoise.noise.patches.device import patches_on
from napari_gpu_denoise.noise.patches.variance import MEMBERS
from napari_gpu_denoise.noise.sampling import PlaneReader

MAX_PATCHES = 40_000  # patches read, about: fewer miss the smoothest places of texture
ALONG = "mean", "energy", "seen", "clipped", "place"  # fields whose last axis is that of patches
FEW_PIXELS = (
    "Too few finite pixels are left to estimate the noise; give the noise, or replace NaN and "
    "infinity first."
)


@dataclass(frozen=True, eq=False)
class PatchSpectra:
    """Patches of one or more planes; those with pixels that are not finite are left out.

    `coefficients` are those of an orthonormal cosine transform, first the low frequencies
    without the mean, then the high ones.
    """

    mean: np.ndarray  # (patch,), grey levels
    coefficients: Any  # (patch, frequency), float32, or `DeviceCoefficients`
    energy: np.ndarray  # (set, patch), sums of squares over the frequencies of each of `SETS`
    seen: np.ndarray  # (patch,), mean grey levels as the high frequencies see them
    clipped: np.ndarray  # (patch,), share of clipped pixels
    overlap: float  # how many patches share a pixel
    place: np.ndarray  # (2, patch), y and x of the middle, from 0 to 1 over the plane
    count: tuple[int, ...]  # (plane,), patches of each, one plane after another

    @cached_property
    def order(self) -> np.ndarray:
        """Patches from the smoothest on, by the energy of their low frequencies."""
        return ranked(self.energy_of("low"))

    @property
    def squares(self) -> Squares:
        """Squares of the high coefficients of each patch."""
        return Squares(self.coefficients, LOWS)

    @cached_property
    def levels(self) -> variance.Parts:
        """Levels of the brightness that the high frequencies see, smooth patches first."""
        return variance.brightness_levels(self.seen, order=self.order)

    @cached_property
    def level_noise(self) -> variance.LevelNoise:
        """The noise of these levels, in their smoothest patches."""
        levels = self.levels
        found, error, power, read = (each[: len(levels.count)] for each in self.pooled)
        energy = self.energy_of("high").astype(np.float64)
        mean, square = (levels.sums(each, read) / read for each in (energy, np.square(energy)))
        clipped = levels.sums(self.clipped, read) if self.clipped.any() else 0 * mean
        return variance.LevelNoise(
            levels.sums(self.seen) / levels.count,
            found,
            2 * error,
            levels.count,
            clipped <= limits.MAX_CLIPPED_SHARE * read,
            flatness_of(power),
            (square / np.maximum(np.square(mean), 1e-300) - 1) * HIGHS / 2,
        )

    @property
    def plane_noise(self) -> variance.Pooled:
        """The noise of each plane with patches, in those with the fewest clipped pixels."""
        return variance.Pooled(*(each[len(self.levels.count) :] for each in self.pooled))

    @cached_property
    def planes(self) -> variance.Parts:
        """The patches of each plane with any, those with the fewest clipped pixels, by rank."""
        parts = variance.Parts(self.order, np.array(self.count))
        if len(self.count) > 1:
            plane = np.repeat(np.arange(len(self.count), dtype=np.uint16), self.count)
            parts = variance.grouped(plane, len(self.count), self.order)
        if not self.clipped.any():
            return parts
        each: list[np.ndarray] = []
        for part in parts.each():
            share = self.clipped[part]
            held = np.cumsum(np.bincount((PATCH**2 * share).astype(int)))  # shares are of 64 pixels
            most = np.searchsorted(held, min(MEMBERS, len(part))) / PATCH**2
            # Where clipping is everywhere, extremes of a mask, or a drawing, are what there is.
            most = most if most <= limits.MAX_CLIPPED_SHARE_OF_NOISE else 1.0
            each.append(part[share <= most])
        return variance.Parts(np.concatenate(each), np.array(list(map(len, each))))

    @cached_property
    def pooled(self) -> variance.Pooled:
        """The noise of the levels, then of the planes: summed up in one go."""
        members, count = zip(self.levels, self.planes, strict=True)
        parts = variance.Parts(np.concatenate(members), np.concatenate(count))
        return variance.pooled_variances(parts, self.squares, self.overlap)

    def alone(self, planes: int = 1) -> list[PatchSpectra]:
        """Return the patches of each plane, or of so many in a row, if there are any."""
        ends = np.cumsum([0, *self.count])[::planes].tolist()
        return [
            replace(
                self,
                count=self.count[k * planes : (k + 1) * planes],
                **{name: getattr(self, name)[..., start:stop] for name in ALONG},
                coefficients=self.coefficients[start:stop],
            )
            for k, (start, stop) in enumerate(itertools.pairwise(ends))
            if start < stop
        ]

    def energy_of(self, name: str) -> np.ndarray:
        """Return the sums of squares over one of `SETS`, (patch,)."""
        return self.energy[SETS.index(name)]

    def changed(self, coefficients: np.ndarray, clipped: np.ndarray) -> PatchSpectra:
        """Return patches with other coefficients."""
        sets = frequency_sets().astype(coefficients.dtype)
        energy = np.einsum("pc,sc->sp", np.square(coefficients), sets)  # OpenBLAS takes longer
        return replace(self, coefficients=coefficients, energy=energy, clipped=clipped)


def read_spectra(
    planes: Sequence[selection.Plane], limit: int | None = None, device: Any = None
) -> PatchSpectra:
    """Read about `limit` patches of 8 x 8 pixels, evenly spread over all planes of one shape.

    Those that touch what is not image are left out. With None as `limit`, `MAX_PATCHES` others are
    read. Their coefficients stay on a device that `patches_on` yields; without one they come from
    the best. ImageError if planes have fewer than 8 pixels along a side, NonFiniteError if NaN and
    infinity leave no patch whole.
    """
    if min(planes[0].pixels.shape) < PATCH:
        raise ImageError("Planes of fewer than 8 x 8 pixels are too small to tell the noise.")
    if limit is None:
        limit = selection.number_of_patches(MAX_PATCHES, planes)
    with patches_on() if device is None else nullcontext(device) as place:
        found = place.read(planes, limit)
        if found is None:
            raise NonFiniteError(FEW_PIXELS)
        if device is None:
            found["coefficients"] = np.asarray(found["coefficients"])
    return PatchSpectra(**found)


def spectra_of(image: Any) -> PatchSpectra:
    """Read patches of at most 8 planes of an image (y, x) or (..., y, x), evenly spread."""
    return read_spectra(selection.Plane.of_image(list(PlaneReader(image).sampled())))


def read_alike(
    sets: Sequence[Sequence[np.ndarray]],
    limit: int,
    blanks: list[np.ndarray | None],
    device: Any = None,
) -> list[PatchSpectra]:
    """Read the same patches of each set of planes, those finite in all, as `read_spectra`.

    Their coefficients are in memory.
    """
    size = len(blanks)
    for _ in range(2):
        pairs = (pair for each in sets for pair in zip(each, blanks, strict=True))
        planes = list(itertools.starmap(selection.Plane.of, pairs))
        read = read_spectra(planes, limit * len(sets), device)
        found = replace(read, coefficients=np.asarray(read.coefficients)).alone(size)
        alike = (np.array_equal(each.place, found[0].place) for each in found)
        if len(found) == len(sets) and all(alike):
            break
        # To look for NaN in every pixel first would take as long as all the rest.
        bad = [~np.all(np.isfinite(row), axis=0) for row in zip(*sets, strict=True)]
        blanks = [
            one if other is None else one | other for one, other in zip(bad, blanks, strict=True)
        ]
    return found  # pyright: ignore[reportPossiblyUnboundVariable]


def together(parts: Sequence[PatchSpectra]) -> PatchSpectra:
    """Return the patches of several parts, whose coefficients are in memory, as one."""
    joined = {
        name: np.concatenate([getattr(each, name) for each in parts], axis=-1) for name in ALONG
    }
    coefficients = np.concatenate([each.coefficients for each in parts])
    count = sum((each.count for each in parts), ())
    overlap = max(each.overlap for each in parts)
    return replace(parts[0], **joined, coefficients=coefficients, count=count, overlap=overlap)


METHOD = "high frequencies of the smoothest patches"


def plane_sigmas(spectra: PatchSpectra) -> np.ndarray:
    """Return sigma of each plane and its error, (plane, 2); NaN where no patch is whole."""
    found = np.full((len(spectra.count), 2), np.nan)
    variance, error, *_ = spectra.plane_noise
    sigma = np.sqrt(variance)
    found[np.flatnonzero(spectra.count)] = np.stack([sigma, sigma * error], axis=1)
    return found


def sigma_of_differences(plane: np.ndarray) -> tuple[float, float]:
    """Return sigma of a plane without whole patches, or extreme, and its error; NaN if unknown.

    They are those of differences of neighbours along both axes, in which slopes vanish; of a single
    row or column along it.
    """
    values = plane.astype(np.longdouble)
    finite = np.isfinite(values)
    if not finite.any():
        return math.nan, math.nan
    unit = max(np.abs(values[finite]).max(), np.finfo(np.float64).tiny)
    values = (np.where(finite, values, np.nan) / unit).astype(np.float64)
    terms = 1
    for axis in range(2):
        if values.shape[axis] > 1:
            values, terms = np.diff(values, axis=axis), 2 * terms
    squares = np.square(values[np.isfinite(values)]) / terms
    if terms == 1 or not squares.size:
        return 0.0, 0.0
    few = squares.size <= 64
    # The median square of a standard normal variable is 0.4549.
    variance = float(squares.mean() if few else np.median(squares) / 0.4549)
    sigma = math.sqrt(variance) * float(unit)
    return sigma, sigma * math.sqrt((1 if few else 2) * terms / squares.size)


def combined_sigma(measured: np.ndarray) -> tuple[float, float]:
    """Return sigma of all planes and its standard error, from those of each (plane, 2).

    NonFiniteError if none is known.
    """
    known = measured[np.isfinite(measured[:, 0])]
    if not len(known):
        raise NonFiniteError(FEW_PIXELS)
    # Blank planes, such as padding at the end of a stack, say nothing about the noise.
    sigma, error = (known[known[:, 0] > 0] if known[:, 0].any() else known).T
    if len(sigma) == 1:
        return float(sigma[0]), float(error[0])
    spread = max(math.sqrt((error**2).mean()), float(np.std(sigma, ddof=1)))
    # The median of n normal values has pi/2 times the variance of their mean (n large).
    return float(np.median(sigma)), spread * math.sqrt(math.pi / (2 * len(sigma)))


def planes_differ(sigma: Sequence[float], error: Sequence[float] | np.ndarray) -> bool:
    """Return whether planes clearly differ in their noise; `error` is relative.

    Planes without noise, or where it is not known, do not count.
    """
    values, errors = np.array([sigma, error])[:, np.greater(sigma, 0)]
    if len(values) < 2:
        return False
    low, high = np.quantile(values, (0.1, 0.9))
    # Texture leaves a relative error of 0.05.
    distance = np.log(values / np.median(values)) / np.hypot(errors, 0.05)
    unlike = np.sqrt((distance**2).mean()) >= limits.MIN_ERRORS_BETWEEN_PLANES
    return bool(high >= limits.MIN_SIGMA_RATIO * low and unlike)
