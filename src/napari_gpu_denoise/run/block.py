"""Pixels in memory during a run: made finite, and extended if there are too few."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from napari_gpu_denoise.image.levels import convert
from napari_gpu_denoise.image.nonfinite import fill_nonfinite


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
