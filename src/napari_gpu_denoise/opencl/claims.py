"""One device for each process, where several processes of a machine share the work."""

from __future__ import annotations

import hashlib
import itertools
import os
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from napari_gpu_denoise.locks import locked
from napari_gpu_denoise.opencl.caches import is_private
from napari_gpu_denoise.opencl.device import ALL, ENVIRONMENT_VARIABLE, Device
from napari_gpu_denoise.opencl.hardware import place_of
from napari_gpu_denoise.opencl.several import choose_devices

_claims: dict[str, int] = {}  # open files by the name of a device, locked until the process ends
_claiming = threading.Lock()


def own_device(wanted: Any = None) -> Device:
    """Choose one device for this process, which is one of several that share the work.

    Each process takes the device that the fewest others have taken, the first of these. So devices
    are given out in turn, and a process that takes the place of one that ended has its device.
    Where each process sees the devices in an order of its own, as those of dask-cuda do by
    ``CUDA_VISIBLE_DEVICES``, each takes the first that it sees.

    Parameters
    ----------
    wanted : optional
        As `choose_devices` takes it. None stands for all GPUs of the best kind, or for the CPU,
        unless the environment variable ``GPU_DENOISE_DEVICE`` names some.

    Returns
    -------
    Device
        The same one at each call of a process with the same devices.

    Raises
    ------
    NoDeviceError
    """
    among = choose_devices(wanted)
    named = wanted is not None or os.environ.get(ENVIRONMENT_VARIABLE, "").strip()
    if not named and not among[0].shares_cores:
        among = choose_devices(ALL)
    return among[0] if len(among) == 1 else _claimed(among)


def _claimed(among: tuple[Device, ...]) -> Device:
    names: dict[str, Device] = {}
    for device in among:  # several drivers may offer the same device
        names.setdefault(_physical(device), device)
    with _claiming:
        for name in _claims:
            if name in names:
                return names[name]
        try:
            return names[_claim(names)]
        except OSError:  # no place for the files
            return among[os.getpid() % len(among)]


def _claim(names: Iterable[str]) -> str:
    """Lock a file that stands for a device, and return the name of that device."""
    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "")
    folder = Path(tempfile.gettempdir(), f"gpu-denoise-{user}")
    folder.mkdir(mode=0o700, exist_ok=True)
    # Others may have made it, or a link, to hold the locks or to have files made elsewhere.
    if folder.is_symlink() or not is_private(folder):
        raise PermissionError(folder)
    for taken in itertools.count():
        for name in names:
            digest = hashlib.sha256(name.encode()).hexdigest()[:16]
            path = folder / f"device-{digest}-{taken}.lock"
            handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
            if locked(handle):
                _claims[name] = handle
                return name
            os.close(handle)


def _physical(device: Device) -> str:
    """Return what names a device in all processes, whatever its number is in each."""
    return place_of(device) or f"{device.platform}/{device.name}/{device.index}"
