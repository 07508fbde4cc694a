"""Progress of a worker."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from napari_gpu_denoise.filters.advice.cost import in_words

_SETTLED = 3.0  # seconds from which the pace of a step is believed


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


class TimeLeft:
    """Says how long a step of a run still takes, from the pace of its parts so far."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._text: str | None = None
        self._since, self._done = 0.0, 0

    def words(self, stage: Stage) -> str:
        """Return the words of a stage, with the time left once it can be told."""
        return ", ".join(filter(None, (stage.words, self.left(stage))))

    def left(self, stage: Stage) -> str:
        """Return the time left alone; empty as long as it cannot be told."""
        now = self._clock()
        if stage.text != self._text or stage.done < self._done:
            self._text, self._since, self._done = stage.text, now, stage.done
        passed, parts = now - self._since, stage.done - self._done
        left = stage.total - stage.done
        if passed < _SETTLED or parts < 1 or left < 1:
            return ""
        return f"{in_words(passed / parts * left)} left"


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
