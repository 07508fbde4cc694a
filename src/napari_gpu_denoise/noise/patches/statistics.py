"""Statistics of the patches of many planes, computed on a device where that is worthwhile.

Every frame of a time-lapse and every slice of a volume is read. Only the rows of pixels that hold
patches are sent to the device, and some thirty numbers per patch come back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from napari_gpu_denoise.errors import (
    DeviceMemoryError,
    KernelError,
    NoDeviceError,
    NonFiniteError,
)
from napari_gpu_denoise.noise.patches.selection import (
    clear_patches,
    clipping_levels,
    grid_steps,
    not_image,
)
from napari_gpu_denoise.noise.patches.spectra import read_spectra
from napari_gpu_denoise.noise.patches.variance import PatchStatistics
from napari_gpu_denoise.noise.patches.white import (
    PATCH,
    cosine_transform,
    frequencies,
    frequency_order,
)
from napari_gpu_denoise.noise.sampling import PlaneStack

WORTHWHILE = 100_000  # patches from which a device is used without being requested
GROUP = 32  # work-items of a work-group on a GPU
BATCH_BYTES = 1 << 26  # sent to the device at once
TYPES = ("u1", "i1", "u2", "i2", "f4")  # that travel to the device as they are


def read_statistics(
    planes: PlaneStack,
    limit: int,
    device: Any = None,
    each: Callable = map,
    *,
    plain: bool = False,
) -> list[PatchStatistics | None]:
    """Return about `limit` patches of each plane; None for planes without a finite pixel.

    Patches that touch what is not image are left out, except in planes that hold nothing else.
    `device` is as `choose` takes it. None: the best one where there is one that works and enough
    work for it, else NumPy, which agrees to rounding of float32. `each` is like `map`; planes may
    be read by threads of its own. Planes that are `plain` are taken to be image everywhere, and not
    clipped.
    """
    shape = planes.shape[1:]
    suited = min(shape) >= PATCH and planes.dtype.newbyteorder("=").str[1:] in TYPES
    patches = len(planes) * min(limit, math.prod(shape))
    if suited and (device is not None or patches >= WORTHWHILE):
        from napari_gpu_denoise.opencl.device import choose

        try:
            return list(_on_device(planes, limit, choose(device), each, plain))
        except (NoDeviceError, DeviceMemoryError, KernelError):
            if device is not None:
                raise
    return list(each(lambda k: _plane_statistics(planes[k], limit, plain), range(len(planes))))


def _plane_statistics(plane: np.ndarray, limit: int, plain: bool) -> PatchStatistics | None:
    known = ([None], [[]]) if plain else ()
    try:
        return read_spectra([plane], limit, *known).statistics
    except NonFiniteError:
        return None


def _on_device(
    planes: PlaneStack, limit: int, device: Any, each: Callable, plain: bool
) -> Iterator[PatchStatistics | None]:
    """Yield the patches of each plane, spread as `read_patches` does."""
    from napari_gpu_denoise.opencl.memory import borrow, device_errors
    from napari_gpu_denoise.opencl.program import session

    ny, nx = planes.shape[1:]
    rows, columns = ny - PATCH + 1, nx - PATCH + 1
    down, across = grid_steps(rows, columns, limit)
    grid = -(-columns // across), -(-rows // down)
    overlap = max(1.0, PATCH / down) * max(1.0, PATCH / across)
    dtype = planes.dtype.newbyteorder("=")
    nbytes = grid[1] * PATCH * nx * dtype.itemsize
    batch = max(1, min(len(planes), BATCH_BYTES // nbytes))
    opened = session(device)
    *_, upper = frequencies((PATCH, PATCH))
    with device_errors(opened), borrow(opened, "series") as arena:
        kernel = _Kernel(arena, dtype, grid, nx, across)
        host = np.empty((batch, grid[1], PATCH, nx), dtype)
        ends = np.empty((batch, 2), np.float32)

        def read(k: int, plane: np.ndarray) -> np.ndarray | None:
            """Copy what is sent of a plane; return which patches touch no blank, None for all."""
            bands = sliding_window_view(plane, PATCH, axis=0)[::down]
            np.copyto(host[k], bands.transpose(0, 2, 1))
            ends[k] = np.nan
            if plain:
                return None
            blank = not_image([plane])[0]
            levels = clipping_levels(plane, blank)
            ends[k, : len(levels)] = levels
            if blank is None:
                return None
            return clear_patches(blank, (PATCH, PATCH), down, across).ravel()

        def found(values: np.ndarray, clear: np.ndarray | None) -> PatchStatistics | None:
            """Return the patches of a plane; None where there are none."""
            whole = values[:, 3] > 0
            if clear is not None:
                whole &= clear
            if not whole.any():
                return None
            kept = (values if whole.all() else values[whole]).astype(np.float64)
            return PatchStatistics(kept[:, 0], kept[:, 1], kept[:, 4:], upper, kept[:, 2], overlap)

        for start in range(0, len(planes), batch):
            count = min(batch, len(planes) - start)
            # With `map`, one plane is held at a time: they may be large.
            clear = list(each(lambda k, at=start: read(k, planes[at + k]), range(count)))
            values = kernel(host[:count], ends[:count])
            for k, one in enumerate(list(each(found, values, clear))):
                # Smaller patches may be finite.
                yield one or _plane_statistics(planes[start + k], limit, plain)


class _Kernel:
    """The kernel for planes of one shape and type on one device."""

    def __init__(
        self, arena: Any, dtype: np.dtype, grid: tuple[int, int], nx: int, across: int
    ) -> None:
        import pyopencl as cl

        basis = cosine_transform(PATCH)
        _, high = frequency_order((PATCH, PATCH))
        roles = np.full(PATCH**2, -1, np.int32)
        roles[high] = np.arange(len(high))
        self._width = len(high) + 4
        constants = {
            "BITS": 8 * dtype.itemsize,
            "SIGNED": int(dtype.kind == "i"),
            "HIGHS": len(high),
        }
        self._arena, self._grid = arena, grid
        self._sizes = np.int32(nx), np.int32(grid[0]), np.int32(across)
        # A CPU compiles a kernel anew for every shape of its groups.
        cpu = arena.session.device.shares_cores
        self._group = (1 if cpu else GROUP, 1, 1)
        self._kernel = arena.kernel("noise/patch_statistics", constants)
        self._queue = arena.session.queue()
        flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
        context = arena.session.context
        self._tables = [
            cl.Buffer(context, flags, hostbuf=table) for table in (basis.astype(np.float32), roles)
        ]
        self._turn = arena.session.exclusive()

    def __call__(self, pixels: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Return (plane, patch, number) of rows of pixels, given clipping levels (plane, 2)."""
        import pyopencl as cl

        columns, rows = self._grid
        found = np.empty((len(pixels), rows * columns, self._width), np.float32)
        sent = self._arena.buffer("patch rows", pixels.nbytes)
        levels = self._arena.buffer("patch ends", ends.nbytes)
        out = self._arena.buffer("patch statistics", found.nbytes)
        grid = (-(-columns // self._group[0]) * self._group[0], rows, len(pixels))
        arguments = (sent, *self._sizes, levels, *self._tables, out)
        with self._turn:
            cl.enqueue_copy(self._queue, sent, pixels, is_blocking=False)
            cl.enqueue_copy(self._queue, levels, ends, is_blocking=False)
            self._kernel(self._queue, grid, self._group, *arguments)
            cl.enqueue_copy(self._queue, found, out)
        return found
