"""Where an unfinished result and the notes about it are kept, and the lock of the run that writes.

Beside a local result, in a hidden folder. At an address nothing can be renamed: there the pixels
lie where they will be, without the metadata that make them an image, and the notes among them; no
lock ends there with its process.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import platform
import shutil
import stat
import threading
import time
import uuid
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from napari_gpu_denoise.errors import DenoiseError, OutputError
from napari_gpu_denoise.files.input_checks import reason_of
from napari_gpu_denoise.files.zarr import Address
from napari_gpu_denoise.files.zarr.places import UNFINISHED, with_retries
from napari_gpu_denoise.locks import is_alive, locked

_SINCE = "written"  # a line for each part that was written since the notes were replaced
LOCK = "lock.json"
_RENEWED = 10.0  # seconds between two renewals
_WATCHED = 35.0  # seconds after which a lock that was not renewed has expired
_SETTLED = 1.0  # seconds in which all who found a lock free at the same moment have written theirs

_held: set[str] = set()  # runs of this process


def notes_on(target: Path | Address) -> LocalCheckpoint | RemoteCheckpoint:
    """Return where the notes on the unfinished result of a target are; they need not exist."""
    return RemoteCheckpoint(target) if isinstance(target, Address) else LocalCheckpoint(target)


class LocalCheckpoint:
    """Notes in a hidden folder beside a local result, with a lock that keeps other runs out."""

    #: Whether what is written survives a power cut at once.
    lasting = False
    #: Why this run has the lock no more, as far as that is known.
    lost = ""

    def __init__(self, target: Path) -> None:
        real = Path(os.path.realpath(target))
        name = hashlib.sha256(os.fsencode(real.name)).hexdigest()[:16]
        self.folder = real.with_name(f".gpu-denoise-{name}.unfinished")
        self.pixels = self.folder / "pixels"  # of a file that is written when all is done
        self.image = self.folder / "image"  # that is renamed then
        self._open = contextlib.ExitStack()
        self._lines: Any = None

    def acquire(self) -> bool:
        """Keep other runs out; return False if one writes this result."""
        while True:
            with contextlib.suppress(FileExistsError):
                self.folder.mkdir()
            self._refuse_others()
            # A run that ends may just remove folder and lock.
            with contextlib.suppress(FileNotFoundError):
                self._lock = self._opened("lock").fileno()
                if not locked(self._lock):
                    return False
                if self.holds():
                    return True
            self.free()

    def _refuse_others(self) -> None:
        """Refuse a folder that somebody has prepared with links, pipes or devices."""
        # Of a link not even what it leads to is listed.
        below = () if self.folder.is_symlink() else os.walk(self.folder)
        inside = (os.path.join(each, n) for each, *names in below for n in itertools.chain(*names))
        for place in (self.folder, *inside):
            with contextlib.suppress(FileNotFoundError):
                kind = os.lstat(place).st_mode
                if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
                    problem = f"{self.folder} is, or holds, a link, a pipe or a device: remove it."
                    raise OutputError(problem, resumable=False)

    def holds(self) -> bool:
        """Return whether the lock is still where other runs look for it."""
        # Windows renames nothing that is open.
        with contextlib.suppress(FileNotFoundError):
            path = self.folder / "lock"
            if os.name == "nt" or os.path.samestat(os.fstat(self._lock), os.stat(path)):
                self.lost = ""
                return True
        self.lost = "removed"
        return False

    def free(self) -> None:
        """Let other runs in."""
        self._open.close()

    def has(self, name: str) -> bool:
        """Return whether there is a note of this name."""
        return (self.folder / name).is_file()

    def text(self, name: str, most: int | None = None) -> str | None:
        """Return a note, or None; ValueError if it is longer than `most`."""
        if not self.has(name):
            return None  # which also leaves devices and pipes alone
        _check_size((self.folder / name).stat().st_size, most)
        return (self.folder / name).read_text("utf-8")

    def replace(self, name: str, text: str) -> None:
        """Write a note, which is whole at any moment."""
        write_whole(self.folder / name, text)

    def remove(self, name: str) -> None:
        """Remove a note, if it is there."""
        (self.folder / name).unlink(missing_ok=True)

    def add_line(self, line: str) -> None:
        """Write a line, which survives the end of this process."""
        if self._lines is None:
            self._lines = self._opened(_SINCE)
        self._lines.write(f"{line}\n".encode())

    def _opened(self, name: str) -> Any:
        return self._open.enter_context(open(self.folder / name, "ab", buffering=0))

    def lines(self, most: int) -> list[str]:
        """Return the lines that were written as a whole; ValueError as of `text`."""
        lines = (self.text(_SINCE, most) or "").splitlines(True)
        return [line for line in lines if line.endswith("\n")]

    def drop_lines(self) -> None:
        """Remove all lines."""
        if self._lines is not None:
            self._lines.truncate(0)
        else:
            self.remove(_SINCE)

    def flush(self) -> None:
        """Wait until the disk has what was written."""
        if self.pixels.exists():
            with open(self.pixels, "r+b") as file:
                os.fsync(file.fileno())
        elif hasattr(os, "sync"):
            os.sync()  # chunks are many files

    def clear(self) -> None:
        """Remove what an earlier run left."""
        for each in self.folder.iterdir():
            if each.name != "lock":
                shutil.rmtree(each) if each.is_dir() else each.unlink()

    def close(self) -> None:
        """Remove the notes on a result that is complete, and let other runs in."""
        if self._lines is not None:
            self._lines.close()  # Windows removes nothing that is open
        with contextlib.suppress(OSError):
            self.clear()
        lock = self.folder / "lock"
        if os.name == "nt":
            self.free()
        with contextlib.suppress(OSError):
            lock.unlink()  # elsewhere while it is held: afterwards it may be that of another run
        self.free()
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def discard(self) -> None:
        """Remove notes and unfinished result, and let other runs in."""
        self.close()


class RemoteLock(ABC):
    """The lock of one run on a result at an address; subclasses read and write its notes.

    `lock.json` among the notes on the result names the run and is written once. A run that lives
    writes a number into a file of its own every few seconds: it never overwrites the lock of
    another.
    """

    def __init__(self) -> None:
        self._run, self._renewals = uuid.uuid4().hex, 0
        told = {"run": self._run, "machine": _machine(), "process": os.getpid()}
        self._text = json.dumps(told)
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        #: Why this run has it no more, as far as that is known: "taken" by another, or "removed".
        self.lost = ""

    @abstractmethod
    def text(self, name: str, most: int | None = None) -> str | None:
        """Return a note, or None; ValueError if it is longer than `most`."""

    @abstractmethod
    def create(self, name: str, text: str) -> None:
        """Write a note that is new: `FileExistsError` if it is not, where the store tells that."""

    @abstractmethod
    def replace(self, name: str, text: str) -> None:
        """Write a note, which is whole at any moment."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a note, if it is there."""

    def acquire(self) -> bool:
        """Keep other runs out; return False if one writes this result."""
        _held.add(self._run)
        found = self.text(LOCK)
        if not (self._is_free(found) and self._take(found)):
            _held.discard(self._run)
            return False
        self._thread = threading.Thread(target=self._renew, name="renews a lock", daemon=True)
        self._thread.start()
        return True

    def holds(self) -> bool:
        """Read the lock again, and return whether it is still that of this run."""
        found = self.text(LOCK)
        if found != self._text and not self.lost:
            self.lost = "removed" if found is None else "taken"
        return not self.lost

    def stop_renewing(self) -> None:
        """Keep the lock for a moment more, in which it is removed with what it stands for."""
        if self._thread is not None:
            self._ended.set()
            self._thread.join()

    def free(self) -> None:
        """Let other runs in, if it was acquired."""
        if self._run not in _held:
            return
        self.stop_renewing()
        _held.discard(self._run)
        if self.holds():
            self.remove(_renewals_of(self._run))
            self.remove(LOCK)

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
        renewals = self.text(_renewals_of(run))
        until = time.monotonic() + _WATCHED
        while time.monotonic() < until:
            time.sleep(_RENEWED / 10)
            now = self.text(LOCK)
            if now != found:
                return now is None
            if self.text(_renewals_of(run)) != renewals:
                return False
        return True

    def _take(self, found: str | None) -> bool:
        """Write the lock; return False if another run that found it free did so, too."""
        if found is None:
            try:
                self.create(LOCK, self._text)
                # Some servers overwrite in spite of the condition: this is refused by all others.
                self.create(LOCK, self._text)
            except FileExistsError:
                return self.holds()
            except Exception:
                pass  # A store that knows no such condition, or `replace` will say what is wrong.
        begun = time.monotonic()
        if self.text(LOCK) not in (found, self._text):
            return False
        self.replace(LOCK, self._text)
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
                self.replace(_renewals_of(self._run), str(self._renewals))


