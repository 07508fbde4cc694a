"""Find similar patches in a video: matches in one frame predict where to search in the next."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from napari_gpu_denoise.filters.search.patch_search import Grid, Variant, grid_arguments
from napari_gpu_denoise.filters.vbm3d.block_motion import AROUND, BLOCK, Motions
from napari_gpu_denoise.filters.vbm3d.frame_rings import RingShape
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.protocol.plan import Buffers, Launches, Sizes, allocated

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
    nearest: int = 0  # width of the window in adjacent frames, to find motion; 0 follows none
    coarse: int = 1  # spacing of the displacements that are tried first in that window
    similar: float = math.inf  # maximum mean squared difference of a match, in sigma squared
    blocks: bool = False  # whether motion is that of blocks, instead of the patch's own

    def displacement(self, frames: int) -> int:
        """Return how far a match may lie from its reference in a frame that is `frames` away."""
        if not self.nearest:
            return self.first // 2 + frames * (self.following // 2)
        if not frames:
            # Matches in its own frame may fill a group.
            return max(self.first, self.nearest) // 2
        around = self.following // 2
        if self.blocks:
            far = frames * (self.nearest // 2 + around)
            return max(min(far, FURTHEST), self.nearest // 2 + around, self.first // 2)
        beside = self.nearest // 2 + (around if self.coarse > 1 else 0)
        far, speed = beside, beside
        for _ in range(frames - 1):
            far, speed = far + speed + around, speed + around
        # If a frame is skipped, the next one is searched as if it were adjacent.
        return max(min(far, FURTHEST), beside, self.first // 2)

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
        return BLOCK // 2 + AROUND + self.nearest // 2 if self.blocks else 0

    @property
    def late(self) -> int:
        """Number of later frames whose references add to a frame; 0 for a causal filter."""
        return min(self.frames)

    @property
    def candidates(self) -> int:
        """Maximum number of patches that a reference is compared with."""
        others = sum(self.frames)
        if not self.nearest:
            return self.first**2 + others * self.kept * self.following**2
        if self.blocks:
            return self.first**2 + others * self.following**2
        beside = sum(map(bool, self.frames)) * (self.nearest // self.coarse + 1) ** 2
        return self.first**2 + beside + others * self.following**2

    def covering(self, width: int) -> int:
        """Return how many matches may cover a pixel; a width of 1 counts those that begin there."""
        total = 0
        for frames in range(-self.late, self.frames[1] + 1):
            side = (2 * self.displacement(abs(frames)) + width - 1) // self.step + 2
            fills = self.nearest and not frames  # its own frame fills an incomplete group
            total += (self.neighbours if fills else self.kept) * side**2
        return total


def margin_of(search: VideoSearch) -> int:
    """Return the margin around a frame in which the search kernels may read."""
    widest = max(search.first, search.nearest, search.following)
    # Strips may extend beyond a window, coarse ones by up to four of their spacings.
    return widest // 2 + max(search.following, 4 * search.coarse, 5 * search.blocks)


@dataclass(frozen=True)
class VideoMatches:
    """The result of a search, in buffers of shape (frames, rows, neighbours, columns)."""

    keys: Any
    places: Any


def choose_video_variant(search: VideoSearch, device: Device) -> Variant:
    """Choose the search kernel for a device: rows of a patch as vectors on a CPU."""
    if device.float_lanes >= 4:
        return Variant("search_patches", {"GROUP_X": 1, "GROUP_Y": 1})
    if search.nearest:
        items, constants = 1 + all(search.frames), {"CELL": 4}
        constants["DIRECTIONS"] = items
        kernel, most = "search_tracks", 128
    else:
        items, constants = search.kept, {"SPAN": search.following, "BLOCK": 8}
        kernel, most = "search_windows", 256
    shapes = ((16, 8), (16, 4), (8, 4), (4, 4), (2, 2), (1, 1))
    if search.nearest and items == 1:
        shapes = ((32, 4), *shapes)  # a warp reads whole lines of memory
    largest = min(device.max_group, most)
    group_x, group_y = next((x, y) for x, y in shapes if items * x * y <= largest or x == 1)
    # A warp must hold whole teams.
    warp = "nvidia" in device.vendor.lower() and 32 % items == 0
    constants |= {"GROUP_X": group_x, "GROUP_Y": group_y}
    constants["WARP_SYNC"] = int(warp and items * group_x * group_y % 32 == 0)
    return Variant(kernel, constants)


class PredictiveSearch:
    """Kernel and buffers of a predictive search; belongs to one thread."""

    def __init__(self, settings: VideoSearch, arena: Arena, variant: Variant | None = None):
        self.settings = settings
        self.arena = arena
        self.variant = variant or choose_video_variant(settings, arena.session.device)
        constants = {
            "PATCH": settings.patch,
            "STEP": settings.step,
            "WINDOW": settings.first,
            "NEAREST": settings.nearest,
            "NEXT": settings.following,
            "COARSE": settings.coarse,
            "MOTION": (2 if settings.blocks else 1) if settings.nearest else 0,
            "FURTHEST": settings.furthest,
            "KEPT": settings.kept,
            "NEIGHBOURS": settings.neighbours,
            "INDEX_BITS": 0,  # all bits of a key are the distance
        }
        self._search = arena.kernel(
            f"vbm3d/{self.variant.kernel}", {**constants, **self.variant.constants}
        )

    def buffers(self, count: int, grid: tuple[Grid, Grid]) -> Sizes:
        """Return the buffers for the references of `count` frames."""
        rows, columns = grid
        size = 4 * count * rows.count * columns.count * self.settings.neighbours
        return {"keys": size, "places": size}

    def enqueue(
        self,
        queue,
        images,
        shape: RingShape,
        first: int,
        count: int,
        grid,
        links,
        held: Buffers | None = None,
        motions: Motions | None = None,
    ) -> tuple[VideoMatches, Launches]:
        """Enqueue the search for references in the `count` frames from time `first` on.

        `images` is a ring of padded frames, `grid` the references along Y and X, and `links` the
        float32 table that `FrameLinks.links` returns for the guide; with `blocks`, `motions` are
        those of these frames.
        """
        i32, f32, settings = np.int32, np.float32, self.settings
        rows, columns = grid
        held = held or allocated(self.arena, self.buffers(count, grid))
        found = VideoMatches(held["keys"], held["places"])
        constants = self.variant.constants
        group_x, group_y = constants["GROUP_X"], constants["GROUP_Y"]
        across, down = -(-columns.count // group_x), -(-rows.count // group_y)
        groups = across * down * group_x * group_y
        if self.variant.kernel == "search_patches":
            over, local = (columns.count, rows.count, count), (1, 1, 1)
        elif self.variant.kernel == "search_windows":
            items = settings.kept * -(-settings.following // constants["SPAN"])
            over, local = (items, groups, count), (items, group_x * group_y, 1)
        else:
            # Whole warps take one direction of time.
            items = constants["DIRECTIONS"]
            over, local = (groups, items, count), (group_x * group_y, items, 1)
        launch = self._search(
            queue,
            over,
            local,
            *(images, i32(shape.images), i32(first % shape.images), *shape.layout),
            *(i32(shape.ny), i32(shape.nx), *grid_arguments(rows, columns)),
            *(i32(across), links, *map(i32, settings.frames)),
            *(f32(limit * settings.patch**2) for limit in (settings.still, settings.similar)),
            *(found.keys, found.places, *(motions.arguments if motions else ())),
        )
        return found, [("search", launch)]
