"""Noise that differs between places: automatic noise, with and without a map, and the true map."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace

import numpy as np

import napari_gpu_denoise as gd
from reference.data import pictures

LIGHT = 2.5  # in the middle over that in the corners


def place_rows(options: argparse.Namespace) -> list[list[str]]:
    """Return rows of PSNR in dB: noisy, without a map, automatic, told; and how often it is found.

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
        ("photons under uneven light, gain 2, BM3D", "light", 2, gd.bm3d),
    ]
    return [_row(*case, options) for case in cases]


def _row(
    name: str, kind: str, strength: float, function: Callable, options: argparse.Namespace
) -> list[str]:
    scores, found = [], 0
    photographs = list(pictures("bsd68").values())[:: options.stride]
    for seed, photograph in enumerate(photographs):
        clean = photograph.astype(np.float64)
        noisy, factors, model = _noisy(clean, kind, strength, np.random.default_rng(seed))

        def score(result: np.ndarray, clean: np.ndarray = clean, kind: str = kind) -> float:
            truth = clean / _inverse_light(clean.shape) if kind == "light" else clean
            return 10 * np.log10(255**2 / np.mean((result - truth) ** 2))

        estimate = gd.estimate_noise(noisy, "YX", device=options.device)
        found += estimate.places is not None
        one = replace(estimate, places=None)
        rest = {"device": options.device}
        if kind == "photons":
            # Beyond the gain, that of stabilised values is a map.
            told = function(model.stabilise(noisy), factors, **rest)
            told = model.inverse(told)
        elif kind == "light":
            told = function(noisy, noise=model, **rest)
        else:
            told = function(noisy, strength * factors, **rest)
        results = (
            noisy,
            function(noisy, noise=one, **rest),
            function(noisy, noise=estimate, **rest),
            told,
        )
        scores.append(list(map(score, results)))
    means = (f"{value:.2f}" for value in np.mean(scores, axis=0))
    return [name, *means, f"{found} of {len(photographs)}"]


def _noisy(
    clean: np.ndarray, kind: str, strength: float, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, gd.NoiseModel]:
    """Return an image with noise, and the factors and the model of that."""
    factors = _inverse_light(clean.shape)
    model: gd.NoiseModel = gd.PoissonGaussian(strength, 0.0)
    if kind == "photons":
        gain = strength * factors
        return (gain * random.poisson(clean / gain)).astype(np.float32), np.sqrt(factors), model
    if kind == "light":
        image = strength * random.poisson(clean / factors / strength)
        return image.astype(np.float32), factors, model
    if kind == "even":
        factors = np.ones(clean.shape)
    noise = random.normal(0, strength, clean.shape) * factors
    return (clean + noise).astype(np.float32), factors, gd.Gaussian(strength)


def _inverse_light(shape: tuple[int, int]) -> np.ndarray:
    """Return 1 in the middle, and `LIGHT` in the corners."""
    y, x = (np.linspace(-1, 1, n) for n in shape)
    return 1 + (LIGHT - 1) * (y[:, None] ** 2 + x**2) / 2
