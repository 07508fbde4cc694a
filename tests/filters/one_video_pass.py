"""One search and one pass of VBM3D on a device, for test_vbm3d_search and test_vbm3d_groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

import numpy as np

from napari_gpu_denoise.filters.bm3d.groups import PATCH, GroupSettings
from napari_gpu_denoise.filters.pixels import Launcher
from napari_gpu_denoise.filters.search.patch_search import Grid, Variant
from napari_gpu_denoise.filters.search.video_search import (
    BlockMotion,
    PredictiveSearch,
    RingFrames,
    RingShape,
    VideoSearch,
    margin_of,
)
from napari_gpu_denoise.filters.vbm3d import VideoPass
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.opencl.program import Session
from napari_gpu_denoise.protocol.plan import allocated
from napari_gpu_denoise.protocol.tiles import Span
from reference import vbm3d as reference
from reference.block_matching import reference_positions
from reference.video_links import Link, usable
from scenes import scene

FAR_KEY = 0x70000000


@dataclass(frozen=True)
class Linked:
    """Frames whose grey levels are ``levels * gain + offset``, with noise in those; 0: a hole."""

    sigmas: tuple[float, ...]
    gains: tuple[float, ...] = ()
    offsets: tuple[float, ...] = ()

    def __call__(self, r: int, t: int) -> Link:
        if not self.gains:
            return Link()
        scale = self.gains[r] / self.gains[t]
        return Link(scale, self.offsets[r] - self.offsets[t] * scale)

    @property
    def holes(self) -> list[int]:
        """Frames without noise."""
        return [t for t, sigma in enumerate(self.sigmas) if sigma == 0]

    def table(self, frames: tuple[int, int]) -> np.ndarray:
        """Return what a kernel is told, float32 of shape (nt, span, 3)."""
        before, after = frames
        made = np.zeros((len(self.sigmas), before + 1 + after, 3), np.float32)
        for r, dt in product(range(len(self.sigmas)), range(-before, after + 1)):
            t = r + dt
            if 0 <= t < len(self.sigmas) and r not in self.holes:
                link = self(r, t)
                used = usable(r, t, self.sigmas, self, self.holes)
                noise = self.sigmas[t] * link.scale if used else 0.0
                made[r, before + dt] = link.scale, link.shift, noise
        return made


def search_settings(step=6, window=5, window_next=5, per_frame=2, neighbours=8, **given):
    """Return what is searched, by the names of the filter's settings."""
    return VideoSearch(
        *(PATCH, step, window, window_next, per_frame, neighbours, given.get("frames", (2, 2))),
        still=given.get("still", 0.125),
        nearest=given.get("window_nearest", 15),
        similar=given.get("similar", 25.0),
    )


def slow(search: VideoSearch, given: GroupSettings | None = None) -> reference.Pass:
    """Return the same for the reference."""
    groups = {}
    if given is not None:
        names = ("transform", "stack", "threshold", "kaiser", "shared_noise", "kalman")
        groups = {name: getattr(given, name) for name in names}
        groups["wiener_sigma"] = given.threshold
        groups["common"] = given.common
    return reference.Pass(
        **{"frames_before": search.frames[0], "frames_after": search.frames[1]},
        **{"window": search.first, "window_next": search.following},
        **{"window_nearest": search.nearest},
        **{"per_frame": search.kept, "neighbours": search.neighbours, "step": search.step},
        **{"similar": search.similar, "still": search.still},
        **groups,
    )


def tracks(x: int = 1, y: int = 1, directions: int = 2) -> Variant:
    return Variant("search_tracks", {"DIRECTIONS": directions, "GROUP_X": x, "GROUP_Y": y})


PATCHES = Variant("search_patches", {"GROUP_X": 1, "GROUP_Y": 1})


