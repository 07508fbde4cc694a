"""One pass of BM3D on a device, with what it leaves in its buffers, for test_group_filter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import ClassVar
from unittest import mock

import numpy as np

from napari_gpu_denoise.filters.bm3d.groups import PATCH, GroupSettings, slab_shape
from napari_gpu_denoise.filters.bm3d.plan import GroupFilter
from napari_gpu_denoise.filters.pixels import Launcher, Noisy, Pixels
from napari_gpu_denoise.filters.search.patch_search import SearchSettings, Variant, offset_table
from napari_gpu_denoise.opencl import program
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.opencl.program import expand
from napari_gpu_denoise.protocol.tiles import Span, Tile
from reference import bm3d as reference
from reference.block_matching import reference_positions
from scenes import scene

# What is filtered and what is searched differ, in pixels and in noise.
SIGMA, SEARCHED_SIGMA = 20.37, 24.0
SHAPE = (25, 46)
FAR_KEY = 0x70000000


# By number of the device: devices may pose as others.
_CONTEXTS: dict = {}
# Options that make builds quick; none with --optimised.
QUICK = ["-cl-opt-disable"]
# Native functions, which kernels for GPUs take, are as precise as an implementation likes: those of
# Intel's CPU runtime 2026.2 to 3e-4 (native_divide) and 7e-5 (native_exp2). Where a CPU poses as a
# GPU, tests against references take precise ones; test_gpu_kernels takes them as they are.
_PRECISE = "#define native_divide(a, b) ((a) / (b))\n#define native_exp2(x) exp2(x)\n"


class Precise(program.Session):
    """Programs as users have them, but for native functions on CPUs."""

    def _build(self, key):
        # Without such a function it is that of users, which other tests may have built.
        native = self.device.kind == "CPU" and "native_" in expand(f"{key[0]}.cl")
        before = _PRECISE if native else ""
        with mock.patch.object(program, "expand", lambda name: before + expand(name)):
            return super()._build(key)


class Plain(Precise):
    """Programs that the compiler does not optimise: each of hundreds would take it seconds."""

    @classmethod
    def of(cls, device) -> Plain:
        """Return a new session of a device; its programs are built once per process."""
        import pyopencl as cl

        if device.index not in _CONTEXTS:
            _CONTEXTS[device.index] = cl.Context([device.handle])
        return _Built(device, _CONTEXTS[device.index])

    def _build(self, key):
        with mock.patch.object(program, "_OPTIONS", (*program._OPTIONS, *QUICK)):
            return super()._build(key)


class _Built(Plain):
    """A session that takes programs which another one has built in the same context."""

    _programs: ClassVar[dict] = {}

    def _build(self, key):
        known = self._programs.setdefault(self.context.int_ptr, {})
        if key not in known:
            known[key] = super()._build(key)
        return known[key]


_POSING: dict = {}


def posing(device, which: str, **limits: int) -> program.Session:
    """Return the session of a device, "as it is" or with the kernels of a GPU, made only once.

    It is `Plain` where sessions are. A GPU has no more local memory than the device.
    """
    made = program.session(device)
    if which == "as it is":
        return made
    key = made.context.int_ptr, program.Session, *limits.items()
    if key not in _POSING:
        limits["local_memory"] = min(device.local_memory, limits["local_memory"])
        _POSING[key] = program.Session(replace(device, float_lanes=1, **limits), made.context)
    return _POSING[key]


@dataclass(frozen=True)
class Images:
    """What a pass looks at, of shape (frames, ny, nx)."""

    noisy: np.ndarray
    basic: np.ndarray
    searched: np.ndarray

    @classmethod
    def of(cls, frames: int = 1) -> Images:
        clean = scene(frames, *SHAPE)
        noise = np.random.default_rng(0).normal(0, 1, (3, *clean.shape))
        # The more noise the fewer patches are similar: groups of all sizes, from left to right.
        # Whole numbers have distances without rounding.
        searched = np.rint(100 + np.linspace(20, 60, SHAPE[1]) * noise[2])
        images = clean + SIGMA * noise[0], clean + SIGMA / 3 * noise[1], searched
        return cls(*(image.astype(np.float32) for image in images))


def sigma_map() -> np.ndarray:
    """Return sigma relative to the largest: slopes, a jump, and a place without noise."""
    y, x = np.indices(SHAPE)
    values = 0.8 - 0.2 * x / SHAPE[1] + 0.2 * (y > 12)
    values[:13, 8:26] = 0
    return values.astype(np.float32)


def settings(neighbours=32, transform="dct", stack="haar", wiener=False, **changes):
    search = SearchSettings(PATCH, changes.pop("step", 4), changes.pop("window", 9), neighbours)
    given = {"similar": 6.25, "threshold": 1.0 if wiener else 2.7, "wiener": wiener, **changes}
    return GroupSettings(search, transform, stack, **given)


def lanes(x: int = 1, y: int = 1) -> Variant:
    return Variant("shrink_lanes", {"GROUP_X": x, "GROUP_Y": y})


def shared(depth: int, tile: int = 0, x: int = 1, y: int = 1, teams: int = 1) -> Variant:
    # Without WARP_SYNC teams may have any shape; every device can compare and exchange.
    constants = {"GROUP_X": x, "GROUP_Y": y, "DEPTH": depth, "TEAMS": teams, "LOCAL_TILE": tile}
    constants |= {"WARP_SYNC": 0, "LINE": 9}
    return Variant("shrink_shared", constants)


class Run:
    """One pass, and its matches, weights, slabs and image.

    Parameters
    ----------
    session : Session
        Of the device.
    given : GroupSettings
        The pass.
    variant : Variant
        The kernel.
    images : Images
        What it works on.
    variation : ndarray of float32, optional
        A map of sigma, relative to `SIGMA`.
    """

    def __init__(self, session, given, variant, images: Images, variation=None):
        import pyopencl as cl

        self.given, self.images = given, images
        self.variation = np.ones(SHAPE, np.float32) if variation is None else variation
        frames = len(images.noisy)
        tile = Tile(0, Span.whole(frames), *map(Span.whole, (1, *SHAPE)))
        queue, arena = session.queue(), Arena(session)
        run = Launcher(arena, queue)

        def sent(array):
            flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
            return cl.Buffer(session.context, flags, hostbuf=array.astype(np.float32))

        def got(buffer, *shape, dtype=np.int32):
            array = np.empty(shape, dtype)
            cl.enqueue_copy(queue, array, buffer)
            return array

        one = GroupFilter(given, arena, variant)
        self.scale, self.units = one._joining.values()
        searched = Noisy(Pixels(sent(images.searched), tile), sent(np.full(frames, SEARCHED_SIGMA)))
        place = one.search_tile(tile, tile)
        matches = one.search.enqueue(run, place, searched.pixels.buffer)
        noisy = Noisy(
            Pixels(sent(images.noisy), tile),
            sent(np.full(frames, SIGMA)),
            None if variation is None else Pixels(sent(variation), tile),
        )
        basic = Pixels(sent(images.basic), tile) if given.wiener else None
        out = sent(np.zeros_like(images.noisy))
        one.enqueue(run, tile, matches, searched, noisy, basic, out)

        rows, columns = matches.rows.count, matches.columns.count
        shape = (frames, rows, given.search.neighbours, columns)
        self.keys = got(matches.keys, *shape, dtype=np.uint32)
        pny, pitch, y0, x0 = (matches.layout[name] for name in ("pny", "pitch", "y0", "x0"))
        weights = got(arena.buffer("weights", 0), frames, pny, pitch)
        self.weights = weights[:, y0 : y0 + SHAPE[0], x0 : x0 + SHAPE[1]]
        assert np.count_nonzero(weights) == np.count_nonzero(self.weights)
        across = -(-columns // variant.constants["GROUP_X"])
        down = -(-rows // variant.constants["GROUP_Y"])
        shape = (frames, down, across, *slab_shape(given.search, variant))
        self.slabs = got(arena.buffer("slabs", 0), *shape)
        self.out = got(out, *images.noisy.shape, dtype=np.float32)
        arena.free()

    def places(self) -> Iterator[tuple[int, ...]]:
        """Yield (frame, row, column, y, x) of every reference patch."""
        rows, columns = (enumerate(reference_positions(n, self.given.search.step)) for n in SHAPE)
        for frame, (row, y), (column, x) in product(range(len(self.keys)), rows, columns):
            yield frame, row, column, y, x

    def limit(self, y: int, x: int) -> np.float32:
        """Return the largest distance (sum of squares) of a match of the reference at (y, x)."""
        there, sigma = self.variation[y + PATCH // 2, x + PATCH // 2], np.float32(SEARCHED_SIGMA)
        return np.float32(self.given.similar * PATCH**2) * sigma * sigma * (there * there)

    def matches(self, frame: int, row: int, column: int, y: int, x: int) -> list[tuple]:
        """Return the matches (y, x) of a reference as the device found them."""
        offsets = offset_table(self.given.search.window)
        low = np.uint32(2 ** max(1, (len(offsets) - 1).bit_length()))
        keys = self.keys[frame, row, :, column]
        cut = keys - keys % low
        distances = np.where(cut == 0, cut, cut + low // 2).astype(np.uint32).view(np.float32)
        near = (keys < FAR_KEY) & (distances <= self.limit(y, x))
        near[0] = True
        return [(y + dy, x + dx) for *_, dy, dx in offsets[keys[near] % low].tolist()]

    def group(self, *place: int) -> reference.Group:
        """Return the group that the reference makes of these matches."""
        basic = self.images.basic[place[0]].astype(float) if self.given.wiener else None
        noisy = self.images.noisy[place[0]].astype(float)
        sigma = SIGMA * self.variation.astype(float)
        return reference.filter_group(noisy, self.matches(*place), sigma, slow(self.given), basic)

    def joined(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the image that the reference makes of its groups, and how far rounding moves it.

        Every patch that is added to a pixel is rounded to whole numbers, 1 / scale of sigma.
        """
        out, bound = np.empty((2, *self.images.noisy.shape))
        for frame, noisy in enumerate(self.images.noisy.astype(float)):
            groups = [self.group(*place) for place in self.places() if place[0] == frame]
            out[frame] = reference.aggregate(noisy, groups, slow(self.given))
            window = np.outer(*2 * [np.kaiser(PATCH, self.given.kaiser)])
            share, count = np.zeros((2, *SHAPE))
            for group in groups:
                for y, x in group.matches:
                    share[y : y + PATCH, x : x + PATCH] += group.weight * window
                    count[y : y + PATCH, x : x + PATCH] += 1
            bound[frame] = 0.5 * SIGMA * count / self.scale / share
        return out, bound


