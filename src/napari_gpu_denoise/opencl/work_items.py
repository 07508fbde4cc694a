"""Global and local work sizes of a launch; work-groups have one shape for all image sizes.

PoCL compiles a kernel again for every shape of work-group, and a driver left to choose takes
another shape for every image size, a poor one for odd sizes.
"""

from __future__ import annotations

from napari_gpu_denoise.opencl.device import Device

# Values per work-item on a CPU, in a vector loop, and work-items per group on a GPU.
_RUN = 4096
_GROUP = 128
# Pixels of a group along x and y.
_TILE = (32, 8)


def values_per_item(device: Device) -> int:
    """Return how many values one work-item processes, for kernels that act on single values."""
    return _RUN if device.float_lanes > 1 else 1


def value_grid(count: int, device: Device) -> tuple[tuple[int], tuple[int]]:
    """Return the global and local size for `count` values."""
    if device.float_lanes > 1:
        return (-(-count // _RUN),), (1,)
    group = min(_GROUP, device.max_group)
    return (-(-count // group) * group,), (group,)


def pixel_grid(
    device: Device, nx: int, ny: int, count: int
) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Return the global and local size for one work-item per pixel of `count` images.

    Rows and columns are rounded up to whole groups: kernels ignore what lies beyond.
    """
    across = min(_TILE[0], device.max_group)
    down = min(_TILE[1], device.max_group // across)
    return (-(-nx // across) * across, -(-ny // down) * down, count), (across, down, 1)
