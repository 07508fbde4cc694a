"""Load drivers: early, apart from Mesa's OpenGL, and with caches that others cannot write to."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib.util
import os
import shutil
import stat
import sys
import tempfile
import threading
import warnings
from functools import cache
from pathlib import Path
from typing import Any

from napari_gpu_denoise.errors import ForkedProcessError

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
    from platformdirs import user_cache_path  # takes a while, and short processes need no folder

    return user_cache_path("napari-gpu-denoise", appauthor=False)


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


@cache
def _temporary() -> str:
    """Return a folder that is removed when the process ends."""
    folder = tempfile.mkdtemp(prefix="gpu-denoise-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


_owner: int | None = None  # the process that loads the drivers


def check_process() -> None:
    """Refuse a process that was forked from the one that loaded the drivers.

    The threads of the drivers are not in the child, and their locks stay as they were at the fork:
    calls would never return.

    Raises
    ------
    ForkedProcessError
    """
    if _owner not in (None, os.getpid()):
        raise ForkedProcessError(
            "This process was forked after OpenCL had been used, which OpenCL does not support: "
            "start processes with 'spawn' or 'forkserver', such as "
            "multiprocessing.get_context('spawn'), or use threads."
        )


@cache
def open_platforms() -> tuple[tuple[Any, tuple], ...]:
    """Return every platform, with the handles of its devices."""
    global _owner
    _owner = os.getpid()
    _show_intel_runtime()
    try:
        cl = import_pyopencl()
    except ImportError:
        return ()
    try:
        platforms = cl.get_platforms()
    except cl.Error:
        return ()
    listed = []
    for platform in platforms:
        try:
            handles = tuple(platform.get_devices())
        except cl.Error:
            # A broken driver, or one without a device, must not hide the others.
            handles = ()
        listed.append((platform, handles))
    return tuple(listed)


def _show_intel_runtime() -> None:
    """Let the loader find Intel's CPU runtime where pip installs it (Windows only)."""
    if os.name != "nt" or "OCL_ICD_FILENAMES" in os.environ:
        return
    library = Path(sys.prefix, "Library", "bin", "intelocl64.dll")
    if library.exists() and importlib.util.find_spec("pyopencl"):
        os.environ["OCL_ICD_FILENAMES"] = str(library)


def import_pyopencl() -> Any:
    """Import pyopencl while its loader opens the drivers: both take a tenth of a second or more."""
    refuse_shared_caches()
    folder = _pyopencl()
    if folder is not None:
        # Where drivers are that pyopencl brings. It says so itself, but only now.
        os.environ["PYOPENCL_HOME"] = str(folder)
    drivers = threading.Thread(target=_open_drivers, daemon=True)
    drivers.start()
    try:
        import pyopencl
    finally:
        drivers.join()
    return pyopencl


@cache
def loader() -> str:
    """Return the OpenCL loader that pyopencl uses: its own, or that of the system."""
    folder = _pyopencl()
    if folder is not None:
        for path in folder.glob(".libs/libOpenCL*"):
            return str(path)
    return "OpenCL.dll" if os.name == "nt" else "libOpenCL.so.1"


def _pyopencl() -> Path | None:
    spec = importlib.util.find_spec("pyopencl")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def _open_drivers() -> None:
    load_bundled_drivers()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(loader()).clGetPlatformIDs(0, None, ctypes.byref(ctypes.c_uint()))


@cache
def load_bundled_drivers() -> None:
    """Load the OpenCL drivers that come with pyopencl so that they see only their own symbols.

    PoCL and Oclgrind from PyPI contain an LLVM with public symbols. If the process has already
    drawn with Mesa's OpenGL, as napari has, Mesa's LLVM is loaded first, the two mix, and the
    process aborts as soon as OpenCL looks for its drivers. Loaded here first, with
    ``RTLD_DEEPBIND``, each uses its own; the OpenCL loader then finds them already in memory.
    Systems without this flag (macOS, Windows) are not affected.
    """
    refuse_shared_caches()
    folder = _pyopencl()
    if not hasattr(os, "RTLD_DEEPBIND") or folder is None:
        return
    folder = folder / ".libs"
    for listing in sorted(folder.glob("*.icd")):
        library = folder / listing.read_text().strip()
        # A driver that does not load is left to the OpenCL loader to skip.
        with contextlib.suppress(OSError):
            ctypes.CDLL(str(library), os.RTLD_NOW | os.RTLD_LOCAL | os.RTLD_DEEPBIND)
