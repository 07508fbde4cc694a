"""List OpenCL devices, and choose those of a run or of one of several processes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import NoDeviceError
from napari_gpu_denoise.opencl.device_test import answer_for
from napari_gpu_denoise.opencl.isolation import check_process, open_platforms

ENVIRONMENT_VARIABLE = "GPU_DENOISE_DEVICE"
ALL = "all"  # every device of the kind of the best one, see `choose_devices`

ADVICE = (
    "On any PC the CPU can be used: pip install pocl-binary-distribution (Linux), intel-opencl-rt "
    "(Windows); on Arm apt-get install pocl-opencl-icd, or conda install -c conda-forge pocl. "
    "For a GPU install its driver; on Linux also the OpenCL part of it: nvidia-opencl-icd, "
    "rocm-opencl-icd or mesa-opencl-icd (AMD), intel-opencl-icd. macOS includes OpenCL. Where the "
    "memory of a process is limited (ulimit -v), drivers need 1 GB more."
)

# In order of preference. A simulator is for tests: it is never chosen unless asked for.
KINDS = ("discrete GPU", "integrated GPU", "CPU", "other", "simulator")


@dataclass(frozen=True)
class DeviceAddress:
    """Names of a device in any process; unlike a `Device`, nothing is looked up to unpickle it."""

    name: str
    platform: str
    index: int


@dataclass(frozen=True)
class Device:
    """One OpenCL device.

    Attributes
    ----------
    index : int
        Its number in `devices()`, as used by ``--device N`` and ``device=N``.
    name, platform, vendor, version, driver : str
        As reported by the driver.
    kind : str
        One of `KINDS`.
    memory, max_alloc, local_memory : int
        Global memory, largest single buffer, and memory of a work-group, in bytes.
    compute_units, clock, max_group : int
        Compute units, clock in MHz, largest work-group.
    float_lanes : int
        Width of the widest float vector that works: 1 on a GPU, 8 or 16 on a CPU.
    problem : str
        Why the device cannot be used; empty if it can be used.
    tested : bool
        Whether `problem` and `float_lanes` come from a test, and not from the driver.
    """

    index: int
    name: str
    platform: str
    vendor: str
    version: str
    driver: str
    kind: str
    memory: int
    max_alloc: int
    local_memory: int
    compute_units: int
    clock: int
    max_group: int
    float_lanes: int
    problem: str
    tested: bool
    handle: Any = field(repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.name} ({self.kind}, {self.platform})"

    @cached_property
    def shares_cores(self) -> bool:
        """Whether it runs on the host's cores, so that overlapping transfers gains nothing."""
        return self.kind in ("CPU", "simulator")

    @cached_property
    def lanes(self) -> int:
        """Floats of the vectors that kernels compute with: 4, 8 or 16 on a CPU, 1 on a GPU."""
        return max((width for width in (4, 8, 16) if width <= self.float_lanes), default=1)

    @property
    def is_nvidia(self) -> bool:
        """Whether items of a group can count on NVIDIA's warps."""
        return "nvidia" in self.vendor.lower()

    @property
    def address(self) -> DeviceAddress:
        """Its names in other processes."""
        return DeviceAddress(self.name, self.platform, self.index)

    def __reduce__(self):
        # A handle is invalid in another process: there the device is looked up again.
        return find, (self.name, self.platform, self.index)


#: What `choose_devices` takes.
DeviceChoice = Device | DeviceAddress | int | str | Sequence["Device | int | str"] | None


def find(name: str, platform: str, index: int) -> Device:
    """Return the device of this name and platform; of several, that of the same index if any."""
    return _tested([find_untested(name, platform, index)])[0]


def find_untested(name: str, platform: str, index: int) -> Device:
    """Return a device as its driver describes it; see `find`."""
    fitting = [d for d in listed() if (d.name, d.platform) == (name, platform)]
    if fitting:
        return min(fitting, key=lambda device: device.index != index)
    raise NoDeviceError(
        f"The OpenCL device {name!r} ({platform}) is not on this machine: choose another."
    )


def devices() -> tuple[Device, ...]:
    """List every OpenCL device of this machine, in the order reported by the drivers.

    The compiler of each is tested when this machine sees it for the first time: one or two seconds.

    Returns
    -------
    tuple of Device
        Empty when there is none. A platform that does not respond is left out. Devices that fail
        the test have a `problem`.

    Raises
    ------
    ForkedProcessError
        In a process that was forked from one that had used OpenCL.
    """
    return _tested(listed())


def listed() -> tuple[Device, ...]:
    """List devices as their drivers describe them, untested."""
    check_process()
    return _devices()


_known: dict[Device, Device] = {}  # devices as their drivers describe them, and as tested
_plain: dict[Device, Device] = {}  # the other way round
_asked: dict[Device, set[str]] = {}  # what each was tested with, see `Answer`
_tests = True  # whether devices are tested: not in processes that do nothing else


def test_only(index: int) -> None:
    """Have this process use one device, which it tests, as if it had passed all tests."""
    global _tests
    _tests = False
    os.environ[ENVIRONMENT_VARIABLE] = str(index)


