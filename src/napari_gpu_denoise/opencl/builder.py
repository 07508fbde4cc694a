"""Build programs for another process: a script that needs nothing but the OpenCL loader.

Importing NumPy and pyopencl would take longer than building most programs. A line of JSON says
which device, and a line goes back when it is open. Each further one holds a source and options; a
line goes back when that is built, and the driver has the result in its cache on disk.
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any

_PLATFORM_NAME = 0x0902
_ALL_DEVICES = 0xFFFFFFFF


class Builder:
    """A context on one device of a platform: the one of this number among all of its devices."""

    def __init__(self, library: str, platform: str, number: int):
        self._cl = cl = ctypes.CDLL(library)
        for made in ("clCreateContext", "clCreateProgramWithSource"):
            getattr(cl, made).restype = ctypes.c_void_p
        for used in ("clBuildProgram", "clReleaseProgram"):
            getattr(cl, used).restype = ctypes.c_int
        count = ctypes.c_uint()
        cl.clGetPlatformIDs(0, None, ctypes.byref(count))
        platforms = (ctypes.c_void_p * count.value)()
        cl.clGetPlatformIDs(count, platforms, None)
        chosen = ctypes.c_void_p(next(each for each in platforms if self._name(each) == platform))
        kind = ctypes.c_uint64(_ALL_DEVICES)
        cl.clGetDeviceIDs(chosen, kind, 0, None, ctypes.byref(count))
        devices = (ctypes.c_void_p * count.value)()
        cl.clGetDeviceIDs(chosen, kind, count, devices, None)
        self._device = (ctypes.c_void_p * 1)(devices[number])
        failed = ctypes.c_int()
        context = cl.clCreateContext(None, 1, self._device, None, None, ctypes.byref(failed))
        if failed.value or not context:
            raise OSError(f"no context: {failed.value}")
        self._context = ctypes.c_void_p(context)

    def _name(self, platform: int) -> str:
        name = ctypes.create_string_buffer(1000)
        self._cl.clGetPlatformInfo(
            ctypes.c_void_p(platform), _PLATFORM_NAME, ctypes.c_size_t(len(name)), name, None
        )
        return name.value.decode("utf-8", "replace").strip()

    def build(self, source: str, options: str) -> bool:
        """Build a program; return whether it could be built."""
        failed, text = ctypes.c_int(), (ctypes.c_char_p * 1)(source.encode("utf-8"))
        made = self._cl.clCreateProgramWithSource(
            self._context, 1, text, None, ctypes.byref(failed)
        )
        if failed.value:
            return False
        program = ctypes.c_void_p(made)
        error = self._cl.clBuildProgram(
            program, 1, self._device, options.encode("utf-8"), None, None
        )
        self._cl.clReleaseProgram(program)
        return error == 0


def main() -> None:
    """Build what comes in by the standard input."""
    builder = Builder(*json.loads(sys.stdin.readline()))
    print("ready", flush=True)
    for line in sys.stdin:
        task: dict[str, Any] = json.loads(line)
        print(int(builder.build(task["source"], task["options"])), flush=True)


if __name__ == "__main__":
    main()
