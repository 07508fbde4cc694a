"""Filter groups of similar patches in a transform domain, on one device: a pass of BM3D."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from napari_gpu_denoise.filters.group_settings import (
    PATCH,
    STACK_TRANSFORMS,
    TRANSFORMS,
    GroupSettings,
    GroupVariant,
    choose_group_variant,
    float_atomics,
    slab_shape,
)
from napari_gpu_denoise.filters.patch_noise import correlations, covariances
from napari_gpu_denoise.filters.patch_search import Matches, PatchSearch
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.tiles import Span, Tile

# What a patch takes away from a pixel, times its weight, is cut off at this many sigma, so that
# sums cannot overflow. With Haar stacks a pixel that is further off, about 8 sigma, leaves some
# coefficient above the threshold; what is taken away is then less, and weighs less.
_LARGEST_SIGMAS = 16


@dataclass(frozen=True)
class Pixels:
    """float32 pixels on the device, and which part of the image they are: what `tile` yields."""

    buffer: Any
    tile: Tile


@dataclass(frozen=True)
class Noisy:
    """What is filtered, of shape (channels, frames, ny, nx), and the deviation of its noise.

    Attributes
    ----------
    pixels : Pixels
        What is filtered.
    levels : pyopencl.Buffer
        float32 of shape (channels, frames).
    variation : Pixels, optional
        A map that the levels are multiplied by.
    """

    pixels: Pixels
    levels: Any
    variation: Pixels | None = None


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

    def find(self, queue, tile: Tile, image: Pixels) -> Found:
        """Enqueue the search for what the pixels that `tile` yields need.

        Parameters
        ----------
        queue : pyopencl.CommandQueue
            In-order queue.
        tile : Tile
            What is to be yielded.
        image : Pixels
            What is searched.
        """
        wide = spread(tile, self.settings.search.window // 2)
        held = image.tile
        spans = {
            axis: Span(span.start, span.stop, part.start, part.stop, span.length)
            for axis, span, part in (("y", wide.y, held.y), ("x", wide.x, held.x))
        }
        return Found(self.search.enqueue(queue, replace(wide, **spans), image.buffer), image)

    def enqueue(
        self, queue, tile: Tile, found: Found, noisy: Noisy, basic: Pixels | None, out
    ) -> list[tuple[str, Any]]:
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

        def padded(pixels: Pixels, name: str):
            held = found.image
            if pixels.buffer is held.buffer and pixels.tile.channels == held.tile.channels:
                return matches.padded
            buffer, launch = self._padded(queue, pixels, found, frames, name)
            launches.append(("pad", launch))
            return buffer

        images = [padded(noisy.pixels, "padded noisy")]
        if settings.wiener:
            images.append(padded(basic, "padded basic"))
        _, pny, pitch, *_, y0, x0, _ = map(int, matches.layout)
        group_x, group_y = (self.variant.constants[name] for name in ("GROUP_X", "GROUP_Y"))
        across = -(-matches.columns.count // group_x)
        down = -(-matches.rows.count // group_y)
        layout = (*map(i32, (pny, pitch, y0, x0)),)

        def cleared(name: str, nbytes: int):
            import pyopencl as cl

            buffer = self.arena.buffer(name, nbytes)
            launches.append(("clear", cl.enqueue_fill_buffer(queue, buffer, i32(0), 0, nbytes)))
            return buffer

        weights = cleared("weights", 4 * frames * pny * pitch)
        if self._floats:
            slabs = cleared("slabs", 4 * frames * pny * pitch)
        else:
            slab = math.prod(slab_shape(settings.search, self.variant))
            slabs = self.arena.buffer("slabs", 4 * frames * across * down * slab)
        sigma_map = ()
        if noisy.variation is not None:
            held = noisy.variation.tile
            shift_y = found.image.tile.y.start - held.y.start - y0
            shift_x = found.image.tile.x.start - held.x.start - x0
            sigma_map = (noisy.variation.buffer, *map(i32, (held.x.size, shift_y, shift_x)))
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

    def _padded(self, queue, pixels: Pixels, found: Found, frames: int, name: str):
        """Lay pixels out as the search has laid out what it searched."""
        i32, held, searched = np.int32, pixels.tile, found.image.tile
        _, pny, pitch, *_, y0, x0, _ = map(int, found.matches.layout)
        buffer = self.arena.buffer(name, 4 * frames * pny * pitch)
        launch = self._pad(
            queue,
            (pitch, pny, frames),
            None,
            *(pixels.buffer, *map(i32, (0, frames, frames, 1, held.y.size, held.x.size))),
            *(buffer, *map(i32, (1, pny, pitch, 0, 0))),
            i32(y0 + held.y.start - searched.y.start),
            i32(x0 + held.x.start - searched.x.start),
        )
        return buffer, launch

    def _kernel(self, sigma_map: bool):
        if sigma_map not in self._shrink:
            self._shrink[sigma_map] = self.arena.kernel(
                f"bm3d/{self.variant.kernel}",
                {**self._constants, "SIGMA_MAP": int(sigma_map)},
                # Atomic floats are an extension to the atomics of OpenCL C 3.0.
                standard="CL3.0" if self._constants["ATOMIC_FLOAT"] == 2 else "CL1.2",
            )
        return self._shrink[sigma_map]


def spread(tile: Tile, around: int) -> Tile:
    """Return a tile that yields more in Y and X, as far as what it reads goes."""

    def wider(span: Span) -> Span:
        start = max(span.start - around, span.source_start)
        stop = min(span.stop + around, span.source_stop)
        return replace(span, start=start, stop=stop)

    return replace(tile, y=wider(tile.y), x=wider(tile.x))


def group_constants(settings: GroupSettings) -> dict[str, int]:
    """Return the build constants of the kernels that filter groups that settings alone decide."""
    return {
        "WINDOW": settings.search.window,
        "TRANSFORM": TRANSFORMS.index(settings.transform),
        "STACK": STACK_TRANSFORMS.index(settings.stack),
        "WIENER": int(settings.wiener),
        "SHARED_NOISE": int(settings.shared_noise),
        "SPECTRUM": int(bool(settings.spectra)),
    }


def group_tables(settings: GroupSettings, arena: Arena) -> tuple[Any, Any]:
    """Return, on the device, the Kaiser window, and how noise of overlapping patches correlates.

    With spectra that is a table for each of them, see kernels/bm3d/shared_noise.h.
    """
    import pyopencl as cl

    flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
    window, correlation = np.kaiser(PATCH, settings.kaiser), correlations(settings.transform)
    if settings.spectra:
        tables = [covariances(settings.transform, each) for each in settings.spectra]
        # The kernels want the frequency along y last, and after the last displacement one of 0.
        tables = [np.swapaxes(each, 2, 3).reshape(-1, PATCH**2) for each in tables]
        correlation = np.stack([np.pad(each, ((0, 1), (0, 0))) for each in tables])
    return tuple(
        cl.Buffer(
            arena.session.context, flags, hostbuf=np.ascontiguousarray(values, dtype=np.float32)
        )
        for values in (window, correlation)
    )


def fixed_point(added: int, largest: float = _LARGEST_SIGMAS) -> float:
    """Return whole numbers in a sigma, as fine as fits in 31 bits when so many are added up.

    None of them is more than so many sigma at its `largest`.
    """
    return 2.0 ** (31 - math.ceil(math.log2(largest * added)))


def weight_units(matched: int) -> float:
    """Return whole numbers in a weight of 1, where a patch is matched at most so many times."""
    return 2.0 ** min(31 - math.ceil(math.log2(matched)), 24)
