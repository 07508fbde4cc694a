"""The search of VBM3D: rings of frames, the motion of blocks, and matches that follow it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from napari_gpu_denoise.filters.pixels import Launcher, Pixels
from napari_gpu_denoise.filters.search.patch_search import Grid, Variant, grid_arguments
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.protocol.plan import Sizes
from napari_gpu_denoise.protocol.tiles import Tile


class RingShape:
    """Shape of rings of padded frames on a device.

    Rings of images and of sums have so many frames, of `ny` x `nx` pixels with a `margin` of FAR
    around. So many pixels as `shift` says of the first block of 8 x 8 lie before the frame: blocks
    lie alike in all parts of a frame, in rows and columns of `blocks`. A padded frame has `pny`
    rows of `pitch` values, in all `plane`; `layout` are kernel arguments.
    """

    def __init__(
        self, images: int, sums: int, margin: int, ny: int, nx: int, shift: tuple[int, int] = (0, 0)
    ):
        self.images, self.sums, self.margin = images, sums, margin
        self.ny, self.nx, self.shift = ny, nx, shift
        self.blocks = tuple(-(-(n + s) // 8) for n, s in zip((ny, nx), shift, strict=True))
        self.pny, self.pitch = ny + 2 * margin, -(-(nx + 2 * margin) // 16) * 16
        self.plane = self.pny * self.pitch
        self.layout = {"pny": self.pny, "pitch": self.pitch, "y0": margin, "x0": margin}

    def store(self, run: Launcher, ring, pixels: Pixels, first: int, read: Tile) -> None:
        """Enqueue the storing of frames, the first one of time `first`, in a ring of images.

        The rings hold what a tile has to `read`, in all channels.
        """
        held = pixels.tile
        count = held.t.size
        down = self.margin + held.y.start - read.y.source_start
        right = self.margin + held.x.start - read.x.source_start
        run.pad(
            *(pixels.buffer, (count, 1, held.y.size, held.x.size), ring),
            *((count, 1, self.pny, self.pitch), (0, 0, down, right)),
            channels=held.channels,
            into=(first % self.images, self.images),
        )

    def clear(self, run: Launcher, sums, channels: int, each: int, times: range) -> None:
        """Enqueue the zeroing of the sums of a pass, `each` bytes a pixel, at some times."""
        frame, first = each * self.plane, times.start
        while first < times.stop:
            slot = first % self.sums
            count = min(times.stop - first, self.sums - slot)
            for c in range(channels):
                run.clear(sums, count * frame, (c * self.sums + slot) * frame)
            first += count

    def map_arguments(self, variation: Any) -> dict[str, Any]:
        """Return the kernel arguments of a map of the shape of a frame, if there is one."""
        if variation is None:
            return {}
        shift = -self.margin
        return {"variation": variation, "map_pitch": self.nx, "map_y": shift, "map_x": shift}


@dataclass(frozen=True)
class RingFrames:
    """Some frames in rings: `count` of them from time `first` on."""

    shape: RingShape
    first: int
    count: int

    @property
    def slots(self) -> dict[str, int]:
        """Kernel arguments: lengths of the rings of images and sums, each with its first slot."""
        images, sums = self.shape.images, self.shape.sums
        return {
            **{"ring": images, "first_slot": self.first % images},
            **{"sum_ring": sums, "first_sum": self.first % sums},
        }


@dataclass(frozen=True)
class ReferenceFrames(RingFrames):
    """Some frames whose references, along Y and X, are searched and filtered."""

    grid: tuple[Grid, Grid]


BLOCK = 8
AROUND = BLOCK  # pixels around a block that are compared with it
_PAIRS = 2  # pairs of frames compared at once, which limits the memory
_CELL = 15  # most displacements along y that a work-item of a GPU compares at once


class BlockMotion:
    """Kernels and buffers of the measurement; belongs to one thread.

    `window` is the full width that is searched, and `frames` are those before and after.
    """

    def __init__(self, window: int, frames: tuple[int, int], arena: Arena):
        self._window, self._frames = window, frames
        self._vector = int(arena.device.float_lanes >= 4)
        self._columns = max(1, min(16, arena.device.max_group // window))
        constants = {"PATCH": BLOCK, "NEAREST": window, "VECTOR": self._vector}
        constants["GROUP_X"] = self._columns
        # As even as possible: what is compared beyond the window is wasted.
        cell = -(-window // -(-window // _CELL))
        self._compare = arena.kernel("vbm3d/compare_blocks", {**constants, "CELL": cell, "KEPT": 1})
        self._choose = arena.kernel("vbm3d/block_motion", constants)

    def buffers(self, shape: RingShape) -> Sizes:
        """Return the ring of motions, and the buffer of costs."""
        rows, columns = shape.blocks
        blocks = (rows + 2) * self._pitch(columns)
        costs = 4 * 2 * _PAIRS * self._window**2 * blocks
        return {"motions": 8 * shape.images * rows * columns, "motion costs": costs}

    def enqueue(self, run: Launcher, images, frames: RingFrames, links) -> dict[str, Any]:
        """Enqueue the measurement from each of some frames to the next one, and back.

        `images` is a ring of padded frames, and `links` the float32 table that `FrameLinks.links`
        returns for the guide, of all these frames and the one after them. Returned are the kernel
        arguments of the motions: short2 (images, 2, rows, columns), (dy, dx) forward and backward
        in time, of the blocks of the frames in the ring.
        """
        shape, (before, after) = frames.shape, self._frames
        (rows, columns), (shift_y, shift_x) = shape.blocks, shape.shift
        pitch = self._pitch(columns)
        blocks = {"block_rows": rows, "shift_y": shift_y, "shift_x": shift_x}
        found = {**blocks, "block_columns": columns, "motions": run.held["motions"]}
        for start in range(0, frames.count, _PAIRS):
            pairs = min(_PAIRS, frames.count - start)
            linked = {
                **{"ring": shape.images, "first": (frames.first + start) % shape.images},
                **{"ny": shape.ny, "nx": shape.nx, "links": links, "first_pair": start},
                **{"frames_before": before, "frames_after": after},
                **{"cost_pitch": pitch, "costs": run.held["motion costs"]},
            }
            run.run(
                *("compare blocks", self._compare, *self._grid(pitch, rows + 2, 2 * pairs)),
                **{"images": images, **shape.layout, **linked, **blocks},
            )
            across = -(-columns // 8) if self._vector else columns
            run.run(
                *("block motion", self._choose, *self._grid(across, rows, 2 * pairs)),
                **{**linked, **found},
            )
        return found

    def _grid(self, columns: int, rows: int, count: int) -> tuple[tuple, tuple]:
        """Return a grid of blocks; on a GPU, of all dx of each."""
        if self._vector:
            return (columns, rows, count), (1, 1, 1)
        group = self._columns
        across = -(-columns // group) * group
        return (self._window, across, rows * count), (self._window, group, 1)

    @staticmethod
    def _pitch(columns: int) -> int:
        """Return the length of a row of costs: vectors may read beyond the last block."""
        return -(-columns // 8) * 8 + 8


FURTHEST = 32  # largest displacement of a match, in pixels, however fast the motion


@dataclass(frozen=True)
class VideoSearch:
    """Settings of a search: widths in pixels, numbers of frames and patches."""

    patch: int
    step: int
    first: int  # width of the window in the frame of the reference
    following: int  # width of the window around earlier matches, in other frames
    kept: int  # patches kept in each frame
    neighbours: int  # maximum number of patches in a group
    frames: tuple[int, int]  # before and after
    still: float = 0.0  # subtracted from the distance of an unmoved patch, in sigma squared
    nearest: int = 15  # width of the window in which the motion of blocks is found
    similar: float = math.inf  # maximum mean squared difference of a match, in sigma squared

    def displacement(self, frames: int) -> int:
        """Return how far a match may lie from its reference in a frame that is `frames` away."""
        if not frames:
            # Matches in its own frame may fill a group.
            return max(self.first, self.nearest) // 2
        beside = self.nearest // 2 + self.following // 2
        return max(min(frames * beside, FURTHEST), beside, self.first // 2)

    @property
    def furthest(self) -> int:
        """Largest distance of a match from its reference in any frame."""
        return self.displacement(max(self.frames))

    @property
    def window(self) -> int:
        """Full width of the region in which a reference may be matched."""
        return 2 * self.furthest + 1

    @property
    def beyond(self) -> int:
        """How much further than its matches the pixels lie that a reference depends on."""
        # From the middle of a patch to the end of the blocks that it moves with.
        return BLOCK // 2 + AROUND + self.nearest // 2 if any(self.frames) else 0

    @property
    def late(self) -> int:
        """Number of later frames whose references add to a frame; 0 for a causal filter."""
        return min(self.frames)

    @property
    def candidates(self) -> int:
        """Maximum number of patches that a reference is compared with."""
        return self.first**2 + sum(self.frames) * self.following**2

    def covering(self, width: int) -> int:
        """Return how many matches may cover a pixel; a width of 1 counts those that begin there."""
        total = 0
        for frames in range(-self.late, self.frames[1] + 1):
            side = (2 * self.displacement(abs(frames)) + width - 1) // self.step + 2
            # Its own frame fills an incomplete group.
            total += (self.kept if frames else self.neighbours) * side**2
        return total


def margin_of(search: VideoSearch) -> int:
    """Return the margin around a frame in which the search kernels may read."""
    widest = max(search.first, search.nearest, search.following)
    # Strips may extend beyond a window.
    return widest // 2 + max(search.following, 8)


_MANY = 64  # patches of a group, from which a work-group searches for one reference


def choose_video_variant(search: VideoSearch, device: Device) -> Variant:
    """Choose the search kernel for a device: rows of a patch as vectors on a CPU."""
    if device.float_lanes >= 4:
        return Variant("search_patches", {"GROUP_X": 1, "GROUP_Y": 1})
    if search.neighbours >= _MANY and device.max_group >= search.neighbours:
        return Variant("search_many", {})
    items = 1 + all(search.frames)
    shapes = ((16, 8), (16, 4), (8, 4), (4, 4), (2, 2), (1, 1))
    if items == 1:
        shapes = ((32, 4), *shapes)  # a warp reads whole lines of memory
    largest = min(device.max_group, 128)
    group_x, group_y = next((x, y) for x, y in shapes if items * x * y <= largest or x == 1)
    return Variant("search_tracks", {"DIRECTIONS": items, "GROUP_X": group_x, "GROUP_Y": group_y})


class PredictiveSearch:
    """Kernel and buffers of a predictive search; belongs to one thread."""

    def __init__(self, settings: VideoSearch, arena: Arena):
        self.settings = settings
        self.variant = choose_video_variant(settings, arena.device)
        constants = {
            "PATCH": settings.patch,
            "STEP": settings.step,
            "WINDOW": settings.first,
            "NEXT": settings.following,
            # Large groups of overlapping patches lack many at the edges of an image.
            "FILL": settings.first if settings.neighbours >= _MANY else settings.nearest,
            "MOTION": any(settings.frames),
            "FURTHEST": settings.furthest,
            "KEPT": settings.kept,
            "NEIGHBOURS": settings.neighbours,
            "INDEX_BITS": 0,  # all bits of a key are the distance
        }
        self._search = arena.kernel(
            f"vbm3d/{self.variant.kernel}", {**constants, **self.variant.constants}
        )

    def buffers(self, count: int, grid: tuple[Grid, Grid]) -> Sizes:
        """Return the buffers for the matches: (frames, rows, neighbours, columns)."""
        rows, columns = grid
        size = 4 * count * rows.count * columns.count * self.settings.neighbours
        return {"keys": size, "places": size}

    def enqueue(
        self, run: Launcher, images, frames: ReferenceFrames, links, motions: dict[str, Any]
    ) -> None:
        """Enqueue the search for the references of some frames, which fills keys and places.

        `images` is a ring of padded frames, and `links` the float32 table that `FrameLinks.links`
        returns for the guide; `motions` are those of these frames, if others are searched.
        """
        settings, shape, count = self.settings, frames.shape, frames.count
        rows, columns = frames.grid
        constants = self.variant.constants
        group_x, group_y = (constants.get(f"GROUP_{axis}", 1) for axis in "XY")
        across, down = -(-columns.count // group_x), -(-rows.count // group_y)
        groups = across * down * group_x * group_y
        if self.variant.kernel == "search_patches":
            over, local = (columns.count, rows.count, count), (1, 1, 1)
        elif self.variant.kernel == "search_many":
            many = settings.neighbours
            over, local = (many, rows.count * columns.count, count), (many, 1, 1)
        else:
            # Whole warps take one direction of time.
            items = constants["DIRECTIONS"]
            over, local = (groups, items, count), (group_x * group_y, items, 1)
        before, after = settings.frames
        run.run(
            *("search", self._search, over, local),
            **{"images": images, "ring": shape.images, "first": frames.first % shape.images},
            **{**shape.layout, "ny": shape.ny, "nx": shape.nx, **grid_arguments(rows, columns)},
            **{"groups_x": across, "links": links},
            **{"frames_before": before, "frames_after": after},
            **{"still": settings.still * settings.patch**2},
            **{"similar": settings.similar * settings.patch**2},
            **{"keys": run.held["keys"], "places": run.held["places"], **motions},
        )
