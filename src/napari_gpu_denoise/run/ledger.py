"""What a run that goes on later has to know: what was measured, and which parts are written."""

from __future__ import annotations

import base64
import importlib
import os
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from napari_gpu_denoise.errors import Note, OutputError
from napari_gpu_denoise.run.progress import Progress
from napari_gpu_denoise.run.record import Tally

_ZEROS = 1 << 20  # bytes written at a time to keep room


class Written(NamedTuple):
    """A part that is written: its mark, and what was counted in it."""

    mark: int
    tally: Tally


def reserve(file: BinaryIO, nbytes: int) -> None:
    """Make a file so long, with room on the disk: if that got full later, the process would end."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, nbytes)
    while (missing := nbytes - file.seek(0, os.SEEK_END)) > 0:  # as on macOS
        file.write(bytes(min(missing, _ZEROS)))
    file.truncate(nbytes)


class Ledger:
    """Remembers nothing, for a result that is not resumed; subclasses keep parts and findings.

    `done` has the parts, or frames, that were written by an earlier run, by their numbers.
    """

    def __init__(self) -> None:
        self.done: dict[int, Written] = {}

    @property
    def tally(self) -> Tally:
        """What was counted in all parts that are done."""
        return sum((one.tally for one in self.done.values()), Tally())

    def known(self, name: str) -> Any:
        """Return what an earlier run has kept by a name, or None."""

    def keep(self, name: str, value: Any) -> None:
        """Keep what was measured or chosen for the whole image."""

    def room(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Return an array in a file for what a result is made of, as an earlier run left it."""
        with tempfile.TemporaryFile() as file:
            try:
                reserve(file, int(np.prod(shape)) * dtype.itemsize)
            except OSError as error:
                place = f"{tempfile.gettempdir()} has no room for the run: {error.strerror}"
                raise OutputError(place, "free some, or name another folder as TMPDIR") from error
            return np.memmap(file, dtype, "r+", shape=shape)

    def planned(self, plan: Sequence[Any]) -> None:
        """Say what the numbers of parts stand for, before the first is written."""

    def mark(self, out: Any, where: Any, values: np.ndarray | None = None) -> int:
        """Return `mark_of` a region, if a later run is to compare it."""
        return 0

    def wrote(self, number: int, tally: Tally, mark: int) -> None:
        """Say that a part is written; of several threads one calls at a time."""


def mark_of(out: Any, where: Any, values: np.ndarray | None = None) -> int:
    """Return a number that is another one if a region of a result was lost or changed.

    It is that of the chunks in which it is stored, their size above 32 bits of a checksum; else a
    checksum of its `values`, which are read if they are not given, or may be stored as others.
    """
    in_chunks = hasattr(out, "mark_of_chunks")
    if in_chunks and (mark := out.mark_of_chunks(where)) is not None:
        return mark
    stored = out[where] if in_chunks or values is None else values
    return zlib.crc32(np.ascontiguousarray(stored).data)


def check_written(ledger: Ledger, out: Any, regions: Sequence[Any], progress: Progress) -> None:
    """Forget parts of an earlier run whose pixels are lost; `regions` has the place of each."""
    total = len(ledger.done)
    for count, (number, written) in enumerate(list(ledger.done.items())):
        progress.tell(count, total, "part checked")
        there = 0 <= number < len(regions)
        if not there or ledger.mark(out, regions[number]) != written.mark:
            del ledger.done[number]


def check_whole(ledger: Ledger, out: Any, regions: Sequence[Any], progress: Progress) -> None:
    """Refuse a result in chunks if some were removed or cut while others were written."""
    if not hasattr(out, "mark_of_chunks"):
        return
    for count, (number, written) in enumerate(ledger.done.items()):
        progress.tell(count, len(ledger.done), "part checked")
        # Sizes are enough: no power cut, after which chunks may hold zeros, was survived.
        mark, place = written.mark, regions[number]
        size = out.mark_of_chunks(place, content=False)
        if size != mark >> 32 if size is not None else ledger.mark(out, place) != mark:
            raise OutputError(
                "Finished parts of the result were removed or changed during the run",
                "repeat the run with resume=True",
                code="kept",
                resumable=False,
            )


_PACKAGE = __name__.partition(".")[0]


def packed(value: Any) -> Any:
    """Return a value as plain ones; TypeError if it is of a kind that is not known."""
    if isinstance(value, Note):
        return {"note": [value.fact, value.removeprefix(value.fact)[2:], value.code, value.values]}
    if value is None or type(value) in (bool, int, float, str):
        return value  # JSON writes floats so that they are read back exactly
    if type(value) in (tuple, list, frozenset):
        items = sorted(value) if isinstance(value, frozenset) else value
        return {type(value).__name__: [packed(each) for each in items]}
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufc":
        # What is repeated by strides of 0 is stored once.
        array = np.asarray(value)
        once = tuple(slice(None) if step else slice(1) for step in array.strides)
        data = np.ascontiguousarray(array[once]).reshape(array[once].shape)
        text = base64.b64encode(data.tobytes()).decode("ascii")
        shapes = list(data.shape), list(array.shape)
        return {"array": [data.dtype.str, *shapes, text], "scalar": isinstance(value, np.generic)}
    if isinstance(value, np.dtype):
        return {"dtype": value.str}
    if type(value) is dict:
        return {"dict": [[packed(key), packed(each)] for key, each in value.items()]}
    kind = type(value)
    if is_dataclass(value) and kind.__module__.partition(".")[0] == _PACKAGE:
        data = {each.name: packed(getattr(value, each.name)) for each in fields(value)}
        return {"kind": [kind.__module__, kind.__qualname__], "fields": data}
    raise TypeError(f"{kind.__name__} cannot be stored")


def unpacked(value: Any) -> Any:
    """Return what `packed` was given; of classes only dataclasses of this package are made."""
    if not isinstance(value, dict):
        return value
    (name, content), *more = value.items()
    if name == "note":
        fact, remedy, code, values = content
        made = {"code": code, **values}
        return Note(fact, remedy, **made)
    if name == "array":
        dtype, shape, whole, text = content
        read = np.frombuffer(base64.b64decode(text), np.dtype(dtype)).reshape(shape).copy()
        return read[()] if more[0][1] else np.broadcast_to(read, whole) if shape != whole else read
    if name == "dtype":
        return np.dtype(content)
    if name == "dict":
        return {unpacked(key): unpacked(each) for key, each in content}
    if name == "kind":
        module, qualified = content
        if module.partition(".")[0] != _PACKAGE:
            raise ValueError(f"{module} is not of this package")
        made = getattr(importlib.import_module(module), qualified)
        if not (isinstance(made, type) and is_dataclass(made)):
            raise ValueError(f"{qualified} is not a record")
        return made(**{each: unpacked(one) for each, one in value["fields"].items()})
    kinds = {"tuple": tuple, "list": list, "frozenset": frozenset}
    return kinds[name](unpacked(each) for each in content)
