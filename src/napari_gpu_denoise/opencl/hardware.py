"""Whether two devices are the same hardware, and where a device is in the machine."""

from __future__ import annotations

from napari_gpu_denoise.opencl.device import Device


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
