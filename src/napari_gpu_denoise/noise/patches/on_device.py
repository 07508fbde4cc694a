"""Patches of planes whose cosine coefficients stay on a device.

Planes are uploaded once. What decides which patches are read comes back, eight numbers of each; the
coefficients themselves, sixty-four, are summed up where they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from napari_gpu_denoise.errors import NoDeviceError
from napari_gpu_denoise.image.threads import in_bands
from napari_gpu_denoise.noise.patches.coefficients import suit_float32
from napari_gpu_denoise.noise.patches.device_coefficients import (
    COEFFICIENTS,
    GROUP,
    CoefficientStore,
    coefficient_order,
)
from napari_gpu_denoise.noise.patches.selection import clear_patches, grid_steps
from napari_gpu_denoise.noise.patches.spectra import (
    SETS,
    PatchSpectra,
    frequency_sets,
    weights,
)
from napari_gpu_denoise.noise.patches.white import (
    PATCH,
    cosine_transform,
    frequencies,
    frequency_order,
)

if TYPE_CHECKING:
    from napari_gpu_denoise.opencl.memory import Arena

TYPES = ("u1", "i1", "u2", "i2", "f4")  # that travel to a device as they are
BLOCK = 32  # patches that a work-item of a CPU transforms
MOST_BYTES = 1 << 29  # of coefficients; more channels than that are left to NumPy


class _Grid(NamedTuple):
    """Places of the patches of a plane, as `read_patches` has them."""

    rows: int
    columns: int
    down: int
    across: int

    @property
    def overlap(self) -> float:
        return max(1.0, PATCH / self.down) * max(1.0, PATCH / self.across)


class DevicePatches:
    """Reads patches on one device, for as long as its memory is borrowed."""

    def __init__(self, arena: Arena) -> None:
        self._store = CoefficientStore(arena)
        self._tables = arena.constant("patch tables", _tables)

    def read(
        self,
        planes: Sequence[np.ndarray],
        limit: int,
        blanks: Sequence[np.ndarray | None],
        levels: Sequence[list],
    ) -> PatchSpectra | None:
        """Return about `limit` patches of planes of one shape and type, as `read_spectra` does.

        None where they do not suit a device: small planes, other types, extreme values.
        """
        plane = planes[0]
        dtype = plane.dtype.newbyteorder("=")
        if min(plane.shape) < PATCH or dtype.str[1:] not in TYPES:
            return None
        ny, nx = plane.shape
        rows, columns = ny - PATCH + 1, nx - PATCH + 1
        down, across = grid_steps(rows, columns, limit // len(planes))
        grid = _Grid(-(-rows // down), -(-columns // across), down, across)
        count = grid.rows * grid.columns
        total = count * len(planes)
        if self._store.nbytes + 4 * COEFFICIENTS * total > MOST_BYTES:
            return None
        coefficients = self._store.take(total)
        told = self._told(planes, levels, grid, coefficients)
        kept = np.isfinite(told[0])
        for k, blank in enumerate(blanks):
            if blank is not None:
                clear = clear_patches(blank, (PATCH, PATCH), down, across).ravel()
                kept[k * count : (k + 1) * count] &= clear
        which = None if kept.all() else np.flatnonzero(kept)
        # The memory is used again.
        told = told.copy() if which is None else told[:, which]
        energy = told[3:]
        if not energy.shape[1] or not suit_float32(energy):
            return None
        coefficients.which = which
        *_, upper = frequencies((PATCH, PATCH))
        return PatchSpectra(
            told[0].astype(np.float64),
            coefficients,
            energy,
            told[1].astype(np.float64),
            len(frequency_order((PATCH, PATCH))[0]),
            upper,
            told[2].astype(np.float64),
            grid.overlap,
            _middles(grid, len(planes), plane.shape)[:, slice(None) if which is None else which],
        )

    def _told(
        self, planes: Sequence[np.ndarray], levels: Sequence[list], grid: _Grid, into: Any
    ) -> np.ndarray:
        """Transform the patches of planes; return what is told of each."""
        import pyopencl as cl

        store, arena, queue = self._store, self._store.arena, self._store.queue
        dtype = planes[0].dtype.newbyteorder("=")
        nx = planes[0].shape[1]
        per = BLOCK if store.cpu else 1
        constants = {"BITS": 8 * dtype.itemsize, "SIGNED": int(dtype.kind == "i"), "PER": per}
        kernel = arena.kernel("noise/patch_coefficients", constants)
        count = grid.rows * grid.columns
        total = count * len(planes)
        out = arena.buffer("patches told", 4 * (3 + len(SETS)) * total)
        host = arena.pinned("patches told", (3 + len(SETS)) * total, queue)
        items = -(-count // per)
        group = 1 if store.cpu else GROUP
        with store.turn:
            for k, (plane, ends) in enumerate(zip(planes, levels, strict=True)):
                plane = np.ascontiguousarray(plane, dtype)
                pixels, apart = self._sent(plane, grid)
                dark, bright = ([float(each) for each in ends] + [np.nan] * 2)[:2]
                numbers = (nx, grid.columns, count, grid.across, apart)
                kernel(
                    queue,
                    (-(-items // group) * group,),
                    (group,),
                    pixels,
                    *map(np.int32, numbers),
                    np.float32(dark),
                    np.float32(bright),
                    self._tables,
                    into.buffer,
                    out,
                    np.int32(k * count),
                    np.int32(total),
                )
                if k + 1 < len(planes):
                    queue.finish()  # the next plane takes its place
            cl.enqueue_copy(queue, host, out)
        return host.reshape(3 + len(SETS), total)

    def _sent(self, plane: np.ndarray, grid: _Grid) -> tuple[Any, int]:
        """Upload the rows of a plane that hold patches; return these, and how far apart they are.

        That is in pixels, from the first row of some patches to that of the next. A GPU reads fast
        from pinned memory only, which threads fill.
        """
        import pyopencl as cl

        arena, queue, row = self._store.arena, self._store.queue, plane.strides[0]
        apart = min(grid.down, PATCH)
        rows = plane.shape[0] if grid.down <= PATCH else grid.rows * PATCH
        pixels = arena.buffer("patch pixels", rows * row)
        parts = {}
        if not self._store.cpu:
            sent = arena.pinned("patch pixels", -(-rows * row // 4), queue).view(np.uint8)
            sent = sent[: rows * row].view(plane.dtype).reshape(rows, -1)
            if grid.down > PATCH:
                bands = sliding_window_view(plane, PATCH, axis=0)[:: grid.down]
                plane = bands.transpose(0, 2, 1)
            in_bands(lambda rows, out: np.copyto(out, rows), plane, sent.reshape(plane.shape))
            plane = sent
        elif grid.down > PATCH:
            parts = {
                "buffer_origin": (0, 0, 0),
                "host_origin": (0, 0, 0),
                "region": (PATCH * row, grid.rows, 1),
                "buffer_pitches": (PATCH * row,),
                "host_pitches": (grid.down * row,),
            }
        cl.enqueue_copy(queue, pixels, plane, is_blocking=False, **parts)
        return pixels, apart * row // plane.itemsize


@contextmanager
def patches_on(device: Any) -> Iterator[DevicePatches | None]:
    """Open a device to read patches on, as `choose` takes it; None where there is none."""
    from napari_gpu_denoise.opencl.device import choose
    from napari_gpu_denoise.opencl.memory import borrow, device_errors
    from napari_gpu_denoise.opencl.program import session

    try:
        chosen = choose(device)
    except NoDeviceError:
        if device is not None:
            raise
        chosen = None
    if chosen is None:
        yield None
        return
    opened = session(chosen)
    with device_errors(opened), borrow(opened, "noise") as arena:
        yield DevicePatches(arena)


@cache
def _tables() -> np.ndarray:
    """Return the tables of the kernel: transforms, sets of frequencies, and their sight."""
    transform, order = cosine_transform(PATCH), coefficient_order()
    lows = len(frequency_order((PATCH, PATCH))[0])
    sets = np.zeros((len(SETS) + 1, COEFFICIENTS))
    sets[:-1, order] = frequency_sets(lows, len(order))
    sets[-1, order] = weights()[lows:].mean(axis=0)
    both = np.stack([transform.T, transform]).reshape(2, COEFFICIENTS)
    return np.concatenate([both, sets]).astype(np.float32)


@lru_cache(maxsize=1)
def _middles(grid: _Grid, planes: int, shape: tuple[int, int]) -> np.ndarray:
    """Return y and x of the middle of each patch, from 0 to 1 over the plane; not to be changed."""
    found = np.empty((2, planes, grid.rows, grid.columns))
    found[0] = ((np.arange(grid.rows) * grid.down + PATCH / 2) / shape[0])[:, None]
    found[1] = (np.arange(grid.columns) * grid.across + PATCH / 2) / shape[1]
    found = found.reshape(2, -1)
    found.flags.writeable = False
    return found
