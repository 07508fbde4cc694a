"""Where this package keeps what it may forget."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder; it need not exist."""
    name = "napari-gpu-denoise"
    if os.name == "nt":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local", name, "Cache")
    if sys.platform == "darwin" and not os.environ.get("XDG_CACHE_HOME"):
        return Path.home() / "Library/Caches" / name
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", name)
