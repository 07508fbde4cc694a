"""Reading from and writing to places over a network, which may drop for a moment."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from napari_gpu_denoise.errors import DenoiseError
from napari_gpu_denoise.files.zarr.address import Address

Value = TypeVar("Value")

_PAUSES = (0.5, 2.0, 8.0)  # seconds before each new try
# What another try does not change.
_LASTING = (FileNotFoundError, PermissionError, ValueError, TypeError, LookupError, MemoryError)
_LASTING += (NotImplementedError, DenoiseError)


def steadily(place: Path | Address, call: Callable[[], Value]) -> Value:
    """Return what `call` does; where it fails and `place` is on a server, after some more tries."""
    for pause in _PAUSES if isinstance(place, Address) else ():
        try:
            return call()
        except _LASTING:
            raise
        except Exception:
            time.sleep(pause)
    return call()
