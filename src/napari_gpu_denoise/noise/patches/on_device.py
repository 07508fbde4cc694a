"""Patches of planes whose cosine coefficients stay on a device.

Planes are uploaded once. What decides which patches are read comes back, eight numbers of each; the
coefficients themselves, sixty-four, are summed up where they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from napari_gpu_denoise.errors import NoDeviceError
from napari_gpu_denoise.noise.patches.blank import clear_patches
from napari_gpu_denoise.noise.patches.coefficients import suit_float32
from napari_gpu_denoise.noise.patches.selection import grid_steps
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
GROUP = 64  # work-items of a work-group on a GPU
BLOCK = 32  # patches that a work-item of a CPU transforms
CHUNK, CPU_CHUNK = 128, 512  # patches that a work-item sums up, at most
MOST_BYTES = 1 << 29  # of coefficients; more channels than that are left to NumPy
COEFFICIENTS = PATCH**2


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
        self._arena = arena
        self._cpu = arena.session.device.shares_cores
        self._queue = arena.session.queue()
        self._turn = arena.session.exclusive()
        self._tables = arena.constant("patch tables", _tables)
        self._sums = arena.kernel("noise/patch_sums", {})
        self._number, self._held = 0, 0
        self._free: list[str] = []

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
        if self._held + 4 * COEFFICIENTS * total > MOST_BYTES:
            return None
        coefficients = self._store(total)
        told = self._told(planes, levels, grid, coefficients)
        kept = np.isfinite(told[0])
        for k, blank in enumerate(blanks):
            if blank is not None:
                clear = clear_patches(blank, (PATCH, PATCH), down, across).ravel()
                kept[k * count : (k + 1) * count] &= clear
        which = None if kept.all() else np.flatnonzero(kept)
        if which is not None:
            told = told[:, which]
        energy = told[3:]
        if not energy.shape[1] or not suit_float32(energy) or not energy.any():
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
            _middles(grid, len(planes), plane.shape, which),
        )

    def _store(self, total: int) -> DeviceCoefficients:
        if self._free:
            name = self._free.pop()
        else:
            name, self._number = f"patch coefficients {self._number}", self._number + 1
        return DeviceCoefficients(self, name, total)

    def _told(
        self, planes: Sequence[np.ndarray], levels: Sequence[list], grid: _Grid, into: Any
    ) -> np.ndarray:
        """Transform the patches of planes; return what is told of each."""
        import pyopencl as cl

        dtype = planes[0].dtype.newbyteorder("=")
        nx = planes[0].shape[1]
        per = BLOCK if self._cpu else 1
        constants = {"BITS": 8 * dtype.itemsize, "SIGNED": int(dtype.kind == "i"), "PER": per}
        kernel = self._arena.kernel("noise/patch_coefficients", constants)
        count = grid.rows * grid.columns
        total = count * len(planes)
        out = self._arena.buffer("patches told", 4 * (3 + len(SETS)) * total)
        host = self._arena.pinned("patches told", (3 + len(SETS)) * total, self._queue)
        items = -(-count // per)
        group = 1 if self._cpu else GROUP
        with self._turn:
            for k, (plane, ends) in enumerate(zip(planes, levels, strict=True)):
                # Only rows with patches are sent, if that is fewer.
                sent, apart = plane, grid.down
                if grid.down >= 2 * PATCH:
                    bands = sliding_window_view(plane, PATCH, axis=0)[:: grid.down]
                    sent, apart = bands.transpose(0, 2, 1), PATCH
                sent = np.ascontiguousarray(sent, dtype)
                pixels = self._arena.buffer("patch pixels", sent.nbytes)
                cl.enqueue_copy(self._queue, pixels, sent, is_blocking=False)
                dark, bright = ([float(each) for each in ends] + [np.nan] * 2)[:2]
                numbers = (nx, grid.columns, count, grid.across, apart * nx)
                kernel(
                    self._queue,
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
                    self._queue.finish()  # the next plane takes its place
            cl.enqueue_copy(self._queue, host, out)
        return host.reshape(3 + len(SETS), total).copy()

    def sums(
        self,
        buffer: Any,
        patches: np.ndarray,
        limits: np.ndarray,
        weight: np.ndarray | None,
        moments: bool,
    ) -> np.ndarray:
        """Return sums over ranges of patches, (1 or 2, range, coefficient), as `range_sums`."""
        import pyopencl as cl

        limits = np.asarray(limits, np.int64)
        sizes, most = np.diff(limits), CPU_CHUNK if self._cpu else CHUNK
        chunks = -(-sizes // most)
        number = int(chunks.sum())
        found = np.zeros((1 + moments, len(sizes), COEFFICIENTS))
        if not number:
            return found
        places = np.concatenate([[0], np.cumsum(chunks)])
        within = np.arange(number) - np.repeat(places[:-1], chunks)
        # Counted from the first patch of the first range.
        start = np.repeat(limits[:-1] - limits[0], chunks) + most * within
        end = np.minimum(start + most, np.repeat(limits[1:] - limits[0], chunks))
        count = int(limits[-1] - limits[0])
        width = 2 * number + count * (1 if weight is None else 2)
        pinned = self._arena.pinned("patch list", width, self._queue)
        table = pinned.view(np.int32)
        table[:number], table[number : 2 * number] = start, end
        table[2 * number : 2 * number + count] = patches[limits[0] : limits[-1]]
        if weight is not None:
            pinned[2 * number + count :] = weight[limits[0] : limits[-1]]
        listed = self._arena.buffer("patch list", 4 * width)
        size = (1 + moments) * number * COEFFICIENTS
        out = self._arena.buffer("patch sums", 4 * size)
        host = self._arena.pinned("patch sums", size, self._queue)
        group = (1, 1) if self._cpu else (PATCH, GROUP // PATCH)
        grid = (PATCH, -(-number // group[1]) * group[1])
        numbers = (number, count, weight is not None, moments)
        with self._turn:
            cl.enqueue_copy(self._queue, listed, table, is_blocking=False)
            self._sums(self._queue, grid, group, buffer, listed, *map(np.int32, numbers), out)
            cl.enqueue_copy(self._queue, host, out)
        parts = host.reshape(1 + moments, number, COEFFICIENTS)
        some = np.flatnonzero(chunks)
        found[:, some] = np.add.reduceat(parts, places[some], axis=1, dtype=np.float64)
        return found

    def whole(self, buffer: Any, total: int) -> np.ndarray:
        """Return coefficients (patch, coefficient)."""
        import pyopencl as cl

        found = np.empty((total, COEFFICIENTS), np.float32)
        with self._turn:
            cl.enqueue_copy(self._queue, found, buffer)
        return found

    def buffer(self, name: str, total: int) -> Any:
        """Return the buffer for the coefficients of so many patches."""
        self._held += 4 * COEFFICIENTS * total
        return self._arena.buffer(name, 4 * COEFFICIENTS * total)

    def released(self, name: str, total: int) -> None:
        """Take back a buffer for others."""
        self._held -= 4 * COEFFICIENTS * total
        self._free.append(name)


class DeviceCoefficients:
    """Coefficients (patch, coefficient) on a device, in the order that `PatchSpectra` has them."""

    dtype = np.dtype(np.float32)

    def __init__(self, device: DevicePatches, name: str, total: int) -> None:
        self._device, self._name, self._total = device, name, total
        self.buffer = device.buffer(name, total)
        self.which: np.ndarray | None = None  # places of the patches there; None for all

    def __del__(self) -> None:
        self._device.released(self._name, self._total)

    @property
    def shape(self) -> tuple[int, int]:
        count = self._total if self.which is None else len(self.which)
        return count, COEFFICIENTS - 1

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        found = self._device.whole(self.buffer, self._total)
        if self.which is not None:
            found = found[self.which]
        return found[:, _order()].astype(dtype or np.float32, copy=False)

    def sums(
        self, order: np.ndarray, limits: np.ndarray, weight: np.ndarray | None = None
    ) -> np.ndarray:
        """Return sums of squares, as `range_sums`; `weight` (patch,) is in the order of patches."""
        return self._summed(order, limits, weight, False)[0]

    def moments(self, order: np.ndarray, limits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return sums and sums of squares, as `range_moments`."""
        squares, sums = self._summed(order, limits, None, True)
        return sums, squares

    def _summed(self, order, limits, weight, moments) -> np.ndarray:
        patches = order if self.which is None else self.which[order]
        counts = None if weight is None else weight[order]
        found = self._device.sums(self.buffer, patches, limits, counts, moments)
        return found[:, :, _order()]


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
    with device_errors(opened), borrow(opened) as arena:
        yield DevicePatches(arena)


