"""Work-items of a launch, and the shape of their groups: the same whatever the size of an image.

PoCL compiles a kernel anew for every shape of a group, and a driver that is left to choose takes
another shape for every size; for odd sizes a poor one.
"""

from __future__ import annotations

from napari_gpu_denoise.opencl.device import Device

# Values of a work-item on a CPU, as a loop of vectors, and work-items of a group on a GPU.
_RUN = 4096
_GROUP = 128
# Pixels of a group, across and down.
_TILE = (32, 8)


def values_together(device: Device) -> int:
    """Return how many neighbours a work-item is given, for kernels that look at single values."""
    return _RUN if device.float_lanes > 1 else 1


def value_grid(count: int, device: Device) -> tuple[tuple[int], tuple[int]]:
    """Return the work-items for `count` values, and those of a group."""
    if device.float_lanes > 1:
        return (-(-count // _RUN),), (1,)
    group = min(_GROUP, device.max_group)
    return (-(-count // group) * group,), (group,)


def pixel_grid(
    device: Device, nx: int, ny: int, count: int
) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Return the work-items for the pixels of some images, one each, and those of a group.

    Rows and columns are rounded up to whole groups: the kernel ignores what lies beyond.
    """
    across = min(_TILE[0], device.max_group)
    down = min(_TILE[1], device.max_group // across)
    return (-(-nx // across) * across, -(-ny // down) * down, count), (across, down, 1)
