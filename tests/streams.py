"""Filters for streams, small enough for quick tests, and ways to run them."""

from __future__ import annotations

import numpy as np

import napari_gpu_denoise as gd
from napari_gpu_denoise.filters import BM3D, VBM3D, NLMeans
from scenes import small

SETTINGS = {
    "vbm3d 4+4": small(VBM3D),
    "vbm3d causal": small(VBM3D, frames_after=0),
    "vbm3d 2+1": small(VBM3D, frames_before=2, frames_after=1),
    "bm3d": small(BM3D),
    "nl_means": small(NLMeans),
    "nl_means 2+1": small(NLMeans, frames_before=2, frames_after=1),
}
SHAPES = {"YX": (28, 32), "ZYX": (2, 28, 32), "CYX": (2, 28, 32), "YXS": (28, 32, 3)}


def streamed(settings, frames, sigma=20.0, **options) -> np.ndarray:
    """Return what `stream` yields."""
    return np.array(list(gd.stream(settings, frames, sigma, **options)))


def whole(settings, frames, sigma=20.0, axes="YX", **options) -> np.ndarray:
    """Return what `denoise` makes of all frames."""
    return gd.denoise(np.asarray(frames), settings, sigma, axes="T" + axes, **options).image