def lanes(search: VideoSearch) -> Variant:
    """Return the kernel for CPUs; its groups may not be smaller."""
    side = -(-(2 * search.furthest + PATCH) // search.step)
    return Variant("shrink_lanes", {"GROUP_X": side, "GROUP_Y": side})


def shared(depth: int, x: int = 1, y: int = 1, teams: int = 1, wide: bool = False) -> Variant:
    constants = {"GROUP_X": x, "GROUP_Y": y, "DEPTH": depth, "TEAMS": teams, "WIDE": int(wide)}
    constants |= {"LOCAL_TILE": 0, "WARP_SYNC": 0, "LINE": 9}
    return Variant("shrink_shared", constants)


def positions(shape: tuple[int, int], step: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield (row, column, y, x) of every reference patch of a frame."""
    rows, columns = (enumerate(reference_positions(n, step)) for n in shape)
    for (row, y), (column, x) in product(rows, columns):
        yield row, column, y, x


class Device:
    """Buffers and frames on a device."""

    def __init__(self, session: Session):
        self.session, self.queue, self.arena = session, session.queue(), Arena(session)

    def sent(self, array: np.ndarray):
        import pyopencl as cl

        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        return cl.Buffer(self.session.context, flags, hostbuf=np.ascontiguousarray(array))

    def got(self, buffer, *shape: int, dtype=np.int32) -> np.ndarray:
        import pyopencl as cl

        array = np.empty(shape, dtype)
        cl.enqueue_copy(self.queue, array, buffer)
        return array

    def store(self, frames: np.ndarray, ring, shape: RingShape, first: int) -> None:
        """Store frames (channels, count, ny, nx) in a ring, the first one being that of a time."""
        channels, count, ny, nx = frames.shape
        whole = shape.pitch, shape.pny, channels * count
        store = self.session.kernel("search/pad_far", {"SPLIT": 1, "RINGS": 1})
        sent = self.sent(frames.astype(np.float32))
        store(
            *(self.queue, whole, None),
            **{"tile": sent, "first": 0, "ring": count, "nt": count, "nz": 1, "ny": ny, "nx": nx},
            **{"padded": ring, "pnt": count, "pnz": 1, "t0": 0, "z0": 0, **shape.layout},
            **{"slots": shape.images, "into": first % shape.images},
        )


def found_by(
    session, search: VideoSearch, variant, video, linked: Linked, start: int = 5, vector=None
):
    """Search all frames of a video, two at a time, with a ring that holds no more than it must.

    The first frame is that of time `start`. Return keys and places, (nt, rows, neighbours,
    columns); those of holes are 0.
    """
    device, (before, after) = Device(session), search.frames
    nt, ny, nx = video.shape
    one = PredictiveSearch(search, device.arena, variant)
    shape = RingShape(before + after + 2, 1, margin_of(search), ny, nx)
    ring = device.sent(np.zeros(shape.images * shape.plane, np.float32))
    table = linked.table(search.frames)
    motions = None
    if any(search.frames):
        measured = BlockMotion(search.nearest, search.frames, device.arena, vector=vector)
        measured_held = allocated(device.arena, measured.buffers(shape))
    grid = tuple(Grid.of(Span.whole(n), PATCH, search.step) for n in (ny, nx))
    known, keys, places = 0, [], []
    for first in range(0, nt, 2):
        count = min(2, nt - first)
        new = min(first + count + after, nt) - known
        if new > 0:
            device.store(video[None, known : known + new], ring, shape, start + known)
            if any(search.frames):
                rows = np.concatenate([np.zeros((1, *table.shape[1:]), np.float32), table])
                at = RingFrames(shape, start + known - 1, new)
                sent = device.sent(rows[known : known + new + 1])
                run = Launcher(device.arena, device.queue, measured_held)
                motions = measured.enqueue(run, ring, at, sent)
            known += new
        size = count, grid[0].count, search.neighbours, grid[1].count
        for name in ("keys", "places"):
            buffer = device.arena.buffer(name, 4 * int(np.prod(size)))
            zeros = np.zeros(size, np.uint32)
            import pyopencl as cl

            cl.enqueue_copy(device.queue, buffer, zeros)
        links = device.sent(table[first : first + count])
        at = RingFrames(shape, start + first, count, grid)
        run = Launcher(device.arena, device.queue)
        found = one.enqueue(run, ring, at, links, motions)
        keys.append(device.got(found.keys, *size, dtype=np.uint32))
        places.append(device.got(found.places, *size, dtype=np.uint32))
    device.arena.free()
    return np.concatenate(keys), np.concatenate(places)


def matches_of(keys: np.ndarray, places: np.ndarray, t: int, y: int, x: int) -> list[tuple]:
    """Return the matches (t, y, x, d2) of a reference from its keys and places."""
    near = keys < FAR_KEY
    d2 = keys[near].view(np.float32).astype(float) / PATCH**2
    shifts = [12 * axis for axis in (2, 1, 0)]
    codes = [places[near].astype(np.int64) >> shift & 0xFFF for shift in shifts]
    steps = [np.where(code % 2, -(code + 1) // 2, code // 2) for code in codes]
    at = [(origin + step).tolist() for origin, step in zip((t, y, x), steps, strict=True)]
    return list(zip(*at, d2.tolist(), strict=True))


@dataclass(frozen=True)
class Videos:
    """What a pass looks at: (channels, nt, ny, nx), and what is searched: (nt, ny, nx)."""

    noisy: np.ndarray
    basic: np.ndarray
    searched: np.ndarray
    linked: tuple[Linked, ...]  # of the channels
    searched_linked: Linked
    start: int = 4  # time of the first frame

    @classmethod
    def of(cls, nt: int = 4, ny: int = 26, nx: int = 38, *, linked: bool = False) -> Videos:
        clean = scene(nt, ny, nx)
        noise = np.random.default_rng(0).normal(0, 1, (5, *clean.shape))
        gains = (1.0, 1.7, 0.6, 1.2, 0.9)[:nt] if linked else (1.0,) * nt
        offsets = (0.0, -40.0, 10.0, 0.0, 5.0)[:nt] if linked else (0.0,) * nt

        def levels(values, channel=0):
            gain = np.array(gains)[:, None, None] * (1 + channel)
            return (values * gain + np.array(offsets)[:, None, None]).astype(np.float32)

        def links(sigma, channel=0):
            scales = tuple(gain * (1 + channel) for gain in gains)
            return Linked(tuple(sigma * scale for scale in scales), scales, offsets)

        # The more noise the fewer patches are similar: groups of all sizes, from left to right.
        rising = np.linspace(12, 60, nx)
        noisy = [levels(clean + sigma * noise[c], c) for c, sigma in enumerate((20.37, 11.0))]
        basic = [levels(clean + 6 * noise[2 + c], c) for c in range(2)]
        return cls(
            *(np.array(noisy), np.array(basic), levels(100 + rising * noise[4])),
            *((links(20.37), links(11.0, 1)), links(24.0)),
        )


def group_settings(search: VideoSearch, transform="dct", stack="haar", wiener=False, **changes):
    given = {"similar": search.similar, "threshold": 1.0 if wiener else 2.7, "wiener": wiener}
    given["common"] = 0.7 if wiener else 1.8
    return GroupSettings(search, transform, stack, **(given | changes))


@dataclass
class Run:
    """One pass over all frames, with what it leaves in its buffers.

    Attributes
    ----------
    channels : int
        How many are filtered.
    variation : ndarray of float32, shape (ny, nx), optional
        A map of sigma.
    """

    session: Session
    given: GroupSettings
    variant: Variant
    videos: Videos
    channels: int = 1
    variation: np.ndarray | None = None
    search_variant: Variant | None = None
    region: tuple[int, int, int, int] | None = None
    keys: np.ndarray = field(init=False)
    places: np.ndarray = field(init=False)
    numerators: np.ndarray = field(init=False)  # (channels, nt, ny, nx)
    weights: np.ndarray = field(init=False)
    out: np.ndarray = field(init=False)  # (channels, nt, region)

    def __post_init__(self):
        device, given, videos = Device(self.session), self.given, self.videos
        search, channels = given.search, self.channels
        _, nt, ny, nx = videos.noisy.shape
        one = VideoPass(given, device.arena, self.variant, self.search_variant)
        run = Launcher(device.arena, device.queue)
        self.scale, self.units = one._joining.values()
        shape = RingShape(nt, nt, margin_of(search), ny, nx)
        grid = tuple(Grid.of(Span.whole(n), PATCH, search.step) for n in (ny, nx))
        rings = []
        for frames in (videos.noisy[:channels], videos.basic[:channels], videos.searched[None]):
            rings.append(device.sent(np.zeros((len(frames), nt, shape.plane), np.float32)))
            device.store(frames, rings[-1], shape, videos.start)
        images = (rings[0], rings[1])[: 1 + given.wiener]
        sums = device.sent(np.zeros((channels, nt, 2, shape.plane), np.int32))
        variation = None if self.variation is None else device.sent(self.variation)
        tables = np.array([one.table(search.frames) for one in videos.linked[:channels]])
        searched = videos.searched_linked.table(search.frames)
        motions = None
        if any(search.frames):
            measured = BlockMotion(search.nearest, search.frames, device.arena)
            at = RingFrames(shape, videos.start, nt - 1)
            motions = measured.enqueue(run, rings[2], at, device.sent(searched))
        keys, places = [], []
        for first, count in ((0, 1), (1, nt - 1)):
            part = slice(first, first + count)
            sent = device.sent(tables[:, part]), device.sent(searched[part])
            at = RingFrames(shape, videos.start + first, count, grid)
            found = one.search.enqueue(run, rings[2], at, sent[1], motions)
            one.filter_groups(run, found, images, at, channels, sent, sums, variation)
            size = count, grid[0].count, search.neighbours, grid[1].count
            keys.append(device.got(found.keys, *size, dtype=np.uint32))
            places.append(device.got(found.places, *size, dtype=np.uint32))
        self.keys, self.places = np.concatenate(keys), np.concatenate(places)
        levels = np.array([one.sigmas for one in videos.linked[:channels]], np.float32)
        region = self.region or (0, 0, ny, nx)
        out = device.sent(np.zeros((channels, nt, *region[2:]), np.float32))
        one.join(
            *(run, images, RingFrames(shape, videos.start, nt), channels, sums),
            *(device.sent(levels), region, (out,)),
        )
        self.out = device.got(out, channels, nt, *region[2:], dtype=np.float32)
        got = device.got(sums, channels, nt, 2, shape.pny, shape.pitch)
        got = np.roll(got, -(videos.start % nt), axis=1)
        margin = shape.margin
        inside = got[..., margin : margin + ny, margin : margin + nx]
        assert np.count_nonzero(inside) == np.count_nonzero(got)
        self.numerators, self.weights = inside[:, :, 0], inside[:, :, 1]
        device.arena.free()

    def matches(self, t: int, row: int, column: int, y: int, x: int) -> list[tuple]:
        """Return the matches (t, y, x, d2) of a reference as the device found them."""
        found = matches_of(self.keys[t, row, :, column], self.places[t, row, :, column], t, y, x)
        there = 1.0 if self.variation is None else self.variation[y + PATCH // 2, x + PATCH // 2]
        limit = self.given.similar * (self.videos.searched_linked.sigmas[t] * there) ** 2
        return [match for k, match in enumerate(found) if k == 0 or match[3] <= limit]

    @cached_property
    def groups(self) -> list[tuple[int, reference.Group]]:
        """The groups that the reference makes of these matches, with their channel."""
        made, given = [], slow(self.given.search, self.given)
        shape, spectra = self.videos.searched.shape, self.given.spectra
        for c, t in product(range(self.channels), range(shape[0])):
            linked = self.videos.linked[c]
            if self.videos.searched_linked.sigmas[t] == 0:
                continue
            basic = self.videos.basic[c].astype(float) if self.given.wiener else None
            noisy, known = self.videos.noisy[c].astype(float), (linked.sigmas, given, basic)
            for place in positions(shape[1:], given.step):
                found = self.matches(t, *place)
                table = spectra[c % len(spectra)] if spectra else None
                group = reference.filter_group(
                    noisy, found, *known, linked, variation=self.variation, table=table
                )
                made.append((c, group))
        return made


def compare(run: Run) -> set[int]:
    """Check what the groups take away together, and weigh; return how many patches they have."""
    given, late = run.given, run.given.search.late
    kaiser = np.outer(*2 * [np.kaiser(PATCH, given.kaiser)])
    taken, bound, weights, count = np.zeros((4, *run.numerators.shape))
    exact, exact_corner = np.ones((2, *taken.shape), bool)
    sizes, edges = set(), 0
    for c, group in run.groups:
        sizes.add(len(group.matches))
        # Where a coefficient equals the threshold rounding decides if it is kept; where there is no
        # noise, if it is 0.
        size = np.abs(group.spectrum) / np.sqrt(group.variance)
        margin = min(np.abs(size - limit).min() for limit in (given.threshold, given.common))
        rounded = not given.wiener and margin < 2e-5
        rounded |= abs(group.energy / reference.FLAT - 1) < 1e-5
        edges += rounded and group.sigma > 0
        share = np.rint(run.units * group.weight) / run.units
        removed = reference.removed_patches(group.removed, given.transform, given.stack)
        sigmas = run.videos.linked[c].sigmas
        found = zip(group.matches, group.scales, removed, strict=True)
        for (t, y, x, _), scale, patch in found:
            if t < group.position[0] - late:
                continue
            place = c, t, slice(y, y + PATCH), slice(x, x + PATCH)
            if group.sigma > 0:
                factor = share * kaiser * group.sigma / (scale * sigmas[t])
                taken[place] += factor * patch
                bound[place] += 1e-4 * share + 0.5 / run.scale
                exact[place] &= not rounded
            weights[c, t, y, x] += share * run.units
            count[c, t, y, x] += 1
            exact_corner[c, t, y, x] &= not rounded and group.sigma > 0
    assert edges <= 0.02 * len(run.groups)
    assert exact.mean() > 0.8
    error = np.abs(run.numerators / run.scale - taken) - bound
    assert error[exact].max() <= 0, np.unravel_index(np.argmax(error * exact), error.shape)
    error = np.abs(run.weights - weights) - 1e-5 * weights - 2 * count
    assert error[exact_corner].max() <= 0
    assert not run.weights[count == 0].any()
    return sizes
