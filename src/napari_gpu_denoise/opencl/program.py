"""Contexts, queues and programs, made once per process."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from napari_gpu_denoise.errors import KernelError
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.opencl.failures import lacks_memory, lost_device, opening_error
from napari_gpu_denoise.opencl.process import check_process
from napari_gpu_denoise.opencl.source import expand, name_lines

# Options of all programs. No relaxed mathematics: such flags gave coloured blocks on some drivers.
_OPTIONS: tuple[str, ...] = ()

_lock = threading.RLock()
_sessions: dict[tuple[str, str, int, str], Session] = {}


@dataclass
class Session:
    """The context of one device, and the programs built in it.

    Programs are shared between threads. Kernel objects are not thread-safe: `kernel` makes new
    ones for each plan. `turn` locks devices that one thread should use at a time. After `forget`,
    `ended` says that no new run uses the session.
    """

    device: Device
    context: Any
    programs: dict[tuple, Any] = field(default_factory=dict)
    # A lock for each program, so that threads build different ones at the same time.
    building: dict[tuple, Any] = field(default_factory=dict)
    turn: Any = field(default_factory=threading.Lock)
    ended: bool = False

    def exclusive(self) -> Any:
        """Return a reusable context manager to enqueue in.

        On a device that shares the host's cores it admits one thread at a time: there are no cores
        to spare for a second run, and PoCL aborts if 16 threads enqueue at once.
        """
        return self.turn if self.device.shares_cores else contextlib.nullcontext()

    def queue(self, profiling: bool = False):
        """Return a new in-order command queue."""
        import pyopencl as cl

        properties = cl.command_queue_properties.PROFILING_ENABLE if profiling else 0
        return cl.CommandQueue(self.context, properties=properties)

    def kernel(self, name: str, constants: Mapping[str, int], standard: str = "CL1.2"):
        """Return a new kernel object; its program is built once per process.

        `name` is the path of the kernel file without its suffix, and its last part the name of the
        kernel; `constants` are passed to the compiler (``-D``); `standard` is the OpenCL C version.
        """
        import pyopencl as cl

        key = (name, tuple(sorted(constants.items())), standard)
        # The compilers of CPU drivers keep to one program at a time.
        one = () if self.device.shares_cores else key
        with _lock:
            alone = self.building.setdefault(one, threading.Lock())
        with alone:
            program = self.programs.get(key)
            if program is None:
                program = self.programs[key] = self._build(name, constants, standard)
        return cl.Kernel(program, name.rsplit("/", 1)[-1])

    def _build(self, name: str, constants: Mapping[str, int], standard: str):
        import pyopencl as cl

        options = [f"-cl-std={standard}", *_OPTIONS, *(f"-D{k}={v}" for k, v in constants.items())]
        with warnings.catch_warnings():
            # Compiler output is shown only if a build fails.
            warnings.simplefilter("ignore", cl.CompilerWarning)
            try:
                return cl.Program(self.context, expand(name + ".cl")).build(options=options)
            except cl.Error as error:
                if lacks_memory(error) or lost_device(error):
                    raise  # not the fault of the kernel
                told = name_lines(str(error), name + ".cl")
                raise KernelError(
                    f"{self.device} cannot build the kernel {name}: update its driver or choose "
                    f"another device. The compiler says: {told}"
                ) from error


def session(device: Device) -> Session:
    """Return the session of a device; it is made on first use.

    Raises
    ------
    NoDeviceError, DeviceMemoryError
        If the device cannot be opened.
    """
    import pyopencl as cl

    check_process()
    key = (device.platform, device.name, device.index, device.kind)
    with _lock:
        if key not in _sessions:
            try:
                context = cl.Context([device.handle])
            except cl.Error as error:
                raise opening_error(device, error) from error
            _sessions[key] = Session(device, context)
        return _sessions[key]


def forget(session: Session) -> None:
    """Let the next run open the device anew, as this context may be of no use any more."""
    session.ended = True
    with _lock:
        for key in [key for key, held in _sessions.items() if held is session]:
            del _sessions[key]
