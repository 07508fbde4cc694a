"""OpenCL does not survive a fork: refuse to go on in a child of the process that uses it."""

from __future__ import annotations

import os

from napari_gpu_denoise.errors import ForkedProcessError

_owner: int | None = None


def claim_process() -> None:
    """Remember that this process loads the drivers."""
    global _owner
    _owner = os.getpid()


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
