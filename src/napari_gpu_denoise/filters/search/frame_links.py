"""How frames of a video are linked: which may be compared, and how their grey levels correspond."""

from __future__ import annotations

import math

import numpy as np

from napari_gpu_denoise.image.flicker import Change, brightness_change
from napari_gpu_denoise.run.frame_notes import FrameNote


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
        self._changed: dict[int, np.ndarray] = {}
        self._last: int | None = None

    def add(self, t: int, note: FrameNote) -> None:
        """Take note of a frame; they come in order."""
        mix = np.vstack([self._matrix, self._guide_row(note.sigma)])
        empty = note.empty
        self._levels[t] = np.zeros(len(mix)) if empty else np.sqrt(mix**2 @ note.sigma**2)
        self._means[t] = None if empty or note.means is None else mix @ note.means
        if empty:
            return
        before = self._last
        near = before is not None and t - before <= max(self.frames)
        if near and self._means[t] is not None and self._means[before] is not None:
            noise = np.hypot(self._levels[t], self._levels[before]) / math.sqrt(note.block_pixels)
            pairs = [*zip(self._means[before], self._means[t], noise, strict=True)]
            if len(mix) == 2 and np.array_equal(*mix):
                pairs = pairs[:1]  # what is filtered is what is searched
            found = [brightness_change(a, b, float(n)) for a, b, n in pairs]
            if not all(one.is_identity for one in found):
                changed = np.array([_pair(one) for one in found])
                self._changed[t] = np.broadcast_to(changed, (len(mix), 2))
        self._last = t

    def forget(self, before: int) -> None:
        """Let go of what is known of frames before a time."""
        for held in (self._levels, self._means, self._changed):
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
        times = range(first - before, first + count + after)
        nothing = np.zeros(len(self._matrix) + 1)
        # By time, then by what is filtered or searched; no noise where there is no frame.
        noise = np.array([self._levels.get(t, nothing) for t in times])
        around = np.arange(count)[:, None] + np.arange(before + 1 + after)
        own, made = noise[before : before + count, None], np.zeros((*around.shape, len(nothing), 3))
        made[..., 0] = 1
        if any(t in self._changed for t in times):
            self._compose(made, times)
        found = noise[around]
        made[..., 2] = found * made[..., 0]
        usable = self._alike(made[..., 2], own)
        made[~usable] = 0
        made = np.moveaxis(made, 2, 0).astype(np.float32)
        return np.ascontiguousarray(made[:-1]), np.ascontiguousarray(made[-1])

    def _compose(self, links: np.ndarray, times: range) -> None:
        """Join the changes between frames to links, outwards from each frame."""
        before, after = self.frames
        count = len(links)
        same = np.tile([1.0, 0.0], (links.shape[2], 1))
        change = np.array([self._changed.get(t, same) for t in times])
        for sign, reach in ((1, after), (-1, before)):
            scale, shift = 1.0, 0.0
            for d in range(1, reach + 1):
                start = before + sign * d + (sign < 0)
                gain, offset = np.moveaxis(change[start : start + count], -1, 0)
                if sign > 0:
                    scale = scale / gain
                    shift = shift - scale * offset
                else:
                    shift = shift + scale * offset
                    scale = scale * gain
                links[:, before + sign * d, :, 0] = scale
                links[:, before + sign * d, :, 1] = shift

    def _alike(self, noise: np.ndarray, own: np.ndarray) -> np.ndarray:
        """Return which frames may be used for others of noise `own`: in all that is filtered."""
        fits = (noise > 0) & (own > 0)
        searched = fits[..., -1]
        if math.isfinite(self._unlike):
            fits &= (noise * self._unlike >= own) & (noise <= own * self._unlike)
        # A channel without noise is not filtered.
        fits |= (noise == 0) & (own == 0)
        return searched & fits.all(axis=-1)

    def _guide_row(self, sigma: np.ndarray) -> np.ndarray:
        if not self._weighted:
            return self._guide
        levels = guide_levels(sigma)
        return np.divide(self._guide, levels, out=np.zeros_like(levels), where=levels > 0)


def guide_levels(sigma: np.ndarray) -> np.ndarray:
    """Return what channels are divided by to count by their noise, in an image of grey levels.

    It is their noise, but for a factor that makes the weights of all channels 1 in the mean: the
    image is as bright however much noise there is. Channels without noise are left out, by a 0.
    """
    known = sigma[sigma > 0]
    return sigma * np.mean(1 / known) if known.size else np.zeros_like(sigma)


def _pair(change: Change) -> tuple[float, float]:
    return change.gain, change.offset
