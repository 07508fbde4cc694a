"""What OpenCL errors mean: which named error each one is, and what to do about it."""

from __future__ import annotations

from napari_gpu_denoise.errors import DenoiseError, DeviceMemoryError, KernelError, NoDeviceError
from napari_gpu_denoise.opencl.device import Device

_MEMORY = (
    "MEM_OBJECT_ALLOCATION_FAILURE",
    "OUT_OF_RESOURCES",
    "OUT_OF_HOST_MEMORY",
    "INVALID_BUFFER_SIZE",
    "MAP_FAILURE",
)
# What drivers say when a device was reset or removed: its context is of no use any more.
_LOST = (
    "DEVICE_NOT_AVAILABLE",
    "INVALID_DEVICE",
    "INVALID_CONTEXT",
    "INVALID_COMMAND_QUEUE",
    "EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST",
    "unknown error",
)


def lacks_memory(error: Exception) -> bool:
    """Return whether an OpenCL error says that memory is missing."""
    return any(name in _status(error) for name in _MEMORY)


def lost_device(error: Exception) -> bool:
    """Return whether an OpenCL error says that the device is gone or was reset."""
    return any(name in _status(error) for name in _LOST)


def ends_context(error: Exception) -> bool:
    """Return whether a context may be of no use after an OpenCL error.

    NVIDIA's driver also says OUT_OF_RESOURCES of a launch that was stopped for taking too long.
    """
    return lost_device(error) or "OUT_OF_RESOURCES" in _status(error)


def opening_error(device: Device, error: Exception) -> DenoiseError:
    """Return the named error for a context that cannot be created."""
    if lacks_memory(error):
        return DeviceMemoryError(
            f"{device} cannot be opened, because it has too little free memory: close other "
            f"programs or choose another device ({error})."
        )
    if "DEVICE_NOT_AVAILABLE" in _status(error):
        return NoDeviceError(
            f"{device} cannot be opened, because another program uses it exclusively or it is "
            f"switched off: close that program or choose another device ({error})."
        )
    return NoDeviceError(
        f"{device} cannot be opened, perhaps because its driver was updated or does not support "
        f"it: restart the computer, reinstall the driver or choose another device ({error})."
    )


def running_error(device: Device, error: Exception) -> DenoiseError:
    """Return the named error for anything that fails once there is a context."""
    if lacks_memory(error):
        return DeviceMemoryError(
            f"{device} has too little free memory for this tile: close other programs or choose "
            f"another device ({error})."
        )
    if lost_device(error):
        return KernelError(
            f"{device} stopped in the middle of the work, perhaps because its driver was reset: "
            "try again, and if that fails too, update the driver or choose another device "
            f"({error})."
        )
    return KernelError(
        f"{device} failed while running a kernel: update its driver or choose another device "
        f"({error})."
    )


def _status(error: Exception) -> str:
    """Return the routine and the code of an error, without what a compiler said."""
    return str(error).partition(" - ")[0]
