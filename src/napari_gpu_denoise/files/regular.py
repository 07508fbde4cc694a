"""Files that are opened only if they are files: a pipe or a device may keep its reader for ever."""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO


def open_regular(path: str | os.PathLike) -> BinaryIO:
    """Open a file to read it, by its real name; `OSError` at once if it is a pipe or a device.

    That is looked at before it is opened, because opening a device can do something, and again
    when it is open, because the name may be given to something else in between.
    """
    _check(path, os.stat(path))
    return open_real(os.path.realpath(path))


def open_real(path: str) -> BinaryIO:
    """Do the same for a real name, and look at it when it is open only."""
    return open(path, "rb", opener=_checked)


def _checked(path: str, flags: int) -> int:
    """Open as `open` does, but without waiting for whoever writes to a pipe."""
    handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    try:
        _check(path, os.fstat(handle))
    except OSError:
        os.close(handle)
        raise
    return handle


def _check(path: str | os.PathLike, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
        raise OSError(errno.EINVAL, "it is a pipe or a device", os.fspath(path))
