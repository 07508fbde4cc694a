"""Work-items for kernels that look at single values, wherever these lie."""

from __future__ import annotations

from napari_gpu_denoise.opencl.device import Device

# Values of a work-item on a CPU, as a loop of vectors, and work-items of a group on a GPU.
_RUN = 4096
_GROUP = 128


def values_together(device: Device) -> int:
    """Return how many neighbours a work-item is given, for kernels that look at single values."""
    return _RUN if device.float_lanes > 1 else 1


def value_grid(count: int, device: Device) -> tuple[tuple[int], tuple[int]]:
    """Return the work-items for `count` values, and those of a group."""
    if device.float_lanes > 1:
        return (-(-count // _RUN),), (1,)
    group = min(_GROUP, device.max_group)
    return (-(-count // group) * group,), (group,)
