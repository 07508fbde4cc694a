"""What a run that goes on later has to know: what was measured, and which parts are written."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import numpy as np

from napari_gpu_denoise.errors import OutputError
from napari_gpu_denoise.run.job import Part
from napari_gpu_denoise.run.record import Progress, Tally


class Written(NamedTuple):
    """A part that is written: what was counted in it, and its mark."""

    saturated: int
    nonfinite: int
    mark: int


class Ledger:
    """Remembers nothing, for a result that is not resumed; subclasses write what they are told.

    `done` has the parts, or frames, that were written by an earlier run, by their numbers.
    """

    def __init__(self) -> None:
        self.done: dict[int, Written] = {}

    @property
    def tally(self) -> Tally:
        """What was counted in all parts that are done."""
        saturated, nonfinite, _ = zip(*self.done.values(), strict=True) if self.done else ((),) * 3
        return Tally(sum(saturated), sum(nonfinite))

    def known(self, name: str) -> Any:
        """Return what an earlier run has kept by a name, or None."""

    def keep(self, name: str, value: Any) -> None:
        """Keep what was measured or chosen for the whole image."""

    def planned(self, plan: Sequence[Any]) -> None:
        """Say what the numbers of parts stand for, before the first is written."""

    def mark(self, out: Any, where: Any, values: np.ndarray | None = None) -> int:
        """Return `mark_of` a region, if a later run is to compare it."""
        return 0

    def wrote(self, number: int, tally: Tally, mark: int) -> None:
        """Say that a part is written; of several threads one calls at a time."""


def mark_of(out: Any, where: Any, values: np.ndarray | None = None) -> int:
    """Return a number that is another one if a region of a result was lost or cut.

    It is the size of the chunks in which it is stored, else a checksum of its `values`, which are
    read if they are not given.
    """
    size = out.stored_bytes(where) if hasattr(out, "stored_bytes") else None
    if size is not None:
        return size
    return zlib.crc32(np.ascontiguousarray(out[where] if values is None else values))


def check_written(
    ledger: Ledger, out: Any, regions: Sequence[Any]
) -> Generator[Progress, None, None]:
    """Forget parts of an earlier run whose pixels are lost; `regions` has the place of each."""
    total = len(ledger.done)
    for count, (number, written) in enumerate(list(ledger.done.items())):
        yield Progress(count, total, "part checked")
        there = 0 <= number < len(regions)
        if not there or ledger.mark(out, regions[number]) != written.mark:
            del ledger.done[number]


def check_whole(
    ledger: Ledger, out: Any, regions: Sequence[Any]
) -> Generator[Progress, None, None]:
    """Refuse a result in chunks if some were removed while others were written."""
    if not hasattr(out, "stored_bytes"):
        return
    count = len(ledger.done)
    yield from check_written(ledger, out, regions)
    if len(ledger.done) < count:
        raise OutputError(
            "Finished parts of the result were removed or changed during the run",
            "repeat the run with resume=True",
            code="kept",
            resumable=False,
        )


def parts_left(
    parts: Sequence[Part], ledger: Ledger, out: Any
) -> Generator[Progress, None, tuple[list[Part], Callable[[Part, Tally, int], None]]]:
    """Return the parts that are not yet written, and a function to say that one is."""
    ledger.planned([[[one.start, one.stop] for one in part.yields] for part in parts])
    yield from check_written(ledger, out, [part.yields for part in parts])
    numbers = {part: number for number, part in enumerate(parts)}

    def wrote(part: Part, tally: Tally, mark: int) -> None:
        ledger.wrote(numbers[part], tally, mark)

    return [part for number, part in enumerate(parts) if number not in ledger.done], wrote
