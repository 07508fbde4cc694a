"""Patches of planes whose cosine coefficients stay on a device.

Planes are uploaded once. What decides which patches are read comes back, eight numbers of each; the
coefficients themselves, sixty-four, are summed up where they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from napari_gpu_denoise.errors import DeviceMemoryError, KernelError, NoDeviceError, NonFiniteError
from napari_gpu_denoise.image.threads import in_bands
from napari_gpu_denoise.noise.patches.coefficients import suit_float32
from napari_gpu_denoise.noise.patches.selection import (
    clear_patches,
    clipping_levels,
    grid_steps,
    not_image,
)
from napari_gpu_denoise.noise.patches.spectra import (
    SETS,
    PatchSpectra,
    frequency_sets,
    read_spectra,
    weights,
)
from napari_gpu_denoise.noise.patches.variance import PatchStatistics
from napari_gpu_denoise.noise.patches.white import (
    PATCH,
    cosine_transform,
    frequencies,
    frequency_order,
)
from napari_gpu_denoise.noise.sampling import PlaneStack

if TYPE_CHECKING:
    from napari_gpu_denoise.opencl.memory import Arena


# Cosine coefficients of patches on a device, which sums them up there.
GROUP = 64  # work-items of a work-group on a GPU
CHUNK, CPU_CHUNK = 256, 512  # patches that a work-item sums up, at most
COEFFICIENTS = PATCH**2


class CoefficientStore:
    """Memory for coefficients on one device, for as long as an arena is borrowed."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.cpu = arena.session.device.shares_cores
        self.queue = arena.session.queue()
        self.turn = arena.session.exclusive()
        self.nbytes = 0
        self._kernel = arena.kernel("noise/patch_sums", {})
        self._number = 0
        self._free: list[str] = []

    def take(self, total: int) -> DeviceCoefficients:
        """Return coefficients of so many patches, undefined so far."""
        if not self._free:
            self._free.append(f"patch coefficients {self._number}")
            self._number += 1
        self.nbytes += 4 * COEFFICIENTS * total
        return DeviceCoefficients(self, self._free.pop(), total)

    def give_back(self, name: str, total: int) -> None:
        """Let others have the memory of coefficients."""
        self.nbytes -= 4 * COEFFICIENTS * total
        self._free.append(name)

    def sums(
        self,
        buffer: Any,
        patches: np.ndarray,
        spans: tuple[np.ndarray, np.ndarray],
        weight: np.ndarray | None,
        moments: bool,
    ) -> np.ndarray:
        """Return sums over spans of patches, (1 or 2, span, coefficient), as `span_sums`."""
        import pyopencl as cl

        starts, stops = spans
        most = CPU_CHUNK if self.cpu else CHUNK
        chunks = -(-(stops - starts) // most)
        places = np.cumsum(chunks)
        number = int(places[-1]) if len(places) else 0
        found = np.zeros((1 + moments, len(starts), COEFFICIENTS))
        if not number:
            return found
        places -= chunks
        count = len(patches)
        width = 2 * number + count * (1 if weight is None else 2)
        pinned = self.arena.pinned("patch list", width, self.queue)
        table = pinned.view(np.int32)
        first, last = table[: 2 * number].reshape(2, number)
        first[:] = np.repeat(starts - most * places, chunks) + most * np.arange(number)
        np.minimum(first + most, np.repeat(stops, chunks), out=last, casting="same_kind")
        table[2 * number : 2 * number + count] = patches
        if weight is not None:
            pinned[2 * number + count :] = weight
        listed = self.arena.buffer("patch list", 4 * width)
        size = (1 + moments) * number * COEFFICIENTS
        out = self.arena.buffer("patch sums", 4 * size)
        host = self.arena.pinned("patch sums", size, self.queue)
        group = (1, 1) if self.cpu else (PATCH, GROUP // PATCH)
        grid = (PATCH, -(-number // group[1]) * group[1])
        numbers = (number, count, weight is not None, moments)
        with self.turn:
            cl.enqueue_copy(self.queue, listed, table, is_blocking=False)
            self._kernel(self.queue, grid, group, buffer, listed, *map(np.int32, numbers), out)
            cl.enqueue_copy(self.queue, host, out)
        some = np.flatnonzero(chunks)
        for row, parts in zip(found, host.reshape(-1, number, COEFFICIENTS), strict=True):
            row[some] = np.add.reduceat(parts, places[some])
        return found

    def whole(self, buffer: Any, total: int) -> np.ndarray:
        """Return coefficients (patch, coefficient)."""
        import pyopencl as cl

        found = np.empty((total, COEFFICIENTS), np.float32)
        with self.turn:
            cl.enqueue_copy(self.queue, found, buffer)
        return found


class DeviceCoefficients:
    """Coefficients (patch, coefficient) on a device, in the order that `PatchSpectra` has them."""

    dtype = np.dtype(np.float32)

    def __init__(self, store: CoefficientStore, name: str, total: int) -> None:
        self._store, self._name, self._total = store, name, total
        self.buffer = store.arena.buffer(name, 4 * COEFFICIENTS * total)
        self.which: np.ndarray | None = None  # places of the patches there; None for all
        self._waiting: list[_Later] = []

    def __del__(self) -> None:
        self._store.give_back(self._name, self._total)

    @property
    def shape(self) -> tuple[int, int]:
        count = self._total if self.which is None else len(self.which)
        return count, COEFFICIENTS - 1

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        found = self._store.whole(self.buffer, self._total)
        if self.which is not None:
            found = found[self.which]
        return found[:, coefficient_order()].astype(dtype or np.float32, copy=False)

    def sums(
        self,
        order: np.ndarray,
        starts: np.ndarray,
        stops: np.ndarray,
        weight: np.ndarray | None = None,
        first: int = 0,
    ) -> np.ndarray:
        """Return sums of squares of the coefficients from the first on, as `span_sums`."""
        asked = _Later(self, order, np.asarray(starts), np.asarray(stops), first)
        if weight is None:
            self._waiting.append(asked)
            return asked()
        found = self._summed(order, (asked.starts, asked.stops), weight, False)[0]
        return found.take(coefficient_order()[first:], 1)

    def later(
        self, order: np.ndarray, starts: np.ndarray, stops: np.ndarray, first: int
    ) -> Callable[[], np.ndarray]:
        """Return a function that returns sums of squares; the next call of `sums` finds them."""
        asked = _Later(self, order, np.asarray(starts), np.asarray(stops), first)
        self._waiting.append(asked)
        return asked

    def find_waiting(self) -> None:
        """Find all sums of squares that were asked for, in one go."""
        waiting, self._waiting = self._waiting, []
        sizes = [len(each.order) for each in waiting]
        before = np.cumsum(sizes) - sizes
        order, starts, stops = (
            np.concatenate(each) if len(waiting) > 1 else each[0]
            for each in (
                [one.order for one in waiting],
                [one.starts + k for one, k in zip(waiting, before, strict=True)],
                [one.stops + k for one, k in zip(waiting, before, strict=True)],
            )
        )
        found = self._summed(order, (starts, stops), None, False)[0]
        cuts = np.cumsum([len(each.starts) for each in waiting])
        for each, sums in zip(waiting, np.split(found, cuts[:-1]), strict=True):
            each.found = sums

    def moments(self, order: np.ndarray, limits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return sums and sums of squares, as `range_moments`."""
        limits = np.asarray(limits)
        spans = limits[:-1], limits[1:]
        squares, sums = self._summed(order, spans, None, True)[:, :, coefficient_order()]
        return sums, squares

    def _summed(
        self,
        order: np.ndarray,
        spans: tuple[np.ndarray, np.ndarray],
        weight: np.ndarray | None,
        moments: bool,
    ) -> np.ndarray:
        patches = order if self.which is None else self.which[order]
        counts = None if weight is None else weight[order]
        return self._store.sums(self.buffer, patches, spans, counts, moments)


@dataclass
class _Later:
    """Sums of squares that are found together with others."""

    coefficients: DeviceCoefficients
    order: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    first: int
    found: np.ndarray | None = None

    def __call__(self) -> np.ndarray:
        if self.found is None:
            self.coefficients.find_waiting()
        return self.found.take(coefficient_order()[self.first :], 1)


@cache
def coefficient_order() -> np.ndarray:
    """Return where coefficients, low frequencies first, are in a patch on the device."""
    return np.concatenate(frequency_order((PATCH, PATCH)))


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


# Statistics of the patches of many planes, computed on a device where that is worthwhile.
#
# Every frame of a time-lapse and every slice of a volume is read. Only the rows of pixels that hold
# patches are sent to the device, and some thirty numbers per patch come back.
WORTHWHILE = 100_000  # patches from which a device is used without being requested
BATCH_GROUP = 32  # work-items of a work-group on a GPU
BATCH_BYTES = 1 << 26  # sent to the device at once
BATCH_TYPES = ("u1", "i1", "u2", "i2", "f4")  # that travel to the device as they are


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
    suited = min(shape) >= PATCH and planes.dtype.newbyteorder("=").str[1:] in BATCH_TYPES
    patches = len(planes) * min(limit, math.prod(shape))
    if suited and (device is not None or patches >= WORTHWHILE):
        from napari_gpu_denoise.opencl.device import choose

        try:
            return list(_device_statistics(planes, limit, choose(device), each, plain))
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


def _device_statistics(
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
        kernel = _StatisticsKernel(arena, dtype, grid, nx, across)
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


class _StatisticsKernel:
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
        self._group = (1 if cpu else BATCH_GROUP, 1, 1)
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
