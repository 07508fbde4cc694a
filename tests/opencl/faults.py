"""OpenCL calls that fail on request: every call of the package that can fail is counted by kind."""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pyopencl as cl

from napari_gpu_denoise.opencl import memory, program
from napari_gpu_denoise.opencl.memory import Arena, release_memory

_cl = cl._cl


def opencl_error(code: str, routine: str = "clTest") -> cl.Error:
    """Return the exception that pyopencl raises for a code."""
    number = getattr(cl.status_code, code, -9999)
    kind = cl.RuntimeError if number > cl.status_code.INVALID_VALUE else cl.LogicError
    if code == "MEM_OBJECT_ALLOCATION_FAILURE":
        kind = cl.MemoryError
    return kind(_cl._ErrorRecord(msg="", code=number, routine=routine))


@dataclass(frozen=True)
class Fault:
    """Which call fails, counted from 0 among those of its kind, and with which code.

    With `lasting`, later calls of the kind fail as well; with `lost`, all later calls of any kind.
    """

    kind: str
    number: int
    code: str
    lasting: bool = False
    lost: bool = False


@dataclass
class Faults:
    """Counts calls by kind, and lets one fail; contexts and programs are made once and kept.

    `buffers` and `arenas` are those that are alive.
    """

    counts: Counter = field(default_factory=Counter)
    fault: Fault | None = None
    fired: bool = False
    buffers: weakref.WeakSet = field(default_factory=weakref.WeakSet)
    arenas: weakref.WeakSet = field(default_factory=weakref.WeakSet)
    _kept: dict = field(default_factory=dict)
    _lock: Any = field(default_factory=threading.Lock)

    def begin(self, fault: Fault | None = None) -> None:
        """Start counting anew, in a process that has not used OpenCL yet."""
        release_memory()
        program._sessions.clear()
        self.counts.clear()
        self.fault, self.fired = fault, False

    def end(self) -> None:
        """Let nothing fail from here on."""
        self.fault = None

    def call(self, kind: str) -> None:
        """Count a call, and fail if it is its turn."""
        with self._lock:
            number, fault = self.counts[kind], self.fault
            self.counts[kind] += 1
            if fault is None:
                return
            later = self.fired and (fault.lost or (fault.lasting and kind == fault.kind))
            if later or (kind, number) == (fault.kind, fault.number):
                self.fired = True
                raise opencl_error(fault.code, kind)

    def release(self) -> None:
        """Count a call that releases memory: it only fails if the device is lost."""
        if self.fault is not None and self.fault.lost:
            self.call("release")

    def left(self) -> list[Any]:
        """Return arenas with buffers and locks that are held although no run is going on."""
        idle = [arena for waiting in memory._idle.values() for arena in waiting]
        busy = [a for a in self.arenas if a not in idle and (a._buffers or a._pinned)]
        return busy + [held.turn for held in program._sessions.values() if held.turn.locked()]

    def install(self, monkeypatch) -> Faults:
        """Put the calls in place of those of pyopencl."""

        def counted(owner, name: str, kind: str) -> tuple:
            plain = getattr(owner, name)

            def call(*given, **options):
                self.call(kind)
                return plain(*given, **options)

            return owner, name, call

        class Buffer(cl.Buffer):
            def __init__(buffer, *given, **options):
                self.call("buffer")
                super().__init__(*given, **options)
                self.buffers.add(buffer)

            def release(buffer):
                self.release()
                super().release()

        plain_begin, plain_copy = Arena.__init__, cl.enqueue_copy
        plain_unmap = _cl.MemoryMap.release
        plain_context, plain_program = cl.Context, cl.Program

        def begin(arena, *given):
            plain_begin(arena, *given)
            self.arenas.add(arena)

        def unmap(array, queue):
            self.release()
            plain_unmap(array, queue)

        def copy(queue, dest, src, **options):
            buffers = [isinstance(one, cl.MemoryObjectHolder) for one in (dest, src)]
            both = {(1, 0): "to device", (0, 1): "from device", (1, 1): "on device"}
            self.call(f"copy {both[tuple(buffers)]}")
            return plain_copy(queue, dest, src, **options)

        def context(devices):
            self.call("context")
            return self._keep(devices[0], lambda: plain_context(devices))

        def source(context, text):
            def build(options, cache_dir):
                self.call("build")
                make = plain_program(context, text).build
                return self._keep((context, text, *options), lambda: make(options=options))

            return SimpleNamespace(build=build)

        replaced = [
            counted(_cl, "enqueue_nd_range_kernel", "launch"),
            counted(_cl.CommandQueue, "finish", "finish"),
            counted(_cl.CommandQueue, "flush", "flush"),
            counted(_cl.Event, "wait", "wait"),
            counted(cl, "CommandQueue", "queue"),
            counted(cl, "Kernel", "kernel"),
            counted(cl, "enqueue_fill_buffer", "fill"),
            counted(cl, "enqueue_map_buffer", "map"),
            counted(cl, "enqueue_barrier", "barrier"),
            (cl, "Buffer", Buffer),
            (cl, "enqueue_copy", copy),
            (cl, "Context", context),
            (cl, "Program", source),
            (_cl.MemoryMap, "release", unmap),
            (Arena, "__init__", begin),
        ]
        for place in replaced:
            monkeypatch.setattr(*place)
        return self

    def _keep(self, key, make):
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]
