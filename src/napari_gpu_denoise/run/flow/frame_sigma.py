"""The noise of frames, as the code that cuts them into tiles needs it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from napari_gpu_denoise.image.axes import Frames, arrange
from napari_gpu_denoise.image.levels import LARGEST_VALUE
from napari_gpu_denoise.run.tiles import Tile


@dataclass(frozen=True)
class FrameSigma:
    """Noise standard deviation of frames, in grey levels.

    `frames` has sigma of every pixel, float64, arranged as the pixels are, without a copy, and
    `numbers` the index of the noise model of each pixel, None if there is only one. If sigma is a
    map, `largest` has the values it is relative to, else None: the largest of each whole plane,
    even if the frames are a part of it, so that rounding does not depend on how the array is cut.
    """

    frames: Frames
    largest: Frames | None
    numbers: Frames | None = None

    @classmethod
    def of(
        cls,
        sigma: Any,
        shape: tuple[int, ...],
        axes: str,
        joint: str = "",
        origin: tuple[int, int, int, int] = (0, 0, 0, 0),
        largest: np.ndarray | None = None,
        numbers: np.ndarray | None = None,
    ) -> FrameSigma:
        """Arrange sigma, which broadcasts to `shape`, as the array it belongs to.

        `axes`, `joint` and `origin` are those of `arrange`; `largest` is what `largest_in_planes`
        returned for the whole map if this is a part of one; `numbers` is as in `Sigma`.
        """
        sigma = np.asarray(sigma, np.float64)
        frames = arrange(np.broadcast_to(sigma, shape), axes, joint, origin)
        lengths, strides = frames.view.shape[-2:], frames.view.strides[-2:]
        if largest is None and any(n > 1 and s for n, s in zip(lengths, strides, strict=True)):
            largest = largest_in_planes(sigma, axes)
        others = (
            None if each is None else arrange(np.broadcast_to(each, shape), axes, joint, origin)
            for each in (largest, numbers)
        )
        return cls(frames, *others)

    @property
    def is_map(self) -> bool:
        """Whether sigma varies within a plane; it then does so alike in all planes."""
        return self.largest is not None

    def levels(self, tile: Tile, unit: float) -> np.ndarray:
        """Return sigma of the frames that a tile yields, float32, shape (channels, nt * nz).

        It is in units of `unit` grey levels; of a map it is the largest one of each frame.
        """
        return _bounded(_of_frames(self.largest or self.frames, tile), unit)

    def read_levels(self, tile: Tile, unit: float) -> np.ndarray:
        """Return sigma of the frames that a tile reads, as `levels` otherwise."""
        t, z = (replace(s, start=s.source_start, stop=s.source_stop) for s in (tile.t, tile.z))
        return self.levels(replace(tile, t=t, z=z), unit)

    def models(self, tile: Tile) -> np.ndarray:
        """Return the noise model of the frames that a tile yields, int32, as `levels` otherwise."""
        if self.numbers is None:
            return np.zeros((tile.channels, tile.t.size * tile.z.size), np.int32)
        return _of_frames(self.numbers, tile).astype(np.int32)

    def of_frame(self, sequence: int, t: int, unit: float) -> tuple[np.ndarray, np.ndarray]:
        """Return sigma of a whole frame as `FrameNote` has it, and the model of each channel."""
        sigma, models = self.largest or self.frames, self.numbers
        planes = [sigma.frame(sequence, t, c)[:, 0, 0] for c in range(self.frames.joined)]
        values = _bounded(np.concatenate(planes), unit).astype(np.float64)
        if models is None:
            return values, np.zeros(self.frames.joined, np.int32)
        numbers = [models.frame(sequence, t, c)[0, 0, 0] for c in range(self.frames.joined)]
        return values, np.array(numbers, np.int32)

    def variation(self, tile: Tile) -> np.ndarray | None:
        """Return the map over what a tile reads, relative to `largest`; None if sigma is no map.

        It is float32 of shape (source ny, source nx), from 0 to 1.
        """
        if not self.is_map:
            return None
        at = tile.sequence, tile.t.source_start
        region = self.frames.region(*tile.source_region)
        tops = [self.largest.frame(*at, c)[0, 0, 0] for c in range(tile.channels)]
        channel = int(np.argmax(tops))  # others may be without noise
        plane = self.frames.frame(*at, channel)[region][0]
        return np.ascontiguousarray(plane / (tops[channel] or 1.0), np.float32)


def largest_in_planes(sigma: np.ndarray, axes: str) -> np.ndarray:
    """Return the largest sigma of each plane, with Y and X of length 1."""
    planes = tuple(axes.index(axis) - len(axes) for axis in "YX")
    return sigma.max(axis=planes, keepdims=True)


def _bounded(values: np.ndarray, unit: float) -> np.ndarray:
    """Return sigma in units of `unit`, float32."""
    # Larger values would act the same, but must not become infinite.
    return (np.minimum(values, LARGEST_VALUE * unit) / unit).astype(np.float32)


def _of_frames(frames: Frames, tile: Tile) -> np.ndarray:
    """Return the first pixel of each frame that a tile yields, (channels, nt * nz)."""
    values = np.empty((tile.channels, tile.t.size, tile.z.size))
    first = frames.origin[1]
    slices = slice(tile.z.start - first, tile.z.stop - first)
    for c in range(tile.channels):
        for k, t in enumerate(range(tile.t.start, tile.t.stop)):
            values[c, k] = frames.frame(tile.sequence, t, c)[slices, 0, 0]
    return values.reshape(tile.channels, -1)
