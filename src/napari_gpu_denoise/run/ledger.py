"""What a run that goes on later has to know: what was measured, and which parts are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from napari_gpu_denoise.run.job import Part
from napari_gpu_denoise.run.record import Tally


class Ledger:
    """Remembers nothing, for a result that is not resumed; subclasses write what they are told.

    `done` has the numbers of parts, or frames, that were written by an earlier run, and `tally`
    what was counted in them.
    """

    def __init__(self) -> None:
        self.done: set[int] = set()
        self.tally = Tally()

    def known(self, name: str) -> Any:
        """Return what an earlier run has kept by a name, or None."""

    def keep(self, name: str, value: Any) -> None:
        """Keep what was measured or chosen for the whole image."""

    def planned(self, plan: Sequence[Any]) -> None:
        """Say what the numbers of parts stand for, before the first is written."""

    def wrote(self, number: int, tally: Tally) -> None:
        """Say that a part is written; of several threads one calls at a time."""


def parts_left(
    parts: Sequence[Part], ledger: Ledger
) -> tuple[list[Part], Callable[[Part, Tally], None]]:
    """Return the parts that are not yet written, and a function to say that one is."""
    ledger.planned([[[one.start, one.stop] for one in part.yields] for part in parts])
    numbers = {part: number for number, part in enumerate(parts)}

    def wrote(part: Part, tally: Tally) -> None:
        ledger.wrote(numbers[part], tally)

    return [part for number, part in enumerate(parts) if number not in ledger.done], wrote
