"""The patches of a video that are similar to a reference patch, followed from frame to frame.

Convention: a patch moves on as the block that its middle lies in, as long as its frame is there.
Positions are (y, x) of the first pixel of a patch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from reference.transforms import PATCH
from reference.video_links import Link, Links, unlinked, usable

FURTHEST = 32  # pixels that prediction may lead from the reference along each axis


def find_matches(
    search: np.ndarray,
    t: int,
    y: int,
    x: int,
    settings,
    sigmas: Sequence[float],
    links: Links | None = None,
    holes: Collection[int] = (),
    motions: Mapping[tuple[int, int], np.ndarray] | None = None,
) -> list[tuple[int, int, int, float]]:
    """Return (t, y, x, d2) of the patches most similar to the one at (t, y, x), nearest first.

    d2 is the mean squared difference in the grey levels of frame t, in the group at most `similar`
    sigma squared; that of patches at the same place in other frames is less by `still` sigma
    squared, but not below 0. `settings` is a ``vbm3d.Pass``. On both sides of frame t the best
    patch of a frame tells where to look in the next, as it moves as its block does: `motions`.
    Conventions: `per_frame` counts the reference, too; a frame that is not usable is passed over,
    but what moves moves on.
    """
    links = unlinked if links is None else links
    shape = search.shape[1:]

    def ranked(frame: int, places: np.ndarray) -> list[tuple]:
        d2 = distances(search, (t, y, x), frame, places, links(t, frame))
        same = np.all(places == (y, x), axis=1)
        d2 = np.maximum(d2 - same * settings.still * sigmas[t] ** 2, 0)
        dy, dx = (places - (y, x)).T
        nearest = np.lexsort((zigzag(dx), zigzag(dy), d2))
        found = zip(places[nearest].tolist(), d2[nearest].tolist(), strict=True)
        return [(frame, *place, value) for place, value in found]

    def in_order(matches: list[tuple]) -> list[tuple]:
        return sorted(matches, key=lambda match: order(match, (t, y, x)))

    def near(matches: list[tuple]) -> list[tuple]:
        limit = settings.similar * sigmas[t] ** 2
        return [match for match in matches if match[3] <= limit or match[:3] == (t, y, x)]

    def with_blocks(frames: Sequence[int]) -> list[tuple]:
        kept = []
        if not len(frames):
            return kept
        reach = max(furthest(settings) - settings.window_next // 2, 0)
        low = [max(at - reach, 0) for at in (y, x)]
        high = [min(at + reach, size - PATCH) for at, size in zip((y, x), shape, strict=True)]
        # Convention: what cannot be seen to move goes on as it came.
        at, before, opposite = (y, x), t, 2 * t - frames[0]
        seen = abs(opposite - t) == 1 and searched(opposite) and (t, opposite) in motions
        velocity = -moved(t, opposite, at) if seen else np.zeros(2, int)
        for frame in frames:
            usual = searched(frame)
            if usual and before is not None:
                velocity = moved(before, frame, at)
            at = tuple(np.clip(np.add(at, velocity), low, high).tolist())
            before = frame if usual else None
            if usual:
                found = ranked(frame, around(at, settings.window_next, shape))
                kept += found[: settings.per_frame]
                at = found[0][1:3]
        return kept

    def searched(frame: int) -> bool:
        before, after = settings.frames_before, settings.frames_after
        return -before <= frame - t <= after and usable(t, frame, sigmas, links, holes)

    def moved(r: int, frame: int, at: tuple[int, int]) -> np.ndarray:
        if (r, frame) not in motions:
            return np.zeros(2, int)
        rows, columns = ((place + PATCH // 2) // PATCH for place in at)
        return motions[r, frame][rows, columns]

    own = ranked(t, around((y, x), settings.window, shape))[: settings.per_frame]
    later = range(t + 1, t + settings.frames_after + 1)
    earlier = range(t - 1, t - settings.frames_before - 1, -1)
    near_ones = near(own + with_blocks(later) + with_blocks(earlier))
    matches = in_order(near_ones)[: settings.neighbours]
    if len(own) == settings.per_frame:
        # Where other frames are few or unlike, more of the same frame fill the group.
        last = order(own[-1], (t, y, x))
        fill = settings.window_fill or settings.window_nearest
        wider = ranked(t, around((y, x), fill, shape))
        begin = bisect_right(wider, last, key=lambda match: order(match, (t, y, x)))
        more = near(wider[begin:])
        matches = in_order(matches + more[: settings.neighbours - len(matches)])
    return matches


def furthest(settings) -> int:
    """Return how far from its reference, along an axis, a match in another frame may lie.

    That is where the fastest movement leads that can be followed, or `FURTHEST` pixels.
    """
    frames = max(settings.frames_before, settings.frames_after)
    if frames == 0:  # more of the own frame may fill a group
        return max(settings.window, settings.window_nearest) // 2
    speed = settings.window_nearest // 2 + settings.window_next // 2
    return max(min(frames * speed, FURTHEST), speed, settings.window // 2)


def around(centre: tuple[int, int], window: int, shape: tuple[int, int]) -> np.ndarray:
    """Return the positions (n, 2) in the window around a centre (y, x)."""
    spans = (
        np.arange(max(at - window // 2, 0), min(at + window // 2, length - PATCH) + 1)
        for at, length in zip(centre, shape, strict=True)
    )
    return np.stack(np.meshgrid(*spans, indexing="ij"), axis=-1).reshape(-1, 2)


def distances(search, reference: tuple, frame: int, places: np.ndarray, link: Link) -> np.ndarray:
    """Return the mean squared difference of patches of a frame from one at `reference`."""
    t, y, x = reference
    rows, columns = places[:, :, None].swapaxes(0, 1) + np.arange(PATCH)
    patches = search[frame][rows[:, :, None], columns[:, None]]
    difference = search[t, y : y + PATCH, x : x + PATCH] - (patches * link.scale + link.shift)
    return np.square(difference).mean(axis=(1, 2))


def order(match: tuple, reference: tuple) -> tuple:
    """Return what matches (t, y, x, d2) are sorted by.

    Convention: among equal distances, the displacements along t, then y, then x count, each in the
    order 0, -1, 1, -2, 2, ...; so the reference is the first.
    """
    *place, d2 = match
    away = (at - origin for at, origin in zip(place, reference, strict=True))
    return d2, *(2 * v if v >= 0 else -2 * v - 1 for v in away)


def zigzag(v):
    return np.where(v >= 0, 2 * v, -2 * v - 1)
