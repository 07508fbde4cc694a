"""The lock of one run on a result at an address, where no lock ends with its process.

`lock.json` among the notes on the result names the run and is written once. A run that lives writes
a number into a file of its own every few seconds: it never overwrites the lock of another.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import threading
import time
import uuid
from typing import Protocol

from napari_gpu_denoise.files import on_disk
from napari_gpu_denoise.locks import is_alive

NAME = "lock.json"
_RENEWED = 10.0  # seconds between two renewals
_WATCHED = 35.0  # seconds after which a lock that was not renewed has expired
_SETTLED = 1.0  # seconds in which all who found a lock free at the same moment have written theirs

_held: set[str] = set()  # runs of this process


class _Notes(Protocol):
    def text(self, name: str) -> str | None: ...

    def create(self, name: str, text: str) -> None: ...

    def replace(self, name: str, text: str) -> None: ...

    def remove(self, name: str) -> None: ...


class RemoteLock:
    """A lock on what some notes are about."""

    def __init__(self, notes: _Notes) -> None:
        self._notes, self._run, self._renewals = notes, uuid.uuid4().hex, 0
        told = {"run": self._run, "machine": _machine(), "process": os.getpid()}
        self._text = json.dumps(told)
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        #: Why this run has it no more, as far as that is known: "taken" by another, or "removed".
        self.lost = ""

    def acquire(self) -> bool:
        """Lock, and return True; False if a run that lives has."""
        _held.add(self._run)
        found = self._notes.text(NAME)
        if not (self._is_free(found) and self._take(found)):
            _held.discard(self._run)
            return False
        self._thread = threading.Thread(target=self._renew, name="renews a lock", daemon=True)
        self._thread.start()
        return True

    def holds(self) -> bool:
        """Read the lock again, and return whether it is still that of this run."""
        found = self._notes.text(NAME)
        if found != self._text and not self.lost:
            self.lost = "removed" if found is None else "taken"
        return not self.lost

    def stop_renewing(self) -> None:
        """Keep the lock for a moment more, in which it is removed with what it stands for."""
        if self._thread is not None:
            self._ended.set()
            self._thread.join()

    def release(self) -> None:
        """Give it up, if it was acquired."""
        if self._run not in _held:
            return
        self.stop_renewing()
        _held.discard(self._run)
        if self.holds():
            self._notes.remove(_renewals_of(self._run))
            self._notes.remove(NAME)

    def _is_free(self, found: str | None) -> bool:
        """Return whether there is no lock, or one of a run that does not live any more.

        That of another machine is watched, as the clocks of two machines may differ.
        """
        if found is None:
            return True
        run = ""
        with contextlib.suppress(ValueError, TypeError, KeyError):
            told = json.loads(found)
            run, process = str(told["run"]), int(told["process"])
            if run in _held:
                return False
            if told["machine"] == _machine() and _has_ended(process):
                return True
        renewals = self._notes.text(_renewals_of(run))
        until = time.monotonic() + _WATCHED
        while time.monotonic() < until:
            time.sleep(_RENEWED / 10)
            now = self._notes.text(NAME)
            if now != found:
                return now is None
            if self._notes.text(_renewals_of(run)) != renewals:
                return False
        return True

    def _take(self, found: str | None) -> bool:
        """Write the lock; return False if another run that found it free did so, too."""
        if found is None:
            try:
                self._notes.create(NAME, self._text)
                # Some servers overwrite in spite of the condition: this is refused by all others.
                self._notes.create(NAME, self._text)
            except FileExistsError:
                return self.holds()
            except Exception:
                pass  # A store that knows no such condition, or `replace` will say what is wrong.
        begun = time.monotonic()
        if self._notes.text(NAME) not in (found, self._text):
            return False
        self._notes.replace(NAME, self._text)
        # A slow write may overwrite the lock of a run that has begun: it reads that in this time.
        time.sleep(_SETTLED if time.monotonic() < begun + _SETTLED / 2 else _WATCHED)
        return self.holds()

    def _renew(self) -> None:
        while not self._ended.wait(_RENEWED):
            # If the network stays away the run itself says so.
            with contextlib.suppress(Exception):
                if not self.holds():
                    return
                self._renewals += 1
                self._notes.replace(_renewals_of(self._run), str(self._renewals))


def _renewals_of(run: str) -> str:
    """Return the name of the file that counts the renewals of a run."""
    return f"renewals-{run}.json"


def _has_ended(process: int) -> bool:
    """Return whether a run of this machine that is not in `_held` is known to have ended."""
    # Windows does not tell which other processes live.
    return process == os.getpid() or (os.name != "nt" and not is_alive(process))


def _machine() -> str:
    """Return an ID unique to this host and PID namespace."""
    space = ""
    with contextlib.suppress(OSError, AttributeError):
        space = os.readlink("/proc/self/ns/pid")
    return f"{platform.node()} {on_disk.boot() or uuid.getnode()} {space}"
