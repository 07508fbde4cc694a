"""Checks of input files before and while they are read: kind of file, sizes, memory, secrets.

What other packages raise becomes one sentence.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import psutil

from napari_gpu_denoise.errors import DenoiseError, FileError
from napari_gpu_denoise.files import FORMAT_NAMES
from napari_gpu_denoise.protocol.settings import size_in_words

# Images of at least so many bytes are refused if they are compressed more than so many times: even
# counts of photons, in one of three hundred pixels, are not.
_LARGE = 1 << 28
_MOST_COMPRESSED = 500

_MOST_JSON = 1 << 28  # bytes of an estimate, a run of bench, or settings
#: Files that the command line has read: none is replaced.
read_files: set[str] = set()

_CGROUPS, _OWN_CGROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")

# What installs a module, if not a package of its name; tifffile looks for codecs in `compression`.
_INSTALLED_BY = dict.fromkeys(["imagecodecs", "compression"], "--upgrade imagecodecs")
_INSTALLED_BY |= dict.fromkeys(["zarr", "numcodecs"], "--upgrade zarr numcodecs")

# An address in a text: scheme (and container, of abfs), user part, place, query and fragment.
# Passwords may hold any sign, those of S3 slashes. A number before a slash is that of a port.
_ADDRESS = re.compile(
    r"(?i)(abfss?://[\w-]+@|[a-z][\w+.-]+:/+)([^/\s]*:(?!\d+/)\S*@|[^/?#\s]*@|)"
    r"""([^?#\s"']*)((?:[?#][^\s"']*)?)"""
)
_QUERY = re.compile(r"""(?<=[\w/])\?[^\s"']*=[^\s"']*""")  # of an address without its host


def open_regular(path: str | os.PathLike) -> BinaryIO:
    """Open a file to read it; `OSError` if it is a pipe or a device, which might never end.

    That is looked at before it is opened, because opening a device can do something, and again
    when it is open, because the name may be given to something else in between.
    """
    check_regular(path, os.stat(path))
    return open(path, "rb", opener=_checked)


def read_json(path: str | os.PathLike) -> Any:
    """Return what a file holds as JSON, and keep it; ValueError if that is none, or very long."""
    read_files.add(os.path.abspath(path))
    with open_regular(path) as file:
        text = file.read(_MOST_JSON + 1)
    if len(text) > _MOST_JSON:
        raise ValueError(f"it has more than {_MOST_JSON} bytes")
    return json.loads(text)


def start_of(path: str | os.PathLike, length: int = 132) -> bytes:
    """Return the first bytes of a file; none if it cannot be opened."""
    with contextlib.suppress(OSError), open_regular(path) as file:
        return file.read(length)
    return b""


def starts_like_dicom(path: str | os.PathLike) -> bool:
    """Return whether a file starts like DICOM; False also if it cannot be opened."""
    return start_of(path)[128:] == b"DICM"


def leads_out(folder: str | os.PathLike, place: os.PathLike) -> bool:
    """Return whether a place in a folder is, by a link, one outside of it."""
    return Path(os.path.realpath(folder)) not in Path(os.path.realpath(place)).parents


def link_outside(path: object, real: str, folder: object) -> FileError:
    """Return the error for a part of an image that is a link out of its folder."""
    return FileError(
        f"{path} is a link to {real}, outside of {folder}, and was not read",
        "copy what it leads to into the folder, or pass companions_anywhere=True to read it",
        code="link-outside",
    )


def open_image(path: Path) -> BinaryIO:
    """Open a file that should hold an image; `FileError` if it is a folder, or empty."""
    if path.is_dir():
        raise FileError(
            f"{path} is a folder, not an image: choose a file, or a folder with {FORMAT_NAMES} in "
            "it."
        )
    file = open_regular(os.path.realpath(path))  # beside it are others of a set
    if os.fstat(file.fileno()).st_size == 0:
        file.close()
        raise FileError(f"{path} is empty: copy it again from its source.")
    return file


def _checked(path: str, flags: int) -> int:
    """Open as `open` does, but without waiting for whoever writes to a pipe."""
    handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    try:
        check_regular(path, os.fstat(handle))
    except OSError:
        os.close(handle)
        raise
    return handle


def check_regular(path: str | os.PathLike, found: os.stat_result) -> None:
    """Refuse a pipe or a device, by an `OSError`."""
    if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
        raise OSError(errno.EINVAL, "it is a pipe or a device", os.fspath(path))


def check_declared(declared: int, stored: int, path: Path, reader: str) -> None:
    """Refuse a large image of far more bytes than are stored; `reader` names another reader."""
    if stored < enough_stored(declared):
        sizes = f"{size_in_words(declared)} of pixels but holds {size_in_words(stored)}"
        raise FileError(
            f"{path} declares {sizes}: it is damaged or blank. If it is correct, read it with "
            f"{reader} and pass the array."
        )


def enough_stored(declared: int) -> int:
    """Return the least bytes stored of an image of a size in bytes; 0 if it is small."""
    return -(-declared // _MOST_COMPRESSED) if declared >= _LARGE else 0


def most_declared(stored: int) -> int:
    """Return the most bytes of an image that a number of stored bytes may hold."""
    return max(_LARGE, stored * _MOST_COMPRESSED)


def check_memory(needed: int, path: Path) -> None:
    """Refuse an image that does not fit into the memory that is free."""
    free = free_memory()
    if needed > free:
        raise FileError(
            f"{path} needs {size_in_words(needed)} of memory for pixels and result, but only "
            f"{size_in_words(free)} are free: close other programs, or crop or split the image."
        )


def free_memory(groups: Path = _CGROUPS, own: Path = _OWN_CGROUP) -> int:
    """Return the bytes of memory this process may still take, of the machine or its control group.

    A job of a cluster or a container has the limit of its group: one of `groups`, as `own` says.
    """
    free = psutil.virtual_memory().available
    # Where there are no groups, or of version 1, nothing is found.
    with contextlib.suppress(OSError, ValueError, IndexError):
        name = own.read_text().split("::", 1)[1].splitlines()[0]
        group = groups / name.lstrip("/")
        for folder in (group, *group.parents):
            if folder == groups.parent:
                break
            with contextlib.suppress(OSError, ValueError):
                limit = int((folder / "memory.max").read_text())
                used = int((folder / "memory.current").read_text())
                told = (folder / "memory.stat").read_text().split()
                # Files kept in memory give way to programs.
                cached = int(told[told.index("inactive_file") + 1])
                free = min(free, limit - used + cached)
    return max(free, 0)


def cut_short(path: Path) -> FileError:
    """Return the error for a file that ends too early, or is damaged."""
    return FileError(f"{path} is cut short or damaged: copy it again from its source.")


def closed(path: Path) -> FileError:
    """Return the error for pixels that are read when their file is closed."""
    return FileError(f"{path} is closed: read its planes within open_stack().")


@contextlib.contextmanager
def reading(path: Path, state: str = "cut short or damaged") -> Iterator[None]:
    """Turn what is raised while an image is read into a `FileError`; `state` is what it may be."""
    try:
        yield
    except DenoiseError:
        raise
    except MemoryError as error:
        raise FileError(f"{path} does not fit into the memory of this machine.") from error
    except Exception as error:
        reason = reason_of(error)
        if isinstance(error, NotImplementedError):
            raise FileError(f"{path} is of a kind not read here ({reason}): convert it.") from error
        if isinstance(error, ImportError) or "requires the 'imagecodecs'" in reason:  # of tifffile
            raise not_installed(path, error) from error
        if isinstance(error, FileNotFoundError) and os.path.islink(path):
            problem = "is a link to what is not there: fetch that, or correct the link"
        elif isinstance(error, OSError) and error.strerror:
            problem = f"cannot be read: {error.strerror}"
        elif isinstance(error, (ConnectionError, TimeoutError)):
            problem = f"cannot be reached: {reason}"
        elif "://" in str(path):  # it may as well be the network
            problem = f"could not be read ({reason}): repeat the run, or copy it from its source"
        else:
            problem = f"is {state} ({reason}): copy it again from its source"
        raise FileError(f"{path} {problem}.") from cause_of(error)


def not_installed(path: object, error: Exception) -> FileError:
    """Return the error for a file that needs a package which cannot be imported."""
    missing = (getattr(error, "name", None) or "imagecodecs").partition(".")[0]
    wanted = _INSTALLED_BY.get(missing, missing.replace("_", "-"))
    return FileError(
        f"{path} needs a package that is missing ({reason_of(error)}): pip install {wanted}."
    )


def brief(text: str) -> str:
    """Return the first line of another package's message, short enough for a sentence."""
    return "".join(printable(text).strip().splitlines()[:1])[:160].rstrip(". ")


def reason_of(error: Exception) -> str:
    """Return why another package failed, short enough for a sentence."""
    return brief(str(error).strip() or type(error).__name__)


def printable(text: str) -> str:
    """Return a text without user part, query and fragment of addresses, which may be secrets."""

    def hidden(found: re.Match[str]) -> str:
        return found[1] + (found[2] and "***@") + found[3] + (found[4] and "?***")

    return _QUERY.sub("?***", _ADDRESS.sub(hidden, text))


def cause_of(error: Exception) -> Exception | None:
    """Return an error as the cause of ours; None if a traceback of it would print secrets."""
    text = "".join(traceback.format_exception(error))
    return error if printable(text) == text else None


def check_no_secrets(address: str, kind: type[DenoiseError] = FileError) -> None:
    """Refuse an address with a user part, a query or a fragment, which would be repeated."""
    text = re.sub(r"""[\s"']""", "_", address)  # where an address in a text would end
    if (found := _ADDRESS.search(text)) and printable(text) != text:
        raise kind(
            f"{found[1]}*** has a user part or query (@, ?, #), which may hold a password or key: "
            "leave it out and give it as the package for such addresses wants it, for s3:// in "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; in patterns write * for ?."
        )
