"""Filters given the spectrum of the noise beside those given one sigma.

    python tests/benchmarks/quality_correlated.py [--tables photographs cars] [--quick]

PSNR in dB of float results, peak 255. Real pictures are in quality_trust.py.
"""

from __future__ import annotations

import argparse

import imageio.v3 as imageio
import numpy as np
from scipy.ndimage import gaussian_filter
from tables import print_tables, show

import napari_gpu_denoise as gd
from napari_gpu_denoise.noise.correlation import noise_spectrum
from reference.data import existing, pictures
from scenes import psnr

BLURS = {"0.5": 0.5, "0.8": 0.8, "1.2": 1.2, "2": 2.0, "1.2 along x": (0.0, 1.2)}
LAGS = 5
FRAMES = range(5, 10)
TIMES = np.geomspace(0.5, 2.9, 12)  # of the true sigma, to find the best white one


def true_model(noise: np.ndarray) -> gd.Correlated:
    """Return the model of noise that is known, (planes, y, x)."""
    noise = noise - noise.mean(axis=(1, 2), keepdims=True)
    ny, nx = noise.shape[1:]
    table = np.empty((LAGS, LAGS))
    for dy, dx in np.ndindex(LAGS, LAGS):
        up, down = noise[:, : ny - dy], noise[:, dy:]
        one = up[..., : nx - dx] * down[..., dx:]
        other = up[..., dx:] * down[..., : nx - dx]
        table[dy, dx] = (one.mean() + other.mean()) / 2
    return gd.Correlated(float(np.sqrt(table[0, 0])), np.clip(table / table[0, 0], -1, 1))


def photographs(options: argparse.Namespace) -> None:
    """BM3D on every third photograph of Set12, with white noise blurred by a Gaussian."""
    rows = []
    for name, width in BLURS.items():
        for sigma in (10.0, 25.0):
            found = []
            for seed, clean in enumerate(list(pictures("set12").values())[:: 3 * options.stride]):
                drawn = np.random.default_rng(seed).normal(size=clean.shape)
                noise = gaussian_filter(drawn, width, mode="wrap")
                noise *= sigma / noise.std()
                noisy = (clean + noise).astype(np.float32)

                def score(sigma=None, noisy=noisy, clean=clean, **noise) -> float:
                    return psnr(gd.bm3d(noisy, sigma, device=options.device, **noise), clean)

                white = max(score(float(k * sigma)) for k in TIMES)
                estimated = gd.Correlated.of_spectrum(noise_spectrum(noisy))
                told = score(noise=true_model(noise[None])), score(noise=estimated)
                found.append((white, *told))
            rows.append([f"{sigma:g}", name, *np.mean(found, axis=0)])
    show(["sigma", "blur", "best white sigma", "true spectrum", "estimated spectrum"], rows)


def cars(options: argparse.Namespace) -> None:
    """Five frames of moving cars with noise of their own: VBM3D, mean PSNR of the frames."""
    kinds = [f"video/traffic_{kind}" for kind in ("clean", "correlated_noise")]
    clean, noisy = (
        np.stack([imageio.imread(existing(kind) / f"frame_{k}.png") for k in FRAMES])
        for kind in kinds
    )
    noise = noisy - clean.astype(np.float64)

    def score(**told) -> float:
        given = {"axes": "TYXS", "dtype": "float32", "device": options.device}
        result = gd.denoise(noisy, gd.VBM3D(), **given, **told).image
        return float(np.mean([psnr(*each) for each in zip(result, clean, strict=True)]))

    white = max(score(sigma=float(k * noise.std())) for k in TIMES)
    told = score(noise=tuple(true_model(noise[..., c]) for c in range(3)))
    before = np.mean([psnr(*each) for each in zip(noisy, clean, strict=True)])
    head = ("noisy", "automatic", "best white sigma", "true spectrum")
    show(head, [[float(before), score(), white, told]])


if __name__ == "__main__":
    print_tables(__doc__, (photographs, cars))
