"""What is known of one frame of a video before it is filtered: its noise, and its brightness."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from napari_gpu_denoise.image.flicker import block_means, block_pixels
from napari_gpu_denoise.image.levels import Levels


@dataclass(frozen=True)
class FrameNote:
    """What is known of one frame before it is filtered.

    Attributes
    ----------
    sigma : ndarray of float64, shape (channels * nz,)
        Noise standard deviation in units of the pixels; 0 where there is nothing to filter.
    means : ndarray of float64, shape (channels, blocks), or None
        Means of blocks of the frame; None where brightness is not to be compared.
    block_pixels : float
        Pixels that each mean is of.
    first_slice : int
        Which slice of the volume `sigma` begins with.
    models : ndarray of int, shape (channels,)
        Which model of noise each channel has.
    """

    sigma: np.ndarray
    means: np.ndarray | None = None
    block_pixels: float = 1.0
    first_slice: int = 0
    models: np.ndarray | None = None

    @property
    def empty(self) -> bool:
        """Whether the frame comes back as it is, and serves no other."""
        return not np.any(self.sigma > 0)


def note_frame(
    planes: list[np.ndarray], sigma: np.ndarray, levels: Levels, *, brightness: bool
) -> FrameNote:
    """Look at a frame before it is filtered.

    Parameters
    ----------
    planes : list of ndarray, shape (nz, ny, nx)
        Grey levels of the whole frame, one array a channel.
    sigma : ndarray, shape (channels * nz,)
        Noise standard deviation in units of the pixels.
    levels : Levels
        How grey levels become pixels.
    brightness : bool
        Whether its brightness is to be compared with that of other frames.
    """
    if planes[0].shape[0] > 1:
        # What is known of a volume must not depend on which of its slices are at hand.
        return FrameNote(sigma)
    if all(map(_is_constant, planes)):
        # A frame that was dropped: no pattern, no noise, and nothing to learn from it.
        return FrameNote(np.zeros(np.shape(sigma)))
    if not brightness:
        return FrameNote(sigma)
    means = np.array([block_means(plane[0]) for plane in planes], np.float64)
    means = (means - float(levels.offset)) / levels.scale
    return FrameNote(sigma, means, block_pixels(planes[0].shape[-2:]))


def _is_constant(plane: np.ndarray) -> bool:
    first = plane[0, 0, 0]
    # A few pixels tell nearly always.
    few = plane[:, :: max(1, plane.shape[1] // 8), :: max(1, plane.shape[2] // 8)]
    return bool(np.all(few == first)) and bool(np.all(plane == first))
