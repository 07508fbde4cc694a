"""The claim of one run on a result at an address, where no lock ends with its process.

It is a small file among the notes on the result, which a run that lives renews every few seconds.
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

NAME = "claim.json"
_RENEWED = 10.0  # seconds between two renewals
_WATCHED = 35.0  # seconds after which one that was not renewed is void

_held: set[str] = set()  # by this process


class _Notes(Protocol):
    def text(self, name: str) -> str | None: ...

    def replace(self, name: str, text: str) -> None: ...

    def remove(self, name: str) -> None: ...


class Claim:
    """A claim on what some notes are about; `lost` once another run has taken it over."""

    def __init__(self, notes: _Notes) -> None:
        self._notes, self._run, self._renewals = notes, uuid.uuid4().hex, 0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self.lost = False

    def made(self) -> bool:
        """Claim, and return True; False if a run that lives has."""
        if not self._is_free():
            return False
        self._write()
        _held.add(self._run)
        self._thread = threading.Thread(target=self._renew, name="renews a claim", daemon=True)
        self._thread.start()
        return True

    def end(self) -> None:
        """Give it up, if it was made."""
        if self._run not in _held or self._thread is None:
            return
        self._ended.set()
        self._thread.join()
        _held.discard(self._run)
        if not self.lost:
            self._notes.remove(NAME)

    def _is_free(self) -> bool:
        """Return whether there is no claim, or one of a run that does not live any more.

        That of another machine is watched, as the clocks of two machines may differ.
        """
        first = self._notes.text(NAME)
        if first is None:
            return True
        with contextlib.suppress(ValueError, TypeError, KeyError):
            told = json.loads(first)
            if told["run"] in _held:
                return False
            process = int(told["process"])
            if told["machine"] == _machine() and (process == os.getpid() or not is_alive(process)):
                return True
        until = time.monotonic() + _WATCHED
        while time.monotonic() < until:
            time.sleep(_RENEWED / 10)
            now = self._notes.text(NAME)
            if now != first:
                return now is None
        return True

    def _write(self) -> None:
        told = {"run": self._run, "machine": _machine(), "process": os.getpid()}
        self._notes.replace(NAME, json.dumps({**told, "renewals": self._renewals}))

    def _renew(self) -> None:
        while not self._ended.wait(_RENEWED):
            # If the network stays away the run itself says so.
            with contextlib.suppress(Exception):
                held = self._notes.text(NAME)
                if held is not None and json.loads(held)["run"] != self._run:
                    self.lost = True
                    return
                self._renewals += 1
                self._write()


def _machine() -> str:
    """Return what tells the processes of this machine, and of this container, from others."""
    space = ""
    with contextlib.suppress(OSError, AttributeError):
        space = os.readlink("/proc/self/ns/pid")
    return f"{platform.node()} {on_disk.boot()} {space}"
