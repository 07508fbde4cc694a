"""Constants, tables and number formats that the kernels which filter groups are given."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from napari_gpu_denoise.filters.bm3d.group_settings import (
    PATCH,
    STACK_TRANSFORMS,
    TRANSFORMS,
    GroupSettings,
)
from napari_gpu_denoise.filters.bm3d.patch_noise import correlations, covariances
from napari_gpu_denoise.opencl.memory import Arena

# What a patch takes away from a pixel, times its weight, is cut off at this many sigma, so that
# sums cannot overflow. With Haar stacks a pixel that is further off, about 8 sigma, leaves some
# coefficient above the threshold; what is taken away is then less, and weighs less.
_LARGEST_SIGMAS = 16


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
