"""NL-means on every kind of device, whatever there is, and the slow one, for tests to compare."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from flows import filtered
from napari_gpu_denoise.filters.nl_means import NLMeans
from napari_gpu_denoise.opencl import program
from reference import nl_means as reference

# What the filter looks at when it chooses its kernels: a vector of references at once; distances
# shared in local memory, and a copy of the pixels there; neither.
PROFILES = {
    "lanes": {"float_lanes": 4},
    "shared": {"float_lanes": 1},
    "plain": {"float_lanes": 1, "local_memory": 1, "max_group": 64},
}
_SESSIONS: dict[tuple, program.Session] = {}

# Every kernel of the search, with settings that change what it does; and with windows over frames.
each_path = pytest.mark.parametrize(
    ("profile", "changes"),
    [
        ("lanes", {}),
        ("lanes", {"patch": 5, "step": 1, "window": 7}),
        ("lanes", {"patch": 8, "step": 3}),
        ("lanes", {"patch": 1, "step": 1, "window": 5}),
        ("lanes", {"flat": 0.0, "strength": 0.5}),
        ("lanes", {"flat": 3.0}),
        ("shared", {}),
        ("shared", {"patch": 5, "step": 1, "window": 7}),
        ("plain", {}),
    ],
    ids=str,
)
each_window = pytest.mark.parametrize(
    ("profile", "axes", "changes"),
    [
        ("lanes", "TYX", {"frames_before": 2, "frames_after": 1}),
        ("lanes", "ZYX", {"slices": 1}),
        ("lanes", "TZYX", {"frames_before": 1, "slices": 1}),
        ("shared", "TYX", {"frames_before": 2, "frames_after": 1}),
        ("plain", "ZYX", {"slices": 1}),
    ],
    ids=str,
)


def on(profile: str, device) -> program.Session:
    """Return a session of a device that passes for another kind, `Plain` where sessions are."""
    real = program.session(device)
    key = program.Session, real.device.index, profile
    if key not in _SESSIONS:
        posing = dataclasses.replace(real.device, **PROFILES[profile])
        _SESSIONS[key] = program.Session(posing, real.context, turn=real.turn)
    return _SESSIONS[key]


def fast(image, settings: NLMeans, sigma, profile: str, device, axes: str = "YX") -> np.ndarray:
    """Filter a float32 image by the kernels of a profile; sigma as `FrameSigma.of` takes it."""
    applied = settings.for_array(axes, image.shape)
    return filtered(image, applied, on(profile, device), sigma, axes)


def slow(image, settings: NLMeans, sigma) -> np.ndarray:
    """Filter an image (y, x) or (t, z, y, x) in NumPy; brightness is taken as steady."""
    plain = dataclasses.asdict(settings)
    plain.pop("flicker")
    return reference.nl_means(image, sigma, **plain)


def cut_off(settings: NLMeans) -> float:
    """Return by what share a weight may be wrong: distances are read from keys, less some bits."""
    bits = max(1, (settings.offsets - 1).bit_length())
    return 4 * 4 / settings.strength**2 * 2.0 ** (bits - 24)
