"""About how long filters take: times measured for docs/performance.md, scaled to a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from napari_gpu_denoise.opencl.device import Device

# Seconds for a million pixels: two CPU cores, and a GPU of 132 compute units.
_MEASURED = {
    ("nl_means", "normal"): (0.11, 0.0008),
    ("nl_means", "video"): (1.0, 0.0016),
    ("bm3d", "normal"): (1.1, 0.0043),
    ("bm3d", "fast"): (0.17, 0.001),
    ("bm3d", "high"): (12.0, 0.036),
    ("bm3d", "live"): (0.09, 0.0009),
    ("vbm3d", "normal"): (0.31, 0.0006),
    ("vbm3d", "fast"): (0.18, 0.0005),
    ("vbm3d", "high"): (0.9, 0.0014),
    ("vbm3d", "live"): (0.8, 0.0024),
    ("bm4d", "normal"): (0.78, 0.0037),
    ("bm4d", "fast"): (0.21, 0.0021),
    ("bm4d", "high"): (6.0, 0.03),
    ("isoline", "normal"): (0.11, 0.001),
}
_CORES, _UNITS = 2, 132
_INTEGRATED = 12  # times slower than the GPU above, at least
_START = 1.0  # seconds for the noise, and for reading


def seconds(filter: Any, pixels: int, devices: Sequence[Device]) -> float:
    """Return about how long a filter takes for so many pixels on devices, which share them."""
    (device, *others) = devices
    profile = filter.nearest_profile()[0]
    known = _MEASURED.get((filter.name, profile)) or _MEASURED["bm3d", "normal"]
    if device.shares_cores:
        each = known[0] * _CORES / max(device.compute_units, 1)
    else:
        slower = _UNITS / min(max(device.compute_units, 1), _UNITS)
        if device.kind != "discrete GPU":
            slower = max(slower, _INTEGRATED)
        each = known[1] * slower
    over_time = 2 if filter.name == "bm4d" and "T" in filter.joint else 1
    return _START + pixels / 1e6 * each * over_time / (1 + len(others))


def in_words(seconds: float) -> str:
    """Return a time in words, as roughly as it is known."""
    if seconds < 3:
        return "a few seconds"
    if seconds < 45:
        return f"about {_rounded(seconds)} seconds"
    if seconds < 45 * 60:
        minutes = _rounded(seconds / 60)
        return f"about {minutes} minutes" if minutes > 1 else "about a minute"
    hours = _rounded(seconds / 3600)
    return f"about {hours} hours" if hours > 1 else "about an hour"


def _rounded(number: float) -> int:
    step = 1 if number < 8 else 5
    return max(1, round(number / step) * step)
