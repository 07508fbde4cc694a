"""Cosine coefficients of patches on a device, which sums them up there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from napari_gpu_denoise.noise.patches.white import PATCH, frequency_order

if TYPE_CHECKING:
    from napari_gpu_denoise.opencl.memory import Arena

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
