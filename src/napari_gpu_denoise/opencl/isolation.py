"""Keep the LLVM inside pip's CPU drivers apart from the one inside Mesa's OpenGL."""

from __future__ import annotations

import ctypes
import importlib.util
import os
from functools import cache
from pathlib import Path


@cache
def load_bundled_drivers() -> tuple[str, ...]:
    """Load the OpenCL drivers that lie beside pyopencl so that they see only their own symbols.

    PoCL and Oclgrind from the registry hold an LLVM with public symbols. Where a program has
    already drawn with Mesa's OpenGL, as napari has, Mesa's LLVM is there first, the two mix, and
    the process is aborted the moment OpenCL looks for its drivers. Loaded here beforehand, with
    ``RTLD_DEEPBIND``, each keeps to itself; the OpenCL loader then finds them already in memory.

    Returns
    -------
    tuple of str
        Paths of what was loaded; empty where the system has no such flag (macOS, Windows).
    """
    found = importlib.util.find_spec("pyopencl")
    if not hasattr(os, "RTLD_DEEPBIND") or found is None or found.origin is None:
        return ()
    folder = Path(found.origin).parent / ".libs"
    loaded = []
    for listing in sorted(folder.glob("*.icd")):
        library = folder / listing.read_text().strip()
        try:
            ctypes.CDLL(str(library), os.RTLD_NOW | os.RTLD_LOCAL | os.RTLD_DEEPBIND)
        except OSError:
            # A driver that does not load here is the OpenCL loader's to leave out, as ever.
            continue
        loaded.append(str(library))
    return tuple(loaded)
