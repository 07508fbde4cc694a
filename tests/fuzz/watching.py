"""Run one case and say how it ended, watching which files it touches and whether it ran code."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fuzz import payload
from napari_gpu_denoise.errors import DenoiseError
from napari_gpu_denoise.files import input_checks

RESULT, NAMED, RAW = "result", "named error", "raw exception"
LOSS, OUTSIDE, CODE = "silent loss", "outside access", "code run"
CRASH, HANG = "crash", "hang"
OUTCOMES = (RESULT, NAMED, RAW, LOSS, OUTSIDE, CODE, CRASH, HANG)
ACCEPTED = (RESULT, NAMED)


class Loss(Exception):
    """A result that is not what was asked for, or lacks pixels, without a word about it."""


class Outside(Exception):
    """A result that holds what is stored outside of the case's own folders."""


@dataclass
class Case:
    """What is run, in words, and the call; it raises `Loss` if the result is not right."""

    told: str
    run: Callable[[], object]


class Outcome(NamedTuple):
    """How a case ended: one of `OUTCOMES`, and the error or what was lost."""

    label: str
    detail: str


# Events of `sys.addaudithook` about paths: which arguments are paths, and whether the last part of
# a path is followed if it is a link.
_EVENTS = {
    **dict.fromkeys(("open", "os.listdir", "os.scandir", "os.truncate", "os.chmod"), ((0,), True)),
    **dict.fromkeys(("os.mkdir", "os.remove", "os.rmdir", "shutil.rmtree"), ((0,), False)),
    **dict.fromkeys(("os.rename", "os.link"), ((0, 1), False)),
    "os.symlink": ((1,), False),
}
# Where among the arguments a descriptor of the folder is that a path is relative to.
_FOLDERS = {"os.mkdir": (2,), "os.remove": (1,), "os.rmdir": (1,), "os.rename": (2, 3)}
_FOLDERS |= {"os.link": (2, 3), "os.symlink": (2,), "shutil.rmtree": (1,)}
# Places of the system that cases point to.
_SYSTEM = {"/", "/dev", "/dev/zero", "/etc", "/etc/passwd"}
OWN = ("data", "out")  # folders of a case: its input, and what it may write


class _Watch:
    """Paths outside of a case's own folders that are opened, listed, made, moved or removed."""

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
        if self.folder is None or event not in _EVENTS:
            return
        places, followed = _EVENTS[event]
        for place, descriptor in zip(places, _FOLDERS.get(event, (None,)), strict=False):
            path = _resolved(args, place, descriptor, followed)
            if path is not None:
                self._look_at(event, path, args)

    def _look_at(self, event: str, path: str, args: tuple) -> None:
        inside = path.startswith(self.folder + os.sep)
        own = (path + os.sep).startswith(tuple(f"{self.folder}{os.sep}{n}{os.sep}" for n in OWN))
        if path in _SYSTEM or path == self.folder or (inside and not own):
            self.found.append(f"{event} {path.removeprefix(self.folder)}")
        if event == "open" and inside and os.path.exists(path):
            # A pipe may be opened to see that it is one, but not be waited for.
            asked = args[1] is not None and _is_checked()
            waits = not asked and not args[2] & getattr(os, "O_NONBLOCK", 0)
            if waits and stat.S_ISFIFO(os.stat(path).st_mode):
                self.found.append("a pipe")
                raise PermissionError(f"{path} would wait for ever")


def _resolved(args: tuple, place: int, descriptor: int | None, followed: bool) -> str | None:
    """Return the real path that an event is about; None if it is about none."""
    path = args[place]
    if isinstance(path, int) and not isinstance(path, bool):
        link = f"/proc/self/fd/{path}"
        return os.path.realpath(link) if place == 0 and os.path.exists(link) else None
    if not isinstance(path, (str, bytes, os.PathLike)):
        return None
    text = os.fsdecode(path)
    if descriptor is not None and len(args) > descriptor and args[descriptor] not in (None, -1):
        text = os.path.join(f"/proc/self/fd/{args[descriptor]}", text)
    if "\0" in text:
        return None
    if followed:
        return os.path.realpath(text)
    head, name = os.path.split(text.rstrip(os.sep))
    return os.path.join(os.path.realpath(head), name)


def _is_checked() -> bool:
    """Return whether `input_checks.open_regular` opens a file, whose opener does not wait."""
    return sys._getframe(3).f_code is input_checks.open_regular.__code__


def _others(folder: Path) -> dict[str, str]:
    """Return all that is beside a case's own folders, with digests of what files hold."""
    found = {}
    for place, names, files in os.walk(folder):
        if Path(place) == folder:
            names[:] = [name for name in names if name not in OWN]
        for name in (*names, *files):
            path = os.path.join(place, name)
            held = Path(path).read_bytes() if os.path.isfile(path) else b""
            key = os.path.relpath(path, folder)
            found[key] = f"{os.lstat(path).st_mode:o} {hashlib.sha256(held).hexdigest()}"
    return found


_watch = _Watch()


def outcome(case: Case, folder: Path) -> Outcome:
    """Run a case whose files are in ``folder/data``, and which may write to ``folder/out``."""
    before = _others(folder)
    payload.RAN.clear()
    _watch.start(folder)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            case.run()
        found = Outcome(RESULT, "")
    except Loss as loss:
        found = Outcome(LOSS, str(loss))
    except Outside as outside:
        found = Outcome(OUTSIDE, str(outside))
    except (DenoiseError, MemoryError) as error:
        named = f"{type(error).__name__}: {error}"
        # Every named error says something.
        found = Outcome(NAMED if str(error).strip() else RAW, named)
    except Exception as error:
        found = Outcome(RAW, "".join(traceback.format_exception(error)[-6:]))
    finally:
        accessed = _watch.stop()
    if payload.RAN:
        return Outcome(CODE, ", ".join(payload.RAN))
    after = _others(folder)
    changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    if accessed or changed:
        told = [*dict.fromkeys(accessed), *(f"changed {name}" for name in changed)]
        return Outcome(OUTSIDE, ", ".join(told[:8]))
    return found
