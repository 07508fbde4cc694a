"""Loaded by each worker that `connected` starts, before any work."""

from __future__ import annotations

import logging
import signal
import sys
from typing import Any


def dask_setup(worker: Any) -> None:
    """Leave Ctrl-C to the command, which the terminal sends to all of its processes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # It warns of each task that is given up when a run is stopped.
    logging.getLogger("distributed.worker.state_machine").setLevel(logging.ERROR)
    # Where a write fails, zarr leaves the other chunks that it is writing; Python tells of each.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    sys.unraisablehook = lambda _: None
