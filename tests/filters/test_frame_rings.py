"""Rings of frames on a device: what is stored where, and what is set to 0."""

from __future__ import annotations

import numpy as np
import pytest

from napari_gpu_denoise.filters.pixels import Launcher, Pixels
from napari_gpu_denoise.filters.search.video_search import FrameRings, RingShape, ring_buffers
from napari_gpu_denoise.opencl.memory import borrow
from napari_gpu_denoise.opencl.program import session
from napari_gpu_denoise.protocol.plan import allocated
from napari_gpu_denoise.protocol.tiles import Span, Tile

IMAGES, SUMS, MARGIN = 5, 3, 4
# What is read begins at row 6 and column 10 of the frames, what is yielded a little later.
Y, X = Span(8, 17, 6, 20, 60), Span(10, 21, 10, 25, 25)


class Rings:
    """Rings of two channels, and what is in them."""

    def __init__(self, arena):
        self.arena, self.queue = arena, arena.session.queue()
        self.tile = Tile(0, Span.whole(1), Span.whole(1), Y, X, channels=2)
        self.shape = RingShape(IMAGES, SUMS, MARGIN, Y.source_size, X.source_size)
        sizes = ring_buffers(self.shape, 2, ["noisy"], ["noisy"], {"basic": 8})
        self.rings = FrameRings(arena, self.shape, self.tile, allocated(arena, sizes))

    def fill(self, buffer, dtype, value) -> None:
        import pyopencl as cl

        cl.enqueue_fill_buffer(self.queue, buffer, dtype(value), 0, buffer.size).wait()

    def held(self, buffer, dtype, *lengths: int) -> np.ndarray:
        import pyopencl as cl

        out = np.empty((*lengths, self.shape.pny, self.shape.pitch), dtype)
        cl.enqueue_copy(self.queue, out, buffer)
        return out

    def stored(self, ring, values: np.ndarray, tile: Tile, first: int) -> None:
        import pyopencl as cl

        given = self.arena.buffer("given", values.nbytes)
        cl.enqueue_copy(self.queue, given, values)
        run = Launcher(self.arena, self.queue)
        self.rings.store(run, ring, Pixels(given, tile), first)
        assert [name for name, _ in run.launches] == ["store"]


@pytest.fixture
def rings(device):
    with borrow(session(device)) as arena:
        yield Rings(arena)


@pytest.mark.parametrize("first", [0, 3, 4, 12])
@pytest.mark.parametrize("part", ["all that is read", "what is yielded"])
def test_frames_lie_in_their_slots_with_a_margin_around(rings, first, part):
    count = 3
    y, x = (Y, X)
    if part == "all that is read":
        y, x = (Span(s.source_start, s.source_stop, *[0] * 3) for s in (Y, X))
    tile = Tile(0, Span.whole(count), Span.whole(1), y, x, channels=2)
    values = np.random.default_rng(first).normal(size=(2, count, y.size, x.size))
    values = values.astype(np.float32)
    ring = rings.rings.images("noisy")
    rings.fill(ring, np.float32, -7)
    rings.stored(ring, values, tile, first)
    found = rings.held(ring, np.float32, 2, IMAGES)
    top, left = MARGIN + y.start - Y.source_start, MARGIN + x.start - X.source_start
    inner = (slice(top, top + y.size), slice(left, left + x.size))
    slots = [(first + k) % IMAGES for k in range(count)]
    np.testing.assert_array_equal(found[:, slots][..., *inner], values)
    # What lies around is far from any grey level; other frames stay.
    around = np.ones(found.shape[-2:], bool)
    around[inner] = False
    assert np.abs(found[:, slots][..., around]).min() > 1e6
    others = [k for k in range(IMAGES) if k not in slots]
    assert (found[:, others] == -7).all()


def test_guides_have_one_channel_and_a_ring_of_their_own(rings):
    tile = Tile(0, Span.whole(1), Span.whole(1), Y, X)
    values = np.full((1, 1, Y.size, X.size), 3, np.float32)
    ring, images = rings.rings.guides("noisy"), rings.rings.images("noisy")
    rings.fill(images, np.float32, -7)
    rings.stored(ring, values, tile, 6)
    assert (rings.held(images, np.float32, 2, IMAGES) == -7).all()
    found = rings.held(ring, np.float32, IMAGES)
    assert (found[1, MARGIN + 2 : MARGIN + 11, MARGIN : MARGIN + 11] == 3).all()


@pytest.mark.parametrize(
    ("first", "stop", "cleared"),
    [(0, 1, [0]), (1, 3, [1, 2]), (2, 4, [2, 0]), (5, 8, [2, 0, 1]), (7, 7, [])],
)
def test_sums_of_some_frames_are_set_to_0(rings, first, stop, cleared):
    sums = rings.rings.sums("basic")
    rings.fill(sums, np.int32, 9)
    run = Launcher(rings.arena, rings.queue)
    rings.rings.clear(run, "basic", 8, first, stop)
    assert {name for name, _ in run.launches} <= {"clear"}
    found = rings.held(sums, np.int32, 2, SUMS, 2)
    expected = np.full(found.shape, 9)
    expected[:, cleared] = 0
    np.testing.assert_array_equal(found, expected)
