"""A result that is being written, and can be continued after Ctrl-C, kill -9 or a power cut.

The notes on it are what was measured, `ledger.json`, and the parts that were written since that was
replaced. Each note has its digest, and each part a checksum: parts that are not stored
any more as they were written are done again.

Unfinished result and notes are beside a local result, in a hidden folder. At an address nothing can
be renamed: there the pixels lie where they will be, without the metadata that make them an image,
and the notes among them; no lock ends there with its process.
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
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import DenoiseError, NonFiniteError, Note, OutputError
from napari_gpu_denoise.files import zarr
from napari_gpu_denoise.files.input_checks import cause_of, reason_of
from napari_gpu_denoise.files.zarr import Address
from napari_gpu_denoise.files.zarr.places import UNFINISHED, with_retries
from napari_gpu_denoise.locks import is_alive, locked
from napari_gpu_denoise.run.ledger import Ledger, Written, mark_of, packed, unpacked
from napari_gpu_denoise.run.record import Tally

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
        path = self.folder / name
        with open(path.with_suffix(".new"), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(file.name, path)

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


class RemoteCheckpoint:
    """Notes inside a result at an address, with a lock that expires where a run does not live.

    What is written there lasts; nothing can be appended. `lock.json` among the notes names the run
    and is written once. A run that lives writes a number into a file of its own every few seconds:
    it never overwrites the lock of another.
    """

    lasting = True

    def __init__(self, target: Address) -> None:
        self._target = self.image = target
        self.folder = target / UNFINISHED
        self._run, self._renewals = uuid.uuid4().hex, 0
        told = {"run": self._run, "machine": _machine(), "process": os.getpid()}
        self._text = json.dumps(told)
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        #: Why this run has it no more, as far as that is known: "taken" by another, or "removed".
        self.lost = ""

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

    def has(self, name: str) -> bool:
        """Return whether there is a note of this name."""
        return self._done(self.folder / name, "exists")

    def text(self, name: str, most: int | None = None) -> str | None:
        """Return a note, or None; ValueError if it is longer than `most`."""
        end = None if most is None else most + 1
        try:
            content = self._done(self.folder / name, "cat_file", end=end)
        except FileNotFoundError:
            return None
        _check_size(len(content), most)
        return content.decode()

    def create(self, name: str, text: str) -> None:
        """Write a note that is new: `FileExistsError` if it is not, where the store tells that."""
        system, place = (self.folder / name).system()
        system.pipe_file(place, text.encode(), mode="create")

    def replace(self, name: str, text: str) -> None:
        """Write a note, which is whole at any moment."""
        try:
            self._done(self.folder / name, "pipe_file", text.encode())
        except FileNotFoundError as error:
            raise OutputError(f"{self._target} cannot be written: {reason_of(error)}.") from error

    def remove(self, name: str) -> None:
        """Remove a note, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            self._done(self.folder / name, "rm_file")

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
            problem = f"{self._target} cannot be reached: {reason_of(error)}."
            raise OutputError(problem) from cause_of(error)


def _check_size(size: int, most: int | None) -> None:
    if most is not None and size > most:
        raise ValueError(f"it has more than {most} bytes")


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


# Seconds between two times that the ledger is written, and that the disk is waited for; and of the
# time of a run, the largest share that this may take.
_SECONDS, _SECONDS_TO_DISK, _SHARE = 2.0, 60.0, 0.01
# Where nothing can be appended, only replacing the ledger notes a part.
_SHARE_OF_REPLACING = 0.05
_LEDGER = "ledger.json"
_MOST_BYTES = 1 << 26  # of the ledger: more than as many parts take as a run may have
_MOST_BYTES_MEASURED = 1 << 28  # of any other note


def has_result(target: Path | Address) -> bool:
    """Return whether anything has the name of a target, other than an unfinished result."""
    return target.exists() and not zarr.is_unfinished(target)


def kept_note(target: Path | Address, error: Exception | None = None) -> str:
    """Return the message for a partial result, or ''.

    It is '' after an `error` with the value ``resumable=False``, which says itself what to do.
    """
    if not getattr(error, "values", {}).get("resumable", True):
        return ""
    notes = notes_on(target)
    where = "there" if isinstance(target, Address) else f"in the hidden folder {notes.folder}"
    fact = f"The finished parts of {target} are kept {where}"
    try:
        if not notes.has(_LEDGER):
            return ""
    except DenoiseError:
        fact = f"If parts of {target} were finished, they are kept there"
    return Note(fact, "repeat the run with resume=True", code="kept")


