"""Cache directory; caches of drivers that others can write to."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import stat
import sys
import tempfile
import warnings
from pathlib import Path

# Variables that name caches of pyopencl and drivers, and what they stand for in the home folder.
_OF_DRIVERS = {
    "XDG_CACHE_HOME": ".cache",
    "POCL_CACHE_DIR": "",
    "CUDA_CACHE_PATH": ".nv/ComputeCache",
    "NEO_CACHE_DIR": "",
    "MESA_SHADER_CACHE_DIR": "",
}


def cache_folder() -> Path:
    """Return the folder; it need not exist."""
    name = "napari-gpu-denoise"
    if os.name == "nt":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local", name, "Cache")
    if sys.platform == "darwin" and not os.environ.get("XDG_CACHE_HOME"):
        return Path.home() / "Library/Caches" / name
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", name)


def is_private(folder: Path) -> bool:
    """Return whether nobody but this user, and the system's, can write into a folder."""
    if os.name == "nt":
        return True  # those used here lie in the user's profile
    state = os.stat(folder)
    writable = state.st_mode & stat.S_IWOTH
    if state.st_mode & stat.S_IWGRP and not _is_own_group(state.st_gid):
        writable = True
    return state.st_uid in (0, os.getuid()) and not writable


def _is_own_group(number: int) -> bool:
    """Return whether a group is that of this user alone, as many systems make one for each."""
    import grp
    import pwd

    with contextlib.suppress(KeyError):
        user, group = pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(number)
        return group.gr_name == user and {user}.issuperset(group.gr_mem)
    return False


def refuse_shared_caches() -> None:
    """Have pyopencl and drivers keep what they build elsewhere than where others can write.

    They run what they find there: programs, and pickled Python of pyopencl. This package does it
    before it loads them.
    """
    for variable, usual in _OF_DRIVERS.items():
        place = Path(os.environ.get(variable) or (usual and Path.home() / usual))
        with contextlib.suppress(OSError):
            if os.environ.get(variable):
                os.makedirs(place, 0o700, exist_ok=True)
            if place == Path() or is_private(place):
                continue
            os.environ[variable] = _temporary()
            warnings.warn(
                f"Others can write to {place}: programs compiled there are not used, and none are "
                f"kept. Set {variable} to a folder of your own, or change its mode.",
                stacklevel=2,
            )


@functools.cache
def _temporary() -> str:
    """Return a folder that is removed when the process ends."""
    folder = tempfile.mkdtemp(prefix="gpu-denoise-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
