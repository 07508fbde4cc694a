"""Find similar patches in a video: those of one frame tell where to look in the next."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from napari_gpu_denoise.filters.search.patches import Grid
from napari_gpu_denoise.filters.search.variants import Variant
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.run.plan import Buffers, Launches, Sizes, allocated

# However fast things move, no match is looked for further from its reference, in pixels.
FURTHEST = 32


@dataclass(frozen=True)
class VideoSearch:
    """What is searched: widths in pixels, counts of frames and patches.

    Attributes
    ----------
    patch, step : int
        Width and spacing of the reference patches.
    first, following : int
        Width of the window in the frame of the reference, and around what was found, in others.
    kept : int
        Patches kept in each frame.
    neighbours : int
        Most patches in a group.
    frames : tuple of int
        Frames before and after.
    still : float
        What is taken off the distance of a patch that has not moved, in sigma squared.
    nearest : int
        Width of the window in the frames beside that of the reference, from which motion is known
        and followed on; 0 follows none.
    coarse : int
        Spacing of the displacements that are tried first in that window.
    similar : float
        Largest mean squared difference of a match, in sigma squared.
    """

    patch: int
    step: int
    first: int
    following: int
    kept: int
    neighbours: int
    frames: tuple[int, int]
    still: float = 0.0
    nearest: int = 0
    coarse: int = 1
    similar: float = math.inf

    def displacement(self, frames: int) -> int:
        """Return how far a match may lie from its reference, so many frames away."""
        if not self.nearest:
            return self.first // 2 + frames * (self.following // 2)
        if not frames:
            # More of the own frame may fill a group.
            return max(self.first, self.nearest) // 2
        around = self.following // 2
        beside = self.nearest // 2 + (around if self.coarse > 1 else 0)
        far, speed = beside, beside
        for _ in range(frames - 1):
            far, speed = far + speed + around, speed + around
        # Where a frame is passed over, the next one is searched as if it were beside.
        return max(min(far, FURTHEST), beside, self.first // 2)

    @property
    def furthest(self) -> int:
        """How far a match may lie from its reference in any frame."""
        return self.displacement(max(self.frames))

    @property
    def window(self) -> int:
        """Full width of all that a reference may be matched in."""
        return 2 * self.furthest + 1

    @property
    def late(self) -> int:
        """Frames after its own whose references add to a frame: none for a causal filter."""
        return min(self.frames)

    @property
    def span(self) -> int:
        """Frames that a reference is matched in, its own included."""
        return 1 + sum(self.frames)

    @property
    def candidates(self) -> int:
        """Most patches that a reference is compared with."""
        others = sum(self.frames)
        if not self.nearest:
            return self.first**2 + others * self.kept * self.following**2
        beside = sum(map(bool, self.frames)) * (self.nearest // self.coarse + 1) ** 2
        return self.first**2 + beside + others * self.following**2

    def covering(self, width: int) -> int:
        """Return how many matches may cover one pixel, or with a width of 1 begin there."""
        total = 0
        for frames in range(-self.late, self.frames[1] + 1):
            side = (2 * self.displacement(abs(frames)) + width - 1) // self.step + 2
            fills = self.nearest and not frames  # the own frame fills a group that lacks others
            total += (self.neighbours if fills else self.kept) * side**2
        return total


@dataclass(frozen=True)
class RingShape:
    """Rings of padded frames on a device.

    Attributes
    ----------
    images, sums : int
        Frames that rings of images and of sums hold.
    margin : int
        Pixels of FAR around a frame.
    ny, nx : int
        Height and width of a frame.
    """

    images: int
    sums: int
    margin: int
    ny: int
    nx: int

    @property
    def pny(self) -> int:
        """Rows of a padded frame."""
        return self.ny + 2 * self.margin

    @property
    def pitch(self) -> int:
        """Values in a row of a padded frame."""
        return -(-(self.nx + 2 * self.margin) // 16) * 16

    @property
    def plane(self) -> int:
        """Values in a padded frame."""
        return self.pny * self.pitch

    @property
    def layout(self) -> tuple:
        """The arguments that tell a kernel where a frame lies: pny, pitch, y0, x0."""
        return tuple(map(np.int32, (self.pny, self.pitch, self.margin, self.margin)))


def margin_of(search: VideoSearch) -> int:
    """Return the margin that the search kernels read in, whatever the frame holds."""
    widest = max(search.first, search.nearest, search.following)
    # Strips may go beyond a window, the coarse ones by up to four of their spacings.
    return widest // 2 + max(search.following, 4 * search.coarse)


@dataclass(frozen=True)
class VideoMatches:
    """The result of a search, on the device; both of shape (frames, rows, neighbours, columns)."""

    keys: Any
    places: Any


def choose_video_variant(search: VideoSearch, device: Device) -> Variant:
    """Choose the search kernel for a device: lanes of a patch as a vector on a CPU."""
    if device.float_lanes >= 4:
        return Variant("search_patches", {"VECTOR": 1, "GROUP_X": 1, "GROUP_Y": 1, "WARP_SYNC": 0})
    if search.nearest:
        items, constants = 1 + all(search.frames), {"CELL": 4}
        constants["DIRECTIONS"] = items
        kernel = "search_tracks"
    else:
        items, constants = search.kept, {"SPAN": search.following, "BLOCK": 8}
        kernel = "search_windows"
    shapes = ((16, 8), (16, 4), (8, 4), (4, 4), (2, 2), (1, 1))
    largest = min(device.max_group, 256)
    group_x, group_y = next((x, y) for x, y in shapes if items * x * y <= largest or x == 1)
    # A warp holds whole teams.
    warp = "nvidia" in device.vendor.lower() and 32 % items == 0
    constants |= {"GROUP_X": group_x, "GROUP_Y": group_y}
    constants["WARP_SYNC"] = int(warp and items * group_x * group_y % 32 == 0)
    return Variant(kernel, constants)


class PredictiveSearch:
    """Kernel and buffers of a predictive search; belongs to one thread.

    Parameters
    ----------
    settings : VideoSearch
        What is searched.
    arena : Arena
        Keeps the buffers.
    variant : Variant, optional
        The kernel to use, by default what `choose_video_variant` gives for the device.
    """

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
            "MOTION": int(settings.nearest > 0),
            "FURTHEST": settings.furthest,
            "KEPT": settings.kept,
            "NEIGHBOURS": settings.neighbours,
            "INDEX_BITS": 0,  # keys are distances, to the last bit
        }
        self._search = arena.kernel(
            f"vbm3d/{self.variant.kernel}", {**constants, **self.variant.constants}
        )

    def buffers(self, count: int, grid: tuple[Grid, Grid]) -> Sizes:
        """Return the buffers that the search for the patches of so many frames needs."""
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
    ) -> tuple[VideoMatches, Launches]:
        """Enqueue the search for the patches of some frames.

        Parameters
        ----------
        queue : pyopencl.CommandQueue
            In-order queue.
        images : pyopencl.Buffer
            Ring of padded frames.
        shape : RingShape
            What the ring is like.
        first, count : int
            The frames whose patches are the references: time of the first, and how many.
        grid : tuple of Grid
            References along Y and X.
        links : pyopencl.Buffer
            float32 of shape (count, span, 3): how each of them is linked to those around it.
        held : Buffers, optional
            What `buffers` declares; by default it is allocated.
        """
        i32, f32, settings = np.int32, np.float32, self.settings
        rows, columns = grid
        held = held or allocated(self.arena, self.buffers(count, grid))
        found = VideoMatches(held["keys"], held["places"])
        constants = self.variant.constants
        group_x, group_y = constants["GROUP_X"], constants["GROUP_Y"]
        across, down = -(-columns.count // group_x), -(-rows.count // group_y)
        if constants.get("VECTOR"):
            over, local = (columns.count, rows.count, count), (1, 1, 1)
        else:
            items = constants.get("DIRECTIONS", settings.patch)
            if self.variant.kernel == "search_windows":
                items = settings.kept * -(-settings.following // constants["SPAN"])
            over = (items, across * down * group_x * group_y, count)
            local = (items, group_x * group_y, 1)
        launch = self._search(
            queue,
            over,
            local,
            *(images, i32(shape.images), i32(first % shape.images), *shape.layout),
            *(i32(shape.ny), i32(shape.nx), *grid_arguments(rows, columns)),
            *(i32(across), links, *map(i32, settings.frames)),
            *(f32(limit * settings.patch**2) for limit in (settings.still, settings.similar)),
            *(found.keys, found.places),
        )
        return found, [("search", launch)]


def grid_arguments(rows: Grid, columns: Grid) -> tuple:
    """Return the arguments that tell a kernel where the reference patches are."""
    values = (rows.first, rows.last, rows.count, columns.first, columns.last, columns.count)
    return tuple(map(np.int32, values))
