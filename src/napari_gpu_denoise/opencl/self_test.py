"""Whether a device computes what it should, and whether two are the same hardware."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from napari_gpu_denoise.errors import DenoiseError, KernelError
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.opencl.memory import device_errors
from napari_gpu_denoise.opencl.program import session


@lru_cache
def failure_of(device: Device) -> str:
    """Return what is wrong with a device that fails a small test; empty if it passes."""
    try:
        _test(device)
    except DenoiseError as error:
        return str(error)
    return ""


def _test(device: Device) -> None:
    """Let a device convert a few grey levels, as every run does."""
    import pyopencl as cl

    levels = np.arange(1000, dtype=np.uint16)
    values = np.empty(levels.shape, np.float32)
    held = session(device)
    with held.exclusive(), device_errors(held):
        kernel = held.kernel("levels/levels_to_float", {"BITS": 16, "SIGNED": 0, "VALUES": 1})
        queue, flags = held.queue(), cl.mem_flags
        given = cl.Buffer(held.context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=levels)
        made = cl.Buffer(held.context, flags.WRITE_ONLY, values.nbytes)
        kernel(queue, levels.shape, None, given, np.uint64(levels.size), made)
        cl.enqueue_copy(queue, values, made)
        queue.finish()
    if not np.array_equal(values, levels):
        raise KernelError(f"{device} does not compute what it should: update its driver.")


def same_hardware(one: Device, other: Device) -> bool:
    """Return whether two devices are one, which two platforms list, as far as they tell.

    All CPU devices are the cores of this machine.
    """
    if one.handle is None or one.handle.platform == other.handle.platform:
        return False
    if one.kind == other.kind == "CPU":
        return True
    buses = _bus(one), _bus(other)
    if None not in buses:
        return buses[0] == buses[1]
    return one.handle.vendor_id == other.handle.vendor_id


def _bus(device: Device) -> int | None:
    """Return the number of the PCI bus of a device, if its driver tells."""
    import pyopencl as cl

    for name in ("pci_bus_id_nv", "topology_amd"):
        try:
            told = getattr(device.handle, name)
        except (AttributeError, cl.Error):
            continue
        return int(getattr(told, "bus", told))
    return None
