"""Device buffers and pinned host memory, kept between runs and released on request."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.opencl.program import (
    Kernel,
    ProgramKey,
    Session,
    ends_context,
    forget,
    lacks_memory,
    program_key,
    running_error,
)


@contextmanager
def device_errors(session: Session):
    """Turn OpenCL errors into `DeviceMemoryError` or `KernelError`.

    Memory kept for later runs is released if memory is missing, and a device that was lost is
    opened anew by the next run.
    """
    import pyopencl as cl

    try:
        yield
    except cl.Error as error:
        # Cleaning up may have failed, too: what failed first is the cause.
        first: BaseException = error
        while isinstance(first.__context__, cl.Error):
            first = first.__context__
        if ends_context(first):
            forget(session)
        if session.ended or lacks_memory(first):
            release_memory()
        raise running_error(session.device, first) from first


def constant_buffer(session: Session, values: np.ndarray) -> Any:
    """Return a read-only device buffer with a copy of an array."""
    import pyopencl as cl

    flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
    return cl.Buffer(session.context, flags, hostbuf=np.ascontiguousarray(values))


class Arena:
    """Buffers of one run on one device, by name: they grow as needed and are freed together.

    Kernels are kept for the next run as well. One run owns an arena at a time (see `borrow`), so
    nothing is locked here.
    """

    def __init__(self, session: Session):
        self.session = session
        self._buffers: dict[str, Any] = {}
        self._pinned: dict[str, tuple] = {}
        self._asked: set[str] = set()
        self._kernels: dict[ProgramKey, Kernel] = {}
        self._constants: dict[str, Any] = {}
        # Buffers that plans declared, by settings: asking takes much of the time of a small call.
        self.declared: dict[tuple, tuple] = {}
        self._kept: tuple[Hashable, Any] | None = None
        # The programs that this run needs, if they can be told before kernels are asked for.
        self.coming: Callable[[], Iterable[ProgramKey]] | None = None

    @property
    def device(self) -> Device:
        """The device of the buffers and kernels."""
        return self.session.device

    @property
    def nbytes(self) -> int:
        """Bytes of device memory held."""
        return sum(buffer.size for buffer in self._buffers.values())

    def buffer(self, name: str, nbytes: int) -> Any:
        """Return a device buffer of at least `nbytes` bytes, with undefined contents."""
        import pyopencl as cl

        buffer = self._buffers.get(name)
        # A buffer of an earlier run is reused unless it is far too large.
        wasteful = buffer is not None and name not in self._asked and buffer.size > 2 * nbytes
        self._asked.add(name)
        if buffer is None or buffer.size < nbytes or wasteful:
            if buffer is not None:
                self._buffers.pop(name).release()
            flags = cl.mem_flags.READ_WRITE
            buffer = cl.Buffer(self.session.context, flags, size=max(int(nbytes), 4))
            self._buffers[name] = buffer
        return buffer

    def constant(self, name: str, make: Callable[[], np.ndarray]) -> Any:
        """Return a read-only device buffer with the array that `make` returns, made only once."""
        if name not in self._constants:
            self._constants[name] = constant_buffer(self.session, make())
        return self._constants[name]

    def kernel(self, name: str, constants: Mapping[str, int]) -> Kernel:
        """Return a kernel as `Session.kernel` does, but make it only once: that takes long.

        All its arguments have to be set again.
        """
        key = program_key(name, constants)
        if key not in self._kernels:
            self._kernels[key] = self.session.kernel(name, constants, self.coming)
        return self._kernels[key]

    def keep(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return what `make` returned for an equal key; only the last one is kept.

        It may hold kernels and constants, but no buffers of `buffer`, which end with their run.
        """
        if self._kept is None or self._kept[0] != key:
            self._kept = key, make()
        return self._kept[1]

    def pinned(self, name: str, count: int, queue: Any) -> np.ndarray:
        """Return a float32 host array of `count` values in pinned memory, for fast transfers.

        For a CPU device it is plain memory, which is as fast.
        """
        import pyopencl as cl

        memory = self._pinned.get(name)
        if memory is None or memory[0].size < count:
            self._unpin(name)
            if self.session.device.shares_cores:
                memory = (np.empty(count, np.float32), None, None)
            else:
                flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
                buffer = cl.Buffer(self.session.context, flags, size=4 * count)
                access: Any = cl.map_flags.READ | cl.map_flags.WRITE
                dtype = np.dtype(np.float32)
                array, _ = cl.enqueue_map_buffer(queue, buffer, access, 0, (count,), dtype)
                memory = (array, buffer, queue)
            self._pinned[name] = memory
        return memory[0][:count]

    def trim(self) -> None:
        """Release the buffers that were not requested since the last call."""
        for name in self._buffers.keys() - self._asked:
            self._buffers.pop(name).release()
        self._asked.clear()

    def free(self) -> None:
        """Release every buffer; what a failed device does not release is gone with it."""
        import pyopencl as cl

        for name in list(self._pinned):
            with suppress(cl.Error):
                self._unpin(name)
        while self._buffers:
            with suppress(cl.Error):
                self._buffers.popitem()[1].release()

    def _unpin(self, name: str) -> None:
        array, buffer, queue = self._pinned.pop(name, (None, None, None))
        if buffer is not None:
            array.base.release(queue)
            buffer.release()


# An idle arena keeps its buffers for the next run: pinned memory is slow to allocate. So many bytes
# at most, or a share of the memory of a large device.
_KEEP_BYTES, _KEEP_SHARE = 1 << 30, 1 / 32
_idle: dict[tuple[int, str], list[Arena]] = defaultdict(list)
_lock = threading.Lock()


@contextmanager
def borrow(session: Session, purpose: str = "run"):
    """Borrow an arena for one run; on an error it is freed, else kept for the next run.

    Runs of another `purpose` have arenas of their own: a run releases what it did not use.
    """
    with _lock:
        waiting = _idle[id(session), purpose]
        arena = waiting.pop() if waiting else Arena(session)
    try:
        yield arena
    except BaseException:
        arena.free()
        raise
    finally:
        arena.coming = None
    arena.trim()
    if session.ended or arena.nbytes > kept_bytes(session.device):
        arena.free()
        return
    with _lock:
        _idle[id(session), purpose].append(arena)


def kept_bytes(device: Device) -> int:
    """Return how many bytes of its memory a run may leave in use for the next one."""
    share = 0 if device.shares_cores else int(_KEEP_SHARE * device.memory)
    return max(_KEEP_BYTES, share)


def release_memory() -> None:
    """Release the device memory and pinned memory kept between runs."""
    with _lock:
        arenas = [arena for waiting in _idle.values() for arena in waiting]
        _idle.clear()
    for arena in arenas:
        arena.free()
