"""Sessions of devices for the tests of filters: built quickly, and posing as other devices."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar
from unittest import mock

from napari_gpu_denoise.opencl import program
from napari_gpu_denoise.opencl.program import expand

# By number of the device: devices may pose as others.
_CONTEXTS: dict = {}
# Options that make builds quick; none with --optimised.
QUICK = ["-cl-opt-disable"]
# Native functions, which kernels for GPUs take, are as precise as an implementation likes: those of
# Intel's CPU runtime 2026.2 to 3e-4 (native_divide) and 7e-5 (native_exp2). Where a CPU poses as a
# GPU, tests against references take precise ones; test_gpu_kernels takes them as they are.
_PRECISE = "#define native_divide(a, b) ((a) / (b))\n#define native_exp2(x) exp2(x)\n"


class Precise(program.Session):
    """Programs as users have them, but for native functions on CPUs; local memory is checked."""

    def kernel(self, *what):
        import pyopencl as cl

        made, asked = super().kernel(*what), cl.kernel_work_group_info.LOCAL_MEM_SIZE
        taken = made._kernel.get_work_group_info(asked, self.device.handle)
        assert taken <= max(self.device.local_memory, 1 << 15), what  # which each device has
        return made

    def _build(self, key):
        # Without such a function it is that of users, which other tests may have built.
        native = self.device.kind == "CPU" and "native_" in expand(f"{key[0]}.cl")
        before = _PRECISE if native else ""
        with mock.patch.object(program, "expand", lambda name: before + expand(name)):
            return super()._build(key)


class Plain(Precise):
    """Programs that the compiler does not optimise: each of hundreds would take it seconds."""

    @classmethod
    def of(cls, device) -> Plain:
        """Return a new session of a device; its programs are built once per process."""
        import pyopencl as cl

        if device.index not in _CONTEXTS:
            _CONTEXTS[device.index] = cl.Context([device.handle])
        return _Built(device, _CONTEXTS[device.index])

    def _build(self, key):
        with mock.patch.object(program, "_OPTIONS", (*program._OPTIONS, *QUICK)):
            return super()._build(key)


class _Built(Plain):
    """A session that takes programs which another one has built in the same context."""

    _programs: ClassVar[dict] = {}

    def _build(self, key):
        known = self._programs.setdefault(self.context.int_ptr, {})
        if key not in known:
            known[key] = super()._build(key)
        return known[key]


def as_gpu(device, local_memory: int = 49152, max_group: int = 1024):
    """Return a CPU that poses as a GPU, or a GPU that poses as one of another vendor."""
    if device.float_lanes == 1:
        return replace(device, vendor="another")
    limits = {
        "local_memory": min(device.local_memory, local_memory),
        "max_group": min(device.max_group, max_group),
    }
    return replace(device, float_lanes=1, **limits)
