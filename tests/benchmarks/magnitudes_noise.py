"""Tables of quality_noise.py: magnitudes with Rician noise, of little signal or none."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from scipy.ndimage import distance_transform_edt
from tables import show

import napari_gpu_denoise as gd
from reference.data import pictures
from scenes import psnr

FILTERS: dict[str, Callable] = {"BM3D": gd.bm3d, "NL-means": gd.nl_means}
PERCENTS = (3, 5, 9)
NEAR = 2.0  # pixels from the head up to which a background is told apart
SIGNALS = (0, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 2)  # in sigma


def pairs(rng: np.random.Generator, shape: tuple[int, ...]) -> list[np.ndarray]:
    """Return two draws of complex noise, of which one is weak where the other is strong.

    Each by itself is an ordinary draw, and the mean of both is known better than that of two others
    would be.
    """
    share = rng.uniform(size=shape)
    phase = np.exp(2j * np.pi * rng.uniform(size=shape))
    return [np.sqrt(-2 * np.log(part)) * phase for part in (1 - share, share)]


def magnitudes(options: argparse.Namespace) -> None:
    """Head with Rician noise (colin27): PSNR in dB, mean of the background in % of sigma.

    The background is every pixel whose true signal is 0, near those within 2 pixels of the head;
    the mean over all of them, with the standard error that draws and slices have.
    """
    body = []
    for percent in PERCENTS:
        found: dict[str, list[np.ndarray]] = {}
        for seed in range(options.seeds):
            for number, clean in enumerate(list(pictures("colin27").values())[:: options.stride]):
                rng = np.random.default_rng((seed, number))
                for name, row in _of_slice(clean, 2.55 * percent, rng, options.device).items():
                    found.setdefault(name, []).append(row)
        for name, rows in found.items():
            mean = np.mean(rows, axis=0)
            error = 100 * np.std([row[2] / row[5] for row in rows]) / len(rows) ** 0.5
            shares = [f"{100 * value:+.2f}" for value in mean[2:5] / mean[5:]]
            body.append(
                [f"{percent} %", name, *mean[:2], f"{shares[0]} ± {error:.2f}", *shares[1:]]
            )
    show(["noise", "method", "whole", "head", "background %", "farther %", "near %"], body)


def _of_slice(
    clean: np.ndarray, level: float, rng: np.random.Generator, device: object
) -> dict[str, np.ndarray]:
    """Return PSNR of all and of the head, and sums and sizes of the parts, means of a pair."""
    model, told = gd.Rician(level), {"axes": "YX", "device": device}
    empty = clean == 0
    near = empty & (distance_transform_edt(empty) <= NEAR)
    parts = (empty, empty & ~near, near)
    scores: dict[str, list[tuple[float, ...]]] = {}
    for noise in pairs(rng, clean.shape):
        noisy = np.abs(clean + level * noise).astype(np.float32)
        additive = (clean + level * noise.real).astype(np.float32)
        results = {"NL-means, rician=True": gd.nl_means(noisy, level, rician=True, **told)}
        for title, call in FILTERS.items():
            # By hand, as not every filter stabilises where it is told of such noise.
            signed = model.inverse(call(model.stabilise(noisy), 1.0, **told))
            results[f"{title}, stabilised"] = signed
            results[f"{title}, stabilised, negative set to 0"] = np.maximum(signed, 0)
            results[f"{title}, plain"] = call(noisy, level, **told)
            results[f"{title}, noise additive instead"] = call(additive, level, **told)
        for name, result in results.items():
            quality = psnr(result, clean), psnr(result[~empty], clean[~empty])
            sums = (float(result[part].sum(dtype=float)) / level for part in parts)
            counts = (float(np.count_nonzero(part)) for part in parts)
            scores.setdefault(name, []).append((*quality, *sums, *counts))
    return {name: np.mean(rows, axis=0) for name, rows in scores.items()}


def flat(options: argparse.Namespace) -> None:
    """The same signal everywhere, in sigma: mean error in % of sigma, of signed and other results.

    In brackets what a filter adds to the mean of the stabilised image, in thousandths.
    """
    model = gd.Rician(1.0)
    cells: dict[str, list[str]] = {}
    for signal in SIGNALS:
        found: dict[str, list[tuple[float, ...]]] = {}
        for seed in range(options.seeds):
            for noise in pairs(np.random.default_rng(seed), (512, 512)):
                given = model.stabilise(np.abs(signal + noise))
                for name, call in FILTERS.items():
                    filtered = call(given, 1.0, axes="YX", device=options.device)
                    added = filtered.mean(dtype=float) - given.mean(dtype=float)
                    signed = model.inverse(filtered)
                    means = (image.mean(dtype=float) for image in (signed, np.maximum(signed, 0)))
                    row = (*(mean - signal for mean in means), added, filtered.std())
                    found.setdefault(name, []).append(row)
        for name, rows in found.items():
            signed, other, added, left = np.mean(rows, axis=0)
            cell = f"{100 * signed:+.1f} ({1000 * added:+.1f})"
            cells.setdefault(f"{name}, signed", []).append(cell)
            cells.setdefault(f"{name}, negative set to 0", []).append(f"{100 * other:+.1f}")
            cells.setdefault(f"{name}, left of the noise", []).append(f"{left:.3f}")
    show(["result", *map(str, SIGNALS)], ([name, *row] for name, row in cells.items()))
