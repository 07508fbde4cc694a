"""Files that appear under their name only when they are complete, and never over an input."""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import secrets
import shutil
import zlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from napari_gpu_denoise.errors import DenoiseError, OutputError
from napari_gpu_denoise.files.input_checks import cause_of, read_files, reason_of, starts_like_dicom

# Unfinished files begin with the machine, since processes of others cannot be looked up.
_OWN = f".gpu-denoise-{zlib.crc32(platform.node().encode()):08x}-"
_PROBE_BYTES = 1 << 16
_FULL = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}


@contextlib.contextmanager
def new_file(
    path: str | os.PathLike, *, overwrite: bool = False, keep: Iterable[str | os.PathLike] = ()
) -> Iterator[BinaryIO]:
    """Open a binary file that appears under its name only when it is complete.

    It is written under a temporary name in the same folder, and removed if the block raises. Links
    are followed. Files in `keep`, the inputs, are never replaced, whatever `overwrite` says.
    """
    check_output(path, overwrite=overwrite, keep=keep)
    target = Path(os.path.realpath(path))
    part = target.with_name(f"{_OWN}{os.getpid()}-{secrets.token_hex(6)}.part")
    remove_abandoned(target.parent)
    try:
        with writing(path):
            with open(part, "xb") as file:
                try:
                    yield file
                except Exception:  # of a library that may not tell why: a full disk will, again
                    file.seek(0, os.SEEK_END)
                    file.write(bytes(_PROBE_BYTES))
                    raise
                file.flush()
                os.fsync(file.fileno())
            # Another program may have written it while we worked.
            check_output(path, overwrite=overwrite, keep=keep)
            os.replace(part, target)
            _sync_folder(target.parent)
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


@contextlib.contextmanager
def new_folder(
    path: str | os.PathLike,
    *,
    overwrite: bool = False,
    keep: Iterable[str | os.PathLike] = (),
    part: Path | None = None,
) -> Iterator[Path]:
    """Make a folder that appears under its name only when it is complete, as `new_file` does.

    With `overwrite` a folder of zarr or DICOM may be replaced, and no other. `part` is the
    unfinished folder beside it, which may be there and is kept if the block raises; by default it
    is a new one.
    """
    check_folder(path, overwrite=overwrite, keep=keep)
    target = Path(os.path.realpath(path))
    name = f"{_OWN}{os.getpid()}-{secrets.token_hex(6)}"
    own, old = (target.with_name(f"{name}{end}.part") for end in ("", "-old"))
    part = part or own
    remove_abandoned(target.parent)
    try:
        with writing(path):
            part.mkdir(exist_ok=part != own)
            yield part
            check_folder(path, overwrite=overwrite, keep=keep)
            if target.exists():
                os.replace(target, old)
            try:
                os.replace(part, target)
            except OSError:
                if old.exists():
                    os.replace(old, target)
                raise
            _sync_folder(target.parent)
    finally:
        shutil.rmtree(own, ignore_errors=True)
        if os.path.exists(target):  # False where the name is too long
            shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def writing(path: object, form: str = "") -> Iterator[None]:
    """Turn what is raised while a file of a format is written into an `OutputError`.

    Without a format that is what the system raises.
    """
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        full, named = error, isinstance(error, DenoiseError)
        while full is not None and getattr(full, "errno", None) not in _FULL:
            full = full.__cause__ or full.__context__  # what a library says in its own words
        if full is not None:
            told = getattr(full, "strerror", full)
            reason = f"the disk is full, or a limit of it is reached: {told}"
        elif isinstance(error, OSError) and not named:
            reason = error.strerror or reason_of(error)
        elif named or not form:
            raise
        else:
            raise OutputError(
                f"{path} cannot be written as {form}: {reason_of(error)}."
            ) from cause_of(error)
        raise OutputError(f"{path} cannot be written: {reason}.") from cause_of(error)


@lru_cache(maxsize=1)  # once for all files of a batch
def remove_abandoned(folder: Path) -> None:
    """Remove unfinished files of processes of this machine that are gone, as after a power cut."""
    import psutil

    for part in folder.glob(f"{_OWN}*.part"):
        # A file that is in use cannot be removed on Windows.
        with contextlib.suppress(OSError, ValueError):
            if not psutil.pid_exists(int(part.name.removeprefix(_OWN).partition("-")[0])):
                shutil.rmtree(part) if part.is_dir() else part.unlink()


