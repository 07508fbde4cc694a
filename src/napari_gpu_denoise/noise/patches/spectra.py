"""Cosine spectra of patches.

The low frequencies of a patch show how smooth it is, the high ones its noise.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from napari_gpu_denoise.errors import NonFiniteError
from napari_gpu_denoise.noise.patches.blank import not_image, number_of_patches
from napari_gpu_denoise.noise.patches.products import times
from napari_gpu_denoise.noise.patches.selection import clipping_levels, read_patches
from napari_gpu_denoise.noise.patches.variance import PatchStatistics
from napari_gpu_denoise.noise.patches.white import MAX_PATCHES, PATCH, frequencies


class PatchSpectra(NamedTuple):
    """Patches of one or more planes; those with pixels that are not finite are left out."""

    mean: np.ndarray  # (patch,), grey levels
    low: np.ndarray  # (patch, frequency), orthonormal coefficients; without the mean
    high: np.ndarray  # (patch, frequency)
    upper: np.ndarray  # (frequency,), whether it is one of the upper ones of the high frequencies
    clipped: np.ndarray  # (patch,), share of clipped pixels
    overlap: float  # how many patches share a pixel
    place: np.ndarray  # (patch, 2), y and x of the middle, from 0 to 1 over the plane

    @property
    def statistics(self) -> PatchStatistics:
        """The same patches, the low frequencies of each reduced to one number."""
        rank = np.square(self.low).sum(axis=1)
        energy = np.square(self.high)
        return PatchStatistics(self.mean, rank, energy, self.upper, self.clipped, self.overlap)


def read_spectra(
    planes: list[np.ndarray],
    limit: int | None = None,
    blanks: list[np.ndarray | None] | None = None,
) -> PatchSpectra:
    """Read about `limit` patches of 8 x 8 pixels, evenly spread over all planes.

    Those that touch what is not image are left out: `blanks`, if `not_image` was asked before. With
    None as `limit`, `MAX_PATCHES` others are read.
    NonFiniteError if NaN or infinity leave none.
    """
    blanks = not_image(planes) if blanks is None else blanks
    limit = number_of_patches(MAX_PATCHES, blanks) if limit is None else limit
    both = list(zip(planes, blanks, strict=True))
    # Scattered non-finite pixels may leave no large patch whole, but still smaller ones.
    for size in (PATCH, PATCH // 2, PATCH // 4):
        parts = [_plane_spectra(plane, size, limit // len(planes), blank) for plane, blank in both]
        parts = [part for part in parts if part is not None]
        if parts:
            break
    else:
        raise NonFiniteError(
            "NaN or infinite pixels leave nothing to estimate the noise from; "
            "give the noise, or replace those pixels first."
        )
    mean, low, high, _, clipped, overlap, place = zip(*parts, strict=True)
    return PatchSpectra(
        *(np.concatenate(each) for each in (mean, low, high)),
        parts[0].upper,
        np.concatenate(clipped),
        max(overlap),
        np.concatenate(place),
    )


def _plane_spectra(
    plane: np.ndarray, size: int, limit: int, blank: np.ndarray | None
) -> PatchSpectra | None:
    patches, shape, overlap, place = read_patches(plane, size, limit, blank)
    if not len(patches):
        return None
    low, high, upper = frequencies(shape)
    if not len(high):  # single pixels: nothing to compare them with
        high, upper = np.zeros((1, patches.shape[1])), np.ones(1, bool)
    clipped = np.zeros(len(patches))
    for level in clipping_levels(plane, blank):
        clipped += np.mean(patches == level, axis=1)
    values = patches.astype(np.float64)
    differences = values - values[:, :1]  # small numbers, whatever the level of the patch
    return PatchSpectra(
        values.mean(axis=1),
        times(differences, low.T),
        times(differences, high.T),
        upper,
        clipped,
        overlap,
        (place + np.array(shape) / 2) / plane.shape,
    )
