"""The version of this package, without importing NumPy or any other module of it."""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version


@lru_cache(maxsize=1)
def package_version() -> str:
    """Return the version of this package."""
    try:
        return version("napari-gpu-denoise")
    except PackageNotFoundError:
        return "unknown"
