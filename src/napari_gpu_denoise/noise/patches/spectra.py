"""Cosine spectra of patches.

The low frequencies of a patch show how smooth it is, the high ones its noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import ImageError, NonFiniteError
from napari_gpu_denoise.noise.patches import selection, variance
from napari_gpu_denoise.noise.patches.coefficients import (
    PATCH,
    SETS,
    Squares,
    frequencies,
    frequency_order,
    frequency_sets,
)
from napari_gpu_denoise.noise.patches.device import patches_on

MAX_PATCHES = 40_000  # patches read, about: fewer miss the smoothest places of texture
ALONG = "mean", "energy", "seen", "clipped", "place"  # fields whose last axis is that of patches
MOST_CLIPPED = 0.5  # share of clipped pixels of a patch, from which it shows no noise
FEW_PIXELS = (
    "Too few finite pixels are left to estimate the noise; give the noise, or replace NaN and "
    "infinity first."
)


@dataclass(frozen=True, eq=False)
class PatchSpectra:
    """Patches of one or more planes; those with pixels that are not finite are left out.

    `coefficients` are those of an orthonormal cosine transform, first the `lows` low frequencies
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
    lows: int
    upper: np.ndarray  # (frequency,), whether it is one of the upper ones of the high frequencies

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
    def plane_noise(self) -> variance.Pooled:
        """The noise of each plane with patches, in those with the fewest clipped pixels."""
        return variance.Pooled(*(each[len(self.levels.count) :] for each in self.pooled))

    @cached_property
    def planes(self) -> variance.Parts:
        """The patches of each plane with any, those with the fewest clipped pixels, by rank."""
        order = self.statistics.order
        if len(self.count) == 1 and not self.clipped.any():
            return variance.Parts(order, np.array(self.count))
        plane = np.repeat(np.arange(len(self.count), dtype=np.uint16), self.count)
        parts = variance.grouped(plane, len(self.count), order)
        if not self.clipped.any():
            return parts
        each = [part[self.clipped[part] <= self._tolerated(part)] for part in parts.each()]
        return variance.Parts(np.concatenate(each), np.array(list(map(len, each))))

    def _tolerated(self, part: np.ndarray) -> float:
        """Return the share of clipped pixels up to which patches of a plane are used.

        All are where clipping is everywhere: extremes of a mask, or a drawing, are what there is.
        """
        share = np.sort(self.clipped[part])[: variance.FIRST_PATCHES][-1]
        return float(share) if share <= MOST_CLIPPED else 1.0

    @cached_property
    def pooled(self) -> variance.Pooled:
        """The noise of the levels, then of the planes: summed up in one go."""
        members, count = zip(self.levels, self.planes, strict=True)
        parts = variance.Parts(np.concatenate(members), np.concatenate(count))
        return variance.pooled_variances(parts, self.statistics.energy, self.overlap)

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
            for k, (start, stop) in enumerate(pairwise(ends))
            if start < stop
        ]

    def energy_of(self, name: str) -> np.ndarray:
        """Return the sums of squares over one of `SETS`, (patch,)."""
        return self.energy[SETS.index(name)]

    def relative(self, name: str, line: np.ndarray) -> np.ndarray:
        """Return the same over a line (patch,), in the type of the sums."""
        dtype = self.energy.dtype
        return np.minimum(self.energy_of(name) / line, np.finfo(dtype).max).astype(dtype)

    def changed(self, coefficients: np.ndarray, clipped: np.ndarray) -> PatchSpectra:
        """Return patches with other coefficients."""
        sets = frequency_sets(self.lows, coefficients.shape[1]).astype(coefficients.dtype)
        energy = np.einsum("pc,sc->sp", np.square(coefficients), sets)  # OpenBLAS takes longer
        return replace(self, coefficients=coefficients, energy=energy, clipped=clipped)


def read_spectra(
    planes: list[np.ndarray],
    limit: int | None = None,
    blanks: Sequence[np.ndarray | None] | None = None,
    levels: Sequence[list] | None = None,
    device: Any = None,
) -> PatchSpectra:
    """Read about `limit` patches of 8 x 8 pixels, evenly spread over all planes of one shape.

    Those that touch what is not image are left out: `blanks`, if `not_image` was asked before, and
    `levels`, if `clipping_levels` was. With None as `limit`, `MAX_PATCHES` others are read. Their
    coefficients stay on a device that `patches_on` yields; without one they come from the best.
    ImageError if planes have fewer than 8 pixels along a side, NonFiniteError if NaN and infinity
    leave no patch whole.
    """
    if min(planes[0].shape) < PATCH:
        raise ImageError("Planes of fewer than 8 x 8 pixels are too small to tell the noise.")
    blanks = selection.not_image(planes) if blanks is None else blanks
    if limit is None:
        limit = selection.number_of_patches(MAX_PATCHES, blanks)
    if levels is None:
        levels = list(map(selection.clipping_levels, planes, blanks))
    if device is not None:
        found = device.read(planes, limit, blanks, levels)
    else:
        with patches_on() as place:
            found = place.read(planes, limit, blanks, levels)
            found = found and found | {"coefficients": np.asarray(found["coefficients"])}
    if found is None:
        raise NonFiniteError(FEW_PIXELS)
    shape = PATCH, PATCH
    lows, *_ = frequency_order(shape)
    return PatchSpectra(**found, lows=len(lows), upper=frequencies(shape)[2])


def read_alike(
    sets: Sequence[Sequence[np.ndarray]], limit: int, blanks: list[np.ndarray | None]
) -> list[PatchSpectra]:
    """Read the same patches of each set of planes, those finite in all, as `read_spectra`."""
    planes, size = [plane for each in sets for plane in each], len(blanks)
    for _ in range(2):
        found = read_spectra(planes, limit * len(sets), blanks * len(sets)).alone(size)
        alike = (np.array_equal(each.place, found[0].place) for each in found)
        if len(found) == len(sets) and all(alike):
            break
        # To look for NaN in every pixel first would take as long as all the rest.
        bad = [~np.isfinite(row).all(axis=0) for row in zip(*sets, strict=True)]
        blanks = [
            one if other is None else one | other for one, other in zip(bad, blanks, strict=True)
        ]
    return found


def together(parts: Sequence[PatchSpectra]) -> PatchSpectra:
    """Return the patches of several parts, whose coefficients are in memory, as one."""
    joined = {
        name: np.concatenate([getattr(each, name) for each in parts], axis=-1) for name in ALONG
    }
    coefficients = np.concatenate([each.coefficients for each in parts])
    count = sum((each.count for each in parts), ())
    overlap = max(each.overlap for each in parts)
    return replace(parts[0], **joined, coefficients=coefficients, count=count, overlap=overlap)
