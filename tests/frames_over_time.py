"""Filters over time, small enough for quick tests, and ways to run them."""

from __future__ import annotations

import dataclasses

import numpy as np

import napari_gpu_denoise as gd
from flows import part_steps
from napari_gpu_denoise.filters import VBM3D, NLMeans
from napari_gpu_denoise.opencl.program import Session, session
from scenes import noisy, small

SETTINGS = {
    "vbm3d 1+1": small(VBM3D, frames_before=1, frames_after=1),
    "vbm3d 4+4": small(VBM3D),
    "vbm3d causal": small(VBM3D, frames_before=2, frames_after=0),
    "vbm3d ahead": small(VBM3D, frames_before=0, frames_after=2),
    "nl_means 2+1": small(NLMeans, frames_before=2, frames_after=1),
}


def posing_as_gpu(device) -> Session:
    """Return a session that gets the queues and threads of a GPU, whatever the device is."""
    if device.kind in ("CPU", "simulator"):
        device = dataclasses.replace(device, kind="discrete GPU")
    return session(device)  # the same one each time: kernels are built once


def steps_of(image, settings, held, out, sigma=20.0, axes="TYX", **options):
    """Return what `part_steps` returns, on the device of a session."""
    return part_steps(image, settings, held.device, out, sigma, axes, **options)


def executed(image, settings, held, sigma=20.0, axes="TYX", **options) -> np.ndarray:
    """Return what `filter_part` makes of an image."""
    out = np.full_like(image, 255)
    steps_of(image, settings, held, out, sigma, axes, **options)
    return out


def run(image, settings, device, sigma=20.0, axes="TYX") -> np.ndarray:
    """Return what `denoise` makes of an image."""
    return gd.denoise(image, settings, sigma, axes=axes, device=device).image


def eventful(*shape: int, seed: int = 0) -> np.ndarray:
    """Return frames that flicker, of which the one in the middle is dropped."""
    image = noisy(*shape, sigma=10, seed=seed)
    gain = 1 + 0.2 * np.random.default_rng(seed).random(shape[0])
    image *= gain.reshape(-1, *(1,) * (len(shape) - 1))
    image[shape[0] // 2] = 41.7
    return image.astype(np.float32)
