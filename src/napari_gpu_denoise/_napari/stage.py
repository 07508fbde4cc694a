"""Progress of a worker."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Stage:
    """A step of a run, with `done` of `total` parts; a total of 0 means unknown."""

    text: str
    done: int = 0
    total: int = 0

    @property
    def words(self) -> str:
        """What is done, and how much of it."""
        return f"{self.text} {self.done} of {self.total}" if self.total else f"{self.text} …"


def as_stages(running: Generator, text: str) -> Generator[Stage, None, Any]:
    """Drive a generator of `run.Progress`, and return what it returns."""
    with closing(running):
        while True:
            try:
                progress = next(running)
            except StopIteration as end:
                return end.value
            if not progress.total:
                yield Stage(progress.unit.capitalize())
                continue
            reading = progress.unit == "frame read"
            named = "Reading: frame" if reading else f"{text}: {progress.unit}"
            yield Stage(named, progress.done, progress.total)