def _tested(devices: Iterable[Device], uses: Sequence[str] = ()) -> tuple[Device, ...]:
    """Return devices as tests describe them, made now where nobody has, also of what they are for.

    Those that no driver describes so, which pose as others, are returned as they are.
    """
    plain = [_plain.get(device, device) for device in devices]
    for device in plain:
        if _tests and not (device.tested or {"", *uses} <= _asked.get(device, set())):
            problem, lanes, _, passed = answer_for(device, uses)
            tested = replace(device, problem=problem, float_lanes=lanes, tested=True)
            if tested != _known.get(device):
                _known[device], _plain[tested] = tested, device
            _asked[device] = {"", *passed, *uses}
    return tuple(map(_as_known, plain))


def was_used(device: Device, use: str) -> bool:
    """Return whether a tested device was used for this before: its compiler has done its work."""
    return use in _asked.get(_plain.get(device, device), ())


def _as_known(device: Device) -> Device:
    plain = _plain.get(device, device)
    return _known.get(plain, plain)


@lru_cache(maxsize=1)
def _devices() -> tuple[Device, ...]:
    handles = [handle for _, found in open_platforms() for handle in found]
    return tuple(
        device for index, handle in enumerate(handles) if (device := _describe(index, handle))
    )


@dataclass(frozen=True)
class Platform:
    """One OpenCL driver, and its usable devices, if any."""

    name: str
    version: str
    devices: tuple[Device, ...]


def platforms() -> tuple[Platform, ...]:
    """List every OpenCL driver of this machine, including those without a device."""
    known = {id(device.handle): device for device in devices()}
    return tuple(
        Platform(
            platform.name.strip(),
            platform.version.strip(),
            tuple(known[id(handle)] for handle in handles if id(handle) in known),
        )
        for platform, handles in open_platforms()
    )


def choose(device: Device | int | str | None = None) -> Device:
    """Choose the device to run on.

    Parameters
    ----------
    device : Device, int, str or None
        A device; its number in `devices()`; a part of its name or platform, or
        ``"gpu"`` or ``"cpu"``; or None for the environment variable ``GPU_DENOISE_DEVICE`` if it is
        set, else the best available: discrete GPU, integrated GPU, CPU, in that order.

    Returns
    -------
    Device

    Raises
    ------
    NoDeviceError
        If there is no device, or none that matches.
    """
    return _choose(device)[0]


def why(device: DeviceChoice = None) -> str:
    """Say in one sentence which devices `choose_devices` returns, and why.

    Parameters
    ----------
    device : Device, int, str, sequence of these, or None, default None
        As in `choose_devices`.

    Returns
    -------
    str
    """
    first, *others = choose_devices(device)
    if others:
        return f"{names_of((first, *others))} are used: they were requested."
    if isinstance(device, Sequence) and not isinstance(device, str):
        device = first
    best, reason = _choose(device)
    return f"{best} is used: {reason}."


def _choose(
    wanted: Device | DeviceAddress | int | str | None, uses: Sequence[str] = ()
) -> tuple[Device, str]:
    reason = "it was requested"
    if isinstance(wanted, DeviceAddress):
        wanted = find_untested(wanted.name, wanted.platform, wanted.index)
    if wanted is None or (isinstance(wanted, str) and not wanted):
        wanted = os.environ.get(ENVIRONMENT_VARIABLE, "").strip() or None
        reason = f"the environment variable {ENVIRONMENT_VARIABLE} names it"
    if isinstance(wanted, str):
        wanted = wanted.split(",")[0].strip()  # of several, the first
        wanted = None if wanted.lower() == ALL else wanted
    fitting = [wanted] if isinstance(wanted, Device) else _fitting(wanted)
    # The best first: whoever has a GPU does not wait for the test of the CPU.
    tests = (_tested([device], uses)[0] for device in sorted(fitting, key=_rank))
    best = next((device for device in tests if not device.problem), None)
    known = list(map(_as_known, fitting))
    if best is None:
        problems = "; ".join(f"{device}: {device.problem}" for device in known) or "only simulators"
        remedy = ADVICE if wanted is None else "Update its driver or choose another device."
        raise NoDeviceError(f"No usable OpenCL device was found ({problems}). {remedy}")
    if wanted is None and sum(not device.problem for device in known) == 1:
        reason = "it is the only usable OpenCL device"
    elif wanted is None:
        reason = f"it is the fastest {best.kind} (order: discrete GPU, integrated GPU, CPU)"
    return best, reason


def _fitting(wanted: int | str | None) -> list[Device]:
    """Return the devices that fit a request, untested."""
    available = listed()
    if not available:
        raise NoDeviceError(f"No OpenCL device was found. {ADVICE}")
    if wanted is None:
        return [d for d in available if d.kind != "simulator"]
    if isinstance(wanted, bool) or not isinstance(wanted, (int, np.integer, str)):
        raise NoDeviceError(
            f"device={wanted!r} is not a device: give its number in devices(), a part of its name, "
            "'gpu' or 'cpu'."
        )
    if not isinstance(wanted, str) or wanted.isdecimal():
        fitting = [d for d in available if d.index == int(wanted)]
    elif (text := wanted.lower()) in ("gpu", "cpu"):
        fitting = [d for d in available if text in d.kind.lower()]
    else:
        fitting = [d for d in available if text in d.name.lower() or text in d.platform.lower()]
    if not fitting:
        names = "; ".join(f"{d.index}: {d.name}" for d in available)
        raise NoDeviceError(f"No OpenCL device fits {wanted!r}: choose one of {names}.")
    return fitting


