"""Places of OME-Zarr that are no local folders: whatever fsspec opens, such as ``s3://``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.request import url2pathname

from napari_gpu_denoise.errors import FileError
from napari_gpu_denoise.files.tiff.messages import brief, check_no_secrets

_LOCAL = ("file", "local")  # which fsspec has for files of this machine
# What file systems name that tells one version of a file from another.
_VERSION = ("ETag", "etag", "LastModified", "last_modified", "mtime", "updated", "created")


class Address(os.PathLike):
    """A place such as ``s3://bucket/in.ome.zarr``, with what batches ask of a `Path`."""

    def __init__(self, url: str) -> None:
        check_no_secrets(url)
        self._protocol, _, place = url.partition("://")
        self._place = PurePosixPath(place)

    def __fspath__(self) -> str:
        return f"{self._protocol}://{self._place}"

    __str__ = __fspath__

    def __repr__(self) -> str:
        return f"Address({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Address) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __truediv__(self, name: str | os.PathLike) -> Address:
        return Address(f"{self}/{os.fspath(name)}")

    @property
    def name(self) -> str:
        """The last part."""
        return self._place.name

    @property
    def stem(self) -> str:
        """The last part without its suffix."""
        return self._place.stem

    @property
    def suffix(self) -> str:
        """What the last part ends with."""
        return self._place.suffix

    @property
    def parent(self) -> Address:
        """The place that holds this one."""
        return Address(f"{self._protocol}://{self._place.parent}")

    @property
    def parents(self) -> Iterable[Address]:
        """The places that hold this one, the nearest first."""
        return [Address(f"{self._protocol}://{each}") for each in self._place.parents]

    def as_posix(self) -> str:
        """Return the place as text, whose parts end with ``/``."""
        return str(self)

    def resolve(self) -> Address:
        """Return the place itself: there are no links."""
        return self

    def is_dir(self) -> bool:
        """Return whether this is a local folder: it is not."""
        return False

    def is_file(self) -> bool:
        """Return whether this is a local file: it is not."""
        return False

    def exists(self) -> bool:
        """Return whether anything is there; `FileError` if that cannot be told."""
        with self._reached() as (system, place):
            return bool(system.exists(place))

    def stamp(self) -> list[str]:
        """Return size and time, or other marks, of a file; none if it is not there."""
        with self._reached() as (system, place):
            try:
                told = system.info(place)
            except FileNotFoundError:
                return []
            return [str(told.get("size")), *(str(told[key]) for key in _VERSION if key in told)]

    def read_text(self, encoding: str = "utf-8") -> str:
        """Return the text that is there; `FileError` if it cannot be read."""
        with self._reached() as (system, place):
            return system.cat_file(place).decode(encoding)

    def touch(self) -> None:
        """Make an empty file."""
        with self._reached() as (system, place):
            system.pipe_file(place, b"")

    def unlink(self) -> None:
        """Remove a file."""
        with self._reached() as (system, place):
            system.rm_file(place)

    def inside(self) -> list[Address]:
        """Return the places directly inside, sorted; none if there is nothing."""
        with self._reached() as (system, place):
            found = system.ls(place, detail=False) if system.isdir(place) else []
            return [Address(system.unstrip_protocol(each)) for each in sorted(found)]

    def matching(self) -> list[Address]:
        """Return the places that fit this one, which is a pattern, sorted."""
        with self._reached() as (system, place):
            return [Address(system.unstrip_protocol(each)) for each in sorted(system.glob(place))]

    @contextlib.contextmanager
    def _reached(self) -> Iterator[tuple[Any, str]]:
        """Yield file system and place; what it raises becomes a `FileError`."""
        found = self.system()
        try:
            yield found
        except Exception as error:
            reason = brief(str(error).strip() or type(error).__name__)
            raise FileError(f"{self} cannot be reached: {reason}.") from error

    def remove(self) -> None:
        """Remove all that is there."""
        system, place = self.system()
        if system.exists(place):
            system.rm(place, recursive=True)

    def system(self) -> tuple[Any, str]:
        """Return the file system of fsspec, and the place there; `FileError` if there is none."""
        try:
            from fsspec.core import url_to_fs

            system, place = url_to_fs(str(self))
            # What zarr writes passes by the lists that a file system remembers.
            system.invalidate_cache()
            return system, place
        except Exception as error:
            reason = brief(str(error).strip() or type(error).__name__)
            raise FileError(f"{self} cannot be opened: {reason}.") from error


def located(path: str | os.PathLike) -> Path | Address:
    """Return the path of a folder or file, as of ``file://``, or the address of another place."""
    if isinstance(path, Address):
        return path
    text = os.fspath(path)
    scheme, found, place = text.partition("://")
    if not found:
        return Path(text)
    return Path(url2pathname(place)) if scheme.lower() in _LOCAL else Address(text)
