"""Split frames into tiles, with the margin that a filter needs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, prod


@dataclass(frozen=True)
class Reach:
    """How far around a pixel a filter looks, as (before, after) along each axis, in pixels."""

    t: tuple[int, int] = (0, 0)
    z: tuple[int, int] = (0, 0)
    y: tuple[int, int] = (0, 0)
    x: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, around: int, deep: int = 0, time: tuple[int, int] = (0, 0)) -> Reach:
        """Return the same reach on both sides along Y and X, and along Z, and one over time."""
        return cls(time, (deep, deep), (around, around), (around, around))


def regions(shape: Sequence[int], size: Sequence[int]) -> Iterator[tuple[slice, ...]]:
    """Cut an array into regions of these lengths, smaller at the ends of axes."""
    starts = (range(0, n, s) for n, s in zip(shape, size, strict=True))
    for start in itertools.product(*starts):
        yield tuple(slice(a, min(a + s, n)) for a, s, n in zip(start, size, shape, strict=True))


@dataclass(frozen=True)
class Span:
    """Extent of a tile along one axis: the pixels it yields and reads, and the axis's length."""

    start: int
    stop: int
    source_start: int
    source_stop: int
    length: int

    @classmethod
    def whole(cls, length: int) -> Span:
        """Return the span of a whole axis."""
        return cls(0, length, 0, length, length)

    @cached_property
    def size(self) -> int:
        """Number of pixels yielded."""
        return self.stop - self.start

    @cached_property
    def source_size(self) -> int:
        """Number of pixels read."""
        return self.source_stop - self.source_start

    @cached_property
    def margin(self) -> int:
        """Pixels read before the first one yielded."""
        return self.start - self.source_start

    @property
    def yields(self) -> slice:
        """Pixels yielded, as an index into the axis."""
        return slice(self.start, self.stop)

    @property
    def reads(self) -> slice:
        """Pixels read, as an index into the axis."""
        return slice(self.source_start, self.source_stop)

    def part(self, start: int, stop: int, reach: tuple[int, int]) -> Span:
        """Return the span of a part, which reads the margin around it as far as this one does."""
        source_start = max(start - reach[0], self.source_start)
        source_stop = min(stop + reach[1], self.source_stop)
        return Span(start, stop, source_start, source_stop, self.length)


@dataclass(frozen=True)
class Tile:
    """A part of one sequence of frames, the same in all channels that are joined."""

    sequence: int
    t: Span
    z: Span
    y: Span
    x: Span
    channels: int = 1

    @cached_property
    def source_shape(self) -> tuple[int, int, int, int]:
        """Shape read from each channel, (t, z, y, x)."""
        return self.t.source_size, self.z.source_size, self.y.source_size, self.x.source_size

    @cached_property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape yielded in each channel, (t, z, y, x)."""
        return self.t.size, self.z.size, self.y.size, self.x.size

    @cached_property
    def frames(self) -> int:
        """Number of planes yielded in each channel."""
        return self.t.size * self.z.size

    @cached_property
    def nbytes(self) -> int:
        """Bytes of the float32 pixels yielded in all channels."""
        return 4 * self.channels * prod(self.shape)

    @property
    def source_region(self) -> tuple[slice, slice, slice]:
        """Pixels read along the whole axes z, y, x."""
        return self.z.reads, self.y.reads, self.x.reads

    def kept_region(self, ny: int, nx: int) -> tuple[slice, slice, slice]:
        """Return the first `ny` x `nx` pixels yielded, along the whole axes z, y, x."""
        y, x = self.y.start, self.x.start
        return self.z.yields, slice(y, y + ny), slice(x, x + nx)


def split_span(whole: Span, size: int, reach: tuple[int, int]) -> Iterator[Span]:
    """Cut a span into parts of nearly equal size, at most `size`, that read no more than it."""
    length = whole.size
    count = ceil(length / size)
    cuts = (whole.start + length * k // count for k in range(count + 1))
    for start, stop in itertools.pairwise(cuts):
        yield whole.part(start, stop, reach)


def split(
    shape: Sequence[int],
    reach: Reach,
    max_pixels: int,
    part: Sequence[Span] | None = None,
    max_yield: int | None = None,
    channels: int = 1,
) -> list[Tile]:
    """Cut frames of a shape (sequences, nt, nz, ny, nx) into tiles that yield every pixel once.

    A tile may read `max_pixels` (memory) and yield `max_yield` (time), over all `channels`, which
    it holds together. `part` is what to yield along t, z, y, x and what may be read, by default the
    whole axes. Frames are separated first, then rows, then columns, then slices, so that tiles stay
    compact in memory. If even a pixel with its margin is too much, tiles read up to twice as many.
    """
    wholes = part or tuple(Span.whole(length) for length in shape[1:])
    lengths = [whole.size for whole in wholes]
    reaches = (reach.t, reach.z, reach.y, reach.x)
    parts = [1, 1, 1, 1]

    def pixels() -> int:
        total = channels
        each = zip(wholes, lengths, parts, reaches, strict=True)
        for whole, length, count, (before, after) in each:
            margins = before + after
            if count == 2:  # each part has one of its margins in the other
                margins = min(margins, max(before, after) + whole.source_size - length)
            total *= min(ceil(length / count) + margins, whole.source_size)
        return total

    def yielded() -> int:
        sizes = (ceil(length / count) for length, count in zip(lengths, parts, strict=True))
        return channels * prod(sizes)

    def too_large() -> bool:
        return pixels() > max_pixels or (max_yield is not None and yielded() > max_yield)

    # Parts smaller than their margin would read every pixel many times: such cuts come last, by
    # rows and columns in turn, so that tiles stay square.
    y, x = sum(reach.y), sum(reach.x)
    cuts = [(0, 2 * sum(reach.t)), (2, 4 * y), (3, 4 * x), (1, 2 * sum(reach.z)), (0, 1)]
    cuts += [cut for share in (2, 1, 0.5) for cut in ((2, share * y), (3, share * x))]
    smallest = channels * prod(
        min(1 + before + after, whole.source_size)
        for whole, (before, after) in zip(wholes, reaches, strict=True)
    )
    if smallest > max_pixels:
        max_pixels = 2 * smallest  # single pixels would not fit, either
    for axis, size in [*cuts, (1, 1), (2, 1), (3, 1)] if too_large() else ():
        while too_large():
            more = min(parts[axis] + max(1, parts[axis] // 8), lengths[axis])
            if more == parts[axis] or ceil(lengths[axis] / more) < max(size, 1):
                break
            parts[axis] = more
    spans = [
        list(split_span(whole, ceil(length / count), one))
        if count > 1
        else [whole.part(whole.start, whole.stop, one)]
        for whole, length, count, one in zip(wholes, lengths, parts, reaches, strict=True)
    ]
    return [
        Tile(sequence, t, z, y, x, channels)
        for sequence in range(shape[0])
        for t, z, y, x in itertools.product(*spans)
    ]
