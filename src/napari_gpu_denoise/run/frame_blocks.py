"""Frames as few arrays, so that many small ones are one copy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from napari_gpu_denoise.image.axes import Frames


def frame_blocks(
    frames: Frames, sequence: int, start: int, stop: int, channel: int, most: int | None = None
) -> Iterator[tuple[int, np.ndarray]]:
    """See the frames from time `start` to `stop` as few arrays: many small frames are one copy.

    Parameters
    ----------
    frames : Frames
        Any frames.
    sequence, start, stop, channel : int
        Which of them, as `Frames.frame` takes them.
    most : int, optional
        Most frames a block.

    Yields
    ------
    int, ndarray
        How many frames came before, and a view of the next ones, (count, nz, ny, nx).
    """
    # Frames lie along time, or along the last of the independent axes.
    stack = frames.view[..., channel, :, :, :, :]
    if "T" not in frames.joint:
        stack = stack[..., 0, :, :, :] if frames.independent else stack
    *outer, length = stack.shape[:-3]
    at = first = sequence * length + start - frames.origin[0]
    while at < first + stop - start:
        row, place = divmod(at, length)
        count = min(first + stop - start - at, length - place, most or length)
        where = np.unravel_index(row, outer) if outer else ()
        yield at - first, stack[(*where, slice(place, place + count))]
        at += count