@cache
def _order() -> np.ndarray:
    """Return where coefficients, low frequencies first, are in a patch on the device."""
    return np.concatenate(frequency_order((PATCH, PATCH)))


@cache
def _tables() -> np.ndarray:
    """Return the tables of the kernel: transforms, sets of frequencies, and their sight."""
    transform, order = cosine_transform(PATCH), _order()
    lows = len(frequency_order((PATCH, PATCH))[0])
    sets = np.zeros((len(SETS) + 1, COEFFICIENTS))
    sets[:-1, order] = frequency_sets(lows, len(order))
    sets[-1, order] = weights()[lows:].mean(axis=0)
    both = np.stack([transform.T, transform]).reshape(2, COEFFICIENTS)
    return np.concatenate([both, sets]).astype(np.float32)


def _middles(
    grid: _Grid, planes: int, shape: tuple[int, int], which: np.ndarray | None
) -> np.ndarray:
    """Return y and x of the middle of each patch, from 0 to 1 over the plane."""
    found = np.empty((planes, grid.rows, grid.columns, 2))
    found[..., 0] = (np.arange(grid.rows)[:, None] * grid.down + PATCH / 2) / shape[0]
    found[..., 1] = (np.arange(grid.columns) * grid.across + PATCH / 2) / shape[1]
    found = found.reshape(-1, 2)
    return found if which is None else found[which]
