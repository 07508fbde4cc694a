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
    platforms = [getattr(each.handle, "platform", None) for each in (one, other)]
    if platforms[0] == platforms[1]:
        return False
    if one.kind == other.kind == "CPU":
        return True
    places = place_of(one), place_of(other)
    return places[0] == places[1] if all(places) else one.vendor == other.vendor


def place_of(device: Device) -> str:
    """Return where a device is on the bus of the machine; empty if its driver does not tell."""
    for names in (("pci_domain_id_nv", "pci_bus_id_nv", "pci_slot_id_nv"), ("topology_amd",)):
        try:
            return "/".join(str(getattr(device.handle, name)) for name in names)
        except Exception:  # each driver has its own way to say that it does not know
            continue
    return ""