def remove_checkpoint(target: Path | Address) -> None:
    """Remove what is left of the work on a complete result, unless another run writes it."""
    notes = notes_on(target)
    if notes.folder.exists() and notes.acquire():
        notes.close()
    notes.free()


class ResumeLedger(Ledger):
    """The ledger of a result; a context manager that keeps it if the block is left early.

    `wanted` says, by name, what has to be the same for an unfinished result to be continued.
    Only one run at a time may write to a target.
    """

    def __init__(self, target: Path | Address, wanted: dict[str, str], resume: bool) -> None:
        super().__init__()
        self._target, self._wanted, self._resume = target, wanted, resume
        #: Where the unfinished result is.
        self.notes = notes_on(target)
        self._safe = 0  # how many parts, the first ones of `done`, a power cut cannot undo
        self._plan = ""
        self._usable, self._complete, self._resumed = True, False, False
        self._first = True  # none is written yet by this run
        self._begun = self._saved = self._flushed = time.monotonic()
        self._pause, self._pause_to_disk = _SECONDS, _SECONDS_TO_DISK

    def __enter__(self) -> ResumeLedger:
        with self._errors(), contextlib.ExitStack() as held:
            held.callback(self.notes.free)
            if not self.notes.acquire():
                raise OutputError(
                    f"Another run is writing {self._target}",
                    "wait for its end, or choose another name",
                    resumable=False,
                )
            self._resumed = self._resume and self.notes.has(_LEDGER)
            if self._resumed:
                self._read()
            else:
                self._clear()
            held.pop_all()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._keep_or_remove(isinstance(error, NonFiniteError))  # needs another setting
        expected = OSError, DenoiseError, MemoryError
        unexpected = isinstance(error, Exception) and not isinstance(error, expected)
        if self._resumed and unexpected:
            # Of what was noted; after a new start it will show itself if it is another.
            raise self._damaged() from error

    def _keep_or_remove(self, useless: bool) -> None:
        with contextlib.ExitStack() as last, contextlib.suppress(OSError, DenoiseError):
            last.callback(self._release)
            if not self.notes.holds():
                return
            if useless or self._brief():
                self.notes.remove(_LEDGER)
            elif self._usable and self.done and not self._complete:
                self._pause_to_disk = 0
                self._save()

    def _brief(self) -> bool:
        """Return whether this was the run of a moment, of which nothing is kept."""
        return not self._resumed and time.monotonic() < self._begun + _SECONDS

    def _release(self) -> None:
        with contextlib.ExitStack() as last, contextlib.suppress(OSError, DenoiseError):
            last.callback(self.notes.free)
            # Read again before anything is removed, which may be that of another run by now.
            if not self.notes.holds():
                return
            if self._complete:
                self.notes.close()
            elif not self.notes.has(_LEDGER):
                self.notes.discard()

    def check_lock(self) -> None:
        """Read the lock again, and refuse to go on without it."""
        with self._errors():
            if self.notes.holds():
                return
        if self.notes.lost == "removed":
            raise OutputError(
                f"The unfinished result of {self._target} was removed or moved during the run: "
                "repeat the run."
            )
        raise OutputError(
            f"Another process took over {self._target} because this run's lock expired. Stopping.",
            resumable=False,
        )

    def completed(self) -> None:
        """Say that the result has its name: nothing else is kept."""
        self.check_lock()
        self._complete = True

    def known(self, name: str) -> Any:
        if not self.done:
            return None
        with self._errors(), self._refusing_damage():
            text = self.notes.text(f"{name}.json", _MOST_BYTES_MEASURED)
            return None if text is None else unpacked(_opened(text))

    def keep(self, name: str, value: Any) -> None:
        try:
            text = _sealed(packed(value))
        except TypeError:
            text = ""  # noise of a class of the user's own
        if text and len(text) <= _MOST_BYTES_MEASURED:
            with self._errors():
                self.notes.replace(f"{name}.json", text)
        else:
            self._usable = False  # such a run cannot be continued

    def planned(self, plan: Sequence[Any]) -> None:
        digest = digest_of(json.dumps(plan))
        if self._plan not in ("", digest):
            raise self._other(["division into parts"])
        self._plan = digest

    def mark(self, out: Any, where: Any, values: np.ndarray | None = None) -> int:
        return mark_of(out, where, values)

    def wrote(self, number: int, tally: Tally, mark: int) -> None:
        written = self.done[number] = Written(tally.saturated, tally.nonfinite, mark, tally.fill)
        if not self._usable:
            return
        if self.notes.lost:
            self.check_lock()
        with self._errors():
            try:
                self._note(number, written)
            except FileNotFoundError:
                self.check_lock()  # says that all was removed, if so
                raise

    def _note(self, number: int, written: Written) -> None:
        if self._first or time.monotonic() >= self._saved + self._pause:
            self._first = False
            self.check_lock()
            self._save()
        elif not self.notes.lasting:
            # At once, so that kill -9 costs no more than the parts in flight.
            self.notes.add_line(" ".join(map(str, (number, *written))))

    def _save(self) -> None:
        begun, lasting = time.monotonic(), self.notes.lasting
        if lasting or begun >= self._flushed + self._pause_to_disk:
            if not lasting:
                self.notes.flush()
            self._safe = len(self.done)
            self._flushed = time.monotonic()
            took = self._flushed - begun
            self._pause_to_disk = max(_SECONDS_TO_DISK, took / _SHARE)
            begun = self._flushed
        values = {
            "wanted": self._wanted,
            "plan": self._plan,
            "done": [(number, *written) for number, written in self.done.items()],
            # As many of them count after a power cut, which ends the time that `boot` names.
            "safe": self._safe,
            "boot": boot_id(),
        }
        self.notes.replace(_LEDGER, _sealed(values))
        if not lasting:
            self.notes.drop_lines()
        self._saved = time.monotonic()
        took = self._saved - begun
        self._pause = took / _SHARE_OF_REPLACING if lasting else max(_SECONDS, took / _SHARE)

    def _read(self) -> None:
        with self._refusing_damage():
            values = _opened(self.notes.text(_LEDGER, _MOST_BYTES))
            begun = values["wanted"]
            names = [name for name in self._wanted if begun.get(name) != self._wanted[name]]
        if names:
            # Noted by another version, all else may have another form.
            raise self._other(names)
        with self._refusing_damage():
            self._plan = values["plan"]
            same = self.notes.lasting or values["boot"] == boot_id() != ""
            parts = values["done"] if same else itertools.islice(values["done"], values["safe"])
            # Those that were written after the ledger was.
            lines = self.notes.lines(_MOST_BYTES) if same and not self.notes.lasting else ()
            for part in itertools.chain(parts, map(str.split, lines)):
                number, *written = map(int, part)
                self.done[number] = Written(*written)
        self._pause_to_disk = 0  # as lost parts leave the order in which they were written
        if not self.done:
            self._plan = ""
            self._clear()

    def _clear(self) -> None:
        """Remove what an earlier run left, the ledger first."""
        self.notes.remove(_LEDGER)
        self.notes.clear()

    def _other(self, names: Iterable[str]) -> OutputError:
        return OutputError(
            f"{self._target} was started with a different {' and '.join(names)}; "
            "the partial result was kept",
            "use the same again, or leave out resume=True to start again",
            code="unfinished",
            resumable=False,
        )

    def _damaged(self) -> OutputError:
        return OutputError(
            f"The checkpoint of {self._target} is corrupt",
            "leave out resume=True to start again",
            code="unfinished-damaged",
            resumable=False,
        )

    @contextlib.contextmanager
    def _refusing_damage(self) -> Iterator[None]:
        try:
            yield
        except (OSError, DenoiseError):
            raise
        except Exception as error:
            raise self._damaged() from error

    @contextlib.contextmanager
    def _errors(self):
        try:
            yield
        except OSError as error:
            if isinstance(error, DenoiseError):
                raise
            raise OutputError(
                f"The folder of the unfinished result {self.notes.folder} cannot be used: "
                f"{error.strerror or error}."
            ) from error


def _sealed(value: Any) -> str:
    """Return plain values as text with its digest."""
    text = json.dumps(value)
    return json.dumps([digest_of(text), text])


def _opened(sealed: str) -> Any:
    """Return what `_sealed` was given; an error that is no `OSError` if the text is not whole."""
    digest, text = json.loads(sealed)
    if digest != digest_of(text):
        raise ValueError("it was changed")
    return json.loads(text)


def digest_of(text: str) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()
