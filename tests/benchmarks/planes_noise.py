"""Noise that differs between planes: automatic noise against one sigma, and true sigmas."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tifffile

import napari_gpu_denoise as gd
from reference.data import data_folder, pictures


def plane_rows(device: object) -> list[list[str]]:
    """Return rows of PSNR in dB: noisy, one sigma, automatic, told."""
    clip = tifffile.imread(data_folder() / "video/foliage_clean/foliage_luma.tif")
    frames = clip[:8, :240, :400].astype(np.float32)
    photographs = [picture[:256, :256] for picture in list(pictures("set12").values())[:6]]
    images = np.stack(photographs).astype(np.float32)
    ramp, steps = np.linspace(5, 40, len(frames)), np.array([5, 10, 15, 20, 30, 40])
    cases: list[tuple[str, np.ndarray, str, np.ndarray, Callable]] = [
        ("foliage, sigma 5 to 40 along T, BM3D", frames, "TYX", ramp, gd.bm3d),
        ("foliage, sigma 5 to 40 along T, VBM3D", frames, "TYX", ramp, gd.vbm3d),
        ("foliage, sigma 15 along T, VBM3D", frames, "TYX", np.full(len(frames), 15.0), gd.vbm3d),
        ("six photographs, sigma 5 to 40, BM3D", images, ".YX", steps, gd.bm3d),
        ("six photographs, sigma 15, BM3D", images, ".YX", np.full(len(images), 15.0), gd.bm3d),
    ]
    rows = []
    for name, clean, axes, sigma, function in cases:
        noise = np.random.default_rng(0).standard_normal(clean.shape) * sigma[:, None, None]
        noisy = (clean + noise).astype(np.float32)

        def score(result: np.ndarray, clean: np.ndarray = clean) -> str:
            return f"{10 * np.log10(255**2 / np.mean((result - clean) ** 2)):.2f}"

        options = {"axes": axes, "device": device}
        rows.append(
            [
                *(name, score(noisy)),
                score(function(noisy, noise="gaussian", **options)),
                score(function(noisy, **options)),
                score(function(noisy, sigma, **options)),
            ]
        )
    return rows
