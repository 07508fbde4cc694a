"""Filtering over time: links between the frames that may be compared, and rings of frames."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from napari_gpu_denoise.filters.pixels import Launcher
from napari_gpu_denoise.image.flicker import brightness_changes
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.protocol.plan import (
    Buffers,
    FrameNote,
    FramePlan,
    Launches,
    Sizes,
    TilePlan,
    TileSigma,
)
from napari_gpu_denoise.protocol.settings import setting
from napari_gpu_denoise.protocol.tiles import Span, Tile


def frames_setting(default: int, help: str) -> Any:
    """Declare how many earlier or later frames are searched."""
    return setting(default, help, bounds=(0, 16), unit="frames", needs_axis="T")


class FrameSearch(Filter):
    """Base of filters that search other frames, or volumes, if asked to."""

    frames_before: int
    frames_after: int

    @property
    def over_time(self) -> bool:
        return bool(self.frames_before or self.frames_after)

    @property
    def compares_brightness(self) -> bool:
        return True


class FrameLinks:
    """Noise and brightness of the recent frames of a video.

    A frame is compared with those before and after it as `frames` says. What is filtered are
    mixtures of the channels, `matrix` of shape (filtered, channels); what is searched is the
    mixture `guide`, of channels divided by their noise if `weighted`. Frames whose noise differs by
    more than a factor of `noise_ratio` are not used together; of frames that are stored twice only
    the nearest one is, since they share all their noise. `strengths` multiply the noise of the
    mixtures, the first one that of the guide, too; by default they are 1. Frames may be added in
    another thread than that which asks for links between those before them.
    """

    def __init__(
        self,
        frames: tuple[int, int],
        matrix,
        guide,
        weighted: bool = False,
        noise_ratio: float = 2.0,
        strengths: Sequence[float] | np.ndarray = (),
    ):
        self.frames = frames
        self._matrix = np.atleast_2d(np.asarray(matrix, np.float64))
        self._guide = np.asarray(guide, np.float64)
        self._weighted = weighted
        # Whether what is filtered is what is searched.
        self._alone = not weighted and np.array_equal(self._matrix, self._guide[None])
        self._noise_ratio = noise_ratio
        self._strengths = np.array([*strengths, strengths[0]] if len(strengths) else [1.0])
        self._levels: dict[int, np.ndarray] = {}
        self._means: dict[int, np.ndarray] = {}  # where brightness is compared
        self._changed: dict[int, np.ndarray] = {}
        self._digests: dict[int, bytes | None] = {}
        self._steady: dict[bytes, tuple] = {}  # links of frames of one brightness, by noise
        self._last: int | None = None

    def add(self, first: int, *notes: FrameNote) -> None:
        """Add the next frames, from time `first` on; frames come in order."""
        pairs = []
        for t, note in enumerate(notes, first):
            before = self._last
            self._add_one(t, note)
            if self._last != t or before is None or t - before > max(self.frames):
                continue
            if self._means.keys() >= {t, before}:
                pairs.append((before, t, math.sqrt(note.block_pixels)))
        if pairs:
            self._compare(pairs)

    def _compare(self, pairs: list[tuple[int, int, float]]) -> None:
        """Measure the changes of brightness between frames, given by times and a divisor."""
        rows = slice(1) if self._alone else slice(None)
        before = np.array([self._means[b][rows] for b, _, _ in pairs])
        after = np.array([self._means[t][rows] for _, t, _ in pairs])
        noise = [np.hypot(self._levels[t], self._levels[b])[rows] / each for b, t, each in pairs]
        flat, other = (one.reshape(-1, before.shape[-1]) for one in (before, after))
        found = brightness_changes(flat, other, np.ravel(noise)).reshape(len(pairs), -1, 2)
        for (_, t, _), changed in zip(pairs, found, strict=True):
            if not np.array_equal(changed, np.broadcast_to((1.0, 0.0), changed.shape)):
                self._changed[t] = np.broadcast_to(changed, (len(self._matrix) + 1, 2))

    def _add_one(self, t: int, note: FrameNote) -> None:
        guide, empty = self._guide, note.empty
        if self._weighted:
            levels = guide_levels(note.sigma)
            guide = np.divide(guide, levels, out=np.zeros_like(levels), where=levels > 0)
        mix = np.vstack([self._matrix, guide])
        levels = self._strengths * np.sqrt(mix**2 @ note.sigma**2)
        self._levels[t] = np.zeros(len(mix)) if empty else levels
        if not empty and note.means is not None:
            self._means[t] = mix @ note.means
        self._digests[t] = None if empty else note.digest
        if not empty:
            self._last = t

    def forget(self, before: int) -> None:
        """Drop frames before a time."""
        for held in (self._levels, self._means, self._changed, self._digests):
            # A copy: another thread may add frames meanwhile.
            for t in [t for t in list(held) if t < before]:
                del held[t]

    def levels(self, first: int, count: int) -> np.ndarray:
        """Return the noise of what is filtered, float32 of shape (filtered, count)."""
        held = [self._levels[t][:-1] for t in range(first, first + count)]
        return np.ascontiguousarray(np.transpose(held), np.float32)

    def links(self, first: int, count: int, repeated: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """Return how frames are linked to those around them, themselves included.

        A link is the scale and shift that bring grey levels of the other frame to those of the
        first, and its noise in those; noise 0 where the other frame must not be used. Returned as
        float32, first for what is filtered, of shape (filtered, count, span, 3), then for what is
        searched, of shape (count, span, 3). The noise of frames that a nearer one repeats is
        multiplied by `repeated`: 1 to follow motion to them, -1 through them.
        """
        before, after = self.frames
        times = range(first - before, first + count + after)
        nothing = np.zeros(len(self._matrix) + 1)
        # By time, then by what is filtered or searched; no noise where there is no frame.
        noise = np.array([self._levels.get(t, nothing) for t in times])
        copies, key = self._repeated(times, count), noise.tobytes()
        if any(t in self._changed for t in times) or copies.any():
            key = None
        elif key in self._steady:
            return self._steady[key]
        around = np.arange(count)[:, None] + np.arange(before + 1 + after)
        own, made = noise[before : before + count, None], np.zeros((*around.shape, len(nothing), 3))
        made[..., 0] = 1
        if key is None:
            self._compose(made, times)
        found = noise[around]
        made[..., 2] = found * made[..., 0]
        usable = self._alike(made[..., 2], own)
        made[~usable] = 0
        made[copies, :, 2] *= repeated
        made = np.moveaxis(made, 2, 0).astype(np.float32)
        found = np.ascontiguousarray(made[:-1]), np.ascontiguousarray(made[-1])
        if key is not None:
            self._steady = {**(self._steady if len(self._steady) < 8 else {}), key: found}
        return found

    def _repeated(self, times: range, count: int) -> np.ndarray:
        """Return which frames around each of `count` hold the same as one that is nearer to it."""
        before, after = self.frames
        digests = [self._digests.get(t) for t in times]
        known = [one for one in digests if one is not None]
        found = np.zeros((count, before + 1 + after), bool)
        if len(set(known)) == len(known):
            return found
        nearest_first = sorted(range(before + 1 + after), key=lambda k: abs(k - before))
        for frame, row in enumerate(found):
            seen = set()
            for k in nearest_first:
                if (digest := digests[frame + k]) is not None:
                    row[k] = digest in seen
                    seen.add(digest)
        return found

    def _compose(self, links: np.ndarray, times: range) -> None:
        """Combine the changes between neighbouring frames, outwards from each frame."""
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
        """Return which frames may be used for frames of noise `own`."""
        fits = (noise > 0) & (own > 0)
        searched = fits[..., -1]
        if math.isfinite(self._noise_ratio):
            fits &= (noise * self._noise_ratio >= own) & (noise <= own * self._noise_ratio)
        # A channel without noise is not filtered.
        fits |= (noise == 0) & (own == 0)
        return searched & fits.all(axis=-1)


def guide_levels(sigma: np.ndarray) -> np.ndarray:
    """Return the divisors that weight channels by their noise in the guide.

    They are the noise levels, scaled so that weights average to 1: the brightness of the guide does
    not depend on the noise. Channels without noise get 0 and are left out.
    """
    known = sigma[sigma > 0]
    return sigma * np.mean(1 / known) if known.size else np.zeros_like(sigma)


@dataclass(frozen=True)
class InRing:
    """Where frames are in a ring (channels, slots, nz, ny, nx), and where their results go.

    `first` is the slot of the first one; `place` which frame (t, z) of the results is the first,
    and how many there are. `alike` is how grey levels are brought to those of one frame, if they
    are, (channels, frames, 3).
    """

    first: int
    slots: int
    place: tuple[int, int]
    held: Buffers
    alike: Any = None


class RingTiles(TilePlan):
    """A plan that also filters some frames of a ring, in the buffers held for it."""

    @abstractmethod
    def enqueue(
        self, queue, tile: Tile, source, out, sigma: TileSigma, ring: InRing | None = None
    ) -> Launches: ...


class RingPlan(FramePlan):
    """Runs a filter over frames that come in order and stay in a ring while they are needed.

    `tiles` filters some frames of the ring; `frames` is how many it looks at before and after.
    """

    def __init__(self, tiles: RingTiles, frames: tuple[int, int]):
        self.arena, self._tiles = tiles.arena, tiles
        self._before, self.ahead = frames

    def buffers(self, tile: Tile, batch: int, is_map: bool = False) -> Sizes:
        """Return the ring of frames, the tables of a frame, and what `batch` frames need."""
        ring = batch + self._before + self.ahead
        frame = 4 * tile.channels * math.prod(tile.source_shape[1:])
        seen = replace(tile, t=Span(self._before, self._before + batch, 0, ring, ring))
        return {
            "frames": ring * frame,
            "frame sigma": 4 * tile.channels * batch * tile.z.size,
            "frame links": 12 * tile.channels * (self._before + 1 + self.ahead),
            **self._tiles.buffers(seen, is_map),
        }

    def begin(self, tile: Tile, batch: int, first: int, start: int, variation: Any) -> None:
        self._tile, self._variation = tile, variation
        self._first = self._known = first
        self._held = self.hold(tile, batch, variation is not None)
        self._ring = batch + self._before + self.ahead
        self._sigma: dict[int, np.ndarray] = {}
        frames, channels = (self._before, self.ahead), tile.channels
        mean = np.full(channels, 1 / channels)
        self._links = FrameLinks(frames, np.eye(channels), mean, noise_ratio=math.inf)

    def take(self, queue, frames, notes: list[FrameNote]) -> Launches:
        """Enqueue the storing of the next frames."""
        channels, count = self._tile.channels, len(notes)
        nbytes = 4 * math.prod(self._tile.source_shape[1:])
        run, ring, compared = Launcher(self.arena, queue), self._held["frames"], []
        for k, note in enumerate(notes):
            slot = (self._known + k) % self._ring
            for c in range(channels):
                run.store(frames, c * count + k, ring, c * self._ring + slot, nbytes)
            begin, sigma = self._tile.z.start - note.first_slice, note.sigma.reshape(channels, -1)
            self._sigma[self._known + k] = sigma[:, begin : begin + self._tile.z.size]
            # A volume has no brightness to compare, and its slices may differ in noise.
            known = note.sigma if sigma.shape[1] == 1 else np.ones(channels)
            compared.append(replace(note, sigma=known))
        self._links.add(self._known, *compared)
        self._known += count
        return run.launches

    def enqueue_frames(self, queue, start: int, count: int, ended: bool, out) -> Launches:
        filtered, _ = self._links.links(start, count)
        plain = np.all(filtered[..., 0] == 1) and np.all(filtered[..., 1] == 0)
        run = Launcher(self.arena, queue, self._held)
        if plain and all(self._alike(links, start) for links in filtered):
            self._enqueue_some(run, start, count, None, (0, count), out)
        else:
            # For each frame the others are brought to its own brightness.
            for k in range(count):
                links = filtered[:, k]
                self._enqueue_some(run, start + k, 1, links, (k, count), out)
        before = start + count - self._before
        for t in [t for t in self._sigma if t < before]:
            del self._sigma[t]
        self._links.forget(before - 1)
        return run.launches

    def _alike(self, links: np.ndarray, start: int) -> bool:
        """Return whether every frame may be searched from every other."""
        before = self._before
        times = start - before + np.add.outer(*map(np.arange, links.shape[:2]))
        there = (times >= self._first) & (times < self._known)
        return bool(np.all(links[..., 2][there] > 0))

    def _enqueue_some(self, run: Launcher, start, count, links, place, out) -> None:
        stop = start + count
        lowest = max(start - self._before, self._first)
        highest = min(stop + self.ahead, self._known)
        tile = replace(self._tile, t=Span(start, stop, lowest, highest, highest))
        sigma = np.concatenate([self._sigma[t] for t in range(start, stop)], axis=1)
        held = self._held
        levels = run.send(sigma, "frame sigma")
        alike = None
        if links is not None:
            here = self._before
            links = links.copy()
            # A frame without noise is returned unchanged.
            links[links[:, here, 2] == 0, here] = (1, 0, 1)
            links = links[:, here - (start - lowest) :][:, : highest - lowest]
            alike = run.send(links, "frame links")
        first, frames = (one * tile.z.size for one in place)
        ring = InRing(lowest % self._ring, self._ring, (first, frames), held, alike)
        noise = TileSigma(levels, self._variation)
        run.launches += self._tiles.enqueue(run.queue, tile, held["frames"], out, noise, ring)
