"""Choose the devices of a run: one, several, all of a kind, or one for each process."""

from __future__ import annotations

import hashlib
import itertools
import os
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from napari_gpu_denoise.errors import NoDeviceError
from napari_gpu_denoise.locks import locked
from napari_gpu_denoise.opencl.caches import is_private
from napari_gpu_denoise.opencl.device import ALL, ENVIRONMENT_VARIABLE, Device, choose, devices, why


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


def choose_devices(wanted: Any = None) -> tuple[Device, ...]:
    """Choose the devices to run on, at least one.

    Parameters
    ----------
    wanted : Device, int, str, sequence of these, or None
        One device, as `choose` takes it; several of them, also as text such as ``"0,1"``; or
        ``"all"``: every usable device of the same kind as the best one. Devices of other kinds
        round a little differently, and a slow one would only delay the others. What two platforms
        list counts once, and a device that fails its test is left out, with a warning.

    Returns
    -------
    tuple of Device
        In the order given, each once.

    Raises
    ------
    NoDeviceError
        If there is no device, or none that matches.
    """
    if wanted is None:
        wanted = os.environ.get(ENVIRONMENT_VARIABLE)
    if isinstance(wanted, str) and wanted.strip().lower() == ALL:
        return _all_like(choose(ALL))
    if isinstance(wanted, str) and "," in wanted:
        wanted = [text.strip() for text in wanted.split(",") if text.strip()]
    if not isinstance(wanted, Sequence) or isinstance(wanted, str):
        return (choose(wanted),)
    if not wanted:
        raise NoDeviceError("No device given: pass one, several, or 'all'.")
    return tuple(dict.fromkeys(map(choose, wanted)))


def _all_like(best: Device) -> tuple[Device, ...]:
    """Return the best device and all others of its kind, each piece of hardware once."""
    chosen = [best]
    for each in devices():
        if each.kind != best.kind or each == best:
            continue
        if any(same_hardware(each, other) for other in chosen):
            continue
        if each.problem:
            warnings.warn(f"{each} is left out: {each.problem}.", stacklevel=3)
            continue
        chosen.append(each)
    return tuple(chosen)


def why_devices(wanted: Any = None) -> str:
    """Say in one sentence which devices `choose_devices` returns, and why."""
    chosen = choose_devices(wanted)
    if len(chosen) == 1:
        return why(wanted)
    return f"{names_of(chosen)} are used: they were requested."


def names_of(chosen: Iterable[Device]) -> str:
    """Return the names of devices; equal ones are counted."""
    counted = Counter(map(str, chosen))
    return "; ".join(f"{n} x {name}" if n > 1 else name for name, n in counted.items())


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
