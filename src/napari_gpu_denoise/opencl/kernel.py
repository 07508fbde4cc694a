"""Kernels that are launched quickly, and the sizes of launches."""

from __future__ import annotations

from typing import Any

import numpy as np

from napari_gpu_denoise.opencl.device import Device


class Kernel:
    """A kernel of a program; like all kernels, for one thread at a time.

    Whole numbers are passed as ``int`` and others as ``float`` of OpenCL, but NumPy scalars of
    another size as that. Unless pyopencl is told these types, it handles every number by itself,
    which takes about 10 µs each: far longer than the launch. The first launch tells it, as other
    arguments may depend on constants.
    """

    def __init__(self, program: Any, name: str):
        import pyopencl as cl

        self._kernel = cl.Kernel(program, name)
        self._numbers: list[type | None] = []
        # Types of all arguments of former launches; buffers may be missing in some of them.
        self._seen: set[tuple[type, ...]] = set()

    def __call__(self, queue, size: tuple, group: tuple | None, *arguments, **options) -> Any:
        """Enqueue the kernel over `size` work-items in groups of `group`; return the event."""
        types = tuple(map(type, arguments))
        if types not in self._seen:
            numbers = [_number(kind) for kind in types]
            if numbers != self._numbers:
                self._kernel.set_arg_types(numbers)
                self._numbers = numbers
                self._seen.clear()
            self._seen.add(types)
        return self._kernel(queue, size, group, *arguments, **options)

    @property
    def program(self) -> Any:
        """The program of the kernel."""
        return self._kernel.program


def _number(kind: type) -> type | None:
    """Return as which number a kernel takes arguments of a type; None for buffers."""
    if issubclass(kind, (int, np.int64)):
        return np.int32
    if issubclass(kind, float):  # np.float64 is one
        return np.float32
    return kind if issubclass(kind, np.generic) else None


# Work-groups have one shape for all image sizes: PoCL compiles a kernel again for every shape, and
# a driver left to choose takes another shape for every image size, a poor one for odd sizes.
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
