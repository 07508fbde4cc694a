"""Cosine spectra of patches.

The low frequencies of a patch show how smooth it is, the high ones its noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import NonFiniteError
from napari_gpu_denoise.noise.patches import selection, variance
from napari_gpu_denoise.noise.patches.coefficients import Squares, matmul_in_blocks, transformed
from napari_gpu_denoise.noise.patches.white import MAX_PATCHES, PATCH, frequencies, frequency_order


@dataclass(frozen=True, eq=False)
class PatchSpectra:
    """Patches of one or more planes; those with pixels that are not finite are left out.

    `coefficients` are those of an orthonormal cosine transform, first the `lows` low frequencies
    without the mean, then the high ones.
    """

    mean: np.ndarray  # (patch,), grey levels
    # (patch, frequency), float32, or float64 where these are extreme; or `DeviceCoefficients`.
    coefficients: Any
    energy: np.ndarray  # (set, patch), sums of squares over the frequencies of each of `SETS`
    seen: np.ndarray  # (patch,), mean grey levels as the high frequencies see them
    lows: int
    upper: np.ndarray  # (frequency,), whether it is one of the upper ones of the high frequencies
    clipped: np.ndarray  # (patch,), share of clipped pixels
    overlap: float  # how many patches share a pixel
    place: np.ndarray  # (2, patch), y and x of the middle, from 0 to 1 over the plane

    @property
    def whole(self) -> bool:
        """Whether patches have 8 x 8 pixels."""
        return self.coefficients.shape[1] == PATCH**2 - 1

    @property
    def low(self) -> np.ndarray:
        """Coefficients of the low frequencies, (patch, frequency), float64."""
        return np.asarray(self.coefficients)[:, : self.lows].astype(np.float64)

    @property
    def high(self) -> np.ndarray:
        """Coefficients of the high frequencies, (patch, frequency), float64."""
        return np.asarray(self.coefficients)[:, self.lows :].astype(np.float64)

    @cached_property
    def statistics(self) -> variance.PatchStatistics:
        """The same patches, the low frequencies of each reduced to one number."""
        squares, low = Squares(self.coefficients, self.lows), self.energy_of("low")
        return variance.PatchStatistics(
            self.mean, low, squares, self.upper, self.clipped, self.overlap
        )

    @cached_property
    def levels(self) -> variance.Parts:
        """Levels of the brightness that the high frequencies see, smooth patches first."""
        return variance.brightness_levels(self.seen, order=self.statistics.order)

    @cached_property
    def level_noise(self) -> variance.LevelNoise:
        """The noise of these levels."""
        return variance.level_noise(self.statistics, self.levels, self.seen, self.pooled)

    @property
    def every(self) -> tuple[float, float] | None:
        """Noise variance of all patches, and its error; None where pixels are clipped."""
        if len(self.pooled.variance) == len(self.levels.count):
            return None
        return float(self.pooled.variance[-1]), float(self.pooled.error[-1])

    @cached_property
    def pooled(self) -> variance.Pooled:
        """The noise of the levels, and unless pixels are clipped last of all patches, in one go."""
        parts, patches = self.levels, self.statistics
        if not self.clipped.any():
            members = np.concatenate([parts.members, patches.order])
            parts = variance.Parts(members, np.append(parts.count, len(patches.order)))
        return variance.pooled_variances(parts, patches.energy, patches.overlap)

    def energy_of(self, name: str) -> np.ndarray:
        """Return the sums of squares over one of `SETS`, (patch,)."""
        return self.energy[SETS.index(name)]

    def relative(self, name: str, line: np.ndarray) -> np.ndarray:
        """Return the same over a line (patch,), in the type of the sums."""
        dtype = self.energy.dtype
        return np.minimum(self.energy_of(name) / line, np.finfo(dtype).max).astype(dtype)

    def changed(self, coefficients: np.ndarray, clipped: np.ndarray) -> PatchSpectra:
        """Return patches with other coefficients."""
        sets = frequency_sets(self.lows, coefficients.shape[1]).T.astype(coefficients.dtype)
        energy = np.ascontiguousarray(matmul_in_blocks(np.square(coefficients), sets).T)
        return replace(self, coefficients=coefficients, energy=energy, clipped=clipped)


# Sets of frequencies whose energy is known: low and high ones; those that rank patches where
# texture is subtracted (`RANKS`); and two halves that both hold frequencies along y, along x, and
# across.
SETS = "low", "high", "ranks", "half", "rest"
# Frequencies (j, k) are sorted by j + k. Up to LOW they measure how smooth a patch is; up to
# DEALT those with an odd smaller number do, the others are read; above, all are read.
LOW = 4
DEALT = 7


@cache
def frequency_sets(lows: int, number: int) -> np.ndarray:
    """Return a mask of the coefficients in each of `SETS`, (set, coefficient)."""
    low = np.arange(number) < lows
    if number != PATCH**2 - 1:
        return np.array([low, ~low, low, low, ~low])
    j, k = np.divmod(np.concatenate(frequency_order((PATCH, PATCH))), PATCH)
    ranks = (j + k <= LOW) | ((j + k <= DEALT) & (np.minimum(j, k) % 2 == 1))
    half = np.where(k > j, k % 2 == 1, j % 2 == 0)
    return np.array([low, ~low, ranks, half, ~half])


@lru_cache(maxsize=1)
def weights() -> np.ndarray:
    """Return the weights of coefficients in the mean that each frequency sees, (63, 63).

    A cosine of a high frequency is weak in the corners of a patch, so of the noise of a bright spot
    there it sees little. What it sees of noise that grows linearly with brightness is the same as
    in a patch whose mean is weighted by the squared cosine; that is linear in the coefficients.
    """
    basis = np.concatenate(frequencies((PATCH, PATCH))[:2])
    return np.square(basis) @ basis.T


def read_spectra(
    planes: list[np.ndarray],
    limit: int | None = None,
    blanks: list[np.ndarray | None] | None = None,
    levels: list[list] | None = None,
    device: Any = None,
) -> PatchSpectra:
    """Read about `limit` patches of 8 x 8 pixels, evenly spread over all planes.

    Those that touch what is not image are left out: `blanks`, if `not_image` was asked before, and
    `levels`, if `clipping_levels` was. With None as `limit`, `MAX_PATCHES` others are read. Where
    `device` is given, as `patches_on` yields it, they are read there if they can be. NonFiniteError
    if NaN or infinity leave none.
    """
    blanks = selection.not_image(planes) if blanks is None else blanks
    limit = selection.number_of_patches(MAX_PATCHES, blanks) if limit is None else limit
    if levels is None:
        levels = list(map(selection.clipping_levels, planes, blanks))
    found = None if device is None else device.read(planes, limit, blanks, levels)
    if found is not None:
        return found
    each = list(zip(planes, blanks, levels, strict=True))
    # Scattered non-finite pixels may leave no large patch whole, but still smaller ones.
    for size in (PATCH, PATCH // 2, PATCH // 4):
        parts = [_plane_spectra(*one, size, limit // len(planes)) for one in each]
        parts = [part for part in parts if part is not None]
        if parts:
            break
    else:
        raise NonFiniteError(
            "Too few finite pixels are left to estimate the noise; give the noise, or replace NaN "
            "and infinity first."
        )
    return together(parts)


def read_alike(
    sets: Sequence[Sequence[np.ndarray]], limit: int, blanks: list[np.ndarray | None]
) -> list[PatchSpectra]:
    """Read the same patches of each set of planes, those finite in all, as `read_spectra` does."""
    found = [read_spectra(list(planes), limit, blanks) for planes in sets]
    if all(np.array_equal(each.place, found[0].place) for each in found[1:]):
        return found
    # To look for NaN in every pixel first would take as long as all the rest.
    bad = [~np.isfinite(row).all(axis=0) for row in zip(*sets, strict=True)]
    bad = [one if other is None else one | other for one, other in zip(bad, blanks, strict=True)]
    return [read_spectra(list(planes), limit, bad) for planes in sets]


def together(parts: Sequence[PatchSpectra]) -> PatchSpectra:
    """Return the patches of several parts as one."""
    if len(parts) == 1:
        return parts[0]
    axes = {"mean": 0, "coefficients": 0, "energy": 1, "seen": 0, "clipped": 0, "place": 1}
    joined = {
        name: np.concatenate([getattr(each, name) for each in parts], axis)
        for name, axis in axes.items()
    }
    return replace(parts[0], **joined, overlap=max(each.overlap for each in parts))


def _plane_spectra(
    plane: np.ndarray, blank: np.ndarray | None, levels: list, size: int, limit: int
) -> PatchSpectra | None:
    patches, shape, overlap, place = selection.read_patches(plane, size, limit, blank)
    if not len(patches):
        return None
    low, high, upper = frequencies(shape)
    if not len(high):  # single pixels: nothing to compare them with
        high, upper = np.zeros((1, patches.shape[1])), np.ones(1, bool)
    matrix = np.concatenate([low, high])
    sight = weights()[len(low) :].mean(axis=0) if shape == (PATCH, PATCH) else None
    found = transformed(patches, matrix, frequency_sets(len(low), len(matrix)), sight)
    return PatchSpectra(
        *found,
        len(low),
        upper,
        selection.clipped_shares(patches, levels),
        overlap,
        ((place + np.array(shape) / 2) / plane.shape).T,
    )