def slow(given: GroupSettings) -> reference.Pass:
    """Return a pass for the reference."""
    search = given.search
    return reference.Pass(
        **{"step": search.step, "window": search.window, "neighbours": search.neighbours},
        **{"transform": given.transform, "stack": given.stack, "similar": given.similar},
        **{"threshold": given.threshold, "wiener_sigma": given.threshold, "kaiser": given.kaiser},
        shared_noise=given.shared_noise,
    )


def compare(run: Run) -> set[int]:
    """Check what every group takes away, and weighs; return how many patches groups have."""
    kaiser = np.kaiser(PATCH, run.given.kaiser)
    weights, exact = np.zeros(run.weights.shape), np.ones(run.weights.shape, bool)
    sizes, edges, radius = [], 0, run.given.search.window // 2
    for place in run.places():
        frame, *_, y, x = place
        group, slab = run.group(*place), run.slabs[place[:3]] / run.scale
        sizes.append(len(group.matches))
        share = np.rint(run.units * group.weight) / run.units
        taken, count = np.zeros((2, *slab.shape))
        removed = reference.removed_patches(group.removed, run.given.transform, run.given.stack)
        # Where a coefficient equals the threshold, or without noise 0, rounding decides if it is
        # kept: what is taken away is small there, but the weight is another.
        margin = np.abs(group.spectrum) / np.sqrt(group.variance) - run.given.threshold
        rounded = not run.given.wiener and np.abs(margin).min() < 2e-5
        rounded |= group.sigma == 0
        edges += rounded and group.sigma > 0
        for (py, px), patch in zip(group.matches, removed, strict=True):
            top, left = py - y + radius, px - x + radius
            taken[top : top + PATCH, left : left + PATCH] += np.outer(kaiser, kaiser) * patch
            count[top : top + PATCH, left : left + PATCH] += 1
            weights[frame, py, px] += share * run.units
            exact[frame, py, px] &= not rounded
        if group.sigma == 0:
            assert not slab.any(), place
        elif not rounded:
            error = np.abs(slab / share - taken * group.sigma / SIGMA)
            # Every patch that is added is rounded to a whole number.
            assert np.all(error <= 1e-4 + 0.5 * count / run.scale / share), (place, error.max())
    assert edges <= 0.05 * len(sizes)
    np.testing.assert_allclose(run.weights[exact], weights[exact], rtol=1e-5, atol=2)
    return set(sizes)
