"""The noise of frames, as those need it who cut them into tiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from napari_gpu_denoise.image.axes import Frames, arrange
from napari_gpu_denoise.image.levels import LARGEST_VALUE
from napari_gpu_denoise.run.tiles import Tile


@dataclass(frozen=True)
class FrameSigma:
    """Noise standard deviation of frames, in grey levels, for those who cut them into tiles.

    Attributes
    ----------
    frames : Frames
        Sigma of every pixel, float64, arranged as the pixels are; nothing is copied.
    level : float or None
        Of a map, the value it is relative to: the largest one of the whole array, be the
        frames a part of it or not, so that rounding does not depend on how the array is cut. None
        where sigma does not vary within a plane.
    numbers : Frames or None
        Which of several models of noise a pixel belongs to, arranged as `frames`; None for one.
    """

    frames: Frames
    level: float | None
    numbers: Frames | None = None

    @classmethod
    def of(
        cls,
        sigma: Any,
        shape: tuple[int, ...],
        axes: str,
        joint: str = "",
        origin: tuple[int, int, int, int] = (0, 0, 0, 0),
        level: float | None = None,
        numbers: np.ndarray | None = None,
    ) -> FrameSigma:
        """Arrange sigma as the array it belongs to.

        Parameters
        ----------
        sigma : array_like
            Grey levels; broadcasts to `shape`, as ``Sigma.array`` does.
        shape, axes, joint, origin
            Shape of the array, and what `arrange` was given for it.
        level : float, optional
            Where this is a part of a map, the largest value of the whole.
        numbers : array_like, optional
            As ``Sigma.numbers``.
        """
        sigma = np.asarray(sigma, np.float64)
        frames = arrange(np.broadcast_to(sigma, shape), axes, joint, origin)
        lengths, strides = frames.view.shape[-2:], frames.view.strides[-2:]
        if level is None and any(n > 1 and s for n, s in zip(lengths, strides, strict=True)):
            level = float(sigma.max())
        if numbers is not None:
            numbers = arrange(np.broadcast_to(numbers, shape), axes, joint, origin)
        return cls(frames, level, numbers)

    @property
    def is_map(self) -> bool:
        """Whether sigma varies within a plane; it is then the same in all planes."""
        return self.level is not None

    def levels(self, tile: Tile, scale: float) -> np.ndarray:
        """Return sigma of the frames a tile yields, in units of `scale` grey levels.

        Returns
        -------
        ndarray of float32, shape (channels, nt * nz)
            Of a map, `level` for each frame.
        """
        values = np.array(self.level) if self.is_map else _of_frames(self.frames, tile)
        shape = (tile.channels, tile.t.size * tile.z.size)
        # More than any image varies by is all the same to a filter, but must not become infinite.
        values = np.minimum(values, LARGEST_VALUE * scale) / scale
        return np.broadcast_to(values, shape).astype(np.float32)

    def models(self, tile: Tile) -> np.ndarray:
        """Return which model of noise each frame has that a tile yields.

        Returns
        -------
        ndarray of int32, shape (channels, nt * nz)
        """
        shape = (tile.channels, tile.t.size * tile.z.size)
        if self.numbers is None:
            return np.zeros(shape, np.int32)
        return _of_frames(self.numbers, tile).astype(np.int32)

    def variation(self, tile: Tile) -> np.ndarray | None:
        """Return the map over what a tile reads, relative to `level`; None where sigma is no map.

        Returns
        -------
        ndarray of float32, shape (source ny, source nx), or None
            From 0 to 1.
        """
        if not self.is_map:
            return None
        spans = (tile.z, tile.y, tile.x)
        region = self.frames.region(*(slice(s.source_start, s.source_stop) for s in spans))
        plane = self.frames.frame(tile.sequence, tile.t.source_start)[region][0]
        return np.ascontiguousarray(plane / self.level, np.float32)


def _of_frames(frames: Frames, tile: Tile) -> np.ndarray:
    """Return the first pixel of each frame that a tile yields, (channels, nt * nz)."""
    values = np.empty((tile.channels, tile.t.size, tile.z.size))
    first = frames.origin[1]
    slices = slice(tile.z.start - first, tile.z.stop - first)
    for c in range(tile.channels):
        for k, t in enumerate(range(tile.t.start, tile.t.stop)):
            values[c, k] = frames.frame(tile.sequence, t, c)[slices, 0, 0]
    return values.reshape(tile.channels, -1)
