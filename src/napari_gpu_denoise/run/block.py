"""Pixels in memory during a run: made finite, and extended if there are too few."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from napari_gpu_denoise.image.axes import arrange
from napari_gpu_denoise.image.levels import convert, fill_nonfinite


@dataclass(frozen=True)
class Block:
    """A part of an image in memory, as it is and with only `finite` pixels.

    NaN and infinity, if any, are replaced by the nearest finite pixel of the plane where
    `nonfinite_mask` is True.
    """

    given: np.ndarray
    finite: np.ndarray
    nonfinite_mask: np.ndarray | None

    @classmethod
    def of(cls, array: np.ndarray, names: str, nonfinite: str) -> Block:
        """Return a block; with "raise" as `nonfinite`, NaN is left for `Levels` to refuse."""
        return cls(array, *fill_nonfinite(array, names, nonfinite))

    @property
    def nonfinite(self) -> int:
        """Number of pixels that are NaN or infinite."""
        return 0 if self.nonfinite_mask is None else int(np.count_nonzero(self.nonfinite_mask))

    def __getitem__(self, region: tuple[slice, ...]) -> Block:
        mask = None if self.nonfinite_mask is None else self.nonfinite_mask[region]
        return Block(self.given[region], self.finite[region], mask)

    def measurable(self, names: str) -> np.ndarray:
        """Return the pixels to measure noise on: as given, but planes without a finite one are 0.

        `names` are the axes of the block.
        """
        if self.nonfinite_mask is None:
            return self.given
        plane = names.index("Y"), names.index("X")
        empty = self.nonfinite_mask.all(axis=plane, keepdims=True)
        return np.where(empty, self.finite, self.given) if empty.any() else self.given

    def restore(self, out: np.ndarray) -> None:
        """Copy NaN and infinity to a result of this block."""
        if self.nonfinite_mask is not None:
            out[self.nonfinite_mask] = self.given[self.nonfinite_mask]


def extend(array: np.ndarray, names: str, lengths: Iterable[int], smallest: int) -> np.ndarray:
    """Extend Y and X by mirroring their end if they are too short for the filter."""
    missing = [
        (0, max(smallest - n, 0) if a in "YX" else 0) for a, n in zip(names, lengths, strict=True)
    ]
    if not any(after for _, after in missing):
        return array
    return np.pad(array, missing, mode="symmetric")


def extend_sigma(
    sigma: np.ndarray, names: str, lengths: Iterable[int], smallest: int
) -> np.ndarray:
    """Extend a map of sigma as `extend` does the pixels; axes of length 1 stay as they are."""
    held = [n if m > 1 else smallest for n, m in zip(lengths, sigma.shape, strict=True)]
    return extend(sigma, names, held, smallest)


def keep_noiseless(image: np.ndarray, out: np.ndarray, names: str, sigma: np.ndarray) -> None:
    """Copy the pixels whose sigma, as ``Sigma.array``, is 0 to the output: they have no noise."""
    if sigma.all():
        return
    noiseless = np.broadcast_to(sigma == 0, image.shape)
    kept = image[noiseless]
    values = np.empty(kept.shape, out.dtype)
    convert(kept, values)
    out[noiseless] = values


def keep_blank(
    image: np.ndarray, out: np.ndarray, inner: tuple[slice, ...], names: str, width: int
) -> None:
    """Copy pixels in constant squares of a width, if above 0, to the output: they are not image.

    `out` is for the region `inner` of the image. Squares are found as in the whole image if at
    least `width` - 1 pixels around that region are given, where there are as many.
    """
    if not width:
        return
    from napari_gpu_denoise.noise.patches.selection import constant_squares

    results = arrange(out, names)
    y, x = (inner[names.index(axis)] for axis in "YX")
    both = zip(names, inner, strict=True)
    others = tuple(slice(None) if axis in "YX" else one for axis, one in both)
    planes = arrange(image[others], names)
    for t in range(planes.shape[1]):
        plane, result = planes.frame(0, t)[0], results.frame(0, t)[0]
        found = constant_squares(plane, width)
        if found is not None:
            kept = found[y, x]
            values = np.empty(int(np.count_nonzero(kept)), out.dtype)
            convert(plane[y, x][kept], values)
            result[kept] = values
