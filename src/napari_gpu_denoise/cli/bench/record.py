"""What was measured, as it is printed, stored and compared."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from napari_gpu_denoise.cli.bench.calls import Stack, default_call, stack_speed
from napari_gpu_denoise.cli.bench.fresh import FirstCall, first_calls
from napari_gpu_denoise.cli.bench.inputs import SIGMA, shape_for
from napari_gpu_denoise.cli.bench.kernels import Timing, measure
from napari_gpu_denoise.errors import FileError
from napari_gpu_denoise.files.input_checks import open_regular
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.version import package_version

FORMAT = 1  # of stored runs
ENOUGH = 1.0  # seconds, after which no call is repeated once more


@dataclass(frozen=True)
class Speed:
    """All that is measured of one filter."""

    name: str  # filter and profile
    timing: Timing
    default_call: float  # seconds
    stack: Stack
    first: dict[str, FirstCall] = field(default_factory=dict)

    def numbers(self) -> dict[str, float]:
        """Return what can be compared with another run, in milliseconds, and planes a second."""
        times = {
            "device": self.timing.device_time,
            "whole call": self.timing.whole_call,
            "default call": self.default_call,
            **{f"first, {name}": call.whole for name, call in self.first.items()},
        }
        return {name: 1e3 * value for name, value in times.items()} | {
            "planes/s": self.stack.planes_per_second
        }


def measure_all(
    settings: Filter,
    shape: tuple[int, ...],
    device: Device,
    repeats: int,
    *,
    frames: int | None = None,
    first: bool = False,
) -> Speed:
    """Measure one filter."""
    whole, axes = shape_for(settings, shape)
    once = measure(settings, whole, device, 1)
    repeats = min(repeats, max(1, round(ENOUGH / once.whole_call)))
    timing = measure(settings, whole, device, repeats) if repeats > 1 else once
    # Filters over time take many frames in one call.
    one = timing.whole_call / (whole[0] if settings.over_time else 1)
    return Speed(
        f"{settings.name}, {settings.profile_name()}",
        timing,
        default_call(settings, whole, axes, device, repeats),
        stack_speed(settings, shape, device, one, frames),
        first_calls(settings, whole, axes, SIGMA, device) if first else {},
    )


def as_dict(device: Device, speeds: list[Speed]) -> dict[str, Any]:
    """Return a run as plain values."""
    return {
        "gpu-denoise bench": FORMAT,
        "package": package_version(),
        "device": str(device),
        "driver": device.driver,
        "filters": [{**asdict(each), "numbers": each.numbers()} for each in speeds],
    }


@dataclass(frozen=True)
class Stored:
    """A stored run: the numbers of each filter, by name and shape."""

    device: str
    driver: str
    package: str
    numbers: dict[tuple[str, tuple[int, ...]], dict[str, float]]


def read(path: Path) -> Stored:
    """Read a stored run.

    Raises
    ------
    FileError
        If it is not one.
    """
    try:
        with open_regular(path) as file:
            held = json.load(file)
        if held["gpu-denoise bench"] != FORMAT:
            raise ValueError("another version")
        return Stored(*(str(held[key]) for key in ("device", "driver", "package")), dict(_of(held)))
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FileError(
            f"{path} is not a run stored by this version: make one with gpu-denoise bench --save."
        ) from error


def _of(held: dict[str, Any]) -> Iterator[tuple[tuple[str, tuple[int, ...]], dict[str, float]]]:
    for each in held["filters"]:
        key = str(each["name"]), tuple(map(int, each["timing"]["shape"]))
        yield key, {str(name): float(value) for name, value in each["numbers"].items()}
