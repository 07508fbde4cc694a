"""A large result in a folder, which can be continued after Ctrl-C, kill -9 or a power cut.

Until it is complete, a hidden folder beside it has its pixels and one list, which is only ever
added to: a line with its digest for what has to be the same, for what was measured, and for each
finished part with its checksum. A part that is not stored any more as it was written is done again,
and so is all that follows a damaged line. What is written to addresses is not resumed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from napari_gpu_denoise.errors import DenoiseError, NonFiniteError, Note, OutputError
from napari_gpu_denoise.files import zarr
from napari_gpu_denoise.files.output import writing
from napari_gpu_denoise.run.ledger import Ledger, Written, mark_of, packed, reserve, unpacked
from napari_gpu_denoise.run.record import Tally

_LIST, _LOCK = "parts", "lock"
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP}  # of file systems that let everybody in
_MAX_LIST_BYTES = 1 << 29  # more than as many parts take as a run may have, and a map of its noise


def unfinished_folder(target: Path) -> Path:
    """Return the hidden folder of an unfinished result, which need not be there."""
    real = Path(os.path.realpath(target))
    name = hashlib.sha256(os.fsencode(real.name)).hexdigest()[:16]
    return real.with_name(f".gpu-denoise-{name}.unfinished")


def kept_notes(
    target: Path | zarr.places.Address | None, error: Exception | None = None
) -> tuple[str, ...]:
    """Return a note of where a partial result is kept, if there is one.

    There is none after an `error` with the value ``resumable=False``, which says itself what to do.
    """
    resumable = getattr(error, "values", {}).get("resumable", True)
    if target is None or isinstance(target, zarr.places.Address) or not resumable:
        return ()
    folder = unfinished_folder(target)
    if not (folder / _LIST).is_file():
        return ()
    fact = f"The finished parts of {target} are kept in the hidden folder {folder}"
    return (Note(fact, "repeat the run with resume=True", code="kept"),)


def remove_unfinished(target: Path | zarr.places.Address) -> None:
    """Remove what is left of the work on a complete result, unless another run writes it."""
    if not isinstance(target, zarr.places.Address) and unfinished_folder(target).exists():
        with contextlib.suppress(OutputError), ResumeLedger(target, {}, False):
            pass


class FileArray:
    """An array in a file that is open, for a result that is complete before it can be written.

    The file is mapped only while the array is indexed, as mapped pages count as memory. What was
    not set is 0.
    """

    def __init__(self, file: BinaryIO, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        self._file, self.shape, self.ndim = file, tuple(shape), len(shape)
        self.dtype = np.dtype(dtype).newbyteorder("=")
        reserve(file, math.prod(self.shape) * self.dtype.itemsize)

    def mapped(self) -> np.memmap:
        """Return the array, mapped for as long as it is used."""
        with writing(self._file.name):
            return np.memmap(self._file, self.dtype, "r+", shape=self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Any:
        return np.array(self.mapped()[index])[()]

    def __setitem__(self, index: Any, values: ArrayLike) -> None:
        self.mapped()[index] = values

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.mapped(), dtype)


class ResumeLedger(Ledger):
    """The list of a result; a context manager that keeps it if the block is left early.

    `wanted` says, by name, what has to be the same for an unfinished result to be continued, and
    `brief` is as in `Limits`.
    Only one run at a time may write to a target.
    """

    def __init__(
        self, target: Path, wanted: dict[str, str], resume: bool, brief: float = 0.0
    ) -> None:
        super().__init__()
        self._target, self._wanted, self._resume, self._brief = target, wanted, resume, brief
        self.folder = unfinished_folder(target)
        self.image = self.folder / "image"  # that is renamed when all is done
        self._known: dict[str, Any] = {}
        self._files = contextlib.ExitStack()
        self._usable, self._begun = True, time.monotonic()

    def __enter__(self) -> ResumeLedger:
        with writing(self.folder), contextlib.ExitStack() as held:
            self._lock_out_others()
            held.callback(self._lock.release)
            whole = self._read() if self._resume else 0
            self._resumed = bool(self.done)
            if self._resumed:
                os.truncate(self.folder / _LIST, whole)
            else:
                self._clear()
            # Without a buffer: a line that is written survives this process.
            self._list = open(self.folder / _LIST, "ab", buffering=0)
            if not self._resumed:
                self._add("wanted", self._wanted)
            held.pop_all()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        brief = not self._resumed and time.monotonic() < self._begun + self._brief
        useless = brief or isinstance(error, NonFiniteError)  # which needs another setting
        self._files.close()
        with contextlib.suppress(OSError):
            if error is None or useless or not self._usable or not self.done:
                self._remove()
        self._list.close()
        self._lock.release()
        expected = OSError, DenoiseError, MemoryError
        if self._resumed and isinstance(error, Exception) and not isinstance(error, expected):
            # Of what was noted; after a new start it will show itself if it is another.
            raise self._damaged() from error

    def _lock_out_others(self) -> None:
        from filelock import FileLock, Timeout

        with contextlib.suppress(FileExistsError):
            self.folder.mkdir()
        self._refuse_links()
        self._lock = FileLock(self.folder / _LOCK, thread_local=False)
        try:
            self._lock.acquire(blocking=False)
        except (Timeout, FileNotFoundError) as error:  # or just removed by a run that has ended
            raise OutputError(
                f"Another run is writing {self._target}",
                "wait for its end, or choose another name",
                resumable=False,
            ) from error
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise

    def _refuse_links(self) -> None:
        """Refuse a folder that somebody has prepared with links, pipes or devices."""
        # Of a link not even what it leads to is listed.
        below = () if self.folder.is_symlink() else os.walk(self.folder)
        inside = (os.path.join(each, n) for each, *names in below for n in names[0] + names[1])
        for place in (self.folder, *inside):
            with contextlib.suppress(FileNotFoundError):
                kind = os.lstat(place).st_mode
                if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
                    problem = f"{self.folder} is, or holds, a link, a pipe or a device: remove it."
                    raise OutputError(problem, resumable=False)

    def _clear(self) -> None:
        """Remove what an earlier run left, the list first."""
        for each in sorted(self.folder.iterdir(), key=lambda one: one.name != _LIST):
            if each.name != _LOCK:
                shutil.rmtree(each) if each.is_dir() else each.unlink()

    def _remove(self) -> None:
        """Remove the folder, unless it is that of another run, as this one was moved."""
        if not os.path.samestat(os.fstat(self._list.fileno()), os.stat(self.folder / _LIST)):
            return
        self._list.close()  # Windows removes nothing that is open
        self._clear()
        if os.name == "nt":
            self._lock.release()
        # Elsewhere while it is held: afterwards it may be that of another run.
        (self.folder / _LOCK).unlink()
        self.folder.rmdir()

    def _read(self) -> int:
        """Read the list up to the first line that is not whole; return how many bytes that are."""
        facts, whole = {}, 0
        with self._refusing_damage(), contextlib.suppress(FileNotFoundError):
            if (self.folder / _LIST).stat().st_size > _MAX_LIST_BYTES:
                raise ValueError
            for line in (self.folder / _LIST).read_bytes().splitlines(True):
                digest, _, text = line.partition(b" ")
                if digest != _digest(text):
                    break
                key, value = json.loads(text)
                facts[key] = value
                whole += len(line)
            told = {key: [*map(int, facts[key])] for key in facts if type(key) is int}
            parts = {key: Written(mark, Tally(*counts)) for key, (mark, *counts) in told.items()}
            if parts:
                before = facts["wanted"]
                differs = [name for name in self._wanted if before.get(name) != self._wanted[name]]
                if differs:
                    # Noted by another version, all else may have another form.
                    raise self._other(differs)
                self.done, self._known = parts, facts
        return whole

    def _add(self, key: str | int, value: Any) -> None:
        text = f"{json.dumps([key, value])}\n".encode()
        if len(text) > _MAX_LIST_BYTES // 2:
            self._usable = False  # such a run cannot be continued
        if self._usable:
            with writing(self.folder):
                self._list.write(_digest(text) + b" " + text)

    def known(self, name: str) -> Any:
        with self._refusing_damage():
            return unpacked(self._known.get(name))

    def keep(self, name: str, value: Any) -> None:
        try:
            self._add(name, packed(value))
        except TypeError:
            self._usable = False  # noise of a class of the user's own

    def array(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> FileArray:
        """Return an array in a file for pixels of a result, as an earlier run left it."""
        with writing(place := self.folder / name):
            place.touch()  # as room cannot be kept everywhere in a file to which bytes are added
            return FileArray(self._files.enter_context(place.open("r+b")), shape, dtype)

    def room(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        return self.array(name, shape, dtype).mapped()

    def planned(self, plan: Sequence[Any]) -> None:
        digest, before = digest_of(json.dumps(plan)), self.known("plan")
        if before is None:
            self.keep("plan", digest)
        elif before != digest:
            raise self._other(["division into parts"])

    def mark(self, out: Any, where: Any, values: np.ndarray | None = None) -> int:
        try:
            return mark_of(out, where, values)
        except OutputError as error:
            if values is not None:
                raise
            raise self._damaged() from error  # a chunk of several parts that cannot be read

    def wrote(self, number: int, tally: Tally, mark: int) -> None:
        self.done[number] = Written(mark, tally)
        self._add(number, [mark, *vars(tally).values()])

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


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest()[:16].encode()


def digest_of(text: str) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()
