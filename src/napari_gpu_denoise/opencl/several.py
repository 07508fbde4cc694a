"""Choose the devices of a run: one, several, or all of a kind."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from napari_gpu_denoise.errors import NoDeviceError
from napari_gpu_denoise.opencl.device import (
    ALL,
    ENVIRONMENT_VARIABLE,
    Device,
    choose,
    devices,
    why,
)
from napari_gpu_denoise.opencl.hardware import same_hardware


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
        raise NoDeviceError("No device is named: name one, several, or 'all'.")
    return tuple(dict.fromkeys(map(choose, wanted)))


def _all_like(best: Device) -> tuple[Device, ...]:
    """Return the best device and all others of its kind, each piece of hardware once."""
    found = [best]
    for each in devices():
        if each.kind != best.kind or each == best:
            continue
        if any(same_hardware(each, other) for other in found):
            continue
        if each.problem:
            warnings.warn(f"{each} is left out: {each.problem}.", stacklevel=3)
            continue
        found.append(each)
    return tuple(found)


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
