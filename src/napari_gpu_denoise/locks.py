"""Locks on files that the system frees when a process ends, however that ends; which ones live."""

from __future__ import annotations

import os


def locked(handle: int) -> bool:
    """Lock an open file until it is closed, if no other process has; return whether it is ours.

    A file system without locks lets everybody in.
    """
    try:
        import fcntl
    except ImportError:
        import msvcrt

        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def is_alive(process: int) -> bool:
    """Return whether a process of this machine may live; on Windows, whether it is this one."""
    if os.name == "nt":
        # A signal would end it.
        return process == os.getpid()
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # of somebody else
    return True
