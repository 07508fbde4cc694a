"""Load drivers: all that are installed, apart from Mesa's OpenGL, with caches of this user."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib.util
import os
import shutil
import stat
import subprocess
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
_ROOM = 1 << 26  # bytes that are free where programs are kept
# Files in which loaders look for drivers, and the libraries of drivers that lack one in containers.
_LISTED = ("/etc/OpenCL/vendors", os.path.join(sys.prefix, "etc/OpenCL/vendors"))
_DRIVERS = ("libnvidia-opencl.so.1", "libamdocl64.so", "libigdrcl.so", "libpocl.so.2")
_OF_LOADERS = ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH")  # that users set to name drivers
NO_WINDOW = subprocess.CREATE_NO_WINDOW if os.name == "nt" else 0  # of processes that are started


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


@cache
def use_own_caches() -> None:
    """Have pyopencl and drivers keep what they build where only this user can write.

    They run what they find there: programs, and pickled Python of pyopencl. Without a folder for it
    some of them fail. This package calls it before it loads them.
    """
    unfit = {}
    for variable, usual in _OF_DRIVERS.items():
        chosen = os.environ.get(variable, "")
        if (chosen or usual) and (fault := _fault(Path(chosen or f"~/{usual}"), bool(chosen))):
            unfit[variable] = fault
            os.environ[variable] = _temporary()
    if unfit:
        warnings.warn(
            f"{'; '.join(dict.fromkeys(unfit.values()))}: programs compiled for devices are kept "
            f"until this process ends. Set {' and '.join(unfit)} to a folder of yours with room.",
            stacklevel=2,
        )


def _fault(place: Path, make: bool) -> str:
    """Return why a folder is not one to keep programs in; empty if it is."""
    try:
        place = place.expanduser()
        if make:
            os.makedirs(place, 0o700, exist_ok=True)
        there = next(each for each in (place, *place.parents) if each.exists())
        if there == place and not is_private(place):
            return f"Others can write to {place}"
        if not os.access(there, os.W_OK):
            return f"{place} cannot be written"
        return f"There is no room in {place}" if shutil.disk_usage(there).free < _ROOM else ""
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home
        return f"{place} cannot be used ({error})"


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


@cache
def list_drivers() -> tuple[str, ...]:
    """Have the loader open drivers that are installed but not listed; return their libraries.

    A container has the libraries of a GPU's driver from its host, but often no file that lists
    them. The loader is then given a folder of this process, with the files of the system and those
    that are missing.
    """
    if sys.platform != "linux" or any(map(os.environ.get, _OF_LOADERS)):
        return ()
    files = [file for folder in _LISTED for file in Path(folder).glob("*.icd")]
    listed = {file.stem: file.read_text(errors="replace") for file in files}
    # What it names is opened too, but not by the loader that pyopencl brings.
    named = "" if os.path.isabs(loader()) else os.environ.get("OCL_ICD_FILENAMES", "")
    known = " ".join([*listed.values(), named])
    missing = [name for name in _DRIVERS if name.partition(".so")[0] not in known and _opens(name)]
    if missing:
        folder = Path(_temporary(), "vendors")
        folder.mkdir()
        for stem, library in [*listed.items(), *((name, name) for name in missing)]:
            folder.joinpath(f"{stem}.icd").write_text(library)
        os.environ["OCL_ICD_VENDORS"] = str(folder)
    return tuple(missing)


def _opens(library: str) -> bool:
    """Return whether a driver can be opened; it then sees only its own symbols, as bundled ones."""
    with contextlib.suppress(OSError):
        ctypes.CDLL(library, os.RTLD_NOW | os.RTLD_LOCAL | getattr(os, "RTLD_DEEPBIND", 0))
        return True
    return False


def _show_intel_runtime() -> None:
    """Let the loader find Intel's CPU runtime where pip installs it (Windows only)."""
    if os.name != "nt" or "OCL_ICD_FILENAMES" in os.environ:
        return
    library = Path(sys.prefix, "Library", "bin", "intelocl64.dll")
    if library.exists() and importlib.util.find_spec("pyopencl"):
        os.environ["OCL_ICD_FILENAMES"] = str(library)


def import_pyopencl() -> Any:
    """Import pyopencl while its loader opens the drivers: both take a tenth of a second or more."""
    use_own_caches()
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
    list_drivers()
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
    use_own_caches()
    folder = _pyopencl()
    if not hasattr(os, "RTLD_DEEPBIND") or folder is None:
        return
    folder = folder / ".libs"
    for listing in sorted(folder.glob("*.icd")):
        # A driver that does not load is left to the OpenCL loader to skip.
        _opens(str(folder / listing.read_text().strip()))