def _rank(device: Device) -> tuple:
    speed = device.compute_units * device.clock
    return bool(device.problem), KINDS.index(device.kind), -speed, device.index


def _describe(index: int, handle) -> Device | None:
    import pyopencl as cl

    try:
        if not (handle.available and handle.compiler_available):
            return None
        platform = handle.platform.name.strip()
        if "oclgrind" in platform.lower():
            kind = "simulator"
        elif handle.type & cl.device_type.GPU:
            kind = "integrated GPU" if handle.host_unified_memory else "discrete GPU"
        else:
            kind = "CPU" if handle.type & cl.device_type.CPU else "other"
        problem = _problem(platform, handle)
        return Device(
            index=index,
            name=handle.name.strip(),
            platform=platform,
            vendor=handle.vendor.strip(),
            version=handle.version.strip(),
            driver=handle.driver_version.strip(),
            kind=kind,
            memory=handle.global_mem_size,
            max_alloc=handle.max_mem_alloc_size,
            local_memory=handle.local_mem_size,
            compute_units=handle.max_compute_units,
            clock=handle.max_clock_frequency,
            max_group=handle.max_work_group_size,
            float_lanes=handle.native_vector_width_float if kind == "CPU" else 1,
            problem=problem,
            tested=bool(problem) or kind == "simulator",
            handle=handle,
        )
    except cl.Error as error:
        warnings.warn(f"An OpenCL device does not respond and is ignored: {error}", stacklevel=3)
        return None


def _problem(platform: str, handle) -> str:
    # PoCL 3.0, the one from pip, compiles only for processors that LLVM 14 knows; it calls others
    # "generic" and then refuses that name in every build.
    if platform == "Portable Computing Language" and handle.version.strip().endswith("-generic"):
        return (
            "this PoCL is older than the processor and cannot compile for it; install a newer one "
            "beside it (Debian, Ubuntu: apt-get install pocl-opencl-icd)"
        )
    return ""


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


def choose_devices(wanted: DeviceChoice = None, *uses: str) -> tuple[Device, ...]:
    """Choose the devices to run on, at least one.

    Parameters
    ----------
    wanted : Device, int, str, sequence of these, or None
        One device, as `choose` takes it; several of them, also as text such as ``"0,1"``; or
        ``"all"``: every usable device of the same kind as the best one. Devices of other kinds
        round a little differently, and a slow one would only delay the others. What two platforms
        list counts once, and a device that fails its test is left out, with a warning.
    *uses : str
        What they are for, and tested with: a filter, by its name, or ``"noise"`` to measure it.

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
        return _all_like(_choose(ALL, uses)[0], uses)
    if isinstance(wanted, str) and "," in wanted:
        wanted = [text.strip() for text in wanted.split(",") if text.strip()]
    if not isinstance(wanted, Sequence) or isinstance(wanted, str):
        return (_choose(wanted, uses)[0],)
    if not wanted:
        raise NoDeviceError("No device given: pass one, several, or 'all'.")
    return tuple(dict.fromkeys(_choose(each, uses)[0] for each in wanted))


def _all_like(best: Device, uses: Sequence[str]) -> tuple[Device, ...]:
    """Return the best device and all others of its kind, each piece of hardware once."""
    chosen = [best]
    for each in _tested([each for each in listed() if each.kind == best.kind], uses):
        if each == best:
            continue
        if any(same_hardware(each, other) for other in chosen):
            continue
        if each.problem:
            warnings.warn(f"{each} is left out: {each.problem}.", stacklevel=3)
            continue
        chosen.append(each)
    return tuple(chosen)


def names_of(chosen: Iterable[Device | str]) -> str:
    """Return the names of devices; equal ones are counted."""
    counted = Counter(map(str, chosen))
    return "; ".join(f"{n} x {name}" if n > 1 else name for name, n in counted.items())


_claims: dict[str, Any] = {}  # locks by the name of a device, held until the process ends
_claiming = threading.Lock()


def own_device(wanted: DeviceChoice = None) -> Device:
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
        # The same in all processes, unlike its number.
        place = place_of(device) or f"{device.platform}/{device.name}/{device.index}"
        names.setdefault(place, device)
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
    from filelock import FileLock, Timeout

    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "")
    taken = 0
    while True:
        for name in names:
            digest = hashlib.sha256(f"{user}/{name}".encode()).hexdigest()[:16]
            path = Path(tempfile.gettempdir(), f"gpu-denoise-{digest}-{taken}.lock")
            lock = FileLock(path, mode=0o600, thread_local=False)  # which follows no link
            with contextlib.suppress(Timeout):
                lock.acquire(blocking=False)
                _claims[name] = lock
                return name
        taken += 1
