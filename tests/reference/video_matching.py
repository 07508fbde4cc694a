"""The patches of a video that are similar to a reference patch, followed from frame to frame.

Convention: things move on as they did. With `motion` the frame next to that of the reference is
searched widely, for that tells how fast the patch moves; every later window is moved on by that.
Positions are (y, x) of the first pixel of a patch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from reference.transforms import PATCH

FURTHEST = 32  # pixels that prediction may lead from the reference along each axis


@dataclass(frozen=True)
class Link:
    """A value of one frame is ``value * scale + shift`` in the grey levels of another."""

    scale: float = 1.0
    shift: float = 0.0


Links = Callable[[int, int], Link]  # of (r, t): from the grey levels of frame t to those of r


def unlinked(r: int, t: int) -> Link:
    """Return the link of frames whose brightness is the same."""
    return Link()


@dataclass
class Track:
    """Where patches are looked for, frame by frame, on one side of the reference's frame."""

    centres: list[tuple[int, int]]  # of the windows, that of the best match first
    velocity: tuple[int, int] = (0, 0)  # pixels a frame
    begun: bool = False  # whether a frame told the velocity

    def move(self, low: Sequence[int], high: Sequence[int]) -> None:
        """Move the centres on by a frame, but not out of what lies from `low` to `high`."""
        self.centres = [
            tuple(
                min(max(at + v, least), most)
                for at, v, least, most in zip(centre, self.velocity, low, high, strict=True)
            )
            for centre in self.centres
        ]

    def follow(self, found: list[tuple[int, int]], before: tuple[int, int], frames: int) -> None:
        """Take over what was found `frames` frames from the reference, the best one first.

        `before` is where the best match was, or was expected, a frame ago.
        """
        since = 1 if self.begun else frames
        steps = zip(found[0], before, strict=True)
        self.velocity = tuple(int((at - origin) / since) for at, origin in steps)
        self.begun = True
        self.centres = found


def find_matches(
    search: np.ndarray,
    t: int,
    y: int,
    x: int,
    settings,
    sigmas: Sequence[float],
    links: Links | None = None,
    holes: Collection[int] = (),
) -> list[tuple[int, int, int, float]]:
    """Return (t, y, x, d2) of the patches most similar to the one at (t, y, x), nearest first.

    d2 is the mean squared difference in the grey levels of frame t; that of patches at the same
    place in other frames is less by `still` sigma squared, but not below 0. The best patches of a
    frame are the centres of the windows that are searched in the next one, on both sides of frame
    t. `settings` is a ``vbm3d.Pass``. Conventions: `per_frame` and `per_frame_own` count the
    reference, too; a frame that is not usable is passed over, but what moves moves on.
    """
    links = unlinked if links is None else links
    shape = search.shape[1:]

    def best(frame: int, centres: list[tuple], window: int, most: int) -> list[tuple]:
        places = around(centres, window, shape)
        d2 = distances(search, (t, y, x), frame, places, links(t, frame))
        same = np.all(places == (y, x), axis=1)
        d2 = np.maximum(d2 - same * settings.still * sigmas[t] ** 2, 0)
        found = zip(places.tolist(), d2.tolist(), strict=True)
        return nearest([(frame, *place, value) for place, value in found], most)

    def nearest(matches: list[tuple], most: int) -> list[tuple]:
        return sorted(matches, key=lambda match: order(match, (t, y, x)))[:most]

    own = best(t, [(y, x)], settings.window, settings.per_frame_own)
    kept = list(own)
    reach = furthest(settings) - settings.window_next // 2
    low = [max(at - reach, 0) for at in (y, x)]
    high = [min(at + reach, size - PATCH) for at, size in zip((y, x), shape, strict=True)]
    for side, frames in (1, settings.frames_after), (-1, settings.frames_before):
        track = Track(places_of(own[: settings.per_frame]))
        for distance in range(1, frames + 1):
            frame = t + side * distance
            before = track.centres[0]
            if settings.motion:
                track.move(low, high)
            if not usable(t, frame, sigmas, links, holes):
                continue
            if settings.motion and not track.begun:
                found = best(frame, [(y, x)], settings.window_nearest, settings.per_frame)
            else:
                found = best(frame, track.centres, settings.window_next, settings.per_frame)
            track.follow(places_of(found), before, distance)
            kept += found
    limit = settings.similar * sigmas[t] ** 2
    similar = [match for match in kept if match[3] <= limit or match[:3] == (t, y, x)]
    return nearest(similar, settings.neighbours)


def furthest(settings) -> int:
    """Return how far from its reference, along an axis, a match may lie with `motion`.

    That is where the fastest movement leads that can be followed, or `FURTHEST` pixels.
    """
    frames = max(settings.frames_before, settings.frames_after)
    if frames == 0:
        return settings.window // 2
    far = speed = settings.window_nearest // 2
    for _ in range(frames - 1):
        speed += settings.window_next // 2
        far += speed
    return max(min(far, FURTHEST), settings.window_nearest // 2, settings.window // 2)


def places_of(matches: Iterable[tuple]) -> list[tuple[int, int]]:
    return [match[1:3] for match in matches]


def usable(r: int, t: int, sigmas: Sequence[float], links: Links, holes: Collection[int]) -> bool:
    """Return whether frame t exists, and has about as much noise as frame r in the levels of r."""
    if not 0 <= t < len(sigmas) or t in holes:
        return False
    return sigmas[r] / 2 <= sigmas[t] * links(r, t).scale <= sigmas[r] * 2


def around(centres: Iterable[tuple], window: int, shape: tuple[int, int]) -> np.ndarray:
    """Return the positions (n, 2) in the windows around centres (y, x), each once."""
    places = set()
    for centre in centres:
        spans = (
            range(max(at - window // 2, 0), min(at + window // 2, length - PATCH) + 1)
            for at, length in zip(centre, shape, strict=True)
        )
        places.update(product(*spans))
    return np.array(sorted(places))


def distances(search, reference: tuple, frame: int, places: np.ndarray, link: Link) -> np.ndarray:
    """Return the mean squared difference of patches of a frame from one at `reference`."""
    t, y, x = reference
    patches = sliding_window_view(search[frame], (PATCH, PATCH))[places[:, 0], places[:, 1]]
    difference = search[t, y : y + PATCH, x : x + PATCH] - (patches * link.scale + link.shift)
    return np.square(difference).mean(axis=(1, 2))


def order(match: tuple, reference: tuple) -> tuple:
    """Return what matches (t, y, x, d2) are sorted by.

    Convention: among equal distances, the displacements along t, then y, then x count, each in the
    order 0, -1, 1, -2, 2, ...; so the reference is the first.
    """
    *place, d2 = match
    return d2, *(zigzag(at - origin) for at, origin in zip(place, reference, strict=True))


def zigzag(v: int) -> int:
    return 2 * v if v >= 0 else -2 * v - 1