class RemoteCheckpoint(RemoteLock):
    """Notes inside a result at an address. What is written there lasts; nothing can be appended."""

    lasting = True

    def __init__(self, target: Address) -> None:
        super().__init__()
        self._target = self.image = target
        self.folder = target / UNFINISHED

    def has(self, name: str) -> bool:
        """Return whether there is a note of this name."""
        return self._done(self.folder / name, "exists")

    def text(self, name: str, most: int | None = None) -> str | None:
        end = None if most is None else most + 1
        try:
            content = self._done(self.folder / name, "cat_file", end=end)
        except FileNotFoundError:
            return None
        _check_size(len(content), most)
        return content.decode()

    def create(self, name: str, text: str) -> None:
        system, place = (self.folder / name).system()
        system.pipe_file(place, text.encode(), mode="create")

    def replace(self, name: str, text: str) -> None:
        try:
            self._done(self.folder / name, "pipe_file", text.encode())
        except FileNotFoundError as error:
            raise OutputError(f"{self._target} cannot be written: {reason_of(error)}.") from error

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._done(self.folder / name, "rm_file")

    def add_line(self, line: str) -> None:
        """Do nothing: notes are replaced often enough."""

    def lines(self, most: int) -> list[str]:
        """Return none."""
        return []

    def drop_lines(self) -> None:
        """Do nothing."""

    def flush(self) -> None:
        """Do nothing: what was written is there to stay."""

    def clear(self) -> None:
        """Remove what an earlier run left, but not the lock."""
        self._remove_pixels()
        self._remove_notes()

    def close(self) -> None:
        """Remove the notes on a result that is complete, the lock last."""
        with contextlib.suppress(FileNotFoundError, DenoiseError):
            self.stop_renewing()
            self._remove_notes()
            self.free()
            system, place = self.folder.system()
            with contextlib.suppress(Exception):
                system.rmdir(place)  # where there are folders

    def discard(self) -> None:
        """Remove unfinished result and notes; these last, as what is left is known by them."""
        self._remove_pixels()
        self.close()

    def _remove_notes(self) -> None:
        for each in self.folder.iterdir():
            if each.name != LOCK:
                self._done(each, "rm_file")

    def _remove_pixels(self) -> None:
        for each in self._target.iterdir():
            if each.name != UNFINISHED:
                self._done(each, "rm", recursive=True)

    def _done(self, place: Address, method: str, *given: Any, **options: Any) -> Any:
        """Call a method of the file system; `OutputError` if it fails for good."""
        system, name = place.system()
        try:
            return with_retries(place, lambda: getattr(system, method)(name, *given, **options))
        except (FileNotFoundError, DenoiseError):
            raise
        except Exception as error:
            raise OutputError(f"{self._target} cannot be reached: {reason_of(error)}.") from error


def _check_size(size: int, most: int | None) -> None:
    if most is not None and size > most:
        raise ValueError(f"it has more than {most} bytes")


def write_whole(path: Path, text: str) -> None:
    """Write a file that is whole at any moment."""
    new = path.with_suffix(".new")
    with open(new, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)


def boot_id() -> str:
    """Return the boot ID, or ''."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


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
    return f"{platform.node()} {boot_id() or uuid.getnode()} {space}"
