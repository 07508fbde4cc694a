"""The kernels for GPUs, optimised as users have them, give what those for CPUs give.

Where there is no GPU, a CPU poses as one: its compiler turns work-groups into loops, as those of
many drivers do. A GPU poses as one of another vendor, whose work-items share no warps.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import napari_gpu_denoise as gd
from scenes import scene

SIGMA = 10.0

# Name, settings, axes. The first of each filter are tested in every run, all with --optimised.
CASES = {
    "NL-means": (gd.NLMeans(), "YX"),
    "BM3D, fast": (gd.BM3D.of(profile="fast"), "YX"),
    "VBM3D": (gd.VBM3D(), "TYX"),
    "BM4D, fast": (gd.BM4D.of(profile="fast", cube="4x4x4"), "ZYX"),
    "isoline": (gd.Isoline(), "YX"),
    "pixelwise NL-means": (gd.NLMeansPixelwise(), "YX"),
    "Shapiro-Wilk NL-means": (gd.SWNLM(), "YX"),
}
FURTHER = {
    "NL-means, fine": (gd.NLMeans.of(profile="fine"), "YX"),
    "NL-means, video": (gd.NLMeans.of(profile="video"), "TYX"),
    "BM3D": (gd.BM3D(), "YX"),
    "BM3D, high": (gd.BM3D.of(profile="high"), "YX"),
    "BM3D, steps 8": (gd.BM3D.of(profile="live"), "YX"),
    "BM3D, the reference alone": (gd.BM3D(neighbours_final=1), "YX"),
    "VBM3D, fast": (gd.VBM3D.of(profile="fast"), "TYX"),
    "VBM3D, live": (gd.VBM3D.of(profile="live"), "TYX"),
    "VBM3D, causal": (gd.VBM3D(frames_after=0), "TYX"),
    "BM4D": (gd.BM4D(cube="4x4x4"), "ZYX"),
    "BM3D, fast, refined": (gd.BM3D.of(profile="fast", refine="chain"), "YX"),
    "VBM3D, fast, refined": (gd.VBM3D.of(profile="fast", refine="chain"), "TYX"),
    "BM4D, fast, refined": (gd.BM4D.of(profile="fast", cube="4x4x4", refine="once"), "ZYX"),
    "BM4D over time": (gd.BM4D.of(profile="fast", cube="4x4x4", frames_before=1), "TZYX"),
}


@cache
def noisy_scene(axes: str) -> tuple[np.ndarray, np.ndarray]:
    """Return an image with these axes and the same with noise, float32."""
    shape = {"YX": (), "TYX": (5,), "ZYX": (7,), "TZYX": (2, 6)}[axes]
    clean = scene(max(int(np.prod(shape)), 1), 75, 93).reshape(*shape, 75, 93)
    noise = np.random.default_rng(0).normal(0, SIGMA, clean.shape)
    return clean.astype(np.float32), (clean + noise).astype(np.float32)


def posing(device):
    """Return a CPU that poses as a GPU, or a GPU that poses as one of another vendor."""
    if device.float_lanes == 1:
        return replace(device, vendor="another")
    limits = {
        "local_memory": min(device.local_memory, 49152),
        "max_group": min(device.max_group, 1024),
    }
    return replace(device, float_lanes=1, **limits)


def denoised(name: str, device) -> np.ndarray:
    settings, axes = (CASES | FURTHER)[name]
    return gd.denoise(noisy_scene(axes)[1], settings, sigma=SIGMA, axes=axes, device=device).image


@pytest.mark.parametrize("name", [*CASES, *FURTHER])
def test_the_kernels_of_a_gpu_agree_with_those_of_the_device(optimised, device, request, name):
    if name in FURTHER and not request.config.getoption("optimised"):
        pytest.skip("takes long to build: --optimised runs it")
    own, other = denoised(name, device), denoised(name, posing(device))
    # Matches at equal distances, and coefficients at the threshold, may be decided by rounding:
    # few pixels, as in a group or two.
    assert np.sqrt(np.mean((own - other) ** 2)) < 0.01 * SIGMA / 10
    assert np.mean(np.abs(own - other) > 0.01) < 0.02
