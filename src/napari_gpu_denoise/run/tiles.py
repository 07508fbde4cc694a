"""Split frames into tiles with the margin a filter needs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, prod


@dataclass(frozen=True)
class Reach:
    """How far around a pixel a filter looks, as (before, after) along each axis, in pixels."""

    t: tuple[int, int] = (0, 0)
    z: tuple[int, int] = (0, 0)
    y: tuple[int, int] = (0, 0)
    x: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Span:
    """One tile along one axis: what it yields, and what it reads, of an axis of a given length."""

    start: int
    stop: int
    source_start: int
    source_stop: int
    length: int

    @classmethod
    def whole(cls, length: int) -> Span:
        """Return the span of a whole axis."""
        return cls(0, length, 0, length, length)

    @property
    def size(self) -> int:
        """Number of pixels yielded."""
        return self.stop - self.start

    @property
    def source_size(self) -> int:
        """Number of pixels read."""
        return self.source_stop - self.source_start

    @property
    def margin(self) -> int:
        """Pixels read before the first one yielded."""
        return self.start - self.source_start


def span_around(yields: range, reach: tuple[int, int], length: int) -> Span:
    """Return the span that yields a range, and reads what a filter needs around it."""
    start, stop = yields.start, yields.stop
    return Span(start, stop, max(start - reach[0], 0), min(stop + reach[1], length), length)


@dataclass(frozen=True)
class Tile:
    """A part of one sequence of frames; where channels are joined, the same part of all of them."""

    sequence: int
    t: Span
    z: Span
    y: Span
    x: Span
    channels: int = 1

    @property
    def source_shape(self) -> tuple[int, int, int, int]:
        """Shape read of each channel, (t, z, y, x)."""
        return tuple(span.source_size for span in (self.t, self.z, self.y, self.x))

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape yielded of each channel, (t, z, y, x)."""
        return tuple(span.size for span in (self.t, self.z, self.y, self.x))


def split_span(whole: Span, size: int, reach: tuple[int, int]) -> Iterator[Span]:
    """Cut a span into nearly equal ones, none above `size`, that read no more than it does."""
    count = ceil(whole.size / size)
    for k in range(count):
        start = whole.start + whole.size * k // count
        stop = whole.start + whole.size * (k + 1) // count
        source_start = max(start - reach[0], whole.source_start)
        source_stop = min(stop + reach[1], whole.source_stop)
        yield Span(start, stop, source_start, source_stop, whole.length)


def split(
    shape: tuple[int, int, int, int, int],
    reach: Reach,
    max_pixels: int,
    part: tuple[Span, Span, Span, Span] | None = None,
    max_yield: int | None = None,
    channels: int = 1,
) -> list[Tile]:
    """Cut sequences of frames into tiles that read at most `max_pixels` pixels each.

    Frames are parted first, then rows, then columns, then slices, so that tiles stay as compact in
    memory as they can. Where even the smallest tile with its margin is larger, it is given all the
    same.

    Parameters
    ----------
    shape : tuple of int
        (sequences, nt, nz, ny, nx).
    reach : Reach
        Margin the filter needs.
    max_pixels : int
        Largest number of pixels a tile may read, over all channels it holds.
    part : tuple of Span, optional
        What to yield along t, z, y, x, and what there is to read; by default the whole axes.
    max_yield : int, optional
        Largest number of pixels a tile may yield, over all channels, which is what its time goes
        with.
    channels : int, optional
        Joined channels, which every tile holds together.

    Returns
    -------
    list of Tile
        Together they yield every pixel once.
    """
    sequences = shape[0]
    wholes = part or tuple(Span.whole(length) for length in shape[1:])
    lengths = [whole.size for whole in wholes]
    reaches = (reach.t, reach.z, reach.y, reach.x)
    parts = [1, 1, 1, 1]

    def pixels() -> int:
        total = channels
        for whole, count, (before, after) in zip(wholes, parts, reaches, strict=True):
            total *= min(ceil(whole.size / count) + before + after, whole.source_size)
        return total

    def yielded() -> int:
        sizes = (ceil(length / count) for length, count in zip(lengths, parts, strict=True))
        return channels * prod(sizes)

    # A part smaller than its margin would be read many times over: such cuts come last.
    smallest = (2 * sum(reach.t), 4 * sum(reach.y), 4 * sum(reach.x), 2 * sum(reach.z), 1, 1, 1)
    for axis, size in zip((0, 2, 3, 1, 0, 2, 3), smallest, strict=True):
        while pixels() > max_pixels or (max_yield is not None and yielded() > max_yield):
            more = parts[axis] + max(1, parts[axis] // 8)
            if ceil(lengths[axis] / more) < max(size, 1) or more > lengths[axis]:
                break
            parts[axis] = more
    spans = [
        list(split_span(whole, ceil(whole.size / count), one))
        for whole, count, one in zip(wholes, parts, reaches, strict=True)
    ]
    return [
        Tile(sequence, *tile, channels)
        for sequence in range(sequences)
        for tile in itertools.product(*spans)
    ]
