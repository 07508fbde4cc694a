"""Quality of refined results: PSNR of the profile `normal` as it is, refined once, and in a chain.

    python tests/benchmarks/quality_refine.py [--device NAME] [SET ...]

Sets: `set12`, `bsd68` (BM3D), `video` (VBM3D), `head` (BM4D), and with noise that depends on
brightness `photons` (VBM3D, counts up to the peak given) and `rician` (BM4D). Noise is drawn with
``numpy.random.default_rng(0)`` for each image; sigma and model are told; PSNR has the peak 255, or
that of the counts. `times` are the milliseconds of whole calls, the least of three after one.
Without names all sets are measured.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from tables import show

import napari_gpu_denoise as gd
from reference.data import head, pictures

REFINE = ("off", "once", "chain")
FRAMES = 10


def noisy(clean: np.ndarray, sigma: float) -> np.ndarray:
    """Return an image with white noise."""
    noise = np.random.default_rng(0).normal(0, sigma, clean.shape)
    return clean + noise.astype(np.float32)


def psnr(image: np.ndarray, clean: np.ndarray, peak: float = 255.0) -> float:
    """Return the peak signal-to-noise ratio in dB."""
    return float(10 * np.log10(peak**2 / np.mean((image.astype(np.float64) - clean) ** 2)))


def photographs(name: str, sigmas, device) -> Iterator[tuple]:
    """Yield the mean PSNR over a set of photographs, by noise."""
    images = [one.astype(np.float32) for one in pictures(name).values()]
    for sigma in sigmas:
        given = [(noisy(clean, sigma), clean) for clean in images]
        means = [
            np.mean([psnr(gd.bm3d(y, sigma, refine=r, device=device), c) for y, c in given])
            for r in REFINE
        ]
        yield name, f"{sigma:g}", *means


def videos(device) -> Iterator[tuple]:
    """Yield the PSNR of videos, by noise."""
    for name in ("tractor", "traffic", "foliage"):
        clean = np.stack(list(pictures(name).values())[:FRAMES]).astype(np.float32)
        for sigma in (20.0, 40.0):
            given = {"axes": "TYX", "device": device}
            results = [gd.vbm3d(noisy(clean, sigma), sigma, refine=r, **given) for r in REFINE]
            yield name, f"{sigma:g}", *(psnr(one, clean) for one in results)


def heads(device) -> Iterator[tuple]:
    """Yield the PSNR of a piece of a head, by noise."""
    clean = head()[75:99, 60:140, 50:130]
    for sigma in (10.0, 20.0, 40.0):
        given = {"axes": "ZYX", "cube": "4x4x4", "device": device}
        results = [gd.bm4d(noisy(clean, sigma), sigma, refine=r, **given) for r in REFINE]
        yield "head", f"{sigma:g}", *(psnr(one, clean) for one in results)


def photons(device) -> Iterator[tuple]:
    """Yield the PSNR of a video of counted photons, by the largest count."""
    frames = np.stack(list(pictures("tractor").values())[:FRAMES]) / 255
    model = gd.PoissonGaussian(1.0, 0.0)
    for peak in (1, 3, 10, 30):
        counts = np.random.default_rng(0).poisson(frames * peak).astype(np.float32)
        given = {"noise": model, "axes": "TYX", "device": device}
        results = [gd.vbm3d(counts, refine=r, **given) for r in REFINE]
        yield "tractor, photons", f"peak {peak}", *(psnr(r, frames * peak, peak) for r in results)


def magnitudes(device) -> Iterator[tuple]:
    """Yield the PSNR of a piece of a head with Rician noise."""
    clean = head()[60:124, 40:180, 30:150]
    for sigma in (5.0, 10.0, 20.0):
        real, imaginary = np.random.default_rng(0).normal(0, sigma, (2, *clean.shape))
        image = np.hypot(clean + real, imaginary).astype(np.float32)
        given = {"noise": gd.Rician(sigma), "axes": "ZYX", "cube": "4x4x4", "device": device}
        results = [gd.bm4d(image, refine=r, **given) for r in REFINE]
        yield "head, Rician", f"{sigma:g}", *(psnr(one, clean) for one in results)


def times(device) -> Iterator[tuple]:
    """Yield the milliseconds of a call on white noise for each filter."""
    cases = (
        (gd.BM3D.of(profile="fast"), (512, 512), "YX"),
        (gd.VBM3D(), (FRAMES, 540, 960), "TYX"),
        (gd.BM4D(cube="4x4x4"), (256, 256, 256), "ZYX"),
    )
    for settings, shape, axes in cases:
        image, found = noisy(np.full(shape, 100, np.float32), 20.0), []
        for refine in REFINE:
            one, least = replace(settings, refine=refine), np.inf
            for _ in range(4):
                start = time.perf_counter()
                gd.denoise(image, one, 20.0, axes=axes, device=device)
                least = min(least, time.perf_counter() - start)
            found.append(1000 * least)
        yield settings.name, " x ".join(map(str, shape)), *found


SETS = {
    "set12": lambda device: photographs("set12", (15.0, 25.0, 50.0), device),
    "bsd68": lambda device: photographs("bsd68", (25.0,), device),
    "video": videos,
    "head": heads,
    "photons": photons,
    "rician": magnitudes,
    "times": times,
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sets", nargs="*", choices=[[], *SETS], help="sets, by default all")
    parser.add_argument("--device", help="device, as denoise takes it")
    options = parser.parse_args()
    rows = [
        [name, noise, *(f"{value:.2f}" for value in values)]
        for one in options.sets or SETS
        for name, noise, *values in SETS[one](options.device)
    ]
    print(f"On {gd.choose(options.device)}.\n")
    show(["", "noise", *REFINE], rows)


if __name__ == "__main__":
    main()
