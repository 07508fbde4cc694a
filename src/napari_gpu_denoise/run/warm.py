"""Build what a filter needs before there is an image."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.opencl.program import ProgramKey, session
from napari_gpu_denoise.run.filter import Filter
from napari_gpu_denoise.run.job import prepare
from napari_gpu_denoise.run.part import programs_of
from napari_gpu_denoise.run.request import Run

SIGMA = 10.0
BUILDERS = 8  # processes at most, each of which has a context: some 0.3 GB of the device
_LENGTHS = {"T": 5, "Z": 9, "Y": 40, "X": 48}


def tiny_image(settings: Filter, dtype: Any = np.float32) -> tuple[np.ndarray, str]:
    """Return an image with the axes that a filter needs, and their names."""
    axes = "T" * settings.over_time + "Z" * ("Z" in settings.joint) + "YX"
    values = np.random.default_rng(0).normal(100, SIGMA, [_LENGTHS[axis] for axis in axes])
    return np.clip(values, 1, 200).astype(dtype), axes


def programs_for(run: Run, image: np.ndarray) -> list[ProgramKey]:
    """Return the programs of a run on images like this one."""
    job = prepare(run, image)
    return programs_of(job, image.dtype, job.dtypes[1])


def warm_up(settings: Filter, device: Device) -> None:
    """Build the programs of a filter for images of float32 and uint16.

    The drivers of CPUs build in the first run whatever is done here: for them nothing is.
    """
    if device.shares_cores:
        return
    needed: dict[ProgramKey, None] = {}
    for dtype in (np.float32, np.uint16):
        image, axes = tiny_image(settings, dtype)
        run = Run(settings, SIGMA, axes=axes, device=device)
        needed.update(dict.fromkeys(programs_for(run, image)))
    for _ in session(device).build_all(needed, builders()):
        pass


def builders() -> int:
    """Return how many processes may build while a user waits for nothing else."""
    return min(BUILDERS, (os.cpu_count() or 1) - 1)
