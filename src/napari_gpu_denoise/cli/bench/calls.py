"""Time what users call: with sigma, without it, and on a stack."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from napari_gpu_denoise.cli.bench.inputs import SIGMA, stack_for, synthetic
from napari_gpu_denoise.cli.bench.kernels import median_time, profiled
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.run.denoise import denoise

# Stacks have as many frames as are filtered in about this time, in seconds, within these bounds.
_STACK_TIME = 0.5
_FRAMES = (4, 64)


@dataclass(frozen=True)
class Stack:
    """How fast a stack is filtered, from uint16 in memory to uint16 in memory, sigma given."""

    shape: tuple[int, ...]
    planes_per_second: float
    device_share: float  # of the time in which the device computes


def default_call(
    settings: Filter, shape: tuple[int, ...], axes: str, device: Device, repeats: int
) -> float:
    """Return the seconds of a call that says nothing of the noise."""
    image = synthetic(shape)
    return median_time(lambda: denoise(image, settings, axes=axes, device=device), repeats)


def stack_speed(
    settings: Filter, shape: tuple[int, ...], device: Device, one: float, frames: int | None = None
) -> Stack:
    """Time a stack of frames, or volumes, of which a call alone takes `one` seconds."""
    least, most = _FRAMES
    frames = frames or min(max(int(_STACK_TIME / one), least), most)
    whole, axes = stack_for(settings, shape, frames)
    stack = np.clip(synthetic(whole), 0, None).astype(np.uint16)
    call = median_time(lambda: denoise(stack, settings, SIGMA, axes=axes, device=device), 2)
    busy = sum(profiled(settings, synthetic(whole), axes, device, 1).kernels.values())
    return Stack(whole, math.prod(whole[:-2]) / call, busy / call)
