"""Settings that the benchmarks of BM3D measure."""

from __future__ import annotations

from napari_gpu_denoise.filters.bm3d.filter import BM3D

PROFILES = ("live", "fast", "normal", "high", "fixed")
# The fixed parameters of Davy and Ehret 2020, but for their limits of similarity.
FIXED = {
    "step_basic": 3,
    "step_final": 3,
    "window_basic": 39,
    "window_final": 39,
    "neighbours_basic": 16,
    "neighbours_final": 32,
    "transform_basic": "dct",
    "transform_final": "dct",
    "stack_basic": "hadamard",
    "stack_final": "hadamard",
    "threshold": 2.7,
    "wiener_sigma": 1.0,
}


def settings_of(profile: str) -> BM3D:
    """Return the settings of a profile, or those named "fixed"."""
    return BM3D.of(**FIXED) if profile == "fixed" else BM3D.of(profile=profile)
