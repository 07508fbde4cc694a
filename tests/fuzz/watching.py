"""Run one case and say how it ended, watching which files it opens."""

from __future__ import annotations

import os
import stat
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from napari_gpu_denoise.errors import DenoiseError

RESULT, NAMED, RAW = "result", "named error", "raw exception"
LOSS, OUTSIDE, CRASH, HANG = "silent loss", "outside read", "crash", "hang"
OUTCOMES = (RESULT, NAMED, RAW, LOSS, OUTSIDE, CRASH, HANG)
ACCEPTED = (RESULT, NAMED)


class Loss(Exception):
    """A result that is not what was asked for, or lacks pixels, without a word about it."""


@dataclass
class Case:
    """What is run, in words, and the call; it raises `Loss` if the result is not right."""

    told: str
    run: Callable[[], object]


class Outcome(NamedTuple):
    """How a case ended: one of `OUTCOMES`, and the error or what was lost."""

    label: str
    detail: str


class _Watch:
    """The files opened while a case runs that are none of its own."""

    def __init__(self) -> None:
        self.folder: str | None = None
        self.found: list[str] = []
        self._added = False

    def start(self, folder: Path) -> None:
        if not self._added:  # it cannot be removed again
            sys.addaudithook(self._hear)
            self._added = True
        self.found = []
        self.folder = os.path.realpath(folder)

    def stop(self) -> list[str]:
        self.folder = None
        return self.found

    def _hear(self, event: str, args: tuple) -> None:
        if self.folder is None or event != "open" or not isinstance(args[0], (str, bytes)):
            return
        path = os.path.realpath(os.fsdecode(args[0]))
        inside = [os.path.join(self.folder, name) + os.sep for name in ("data", "out")]
        if path.startswith("/etc/") or (
            path.startswith(self.folder + os.sep) and not (path + os.sep).startswith(tuple(inside))
        ):
            self.found.append(path.removeprefix(self.folder))
        own = path.startswith(self.folder) and os.path.exists(path)
        if own and stat.S_ISFIFO(os.stat(path).st_mode):
            self.found.append("a pipe")
            raise PermissionError(f"{path} would wait for ever")


_watch = _Watch()


def outcome(case: Case, folder: Path) -> Outcome:
    """Run a case whose files are in ``folder/data``, and which may write to ``folder/out``."""
    _watch.start(folder)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            case.run()
        found = Outcome(RESULT, "")
    except Loss as loss:
        found = Outcome(LOSS, str(loss))
    except (DenoiseError, MemoryError) as error:
        named = f"{type(error).__name__}: {error}"
        # Every named error says something.
        found = Outcome(NAMED if str(error).strip() else RAW, named)
    except Exception as error:
        found = Outcome(RAW, f"{type(error).__name__}: {error} {_place(error)}")
    finally:
        outside = _watch.stop()
    return Outcome(OUTSIDE, ", ".join(outside)) if outside else found


def _place(error: BaseException) -> str:
    """Return the innermost lines of this package that an error passed through."""
    lines, trace = [], error.__traceback__
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if "napari_gpu_denoise" in path:
            lines.append(f"{os.path.basename(path)}:{trace.tb_lineno}")
        trace = trace.tb_next
    return " < ".join(reversed(lines[-4:]))
