"""A result that is being written, and can be continued after Ctrl-C, kill -9 or a power cut.

The notes on it are what was measured, `ledger.json`, and the parts that were written since that was
replaced. `checkpoint.py` says where they are. Each note has its digest, and each part its size or a
checksum: parts that are not stored any more as they were written are done again.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import DenoiseError, FileError, Note, OutputError
from napari_gpu_denoise.files import zarr
from napari_gpu_denoise.files.checkpoint import boot_id, notes_on
from napari_gpu_denoise.files.image_file import ImageFile
from napari_gpu_denoise.opencl.several import choose_devices
from napari_gpu_denoise.run.ledger import Ledger, Written, mark_of, packed, unpacked
from napari_gpu_denoise.run.record import Tally
from napari_gpu_denoise.run.request import Run
from napari_gpu_denoise.version import package_version

# Seconds between two times that the ledger is written, and that the disk is waited for; and of the
# time of a run, the largest share that this may take.
_SECONDS, _SECONDS_TO_DISK, _SHARE = 2.0, 60.0, 0.01
# Where nothing can be appended, only replacing the ledger notes a part.
_SHARE_OF_REPLACING = 0.05
_LEDGER = "ledger.json"
_MOST_BYTES = 1 << 26  # of the ledger: more than as many parts take as a run may have
_MOST_BYTES_MEASURED = 1 << 28  # of any other note
_PLACES = 16  # in the pixels of an input, where samples are read,
_SIDE = 64  # of this width


def has_result(target: Path | zarr.Address) -> bool:
    """Return whether anything has the name of a target, other than an unfinished result."""
    return target.exists() and not zarr.is_unfinished(target)


def kept_note(target: Path | zarr.Address, error: Exception | None = None) -> str:
    """Return the message for a partial result, or ''.

    It is '' after an `error` with the value ``resumable=False``, which says itself what to do.
    """
    if not getattr(error, "values", {}).get("resumable", True):
        return ""
    notes = notes_on(target)
    where = "there" if isinstance(target, zarr.Address) else f"in the hidden folder {notes.folder}"
    fact = f"The finished parts of {target} are kept {where}"
    try:
        if not notes.has(_LEDGER):
            return ""
    except DenoiseError:
        fact = f"If parts of {target} were finished, they are kept there"
    return Note(fact, "repeat the run with resume=True", code="kept")


def remove_checkpoint(target: Path | zarr.Address) -> None:
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

    def __init__(self, target: Path | zarr.Address, wanted: dict[str, str], resume: bool) -> None:
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
        self._keep_or_remove()
        expected = OSError, DenoiseError, MemoryError
        unexpected = isinstance(error, Exception) and not isinstance(error, expected)
        if self._resumed and unexpected:
            # Of what was noted; after a new start it will show itself if it is another.
            raise self._damaged() from error

    def _keep_or_remove(self) -> None:
        with contextlib.ExitStack() as last, contextlib.suppress(OSError, DenoiseError):
            last.callback(self._release)
            if not self.notes.holds():
                return
            if self._brief():
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
        written = self.done[number] = Written(tally.saturated, tally.nonfinite, mark)
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
        else:
            # At once, so that kill -9 costs no more than the parts in flight.
            self.notes.add_line(" ".join(map(str, (number, *written))))

    def _save(self) -> None:
        begun = time.monotonic()
        if self.notes.lasting or begun >= self._flushed + self._pause_to_disk:
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
        self.notes.drop_lines()
        self._saved = time.monotonic()
        took = self._saved - begun
        lasting = self.notes.lasting
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
            lines = (line.split() for line in self.notes.lines(_MOST_BYTES) if same)
            for part in itertools.chain(parts, lines):
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
        except DenoiseError:
            raise
        except OSError as error:
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


def resume_fingerprint(
    picture: ImageFile, run: Run, same: bool, devices: Sequence[tuple[str, ...]] | None = None
) -> dict[str, str]:
    """Return what a result depends on: a digest for each kind of thing that may change.

    `devices` are name, platform, version and driver of those that are used, if they are not the
    devices of this process.
    """
    if devices is None:
        used = choose_devices(run.device)
        devices = [(each.name, each.platform, each.version, each.driver) for each in used]
    given = np.asarray(run.sigma) if isinstance(run.sigma, (list, tuple)) else run.sigma
    parts: dict[str, Any] = {
        "input": _identity(picture),
        "version of this package": package_version(),
        "filter or setting": _told(run.filter),
        "sigma": [_told(given), run.sigma_factor],
        "noise": _told(run.noise),
        "order of axes": run.axes,
        "type of the result": [str(run.dtype), same],
        "handling of NaN": run.nonfinite,
        "correction": _told(run.correct),
        "device": sorted(devices),
    }
    return {name: digest_of(json.dumps(value)) for name, value in parts.items()}


def _told(value: Any) -> Any:
    """Encode a value as JSON; user-defined classes cannot be resumed."""
    try:
        return packed(value)
    except TypeError:
        return repr(value)


def _identity(picture: ImageFile) -> list[Any]:
    """Return shape and type of an input, size and time of its files, and a digest of samples."""
    data, found = picture.data, _stamps(picture)
    samples = hashlib.sha256()
    y, x = (picture.axes.index(axis) for axis in "YX")
    outer = [n for axis, n in enumerate(data.shape) if axis not in (y, x)]
    for share in np.linspace(0, 1, _PLACES):
        place = iter(np.unravel_index(round(share * (int(np.prod(outer)) - 1)), outer or (1,)))
        index = []
        for axis, n in enumerate(data.shape):
            if axis in (y, x):
                first = round(share * max(n - _SIDE, 0))
                index.append(slice(first, first + _SIDE))
            else:
                index.append(int(next(place)))
        samples.update(np.ascontiguousarray(data[tuple(index)]).tobytes())
    return [list(data.shape), str(data.dtype), found, samples.hexdigest()]


def _stamps(picture: ImageFile) -> list[list[Any]]:
    """Return name, size and time of all files of an input; at an address, of its metadata."""
    found = []
    for path in picture.files or (picture.path,):
        if not isinstance(path, zarr.Address):
            found += _files_below(Path(path))
            continue
        # To list all chunks would take long, and memory.
        finest = picture.metadata["arrays"][0].path.strip("/")
        places = (path / name for name in (*zarr.HEADS, *(f"{finest}/{n}" for n in zarr.HEADS)))
        found += [[str(place), *place.stamp()] for place in places]
    return found


@contextlib.contextmanager
def unchanged(picture: ImageFile) -> Iterator[None]:
    """Raise if the input files change while the block runs."""
    before = _stamps(picture)
    yield
    if _stamps(picture) != before:
        raise FileError(
            f"{picture.path} was changed during the run, so no result was written: repeat the run "
            "when the file is complete.",
            resumable=False,
        )


def _files_below(path: Path) -> list[list[Any]]:
    """Return name, size and time of a file, or of each file of a folder."""
    if not path.is_dir():
        status = path.stat() if path.exists() else None
        return [[path.name, *((status.st_size, status.st_mtime_ns) if status else ())]]
    found = []
    for folder, _, names in os.walk(path):
        for name in names:
            inside = os.path.relpath(os.path.join(folder, name), path)
            try:
                status = os.stat(os.path.join(folder, name))
            except OSError:  # a link that leads nowhere, or in a circle
                status = os.lstat(os.path.join(folder, name))
            found.append([inside, status.st_size, status.st_mtime_ns])
    return sorted(found)


def digest_of(text: str) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()
