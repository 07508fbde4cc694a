"""Progress of a run: where it reports its steps, and learns that it is to stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from napari_gpu_denoise.errors import Cancelled, SettingsError

# What is done before parts can be counted, as units of a `Step`.
MEASURING, COMPILING = "measuring noise", "compiling"


@dataclass(frozen=True)
class Step:
    """Number of units done and in total: tiles, or frames if a filter uses several at once.

    A total of 0 stands for work before tiles can be counted, which `unit` names.
    """

    done: int
    total: int
    unit: str = "tile"


class Progress:
    """Reports the steps of a run, and ends it by `Cancelled` when it is to stop.

    Parameters
    ----------
    report : callable, optional
        Called with each `Step`, in the thread that does the work. What it raises ends the run.
    stopped : callable, optional
        Returns whether the run is to stop; may be called in any thread.
    lost : str, optional
        What there is none of if the run is stopped, for the message of `Cancelled`.
    """

    def __init__(
        self,
        report: Callable[[Any], None] | None = None,
        stopped: Callable[[], bool] | None = None,
        lost: str = "no result was",
    ):
        self._report, self.stopped, self._lost = report, stopped or (lambda: False), lost

    @classmethod
    def of(cls, progress: Any, cancel: Any, lost: str = "no result was") -> Progress:
        """Return that of the arguments `progress` and `cancel` of a public function.

        Raises `SettingsError` if these cannot be used.
        """
        if progress is not None and not callable(progress):
            raise SettingsError(
                f"progress={progress!r:.60} cannot be called: give a function of the progress."
            )
        if cancel is not None and not hasattr(cancel, "is_set"):
            raise SettingsError(
                f"cancel={cancel!r:.60} has no is_set(): give an event, such as threading.Event()."
            )
        last = None

        def report(step: Step) -> None:
            nonlocal last
            if progress is not None and step != last and step.total:
                progress(step.done, step.total)
            last = step

        stopped = None if cancel is None else lambda: bool(cancel.is_set())
        return cls(None if progress is None else report, stopped, lost)

    def check(self) -> None:
        """Raise `Cancelled` if the run is to stop."""
        if self.stopped():
            raise Cancelled(f"The run was cancelled: {self._lost} made.")

    def report(self, state: Any) -> None:
        """Report a step, or anything else, and go on."""
        if self._report is not None:
            self._report(state)

    def tell(self, done: int, total: int, unit: str = "tile") -> None:
        """Report a step; then raise `Cancelled` if the run is to stop."""
        self.report(Step(done, total, unit))
        self.check()

    def stage(self, name: str) -> None:
        """Report what is done before, or after, units can be counted; then as `check`."""
        self.tell(0, 0, name)

    def within(self, change: Callable[[Step], Any]) -> Progress:
        """Return the progress of a part of the run, whose steps are reported changed."""
        return Progress(lambda step: self.report(change(step)), self.stopped, self._lost)


#: Reports nothing, and never stops.
SILENT = Progress()
