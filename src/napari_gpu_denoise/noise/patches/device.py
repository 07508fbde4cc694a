"""Patches whose cosine coefficients are computed on a device, and stay there.

What decides which patches are read comes back, eight numbers of each; the coefficients themselves,
sixty-four, are summed up there.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from napari_gpu_denoise.image.levels import Levels
from napari_gpu_denoise.image.threads import in_bands
from napari_gpu_denoise.noise.patches import selection
from napari_gpu_denoise.noise.patches.coefficients import (
    PATCH,
    SETS,
    coefficient_order,
    cosine_transform,
    frequency_sets,
    weights,
)
from napari_gpu_denoise.opencl.device import choose_devices
from napari_gpu_denoise.opencl.memory import Arena, borrow, device_errors
from napari_gpu_denoise.opencl.program import session

COEFFICIENTS = PATCH**2
GROUP = 64  # work-items of a work-group on a GPU
BATCH_BYTES = 1 << 26  # of planes that are sent at once
STRONGEST = 1e25  # sum of squares that float32 holds, as it does one over it


class _Grid(NamedTuple):
    """Places of the patches of a plane: every `down`-th row, every `across`-th pixel of it."""

    rows: int
    columns: int
    down: int
    across: int

    @classmethod
    def of(cls, shape: Sequence[int], limit: int) -> _Grid:
        """Return the places of about `limit` patches of a plane (y, x)."""
        rows, columns = (n - PATCH + 1 for n in shape)
        down, across = selection.grid_steps(rows, columns, limit)
        return cls(-(-rows // down), -(-columns // across), down, across)

    @property
    def count(self) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.rows * self.columns

    @property
    def overlap(self) -> float:
        return max(1.0, PATCH / self.down) * max(1.0, PATCH / self.across)

    @property
    def apart(self) -> int:
        """Rows sent between the first ones of neighbouring rows of patches."""
        return min(self.down, PATCH)

    def sent(self, plane: np.ndarray) -> np.ndarray:
        """Return the pixels that are in patches, (row of patches, y, x) or (y, x)."""
        if self.down < PATCH:
            return plane[: (self.rows - 1) * self.down + PATCH]
        return sliding_window_view(plane, PATCH, axis=0)[:: self.down].transpose(0, 2, 1)

    @lru_cache(maxsize=2)  # noqa: B019, of tuples
    def middles(self, shape: tuple[int, int], planes: int) -> np.ndarray:
        """Return y and x of the middle of each patch, from 0 to 1 over each of some planes."""
        y = (np.arange(self.rows) * self.down + PATCH / 2) / shape[0]
        x = (np.arange(self.columns) * self.across + PATCH / 2) / shape[1]
        found = np.stack([np.repeat(y, self.columns), np.tile(x, self.rows)])
        return np.tile(found, planes)


@cache
def _tables() -> np.ndarray:
    """Return the tables of the kernel: transforms, sets of frequencies, and sight."""
    transform, order = cosine_transform(PATCH), coefficient_order()
    sets = np.zeros((len(SETS) + 1, COEFFICIENTS))
    sets[:, order] = [*frequency_sets(), weights()]
    both = np.stack([transform.T, transform]).reshape(2, COEFFICIENTS)
    return np.concatenate([both, sets]).astype(np.float32)


class DevicePatches:
    """Reads patches on one device, and keeps their coefficients as long as an arena is borrowed."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.cpu = arena.session.device.shares_cores
        self.queue = arena.session.queue()
        self.turn = arena.session.exclusive()
        self.add_up = arena.kernel("noise/patch_sums", {})
        self._tables = arena.constant("patch tables", _tables)
        self.number = 0
        self.free: list[str] = []

    def read(self, examined: Sequence[selection.Plane], limit: int) -> dict[str, Any] | None:
        """Read fields of `PatchSpectra` of planes of one shape and type; None without patches."""
        planes, blanks, levels = zip(*examined, strict=True)
        grid = _Grid.of(planes[0].shape, limit // len(planes))
        kept = np.ones((len(planes), grid.count), bool)
        for row, blank in zip(kept, blanks, strict=True):
            if blank is not None:
                row[:] = selection.clear_patches(blank, PATCH, grid.down, grid.across).ravel()
        if planes[0].dtype.str[1:] in ("u1", "i1", "u2", "i2", "f4"):  # they travel as they are
            found = self._spectra(planes, grid, kept, levels)
            if found is None or 1 / STRONGEST < found["energy"].max() < STRONGEST:
                return found
        # Other types, and extreme values, travel as differences from a grey level, in another unit.
        some = [plane[:: 1 + len(plane) // 64, :: 1 + plane.shape[1] // 64] for plane in planes]
        some = np.concatenate(some)
        some = some[np.isfinite(some)]
        mapping = Levels.of(some) if some.size else Levels(0, 1.0)
        levels = [_loaded(np.array(row, some.dtype), mapping) for row in levels]
        return self._spectra(
            [_loaded(each, mapping) for each in planes], grid, kept, levels, mapping
        )

    def _spectra(
        self,
        planes: Sequence[np.ndarray],
        grid: _Grid,
        kept: np.ndarray,
        levels: Sequence[Any],
        mapping: Levels | None = None,
    ) -> dict[str, Any] | None:
        """Transform the patches of planes, whose grey levels were mapped."""
        unit = np.float64(mapping.scale if mapping else 1)
        coefficients = DeviceCoefficients(_Held(self, kept.size), unit=unit)
        told = self._transform(planes, levels, grid, coefficients.held.buffer)
        kept = kept & np.isfinite(told[0]).reshape(kept.shape)
        if not kept.any():
            return None
        if not told[3:5].max() < STRONGEST:  # or NaN
            energy = np.nan_to_num(told[3] + told[4], nan=np.inf, posinf=np.inf)
            typical = float(np.median(energy[kept.ravel()]))
            if 0 < typical < np.inf:  # far above it are fill values
                kept &= (energy / typical <= 2.0**40).reshape(kept.shape)
        which = None if kept.all() else np.flatnonzero(kept)
        told = told if which is None else told[:, which]
        mean, seen, clipped = told[:3].astype(np.float64)
        energy = told[3:].copy()  # the memory is used again
        if mapping:
            mean, seen = (unit * each + mapping.offset for each in (mean, seen))
            energy = energy.astype(np.float64) * unit**2
        coefficients.which = which
        middles = grid.middles(planes[0].shape, len(planes))
        return {
            "mean": mean,
            "coefficients": coefficients,
            "energy": energy,
            "seen": seen,
            "clipped": clipped,
            "overlap": grid.overlap,
            "place": middles if which is None else middles[:, which],
            "count": tuple(np.count_nonzero(kept, axis=1).tolist()),
        }

    def _transform(
        self, planes: Sequence[np.ndarray], levels: Sequence[Any], grid: _Grid, into: Any
    ) -> np.ndarray:
        """Transform the patches of planes; return the numbers told of each, in pinned memory."""
        import pyopencl as cl

        arena, queue = self.arena, self.queue
        dtype, nx = planes[0].dtype.newbyteorder("="), planes[0].shape[1]
        # A CPU compiles a kernel anew for every shape of its groups.
        group, per = (1, 32) if self.cpu else (GROUP, 1)
        constants = {"BITS": 8 * dtype.itemsize, "SIGNED": int(dtype.kind == "i"), "PER": per}
        kernel = arena.kernel("noise/patch_coefficients", constants)
        shape = grid.sent(planes[0]).shape
        size, total = math.prod(shape), grid.count * len(planes)
        batch = max(1, min(len(planes), BATCH_BYTES // (size * dtype.itemsize)))
        pixels = arena.buffer("patch pixels", batch * size * dtype.itemsize)
        words = -(-batch * size * dtype.itemsize // 4)
        host = arena.pinned("patch pixels", words, queue).view(dtype)[: batch * size]
        ends = np.full((len(planes), 2), np.nan, np.float32)
        for row, level in zip(ends, levels, strict=True):
            row[: len(level)] = level
        clipped = arena.buffer("patch ends", 8 * batch)
        out = arena.buffer("patches told", 4 * (3 + len(SETS)) * total)
        told = arena.pinned("patches told", out.size // 4, queue)
        told = told[: (3 + len(SETS)) * total].reshape(-1, total)
        for start in range(0, len(planes), batch):
            part = planes[start : start + batch]
            for plane, copy in zip(part, host.reshape(batch, *shape), strict=False):
                in_bands(np.copyto, copy, grid.sent(plane))
            count = len(part) * grid.count
            items = math.ceil(count / per / group) * group
            numbers = {"size": size, "nx": nx, "columns": grid.columns, "across": grid.across}
            numbers |= {"apart": grid.apart * nx, "each": grid.count, "count": count}
            numbers |= {"first": start * grid.count, "number": total}
            with self.turn:
                # Copies of which nobody keeps the event would be waited for with Python's lock.
                cl.enqueue_copy(queue, pixels, host[: len(part) * size])
                cl.enqueue_copy(queue, clipped, ends[start : start + batch])
                arrays = {"ends": clipped, "tables": self._tables, "kept": into, "told": out}
                kernel(queue, (items,), (group,), pixels=pixels, **numbers, **arrays)
                if start + batch < len(planes):
                    queue.finish()  # others take the place of these planes
        with self.turn:
            cl.enqueue_copy(queue, told, out)
        return told


class _Held:
    """Memory of the coefficients of so many patches, given back when nobody needs it."""

    def __init__(self, store: DevicePatches, total: int) -> None:
        if not store.free:
            store.free.append(f"patch coefficients {store.number}")
            store.number += 1
        self.store, self.name, self.total = store, store.free.pop(), total
        self.buffer = store.arena.buffer(self.name, 4 * COEFFICIENTS * total)

    def __del__(self) -> None:
        self.store.free.append(self.name)


class DeviceCoefficients:
    """Coefficients (patch, coefficient) on a device, in the order that `PatchSpectra` has them."""

    def __init__(self, held: _Held, which: np.ndarray | None = None, unit: float = 1.0) -> None:
        self.held, self.which, self.unit = held, which, unit

    def __getitem__(self, part: slice) -> DeviceCoefficients:
        """Return the coefficients of some of the patches."""
        which = np.arange(self.held.total) if self.which is None else self.which
        return DeviceCoefficients(self.held, which[part], self.unit)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        import pyopencl as cl

        store = self.held.store
        found = np.empty((self.held.total, COEFFICIENTS), np.float32)
        with store.turn:
            cl.enqueue_copy(store.queue, found, self.held.buffer)
        rows = slice(None) if self.which is None else self.which[:, None]
        found = found[rows, coefficient_order()]
        if self.unit != 1:
            found = found * self.unit
        return found if dtype is None else found.astype(dtype, copy=False)

    def sums(
        self,
        order: np.ndarray,
        starts: np.ndarray,
        stops: np.ndarray,
        weight: np.ndarray | None = None,
    ) -> np.ndarray:
        """Sum up squares over spans of patches, as `span_sums`."""
        import pyopencl as cl

        store, found = self.held.store, np.zeros((len(starts), COEFFICIENTS))
        arena, queue = store.arena, store.queue
        most = 512 if store.cpu else 64  # patches that a work-item sums up
        chunks = -(-(stops - starts) // most)
        number = int(chunks.sum())
        places = np.cumsum(chunks) - chunks
        span = np.repeat(np.arange(len(starts)), chunks)
        first = starts[span] + most * (np.arange(number) - places[span])
        patches = order if self.which is None else self.which[order]
        parts = [first, np.minimum(first + most, stops[span]), patches]
        if weight is not None:
            parts.append(weight[order].astype(np.float32).view(np.int32))
        width = sum(map(len, parts))
        table = arena.pinned("patch list", width, queue).view(np.int32)
        np.concatenate(parts, out=table, casting="same_kind")
        listed = arena.buffer("patch list", 4 * width)
        out = arena.buffer("patch sums", 4 * number * COEFFICIENTS)
        host = arena.pinned("patch sums", number * COEFFICIENTS, queue)
        group = (1, 1) if store.cpu else (PATCH, GROUP // PATCH)
        grid = (PATCH, -(-number // group[1]) * group[1])
        numbers = {"chunks": number, "number": len(order), "weighted": weight is not None}
        with store.turn:
            cl.enqueue_copy(queue, listed, table)
            lists = {"coefficients": self.held.buffer, "list": listed, "sums": out}
            store.add_up(queue, grid, group, **lists, **numbers)
            cl.enqueue_copy(queue, host, out)
        some = np.flatnonzero(chunks)
        found[some] = np.add.reduceat(host.reshape(number, COEFFICIENTS), places[some], axis=0)
        return found[:, coefficient_order()] * self.unit**2


def _loaded(values: np.ndarray, mapping: Levels) -> np.ndarray:
    """Return mapped grey levels, float32; fill values may become infinite, and are left out."""
    found = np.empty(values.shape, np.float32)
    mapping.load(values, found)
    return found


@contextmanager
def patches_on(device: Any = None) -> Generator[DevicePatches]:
    """Open a device to read patches on, as `choose` takes it; NoDeviceError if there is none."""
    opened = session(choose_devices(device, "noise")[0])
    with device_errors(opened), borrow(opened, "noise") as arena:
        yield arena.keep("patches", lambda: DevicePatches(arena))
