"""What was measured, in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from napari_gpu_denoise.cli.bench.kernels import Timing
from napari_gpu_denoise.cli.bench.record import Speed, Stored
from napari_gpu_denoise.opencl.device import Device


def table(timing: Timing) -> str:
    """Return the kernels of a filter as text."""
    megapixels = math.prod(timing.shape) / 1e6
    changed = ", ".join(f"{k}={v}" for k, v in timing.settings.items())
    lines = [
        f"{timing.filter} ({changed})",
        f"on {timing.device}",
        f"{by(timing.shape)} float32, {megapixels:.2f} megapixels, "
        f"{timing.tiles} tile{'s' * (timing.tiles > 1)}",
    ]
    rows = [
        *((f"  {name}", value) for name, value in timing.kernels.items()),
        ("device time", timing.device_time),
        ("upload", timing.upload),
        ("download", timing.download),
        ("whole call", timing.whole_call),
    ]
    lines += [f"{name:<14}{1e3 * value:10.3f} ms" for name, value in rows]
    lines.append(
        f"{'device memory':<14}{timing.memory / 2**20:10.1f} MiB "
        f"({timing.images_of_memory:.1f} images)"
    )
    return "\n".join(lines)


def by(shape: Sequence[int]) -> str:
    """Return a shape in words."""
    return "x".join(map(str, shape))


def heading(device: Device, repeats: int) -> str:
    """Return what goes before all tables."""
    return (
        f"{device}, driver {device.driver}\n"
        f"Times in ms, medians of up to {repeats} calls; in brackets, shares of that time."
    )


def details(speed: Speed) -> str:
    """Return all parts of all times of a filter."""
    timing, stack = speed.timing, speed.stack
    changed = ", ".join(f"{k}={v}" for k, v in timing.settings.items())
    lines = [
        speed.name,
        f"  {changed}",
        f"  {by(timing.shape)} float32, {timing.tiles} tile{'s' * (timing.tiles > 1)}, "
        f"{timing.memory / 2**20:.1f} MiB on the device ({timing.images_of_memory:.1f} images)",
    ]
    moved = timing.upload + timing.download
    host = max(timing.whole_call - timing.device_time - moved, 0.0)
    noise = max(speed.default_call - timing.whole_call, 0.0)
    lines += _parts("device time", timing.device_time, timing.kernels)
    lines += _parts(
        "whole call",
        timing.whole_call,
        {"kernels": timing.device_time, "copies": moved, "host": host},
    )
    lines += _parts(
        "default call", speed.default_call, {"whole call": timing.whole_call, "noise": noise}
    )
    for name, first in speed.first.items():
        lines += _parts(f"first call, {name}", first.whole, vars(first))
    lines.append(f"  {'stack of ' + by(stack.shape):<30}{stack.planes_per_second:10.1f} planes/s")
    lines.append(f"    {'device busy':<28}{'':10}{_share(stack.device_share)}")
    return "\n".join(lines)


def _parts(name: str, whole: float, parts: dict[str, float]) -> Iterator[str]:
    yield f"  {name:<30}{1e3 * whole:10.3f} ms"
    for part, value in parts.items():
        yield f"    {part:<28}{1e3 * value:10.3f}    {_share(value / whole)}"


def _share(value: float) -> str:
    return f"{value:5.0%}"


def summary_head(first: bool) -> str:
    """Return the head of the table of all filters."""
    columns = ["filter", "shape", "device", "whole call", "default call", "planes/s"]
    return _row([*columns, *(["first ever", "first cached"] if first else ())])


def summary_row(speed: Speed) -> str:
    """Return the row of a filter in it."""
    timing, stack = speed.timing, speed.stack
    whole, unset = timing.whole_call, speed.default_call
    noise = max(unset - whole, 0.0) / unset
    return _row(
        [
            speed.name,
            by(timing.shape),
            _ms(timing.device_time),
            f"{_ms(whole)} (device {timing.device_time / whole:.0%})",
            f"{_ms(unset)} (noise {noise:.0%})",
            f"{stack.planes_per_second:.1f} (device {stack.device_share:.0%})",
            *(_ms(first.whole) for first in speed.first.values()),
        ]
    )


def _row(cells: Sequence[str]) -> str:
    widths = (28, 14, 9, 21, 21, 21, 11, 13)
    first, *others = zip(cells, widths, strict=False)
    return (f"{first[0]:<{first[1]}}" + "".join(f"{c:>{w}}" for c, w in others)).rstrip()


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.4g}" if seconds < 1 else f"{1e3 * seconds:.0f}"


def compared(speeds: list[Speed], stored: Stored, device: Device) -> str:
    """Return stored and new numbers side by side."""
    lines = [f"Stored by version {stored.package} on {stored.device}, driver {stored.driver}; now:"]
    if (stored.device, stored.driver) != (str(device), device.driver):
        lines[0] = f"{lines[0][:-6]}: another device or driver than now."
    for speed in speeds:
        before = stored.numbers.get((speed.name, speed.timing.shape))
        if before is None:
            lines.append(f"{speed.name}, {by(speed.timing.shape)}: not in the stored run")
            continue
        lines.append(f"{speed.name}, {by(speed.timing.shape)}")
        for name, now in speed.numbers().items():
            if name in before and min(before[name], now) > 0:
                faster = now / before[name] if name == "planes/s" else before[name] / now
                unit = "" if name == "planes/s" else " ms"
                lines.append(
                    f"  {name:<24}{before[name]:12.4g} ->{now:12.4g}{unit:<3}  "
                    f"{faster:5.2f} times as fast"
                )
    return "\n".join(lines)
