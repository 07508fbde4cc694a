"""Filter groups of similar patches in a transform domain, on one device: a pass of BM3D."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from napari_gpu_denoise.filters.bm3d.group_settings import (
    PATCH,
    GroupSettings,
    GroupVariant,
    choose_group_variant,
    float_atomics,
    slab_shape,
)
from napari_gpu_denoise.filters.bm3d.group_tables import (
    fixed_point,
    group_constants,
    group_tables,
    weight_units,
)
from napari_gpu_denoise.filters.pixels import Noisy, Pixels, spread
from napari_gpu_denoise.filters.search.patch_search import Matches, PatchSearch, SearchLayout
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.opencl.work_items import pixel_grid
from napari_gpu_denoise.run.plan import Buffers, Launches, Sizes, allocated
from napari_gpu_denoise.run.tiles import Span, Tile


@dataclass(frozen=True)
class Found:
    """What a search found, in which image; `levels` is the noise of it if it is another image."""

    matches: Matches
    image: Pixels
    levels: Any = None


class GroupFilter:
    """Kernels and buffers of one pass; belongs to one thread.

    Parameters
    ----------
    settings : GroupSettings
        The pass.
    arena : Arena
        Keeps the buffers; passes on the same arena share them.
    variant : GroupVariant, optional
        The kernel to use, by default what `choose_group_variant` gives for the device.
    search_variant : Variant, optional
        The same for the search.
    """

    def __init__(
        self,
        settings: GroupSettings,
        arena: Arena,
        variant: GroupVariant | None = None,
        search_variant: Any = None,
    ):
        self.settings = settings
        self.arena = arena
        self.search = PatchSearch(settings.search, arena, search_variant)
        device = arena.session.device
        self.variant = variant or choose_group_variant(settings, device)
        search = settings.search
        # A CPU adds floats no faster than whole numbers: it always repeats itself.
        self._floats = not settings.reproducible and self.variant.kernel == "shrink_shared"
        self._constants = {
            **self.search.constants,
            **group_constants(settings),
            "FLOAT_SUMS": int(self._floats),
            "ATOMIC_FLOAT": float_atomics(device) if self._floats else 0,
            "VIDEO": 0,
            **self.variant.constants,
        }
        self._shrink: dict[bool, Any] = {}
        self._join_group = (32, 8) if device.max_group >= 256 else (8, 4)
        self._join = arena.kernel(
            "bm3d/join_slabs",
            {
                **{
                    name: self._constants[name]
                    for name in ("PATCH", "STEP", "WINDOW", "FLOAT_SUMS", "VIDEO")
                },
                "GROUP_X": self._join_group[0],
                "GROUP_Y": self._join_group[1],
                "SLAB_X": self.variant.constants["GROUP_X"],
                "SLAB_Y": self.variant.constants["GROUP_Y"],
            },
        )
        self._pad = arena.kernel("search/pad_far", {"SPLIT": 1, "ALIKE": 0})
        self._kaiser, self._correlation = group_tables(settings, arena)
        # Fixed point: as fine as fits in 31 bits, whatever is added up.
        self._added = self.variant.references * search.neighbours
        self._scale = fixed_point(self._added)
        self._units = weight_units(((search.window - 1) // search.step + 2) ** 2)

    def searched(self, tile: Tile, held: Tile) -> Tile:
        """Return what is searched to yield a tile, in an image of which `held` is there."""
        wide = spread(tile, self.settings.search.window // 2)
        spans = {
            axis: Span(span.start, span.stop, part.start, part.stop, span.length)
            for axis, span, part in (("y", wide.y, held.y), ("x", wide.x, held.x))
        }
        return replace(wide, **spans)

    def buffers(self, tile: Tile, held: Tile, padded: Sequence[str] = ()) -> Sizes:
        """Return the buffers that a tile needs, those of the search among them.

        Parameters
        ----------
        tile : Tile
            What is to be yielded.
        held : Tile
            What there is of the image that is searched.
        padded : sequence of str
            Which of ``"noisy"`` and ``"basic"`` are not what is searched.
        """
        searched = self.searched(tile, held)
        at, frames = self.search.layout(searched), tile.channels * tile.t.size * tile.z.size
        *_, pny, pitch = at.shape
        plane = 4 * frames * pny * pitch
        slabs = plane
        if not self._floats:
            groups = math.prod(self._groups(at))
            slabs = 4 * frames * groups * math.prod(slab_shape(self.settings.search, self.variant))
        copies = {f"padded {name}": plane for name in padded}
        return {**self.search.buffers(searched), "weights": plane, "slabs": slabs, **copies}

    def enqueue(
        self,
        queue,
        tile: Tile,
        found: Found,
        noisy: Noisy,
        basic: Pixels | None,
        out,
        held: Buffers | None = None,
    ) -> Launches:
        """Enqueue the filtering of the groups that were found.

        Parameters
        ----------
        queue : pyopencl.CommandQueue
            In-order queue.
        tile : Tile
            What is yielded; its channels share the matches.
        found : Found
            What `find` returned for this tile.
        noisy : Noisy
            What is filtered, and its noise.
        basic : Pixels or None
            The basic estimate of the same channels, for a Wiener filter.
        out : pyopencl.Buffer
            float32 of shape (channels, nt, nz, ny, nx) of what `tile` yields.
        held : Buffers, optional
            What `buffers` declares; by default it is allocated.

        Returns
        -------
        list of (str, pyopencl.Event)
            The launches, by name, those of the search among them.
        """
        i32, f32 = np.int32, np.float32
        matches, settings = found.matches, self.settings
        launches = list(matches.events)
        matched = tile.t.size * tile.z.size
        frames = tile.channels * matched

        given = {"noisy": noisy.pixels, **({"basic": basic} if settings.wiener else {})}
        others = [name for name, pixels in given.items() if not _same(pixels, found.image)]
        held = held or allocated(self.arena, self.buffers(tile, found.image.tile, others))
        images = [matches.padded] * len(given)
        for k, (name, pixels) in enumerate(given.items()):
            if name in others:
                images[k] = held[f"padded {name}"]
                launches.append(("pad", self._pad_as(queue, pixels, found, frames, images[k])))
        _, pny, pitch, *_, y0, x0, _ = map(int, matches.layout)
        down, across = self._groups(matches)
        layout = (*map(i32, (pny, pitch, y0, x0)),)

        def cleared(name: str, nbytes: int):
            import pyopencl as cl

            buffer = held[name]
            launches.append(("clear", cl.enqueue_fill_buffer(queue, buffer, i32(0), 0, nbytes)))
            return buffer

        weights = cleared("weights", 4 * frames * pny * pitch)
        slabs = cleared("slabs", 4 * frames * pny * pitch) if self._floats else held["slabs"]
        sigma_map = ()
        if noisy.variation is not None:
            part = noisy.variation.tile
            shift_y = found.image.tile.y.start - part.y.start - y0
            shift_x = found.image.tile.x.start - part.x.start - x0
            sigma_map = (noisy.variation.buffer, *map(i32, (part.x.size, shift_y, shift_x)))
        if self.variant.kernel == "shrink_lanes":
            grid, local = (across, down, frames), (1, 1, 1)
        else:
            teams = self.variant.constants["TEAMS"]
            team = 8 * settings.search.neighbours // self.variant.constants["DEPTH"]
            grid, local = (team, teams * across * down, frames), (team, teams, 1)
        shrink = self._kernel(bool(sigma_map))(
            queue,
            grid,
            local,
            *(*images, *layout, *matches.grid, i32(across)),
            *(matches.offsets, matches.keys, i32(matched)),
            *(noisy.levels, found.levels or noisy.levels, *sigma_map),
            *(f32(settings.similar * PATCH**2), f32(settings.threshold**2)),
            *(self._kaiser, self._correlation),
            *([i32(frames // len(settings.spectra))] if settings.spectra else ()),
            *(f32(self._scale), f32(2.0**31 / self._added), f32(self._units)),
            *(slabs, weights),
        )
        launches.append(("shrink", shrink))
        top = tile.y.start - found.image.tile.y.start
        left = tile.x.start - found.image.tile.x.start
        _, _, ny, nx = tile.shape
        width, height = self._join_group
        join = self._join(
            queue,
            (-(-nx // width) * width, -(-ny // height) * height, frames),
            (width, height, 1),
            *(images[0], *layout),
            *map(i32, (matches.rows.first, matches.rows.last)),
            *map(i32, (matches.columns.first, matches.columns.last, down, across)),
            *(slabs, weights, noisy.levels, self._kaiser, f32(self._scale), f32(self._units)),
            *(*map(i32, (top, left, ny, nx)), out),
        )
        launches.append(("join", join))
        return launches

    def _groups(self, at: SearchLayout | Matches) -> tuple[int, int]:
        """Return how many work-groups serve all references, down and across."""
        group_x, group_y = (self.variant.constants[name] for name in ("GROUP_X", "GROUP_Y"))
        return -(-at.rows.count // group_y), -(-at.columns.count // group_x)

    def _pad_as(self, queue, pixels: Pixels, found: Found, frames: int, buffer):
        """Lay pixels out as the search has laid out what it searched."""
        i32, held, searched = np.int32, pixels.tile, found.image.tile
        _, pny, pitch, *_, y0, x0, _ = map(int, found.matches.layout)
        return self._pad(
            queue,
            *pixel_grid(self.arena.session.device, pitch, pny, frames),
            *(pixels.buffer, *map(i32, (0, frames, frames, 1, held.y.size, held.x.size))),
            *(buffer, *map(i32, (1, pny, pitch, 0, 0))),
            i32(y0 + held.y.start - searched.y.start),
            i32(x0 + held.x.start - searched.x.start),
        )

    def _kernel(self, sigma_map: bool):
        if sigma_map not in self._shrink:
            self._shrink[sigma_map] = self.arena.kernel(
                f"bm3d/{self.variant.kernel}",
                {**self._constants, "SIGMA_MAP": int(sigma_map)},
                # Atomic floats are an extension to the atomics of OpenCL C 3.0.
                standard="CL3.0" if self._constants["ATOMIC_FLOAT"] == 2 else "CL1.2",
            )
        return self._shrink[sigma_map]


def _same(pixels: Pixels, image: Pixels) -> bool:
    """Return whether pixels are the image that was searched, with all its channels."""
    return pixels.buffer is image.buffer and pixels.tile.channels == image.tile.channels
