"""Kernels, tables and number formats for filtering groups, shared by BM3D and VBM3D."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from napari_gpu_denoise.filters.bm3d.group_settings import (
    PATCH,
    STACK_TRANSFORMS,
    TRANSFORMS,
    GroupSettings,
)
from napari_gpu_denoise.filters.bm3d.patch_noise import correlations, covariances
from napari_gpu_denoise.filters.pixels import spread
from napari_gpu_denoise.filters.search.patch_search import Variant
from napari_gpu_denoise.opencl.memory import Arena, constant_buffer
from napari_gpu_denoise.protocol.tiles import Tile

# What a patch takes away from a pixel, times its weight, is clipped at this many sigma, so that
# sums cannot overflow. With Haar stacks a pixel that is further off, about 8 sigma, leaves some
# coefficient above the threshold; what is taken away is then less, and weighs less.
_LARGEST_SIGMAS = 16
# Pixels that a work-item joins: they share sums of weights.
_JOIN_PIXELS = 4


class GroupKernels:
    """Kernels and tables of one pass on one device; belongs to one thread.

    `video` tells VBM3D from BM3D; `constants` are further build constants.
    """

    def __init__(
        self,
        settings: GroupSettings,
        arena: Arena,
        variant: Variant,
        *,
        video: bool,
        **constants: int,
    ):
        search, group = settings.search, variant.constants
        self.settings, self.arena, self.variant = settings, arena, variant
        shared = {
            "PATCH": PATCH,
            "STEP": search.step,
            "WINDOW": search.window,
            "FLOAT_SUMS": constants["FLOAT_SUMS"],
            "VIDEO": int(video),
        }
        self._constants = {
            **shared,
            "NEIGHBOURS": search.neighbours,
            "TRANSFORM": TRANSFORMS.index(settings.transform),
            "STACK": STACK_TRANSFORMS.index(settings.stack),
            "WIENER": int(settings.wiener),
            "KALMAN": int(settings.kalman),
            "SHARED_NOISE": int(settings.shared_noise),
            "SPECTRUM": int(bool(settings.spectra)),
            **constants,
            **group,
        }
        self._join_group = (32, 8) if arena.session.device.max_group >= 256 else (8, 4)
        self._join = arena.kernel(
            "bm3d/join_slabs",
            {
                **shared,
                "GROUP_X": self._join_group[0],
                "GROUP_Y": self._join_group[1],
                "PIXELS": _JOIN_PIXELS,
                "SLAB_X": 1 if video else group["GROUP_X"],
                "SLAB_Y": 1 if video else group["GROUP_Y"],
            },
        )
        self._kaiser, self._correlation = _tables(settings, arena)

    def _shrink(self, is_map: bool):
        """Return the kernel that filters groups."""
        return self.arena.kernel(
            f"bm3d/{self.variant.kernel}",
            {**self._constants, "SIGMA_MAP": int(is_map)},
            # Atomic floats are an extension to the atomics of OpenCL C 3.0.
            standard="CL3.0" if self._constants["ATOMIC_FLOAT"] == 2 else "CL1.2",
        )

    def _join_grid(self, ny: int, nx: int, frames: int) -> tuple[tuple, tuple]:
        """Return the work-items that join patches to images, and those of a work-group."""
        width, height = self._join_group
        down = -(-ny // (height * _JOIN_PIXELS))
        return (-(-nx // width) * width, down * height, frames), (width, height, 1)


def made_passes(
    kind: Callable[..., Any], passes: dict[str, Any], arena: Arena, variants: dict | None
) -> dict[str, Any]:
    """Return passes for a device, by name: `kind` of the settings of each.

    `variants` holds further arguments by pass, for kernels other than those chosen.
    """
    variants = variants or {}
    return {name: kind(one, arena, **variants.get(name, {})) for name, one in passes.items()}


def yields_of_passes(passes: dict[str, Any], tile: Tile) -> dict[str, Tile]:
    """Return what each pass must yield for the next one, from the last pass to the first."""
    yields = {}
    for name, one in reversed(passes.items()):
        yields[name] = tile
        tile = spread(tile, one.settings.reach)
    return yields


def _tables(settings: GroupSettings, arena: Arena) -> tuple[Any, Any]:
    """Return, on the device, the Kaiser window, and how noise of overlapping patches correlates.

    The second is one table for each of `settings.spectra`, see kernels/bm3d/shared_noise.h.
    """
    window, correlation = np.kaiser(PATCH, settings.kaiser), correlations(settings.transform)
    if settings.spectra:
        tables = [covariances(settings.transform, each) for each in settings.spectra]
        # The kernels want the frequency along y last, and after the last displacement one of 0.
        tables = [np.swapaxes(each, 2, 3).reshape(-1, PATCH**2) for each in tables]
        correlation = np.stack([np.pad(each, ((0, 1), (0, 0))) for each in tables])
    return tuple(
        constant_buffer(arena.session, values.astype(np.float32))
        for values in (window, correlation)
    )


def fixed_point(added: int, largest: float = _LARGEST_SIGMAS) -> float:
    """Return the integers per sigma, as fine as 31 bits allow when `added` numbers are summed.

    None of these is more than `largest` sigma.
    """
    return 2.0 ** (31 - math.ceil(math.log2(largest * added)))


def weight_units(matched: int) -> float:
    """Return the integers per weight of 1, if a patch is matched at most `matched` times."""
    return 2.0 ** min(31 - math.ceil(math.log2(matched)), 24)
