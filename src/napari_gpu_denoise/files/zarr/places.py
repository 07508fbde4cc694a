"""Places of OME-Zarr, local or not: their names, what may be read there, and the package zarr."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import TYPE_CHECKING, Any

from napari_gpu_denoise.errors import FileError, OutputError
from napari_gpu_denoise.files import input_checks

_LOCAL = ("file", "local")  # which fsspec has for files of this machine
# What file systems name that tells one version of a file from another.
_VERSION = ("ETag", "etag", "LastModified", "last_modified", "mtime", "updated", "created")

SUFFIXES = (".zarr",)
HEADS = ("zarr.json", ".zgroup", ".zattrs", ".zarray")
# In an image as long as it is being written: which run writes it.
_CLAIM = ".gpu-denoise-unfinished"

_DEEPEST = 32  # folders that a name in metadata may have


class Address(Path if TYPE_CHECKING else os.PathLike):
    """A place such as ``s3://bucket/in.ome.zarr``, with what batches ask of a `Path`."""

    def __init__(self, url: str) -> None:
        self._protocol, _, place = url.partition("://")
        self._place = at = PurePosixPath(place)
        #: The last part, the same without its suffix, and that.
        vars(self).update(name=at.name, stem=at.stem, suffix=at.suffix)

    def __fspath__(self) -> str:
        return f"{self._protocol}://{self._place}"

    __str__ = as_posix = __fspath__

    def __repr__(self) -> str:
        return f"Address({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Address) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __truediv__(self, name: str | os.PathLike) -> Address:
        return Address(f"{self}/{os.fspath(name)}")

    @property
    def parent(self) -> Address:
        """The place that holds this one."""
        return Address(f"{self._protocol}://{self._place.parent}")

    @property
    def parents(self) -> Iterable[Address]:
        """The places that hold this one, the nearest first."""
        return [Address(f"{self._protocol}://{each}") for each in self._place.parents]

    def is_dir(self) -> bool:
        """Return whether this is a local folder, or file: it is neither."""
        return False

    is_file = is_dir

    def exists(self) -> bool:
        """Return whether anything is there; `FileError` if that cannot be known."""
        with self._reached() as (system, place):
            return bool(system.exists(place))

    def stamp(self) -> list[str]:
        """Return size and time, or other marks, of a file; none if it is not there."""
        with self._reached() as (system, place), contextlib.suppress(FileNotFoundError):
            told = system.info(place)
            return [str(told.get("size")), *(str(told[key]) for key in _VERSION if key in told)]
        return []

    def read_text(self) -> str:
        """Return the content of a small file; '' if it is not there."""
        with self._reached() as (system, place), contextlib.suppress(FileNotFoundError):
            return system.cat_file(place).decode()
        return ""

    def write_text(self, text: str) -> None:
        """Write a small file."""
        system, place = self.system()
        system.pipe_file(place, text.encode())

    def unlink(self, missing_ok: bool = True) -> None:
        """Remove a file."""
        system, place = self.system()
        with contextlib.suppress(FileNotFoundError):
            system.rm_file(place)

    def iterdir(self) -> list[Address]:
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
        try:
            yield self.system()
        except Exception as error:
            raise FileError(
                f"{self} cannot be reached: {input_checks.reason_of(error)}."
            ) from input_checks.cause_of(error)

    def remove(self) -> None:
        """Remove all that is there."""
        system, place = self.system()
        if system.exists(place):
            system.rm(place, recursive=True)

    def system(self) -> tuple[Any, str]:
        """Return the file system of fsspec, and the place there."""
        from fsspec.core import url_to_fs

        system, place = url_to_fs(str(self))
        # What zarr writes passes by the lists that a file system remembers.
        system.invalidate_cache()
        return system, place


