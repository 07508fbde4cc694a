"""Tables of quality_noise.py: noise that differs between planes or places."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from tables import show

import napari_gpu_denoise as gd
from reference.data import pictures
from scenes import psnr

LIGHT = 2.5  # in the middle over that in the corners


def planes(options: argparse.Namespace) -> None:
    """Noise that differs between planes, PSNR in dB."""
    frames = np.stack(list(pictures("foliage").values())[:8])[:, :240, :400]
    photographs = [picture[:256, :256] for picture in list(pictures("set12").values())[:6]]
    images = np.stack(photographs)
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
        told = ({"noise": "gaussian"}, {}, {"sigma": sigma})
        results = [function(noisy, axes=axes, device=options.device, **each) for each in told]
        rows.append([name, *(psnr(each, clean) for each in (noisy, *results))])
    show(["stack, noise, filter", "noisy", "one sigma", "automatic", "true sigma of each"], rows)


def places(options: argparse.Namespace) -> None:
    """Noise that differs between places, BSD68, mean PSNR in dB, and how often that was found.

    Photographs divided by the light of a lamp have a gain, or sigma, of 1 in the middle and `LIGHT`
    in the corners, times that of the row.
    """
    cases: list[tuple[str, str, float, Callable]] = [
        ("sigma 5 to 12.5, BM3D", "white", 5, gd.bm3d),
        ("sigma 10 to 25, BM3D", "white", 10, gd.bm3d),
        ("sigma 10 to 25, NL-means", "white", 10, gd.nl_means),
        ("sigma 20 to 50, BM3D", "white", 20, gd.bm3d),
        ("gain 2 to 5, BM3D", "photons", 2, gd.bm3d),
        ("gain 5 to 12.5, BM3D", "photons", 5, gd.bm3d),
        ("sigma 20 everywhere, BM3D", "even", 20, gd.bm3d),
    ]
    head = ["noise, filter", "noisy", "without map", "automatic", "true map", "found"]
    show(head, (_place_row(*case, options) for case in cases))


def _place_row(
    name: str, kind: str, strength: float, function: Callable, options: argparse.Namespace
) -> list:
    scores, found, rest = [], 0, {"device": options.device}
    photographs = list(pictures("bsd68").values())[:: options.stride]
    for seed, photograph in enumerate(photographs):
        clean, random = photograph.astype(np.float64), np.random.default_rng(seed)
        y, x = (np.linspace(-1, 1, n) for n in clean.shape)
        factors = 1 + (LIGHT - 1) * (y[:, None] ** 2 + x**2) / 2 * (kind != "even")
        if kind == "photons":
            gain, model = strength * factors, gd.PoissonGaussian(strength, 0.0)
            noisy = (gain * random.poisson(clean / gain)).astype(np.float32)
            # Beyond the gain, that of stabilised values is a map.
            told = model.inverse(function(model.stabilise(noisy), np.sqrt(factors), **rest))
        else:
            noise = random.normal(0, strength, clean.shape) * factors
            noisy = (clean + noise).astype(np.float32)
            told = function(noisy, strength * factors, **rest)
        estimate = gd.estimate_noise(noisy, "YX", **rest)
        found += estimate.places is not None
        both = (
            function(noisy, noise=n, **rest) for n in (replace(estimate, places=None), estimate)
        )
        scores.append([psnr(result, clean) for result in (noisy, *both, told)])
    return [name, *np.mean(scores, axis=0), f"{found} of {len(photographs)}"]
