"""How frames of a video are linked: which may be compared, and how their grey levels correspond."""

from __future__ import annotations

import math

import numpy as np

from napari_gpu_denoise.flicker import Change, brightness_change
from napari_gpu_denoise.video import FrameNote


class FrameLinks:
    """Knows the frames that a video filter has seen of late.

    Parameters
    ----------
    frames : tuple of int
        Frames before and after that one is compared with.
    matrix : ndarray, shape (filtered, channels)
        What is filtered, as mixtures of the channels.
    guide : ndarray, shape (channels,)
        What is searched.
    weighted : bool
        Whether the guide is made of channels divided by their noise.
    unlike : float, optional
        Frames whose noise differs by more than this factor are not used together.
    """

    def __init__(
        self, frames: tuple[int, int], matrix, guide, weighted: bool = False, unlike: float = 2.0
    ):
        self.frames = frames
        self._matrix = np.atleast_2d(np.asarray(matrix, np.float64))
        self._guide = np.asarray(guide, np.float64)
        self._weighted = weighted
        self._unlike = unlike
        self._levels: dict[int, np.ndarray] = {}
        self._means: dict[int, np.ndarray | None] = {}
        self._pixels: dict[int, float] = {}
        self._changes: dict[int, np.ndarray] = {}
        self._last: int | None = None

    def add(self, t: int, note: FrameNote) -> None:
        """Take note of a frame; they come in order."""
        mix = np.vstack([self._matrix, self._guide_row(note.sigma)])
        empty = note.empty
        self._levels[t] = np.zeros(len(mix)) if empty else np.sqrt(mix**2 @ note.sigma**2)
        self._means[t] = None if empty or note.means is None else mix @ note.means
        self._pixels[t] = note.block_pixels
        self._changes[t] = np.tile([1.0, 0.0], (len(mix), 1))
        if empty:
            return
        before = self._last
        near = before is not None and t - before <= max(self.frames)
        if near and self._means[t] is not None and self._means[before] is not None:
            noise = np.hypot(self._levels[t], self._levels[before]) / math.sqrt(note.block_pixels)
            pairs = zip(self._means[before], self._means[t], noise, strict=True)
            found = [brightness_change(a, b, float(n)) for a, b, n in pairs]
            self._changes[t] = np.array([_pair(one) for one in found])
        self._last = t

    def forget(self, before: int) -> None:
        """Let go of what is known of frames before a time."""
        for held in (self._levels, self._means, self._pixels, self._changes):
            for t in [t for t in held if t < before]:
                del held[t]

    def levels(self, first: int, count: int) -> np.ndarray:
        """Return the noise of what is filtered, float32 of shape (filtered, count)."""
        held = [self._levels[t][:-1] for t in range(first, first + count)]
        return np.ascontiguousarray(np.transpose(held), np.float32)

    def links(self, first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return how frames are linked to those around them, themselves included.

        Returns
        -------
        filtered : ndarray of float32, shape (filtered, count, span, 3)
            Scale and shift that bring grey levels of the other frame to those of the first, and its
            noise in those; noise 0 where the other frame is not to be used.
        guide : ndarray of float32, shape (count, span, 3)
            The same for what is searched.
        """
        before, after = self.frames
        made = np.zeros((len(self._matrix) + 1, count, before + 1 + after, 3))
        for k in range(count):
            t = first + k
            if not self._levels[t].all():
                continue
            made[:, k, before] = self._linked(t, t, np.ones(len(made)), np.zeros(len(made)))
            for sign, reach in ((1, after), (-1, before)):
                scale, shift = np.ones(len(made)), np.zeros(len(made))
                for d in range(1, reach + 1):
                    other = t + sign * d
                    if other not in self._levels:
                        break
                    gain, offset = self._changes[other if sign > 0 else other + 1].T
                    if sign > 0:
                        scale = scale / gain
                        shift = shift - scale * offset
                    else:
                        shift = shift + scale * offset
                        scale = scale * gain
                    made[:, k, before + sign * d] = self._linked(t, other, scale, shift)
        made = made.astype(np.float32)
        return np.ascontiguousarray(made[:-1]), np.ascontiguousarray(made[-1])

    def _linked(self, t: int, other: int, scale: np.ndarray, shift: np.ndarray) -> np.ndarray:
        noise = self._levels[other] * scale
        ratio = noise / self._levels[t]
        usable = np.all((ratio >= 1 / self._unlike) & (ratio <= self._unlike))
        return np.stack([scale, shift, noise if usable else np.zeros_like(noise)], axis=-1)

    def _guide_row(self, sigma: np.ndarray) -> np.ndarray:
        if not self._weighted:
            return self._guide
        return np.divide(self._guide, sigma, out=np.zeros_like(self._guide), where=sigma > 0)


def _pair(change: Change) -> tuple[float, float]:
    return change.gain, change.offset
