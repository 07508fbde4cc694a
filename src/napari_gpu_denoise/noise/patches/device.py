"""Patches of planes whose cosine coefficients are computed on a device.

Of planes that are analysed (`DevicePatches`), what decides which patches are read comes back, eight
numbers of each; the coefficients themselves, sixty-four, stay there, and are summed up there. Of
planes that are only compared (`read_statistics`), the squares of the high frequencies come back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from napari_gpu_denoise.errors import DeviceMemoryError, KernelError, NoDeviceError, NonFiniteError
from napari_gpu_denoise.image.threads import in_bands
from napari_gpu_denoise.noise.patches import selection, spectra, white
from napari_gpu_denoise.noise.patches.coefficients import suit_float32
from napari_gpu_denoise.noise.patches.variance import PatchStatistics
from napari_gpu_denoise.noise.sampling import PlaneStack
from napari_gpu_denoise.opencl.device import choose
from napari_gpu_denoise.opencl.memory import Arena, borrow, device_errors
from napari_gpu_denoise.opencl.program import session

TYPES = ("u1", "i1", "u2", "i2", "f4")  # that travel to a device as they are
GROUP = 64  # work-items of a work-group on a GPU
BLOCK = 32  # patches that a work-item of a CPU transforms
CHUNK, CPU_CHUNK = 256, 512  # patches that a work-item sums up, at most
PATCH, SHAPE = white.PATCH, (white.PATCH,) * 2
COEFFICIENTS = PATCH**2
MOST_BYTES = 1 << 29  # of coefficients; more channels than that are left to NumPy
WORTHWHILE = 100_000  # patches from which a device is used without being requested
BATCH_BYTES = 1 << 26  # of planes that are compared, sent at once


class _Grid(NamedTuple):
    """Places of the patches of a plane, as `read_patches` has them."""

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
    def count(self) -> int:
        return self.rows * self.columns

    def clear(self, blank: np.ndarray) -> np.ndarray:
        """Return which patches touch no blank."""
        return selection.clear_patches(blank, SHAPE, self.down, self.across).ravel()

    def bands(self, plane: np.ndarray) -> np.ndarray:
        """Return the rows of pixels of each row of patches, (row, y, x)."""
        return sliding_window_view(plane, PATCH, axis=0)[:: self.down].transpose(0, 2, 1)

    @property
    def overlap(self) -> float:
        return max(1.0, PATCH / self.down) * max(1.0, PATCH / self.across)


class _Transform:
    """The kernel that transforms the patches of planes with rows of `nx` pixels.

    All coefficients are kept, or with `highs` the squares of those at so many high frequencies.
    """

    def __init__(
        self, arena: Arena, queue: Any, dtype: np.dtype, nx: int, grid: _Grid, highs: int = 0
    ) -> None:
        cpu = arena.session.device.shares_cores
        # A CPU compiles a kernel anew for every shape of its groups.
        self._group, self._per = (1, BLOCK) if cpu else (GROUP, 1)
        constants = {"BITS": 8 * dtype.itemsize, "SIGNED": int(dtype.kind == "i")}
        constants |= {"PER": self._per, "HIGHS": highs}
        self._kernel = arena.kernel("noise/patch_coefficients", constants)
        self._tables = arena.constant("patch tables", _tables)
        self._queue, self._nx, self._grid = queue, nx, grid

    def __call__(
        self, pixels: Any, apart: int, ends: Any, kept: Any, told: Any, planes: range, total: int
    ) -> None:
        """Begin to transform some planes of all that make `total` patches, given their pixels.

        Rows of patches begin `apart` pixels after each other.
        """
        each, count = self._grid.count, len(planes) * self._grid.count
        items = -(-count // self._per)
        sizes = self._nx, self._grid.columns, count, self._grid.across, apart
        self._kernel(
            self._queue,
            (-(-items // self._group) * self._group,),
            (self._group,),
            pixels,
            *map(np.int32, sizes),
            ends,
            np.int32(each),
            self._tables,
            kept,
            told,
            np.int32(planes.start * each),
            np.int32(total),
        )


@cache
def _tables() -> np.ndarray:
    """Return the tables of the kernel: transforms, sets of frequencies, sight, and numbers."""
    transform, order = white.cosine_transform(PATCH), coefficient_order()
    low, high = white.frequency_order(SHAPE)
    sets = np.zeros((len(spectra.SETS) + 2, COEFFICIENTS))
    sets[:-2, order] = spectra.frequency_sets(len(low), len(order))
    sets[-2, order] = spectra.weights()[len(low) :].mean(axis=0)
    sets[-1] = -1
    sets[-1, high] = np.arange(len(high))
    both = np.stack([transform.T, transform]).reshape(2, COEFFICIENTS)
    return np.concatenate([both, sets]).astype(np.float32)


class DevicePatches:
    """Reads patches on one device, and keeps their coefficients as long as an arena is borrowed."""

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

    def read(
        self,
        planes: Sequence[np.ndarray],
        limit: int,
        blanks: Sequence[np.ndarray | None],
        levels: Sequence[list],
    ) -> spectra.PatchSpectra | None:
        """Return about `limit` patches of planes of one shape and type, as `read_spectra` does.

        None where they do not suit a device: small planes, other types, extreme values.
        """
        plane = planes[0]
        dtype = plane.dtype.newbyteorder("=")
        if min(plane.shape) < PATCH or dtype.str[1:] not in TYPES:
            return None
        grid = _Grid.of(plane.shape, limit // len(planes))
        count = grid.count
        total = count * len(planes)
        if self.nbytes + 4 * COEFFICIENTS * total > MOST_BYTES:
            return None
        coefficients = self.take(total)
        told = self._told(planes, levels, grid, coefficients)
        kept = np.isfinite(told[0])
        for k, blank in enumerate(blanks):
            if blank is not None:
                kept[k * count : (k + 1) * count] &= grid.clear(blank)
        which = None if kept.all() else np.flatnonzero(kept)
        # The memory is used again.
        told = told.copy() if which is None else told[:, which]
        energy = told[3:]
        if not energy.shape[1] or not suit_float32(energy):
            return None
        coefficients.which = which
        *_, upper = white.frequencies(SHAPE)
        return spectra.PatchSpectra(
            told[0].astype(np.float64),
            coefficients,
            energy,
            told[1].astype(np.float64),
            len(white.frequency_order(SHAPE)[0]),
            upper,
            told[2].astype(np.float64),
            grid.overlap,
            _middles(grid, len(planes), plane.shape)[:, slice(None) if which is None else which],
        )

    def _told(
        self, planes: Sequence[np.ndarray], levels: Sequence[list], grid: _Grid, into: Any
    ) -> np.ndarray:
        """Transform the patches of planes; return the numbers told of each."""
        import pyopencl as cl

        arena, queue = self.arena, self.queue
        dtype = planes[0].dtype.newbyteorder("=")
        transform = _Transform(arena, queue, dtype, planes[0].shape[1], grid)
        total, told = grid.count * len(planes), 3 + len(spectra.SETS)
        out = arena.buffer("patches told", 4 * told * total)
        host = arena.pinned("patches told", told * total, queue)
        ends = np.full((len(planes), 2), np.nan, np.float32)
        for row, level in zip(ends, levels, strict=True):
            row[: len(level)] = level
        clipped = arena.buffer("patch ends", ends.nbytes)
        with self.turn:
            cl.enqueue_copy(queue, clipped, ends, is_blocking=False)
            for k, plane in enumerate(planes):
                pixels, apart = self._sent(np.ascontiguousarray(plane, dtype), grid)
                transform(pixels, apart, clipped, into.buffer, out, range(k, k + 1), total)
                if k + 1 < len(planes):
                    queue.finish()  # the next plane takes its place
            cl.enqueue_copy(queue, host, out)
        return host.reshape(told, total)

    def _sent(self, plane: np.ndarray, grid: _Grid) -> tuple[Any, int]:
        """Upload the rows of a plane that hold patches; return these, and how far apart they are.

        That is in pixels, from the first row of some patches to that of the next. A GPU reads fast
        from pinned memory only, which threads fill.
        """
        import pyopencl as cl

        arena, queue, row = self.arena, self.queue, plane.strides[0]
        apart = min(grid.down, PATCH)
        rows = plane.shape[0] if grid.down <= PATCH else grid.rows * PATCH
        pixels = arena.buffer("patch pixels", rows * row)
        parts = {}
        if not self.cpu:
            sent = arena.pinned("patch pixels", -(-rows * row // 4), queue).view(np.uint8)
            sent = sent[: rows * row].view(plane.dtype).reshape(rows, -1)
            if grid.down > PATCH:
                plane = grid.bands(plane)
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


class DeviceCoefficients:
    """Coefficients (patch, coefficient) on a device, in the order that `PatchSpectra` has them."""

    dtype = np.dtype(np.float32)

    def __init__(self, store: DevicePatches, name: str, total: int) -> None:
        self._store, self._name, self._total = store, name, total
        self.buffer = store.arena.buffer(name, 4 * COEFFICIENTS * total)
        self.which: np.ndarray | None = None  # places of the patches there; None for all

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
        spans = np.asarray(starts), np.asarray(stops)
        found = self._summed(order, spans, weight, False)[0]
        return found.take(coefficient_order()[first:], 1)

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


@cache
def coefficient_order() -> np.ndarray:
    """Return the places of coefficients, low frequencies first, in a patch on the device."""
    return np.concatenate(white.frequency_order(SHAPE))


@contextmanager
def patches_on(device: Any) -> Iterator[DevicePatches | None]:
    """Open a device to read patches on, as `choose` takes it; None where there is none."""
    try:
        chosen = choose(device)
    except NoDeviceError:
        if device not in (None, ""):
            raise
        chosen = None
    if chosen is None:
        yield None
        return
    opened = session(chosen)
    with device_errors(opened), borrow(opened, "noise") as arena:
        yield DevicePatches(arena)


@lru_cache(maxsize=1)
def _middles(grid: _Grid, planes: int, shape: tuple[int, int]) -> np.ndarray:
    """Return y and x of the middle of each patch, from 0 to 1 over the plane; not to be changed."""
    found = np.empty((2, planes, grid.rows, grid.columns))
    found[0] = ((np.arange(grid.rows) * grid.down + PATCH / 2) / shape[0])[:, None]
    found[1] = (np.arange(grid.columns) * grid.across + PATCH / 2) / shape[1]
    found = found.reshape(2, -1)
    found.flags.writeable = False
    return found


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
        try:
            return list(_device_statistics(planes, limit, choose(device), each, plain))
        except (NoDeviceError, DeviceMemoryError, KernelError):
            if device is not None:
                raise
    return list(each(lambda k: _plane_statistics(planes[k], limit, plain), range(len(planes))))


def _plane_statistics(plane: np.ndarray, limit: int, plain: bool) -> PatchStatistics | None:
    known = ([None], [[]]) if plain else ()
    try:
        return spectra.read_spectra([plane], limit, *known).statistics
    except NonFiniteError:
        return None


def _device_statistics(
    planes: PlaneStack, limit: int, device: Any, each: Callable, plain: bool
) -> Iterator[PatchStatistics | None]:
    """Yield the patches of each plane, spread as `read_patches` does."""
    import pyopencl as cl

    nx = planes.shape[2]
    grid = _Grid.of(planes.shape[1:], limit)
    dtype = planes.dtype.newbyteorder("=")
    nbytes = grid.rows * PATCH * nx * dtype.itemsize
    batch = max(1, min(len(planes), BATCH_BYTES // nbytes))
    opened = session(device)
    *_, upper = white.frequencies(SHAPE)
    with device_errors(opened), borrow(opened, "series") as arena:
        queue, turn = arena.session.queue(), arena.session.exclusive()
        transform = _Transform(arena, queue, dtype, nx, grid, len(upper))
        host = np.empty((batch, grid.rows, PATCH, nx), dtype)
        ends = np.empty((batch, 2), np.float32)

        def read(k: int, plane: np.ndarray) -> np.ndarray | None:
            """Copy what is sent of a plane; return which patches touch no blank, None for all."""
            np.copyto(host[k], grid.bands(plane))
            ends[k] = np.nan
            if plain:
                return None
            blank = selection.not_image([plane])[0]
            levels = selection.clipping_levels(plane, blank)
            ends[k, : len(levels)] = levels
            return None if blank is None else grid.clear(blank)

        def transformed(count: int) -> tuple[np.ndarray, np.ndarray]:
            """Transform planes; return numbers of patches, (plane, 4, patch), and their squares."""
            told = np.empty((4, count, grid.count), np.float32)
            squares = np.empty((count, grid.count, len(upper)), np.float32)
            names = "patch rows", "patch ends", "patch squares", "patches told"
            arrays = host[:count], ends[:count], squares, told
            sent, clipped, kept, out = (
                arena.buffer(name, array.nbytes) for name, array in zip(names, arrays, strict=True)
            )
            with turn:
                cl.enqueue_copy(queue, sent, host[:count], is_blocking=False)
                cl.enqueue_copy(queue, clipped, ends[:count], is_blocking=False)
                transform(sent, PATCH * nx, clipped, kept, out, range(count), told[0].size)
                cl.enqueue_copy(queue, squares, kept, is_blocking=False)
                cl.enqueue_copy(queue, told, out)
            return told.swapaxes(0, 1), squares

        def found(
            told: np.ndarray, squares: np.ndarray, clear: np.ndarray | None
        ) -> PatchStatistics | None:
            """Return the patches of a plane; None where there are none."""
            whole = np.isfinite(told[0])
            if clear is not None:
                whole &= clear
            if not whole.any():
                return None
            if not whole.all():
                told, squares = told[:, whole], squares[whole]
            mean, _, clipped, low = told.astype(np.float64)
            energy = squares.astype(np.float64)
            return PatchStatistics(mean, low, energy, upper, clipped, grid.overlap)

        for start in range(0, len(planes), batch):
            count = min(batch, len(planes) - start)
            # With `map`, one plane is held at a time: they may be large.
            clear = list(each(lambda k, at=start: read(k, planes[at + k]), range(count)))
            for k, one in enumerate(list(each(found, *transformed(count), clear))):
                # Smaller patches may be finite.
                yield one or _plane_statistics(planes[start + k], limit, plain)
