"""Kernels that are launched quickly: pyopencl knows the types of their numbers."""

from __future__ import annotations

from typing import Any

import numpy as np


class Kernel:
    """A kernel of a program; like all kernels, for one thread at a time.

    Numbers are passed as NumPy scalars of the type that the kernel declares. Unless pyopencl is
    told these types, it handles every number by itself, which takes about 10 µs each: far longer
    than the launch. The first launch tells it, as other arguments may depend on constants.
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
            numbers = [one if issubclass(one, np.generic) else None for one in types]
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