def as_path(path: str | os.PathLike) -> Path | Address:
    """Return the path of a folder or file, as of ``file://``, or the address of another place."""
    if isinstance(path, Address):
        return path
    if not isinstance(path, (str, os.PathLike)):
        raise FileError(f"{path!r:.60} names no file or folder: give text, or a path of pathlib.")
    text = os.fspath(path)
    input_checks.check_no_secrets(text)
    scheme, found, place = text.partition("://")
    if not found:
        return Path(text)
    from urllib.request import url2pathname  # and HTTP, which few processes need

    return Path(url2pathname(place)) if scheme.lower() in _LOCAL else Address(text)


def has_suffix(path: str | os.PathLike) -> bool:
    """Return whether a name ends like that of an OME-Zarr folder."""
    return os.fspath(path).lower().rstrip("/\\").endswith(SUFFIXES)


def is_zarr_path(path: str | os.PathLike) -> bool:
    """Return whether a place has such a name, or lies in one that has, as images of a plate do."""
    place = as_path(path)
    return has_suffix(place) or (not place.suffix and any(map(has_suffix, place.parents)))


def is_zarr(path: str | os.PathLike) -> bool:
    """Return whether a path is a folder, or another place, that holds the metadata of zarr."""
    place = as_path(path)
    if isinstance(place, Address):
        return any((place / name).exists() for name in HEADS)
    return any(os.path.isfile(place / name) for name in HEADS)


def member(folder: Path | Address, name: object) -> Path | Address:
    """Return the place of a well, an image or a level, as metadata of a folder name it.

    `FileError` for a name that could be one of another place, or of metadata.
    """
    parts = name.split("/") if isinstance(name, str) else [""]
    wrong = any(not part or part[0] == "." or {*part} & {*"\\:\0"} for part in parts)
    if wrong or len(parts) > _DEEPEST:
        raise FileError(
            f"The metadata of {folder} name {input_checks.brief(repr(name))}, which is no name of "
            "a folder in it: it was not read; save it again."
        )
    return folder / str(name)


def check_inside(folder: str | None, path: Path, real: str = "") -> str:
    """Return the real name of a file; `FileError` if it is outside of a real folder.

    Without a folder it may be anywhere. `real` is that name, where it is known. `OSError` if it is
    a pipe, a device, or not there.
    """
    real = real or os.path.realpath(path)
    if folder is not None and not real.startswith(os.path.join(folder, "")):
        raise input_checks.link_outside(path, real, folder)
    input_checks.check_regular(path, os.stat(real))
    return real


@dataclass(frozen=True)
class Claim:
    """The right of a run to write an image, by a file in its folder that names the run.

    It is read before each part is written: a worker may be late when its run was stopped and
    another one has begun, and at an address two runs may begin.
    """

    folder: Path | Address
    run: str = field(default_factory=lambda: uuid.uuid4().hex)

    def take(self) -> None:
        """Let this run write, and no other."""
        (self.folder / _CLAIM).write_text(self.run)

    @property
    def holder(self) -> str:
        """The run that may write; '' if there is none."""
        with contextlib.suppress(FileNotFoundError):
            return (self.folder / _CLAIM).read_text()
        return ""

    def check(self) -> None:
        """Refuse to go on once another run writes the image, or it is gone."""
        if (holder := self.holder) != self.run:
            why = "is written by another run" if holder else "was removed or moved during the run"
            raise OutputError(f"{self.folder} {why}: this one has stopped.", resumable=False)

    def drop(self) -> None:
        """Let nobody write."""
        (self.folder / _CLAIM).unlink(missing_ok=True)


def zarr_package() -> ModuleType:
    """Return the package zarr; `FileError` says how to install it."""
    try:
        import zarr
    except ImportError as error:
        raise input_checks.not_installed("OME-Zarr", error) from error
    return zarr


def describe_group(place: str, form: int, attributes: dict[str, Any]) -> None:
    """Give attributes to a group that has none; it is made if it is not there.

    zarr gives them to new groups only. One of version 2 has two files, of which a run that was
    killed may have written the first.
    """
    group = zarr_package().open_group(place, mode="a", zarr_format=form, attributes=attributes)
    if attributes and not group.attrs:
        group.attrs.put(attributes)