def check_output(
    path: str | os.PathLike, *, overwrite: bool, keep: Iterable[str | os.PathLike]
) -> None:
    """Refuse a path that cannot be written, or is one of `keep` by whatever name or link."""
    if not os.path.exists(path):
        folder = Path(os.path.realpath(path)).parent
        if not folder.is_dir():
            raise OutputError(f"{path} cannot be written: the folder {folder} does not exist.")
        return
    if os.path.isdir(path):
        raise OutputError(f"{path} is a folder: name a file.")
    if not os.path.isfile(path):
        raise OutputError(f"{path} is a pipe or a device, and is kept: name a file.")
    _check_input(path, keep)
    if not overwrite:
        raise already_there(f"{path} exists")


class Kept:
    """Inputs that no output may replace: those near an output are found without a look at all."""

    def __init__(self, paths: Iterable[str | os.PathLike]) -> None:
        self._named: dict[Any, list[str | os.PathLike]] = {}
        self._around: dict[Path, list[str | os.PathLike]] = {}
        for path in dict.fromkeys(paths):
            real = Path(os.path.realpath(path))
            for name in (real, *_inode(real)):
                self._named.setdefault(name, []).append(path)
            for folder in real.parents:
                self._around.setdefault(folder, []).append(path)

    def near(self, path: str | os.PathLike) -> list[str | os.PathLike]:
        """Return inputs that a path is, by whatever name or link, or that it is in or around."""
        real = Path(os.path.realpath(path))
        names = real, *real.parents, *_inode(real)
        found = *map(self._named.get, names), self._around.get(real)
        return [path for paths in found for path in paths or ()]


def _inode(path: Path) -> Iterator[tuple[int, int]]:
    """Yield device and inode of what is there: the same for all its names."""
    with contextlib.suppress(OSError):
        status = os.stat(path)
        yield status.st_dev, status.st_ino


def _check_input(path: str | os.PathLike, keep: Iterable[str | os.PathLike]) -> None:
    """Refuse one of `keep`, and of what a command has read, by whatever name, or what is in it."""
    above = Path(os.path.realpath(path)).parents
    for other in (*keep, *read_files):
        if os.path.exists(other):
            real = Path(os.path.realpath(other))
            if os.path.samefile(path, real) or (real in above and _is_store(real)):
                raise OutputError(
                    f"{path} is an input, which is never replaced: choose another name."
                )


def _is_store(folder: Path) -> bool:
    """Return whether a folder holds the metadata of zarr."""
    return any((folder / name).exists() for name in ("zarr.json", ".zgroup", ".zattrs"))


def already_there(problem: str) -> OutputError:
    """Return the error for a file that is kept, though it has the name of a result."""
    remedy = "choose another name, or pass overwrite=True to replace it"
    return OutputError(problem, remedy, code="exists")


def check_folder(
    path: str | os.PathLike, *, overwrite: bool, keep: Iterable[str | os.PathLike]
) -> None:
    """Refuse a path at which no folder of an image can be made, as `check_output` does for files.

    Those are folders of zarr, or that hold only DICOM files.
    """
    target = Path(os.path.realpath(path))
    for other in [os.path.realpath(each) for each in (*keep, *read_files)]:
        inside = Path(other) in target.parents and os.path.isdir(other)
        if inside or target in Path(other).parents:
            raise OutputError(
                f"{path} is within or around the input {other}: choose another place."
            )
    if not os.path.isdir(path):
        check_output(path, overwrite=False, keep=keep)
        return
    _check_input(path, keep)
    held = list(target.iterdir())
    # Links may lead anywhere, and no result has one.
    own = (each.is_file() and not each.is_symlink() and starts_like_dicom(each) for each in held)
    series = held and all(own)
    if not series and not _is_store(target):
        raise OutputError(
            f"{path} is a folder but neither zarr nor a series of DICOM, and is kept: choose "
            "another name."
        )
    if not overwrite:
        raise already_there(f"{path} exists")


def _sync_folder(folder: Path) -> None:
    """Make the new name survive a power cut, where the system can."""
    with contextlib.suppress(OSError, AttributeError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
