"""Pixels in memory on their way through a run: made finite, and extended where they are few."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from napari_gpu_denoise.errors import ImageError
from napari_gpu_denoise.image.axes import arrange
from napari_gpu_denoise.image.levels import convert
from napari_gpu_denoise.run.sigma import varies_within


@dataclass(frozen=True)
class Block:
    """A part of an image in memory.

    Attributes
    ----------
    given : ndarray
        Pixels as they are.
    finite : ndarray
        The same, each NaN or infinity replaced by the nearest finite pixel of its plane.
    nonfinite_mask : ndarray of bool, or None
        Where those were; None where there are none.
    """

    given: np.ndarray
    finite: np.ndarray
    nonfinite_mask: np.ndarray | None

    @classmethod
    def of(cls, array: np.ndarray, names: str, nonfinite: str) -> Block:
        """Return pixels with this policy for NaN and infinity: "raise" leaves them for `Levels`."""
        return cls(array, *fill_nonfinite(array, names, nonfinite))

    @property
    def nonfinite(self) -> int:
        """Number of pixels that are NaN or infinite."""
        return 0 if self.nonfinite_mask is None else int(np.count_nonzero(self.nonfinite_mask))

    def __getitem__(self, region: tuple[slice, ...]) -> Block:
        mask = None if self.nonfinite_mask is None else self.nonfinite_mask[region]
        return Block(self.given[region], self.finite[region], mask)

    def restore(self, out: np.ndarray) -> None:
        """Write the pixels that are NaN or infinite to a result of this block."""
        if self.nonfinite_mask is not None:
            out[self.nonfinite_mask] = self.given[self.nonfinite_mask]


def check_policy(nonfinite: str) -> None:
    """Refuse an unknown policy for NaN and infinity.

    Raises
    ------
    ImageError
    """
    if nonfinite not in ("raise", "keep"):
        raise ImageError(f"nonfinite={nonfinite!r} is unknown: choose 'raise' or 'keep'.")


def fill_nonfinite(
    array: np.ndarray, names: str, nonfinite: str
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the array with NaN and infinity replaced by the nearest finite pixel, and where.

    The second value is None when all pixels are finite, or are not looked at, as with "raise". A
    plane with no finite pixel becomes 0.
    """
    check_policy(nonfinite)
    if nonfinite == "raise" or array.dtype.kind != "f":
        return array, None
    mask = ~np.isfinite(array)
    if not mask.any():
        return array, None
    from scipy.ndimage import distance_transform_edt

    filled = array.copy()
    planes, holes = arrange(filled, names), arrange(mask, names)
    for t in range(planes.shape[1]):
        plane, hole = planes.frame(0, t)[0], holes.frame(0, t)[0]
        if hole.all():
            plane[...] = 0
        elif hole.any():
            nearest = distance_transform_edt(hole, return_distances=False, return_indices=True)
            plane[hole] = plane[tuple(nearest)][hole]
    return filled, mask


def extend(array: np.ndarray, names: str, lengths: Iterable[int], smallest: int) -> np.ndarray:
    """Mirror the end of Y and X where they are shorter than the filter can work on."""
    missing = [
        (0, max(smallest - n, 0) if a in "YX" else 0) for a, n in zip(names, lengths, strict=True)
    ]
    if not any(after for _, after in missing):
        return array
    return np.pad(array, missing, mode="symmetric")


def extend_sigma(
    sigma: np.ndarray, names: str, lengths: Iterable[int], smallest: int
) -> np.ndarray:
    """Mirror a map of sigma as `extend` does the pixels; what does not vary is left as it is."""
    held = [n if m > 1 else smallest for n, m in zip(lengths, sigma.shape, strict=True)]
    return extend(sigma, names, held, smallest)


def keep_noiseless(image: np.ndarray, out: np.ndarray, names: str, sigma: np.ndarray) -> None:
    """Copy the pixels whose sigma is 0 to the output: there is nothing to filter in them.

    `sigma` has the axes of the image, each of its length there or of length 1.
    """
    if sigma.all():
        return
    if not varies_within(sigma, names):
        for place in np.argwhere(sigma == 0):
            index = tuple(
                k if n > 1 else slice(None) for k, n in zip(place, sigma.shape, strict=True)
            )
            convert(image[index], out[index])
        return
    planes = [i for i, a in enumerate(names) if a not in "YX"]
    order = [*planes, names.index("Y"), names.index("X")]
    image, out, sigma = (np.transpose(a, order) for a in (image, out, sigma))
    plane = sigma[(0,) * len(planes)]
    still = np.broadcast_to(plane == 0, image.shape[-2:])
    kept = image[..., still]
    values = np.empty(kept.shape, out.dtype)
    convert(kept, values)
    out[..., still] = values
