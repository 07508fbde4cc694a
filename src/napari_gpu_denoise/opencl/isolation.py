"""Keep the LLVM inside pip's CPU drivers apart from the one inside Mesa's OpenGL."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
from functools import cache
from pathlib import Path


@cache
def load_bundled_drivers() -> None:
    """Load the OpenCL drivers that come with pyopencl so that they see only their own symbols.

    PoCL and Oclgrind from PyPI contain an LLVM with public symbols. If the process has already
    drawn with Mesa's OpenGL, as napari has, Mesa's LLVM is loaded first, the two mix, and the
    process aborts as soon as OpenCL looks for its drivers. Loaded here first, with
    ``RTLD_DEEPBIND``, each uses its own; the OpenCL loader then finds them already in memory.
    Systems without this flag (macOS, Windows) are not affected.
    """
    found = importlib.util.find_spec("pyopencl")
    if not hasattr(os, "RTLD_DEEPBIND") or found is None or found.origin is None:
        return
    folder = Path(found.origin).parent / ".libs"
    for listing in sorted(folder.glob("*.icd")):
        library = folder / listing.read_text().strip()
        # A driver that does not load is left to the OpenCL loader to skip.
        with contextlib.suppress(OSError):
            ctypes.CDLL(str(library), os.RTLD_NOW | os.RTLD_LOCAL | os.RTLD_DEEPBIND)
