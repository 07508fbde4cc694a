"""Noise and brightness of a frame of a video, measured before it is filtered."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from napari_gpu_denoise.image.flicker import block_means, block_pixels
from napari_gpu_denoise.image.levels import Levels

_MOST_SLICES = 16  # of a volume, whose brightness is compared
_MOST_ROWS = 16  # of a plane, by which frames are told apart
_TELLING = 256  # block means tell frames apart if there are so many


@dataclass(frozen=True)
class FrameNote:
    """What is known about a frame before it is filtered.

    `sigma`, float64 of shape (channels * nz,), is in units of the pixels, 0 if there is nothing to
    filter; `first_slice` is the slice of the volume that it begins with. `means`, (channels,
    blocks), are averages over `block_pixels`, None if brightness is not compared. `models` has the
    index of the noise model of each channel. Of frames that are stored twice the `digest` is the
    same; None if it would tell nothing.
    """

    sigma: np.ndarray
    means: np.ndarray | None = None
    block_pixels: float = 1.0
    first_slice: int = 0
    models: np.ndarray | None = None
    digest: bytes | None = None

    @property
    def empty(self) -> bool:
        """Whether the frame is returned as it is, and no other frame uses it."""
        return not np.any(self.sigma > 0)


def note_frame(
    planes: list[np.ndarray],
    sigma: np.ndarray,
    levels: Levels,
    *,
    brightness: bool,
    whole: bool = False,
) -> FrameNote:
    """Measure a whole frame, given as one array (nz, ny, nx) of grey levels per channel.

    `levels` maps grey levels to pixels, `sigma` is in units of pixels, of shape (channels * nz,);
    `brightness` says whether to compare brightness with other frames, `whole` that of volumes all
    slices are given.
    """
    slices = planes[0].shape[0]
    if slices > 1 and not whole:
        # What is known about a volume must not depend on which of its slices are in memory.
        return FrameNote(sigma)
    if all(map(_is_constant, planes)):
        # A dropped frame, of one grey level: there is nothing to filter.
        return FrameNote(np.zeros(np.shape(sigma)))
    read = [slices * k // min(slices, _MOST_SLICES) for k in range(min(slices, _MOST_SLICES))]
    if not brightness:
        return FrameNote(sigma, digest=_digest(planes, read))
    means = np.array([_mean([block_means(plane[z]) for z in read]) for plane in planes])
    told = means.shape[1] >= _TELLING and bool((means != means[:, :1]).any())
    # That they agree by chance is out of the question: each averages at least 16 noisy pixels.
    digest = means.tobytes() if told else _digest(planes, read)
    means = (means - float(levels.offset)) / levels.scale
    pixels = len(read) * block_pixels(planes[0].shape[-2:])
    return FrameNote(sigma, means, pixels, digest=digest)


def _mean(means: list[np.ndarray]) -> np.ndarray:
    """Return the mean of arrays."""
    return means[0] if len(means) == 1 else np.mean(means, axis=0)


def _digest(planes: list[np.ndarray], slices: list[int]) -> bytes | None:
    """Return what tells frames apart, from some of their rows: no two hold the same noise."""
    step = -(-planes[0].shape[1] // _MOST_ROWS)
    parts = [np.ascontiguousarray(plane[z, ::step]) for plane in planes for z in slices]
    if all(np.all(part == part.flat[0]) for part in parts):
        return None
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        found.update(part)
    return found.digest()


def _is_constant(plane: np.ndarray) -> bool:
    first = plane[0, 0, 0]
    # A few pixels nearly always suffice.
    few = plane[:, :: max(1, plane.shape[1] // 8), :: max(1, plane.shape[2] // 8)]
    return bool(np.all(few == first)) and bool(np.all(plane == first))
