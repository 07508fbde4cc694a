"""Magnitudes with Rician noise: what stabilised filters leave where there is little signal or none.

Tables of quality_noise.py, which runs them.

    python tests/benchmarks/magnitudes_noise.py

prints how little bias results of at least 0 can have, whatever the way back: the largest mean error
over all signals that a growing function of the filtered value must have, if a filter leaves normal
errors of a given standard deviation.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from scipy.ndimage import distance_transform_edt
from scipy.optimize import linprog

import napari_gpu_denoise as gd
from napari_gpu_denoise.noise.models import rician

sys.path.insert(0, str(Path(__file__).parents[1]))
from reference.data import pictures

FILTERS: dict[str, Callable] = {"BM3D": gd.bm3d, "NL-means": gd.nl_means}
PERCENTS = (3, 5, 9)
NEAR = 2.0  # pixels from the head up to which a background is told apart
SIGNALS = (0, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 2)  # in sigma
LEFT = 0.05  # standard deviation of what a filter leaves, of stabilised values
ALLOWED = (None, 0.05, 0.02)  # mean of a background, in sigma; None: whatever is best for all


def decibels(result: np.ndarray, clean: np.ndarray) -> float:
    """Return the PSNR for a peak of 255."""
    difference = np.asarray(result, np.float64) - clean
    return float(10 * np.log10(255**2 / np.mean(difference**2)))


def pairs(rng: np.random.Generator, shape: tuple[int, ...]) -> list[np.ndarray]:
    """Return two draws of complex noise, of which one is weak where the other is strong.

    Each by itself is an ordinary draw, and the mean of both is known better than that of two others
    would be.
    """
    share = rng.uniform(size=shape)
    phase = np.exp(2j * np.pi * rng.uniform(size=shape))
    return [np.sqrt(-2 * np.log(part)) * phase for part in (1 - share, share)]


def head_slices(options: argparse.Namespace) -> list[np.ndarray]:
    """Return slices of a head, 0 to 255."""
    return list(pictures("colin27").values())[:: options.stride]


def draws(
    images: list[np.ndarray], options: argparse.Namespace, level: float
) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
    """Yield images, each with two draws of complex noise."""
    for seed in range(options.seeds):
        for number, clean in enumerate(images):
            rng = np.random.default_rng((seed, number))
            yield clean, [level * noise for noise in pairs(rng, clean.shape)]


def background(clean: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where there is no signal, and which of that lies near where there is."""
    empty = clean == 0
    return empty, empty & (distance_transform_edt(empty) <= NEAR)


def head_rows(options: argparse.Namespace) -> tuple[list[str], list[list[str]]]:
    """Return head and body of the table of a noisy head."""
    told = {"axes": "YX", "device": options.device}
    body = []
    for percent in PERCENTS:
        level = 2.55 * percent
        model = gd.Rician(level)
        found: dict[str, list[np.ndarray]] = {}
        for clean, noises in draws(head_slices(options), options, level):
            empty, near = background(clean)
            parts = (empty, empty & ~near, near)
            counts = [float(np.count_nonzero(part)) for part in parts]
            scores: dict[str, list[tuple[float, ...]]] = {}
            for noise in noises:
                noisy = np.abs(clean + noise).astype(np.float32)
                additive = (clean + noise.real).astype(np.float32)
                results = {}
                for title, call in FILTERS.items():
                    # By hand, as not every filter stabilises where it is told of such noise.
                    signed = model.inverse(call(model.stabilise(noisy), 1.0, **told))
                    results[f"{title}, stabilised"] = signed
                    results[f"{title}, stabilised, negative set to 0"] = np.maximum(signed, 0)
                    results[f"{title}, plain"] = call(noisy, level, **told)
                    results[f"{title}, noise additive instead"] = call(additive, level, **told)
                corrected = gd.nl_means(noisy, level, rician=True, **told)
                results["NL-means, rician=True"] = corrected
                for name, result in results.items():
                    quality = (decibels(result, clean), decibels(result[~empty], clean[~empty]))
                    sums = (float(result[part].sum(dtype=float)) / level for part in parts)
                    scores.setdefault(name, []).append((*quality, *sums, *counts))
            for name, rows in scores.items():
                found.setdefault(name, []).append(np.mean(rows, axis=0))
        for name, rows in found.items():
            mean = np.mean(rows, axis=0)
            each = [row[2] / row[5] for row in rows]
            error = 100 * np.std(each) / len(rows) ** 0.5
            quality = [f"{value:.2f}" for value in mean[:2]]
            shares = [f"{100 * value:+.2f}" for value in mean[2:5] / mean[5:]]
            body.append([f"{percent} %", name, *quality, f"{shares[0]} ± {error:.2f}", *shares[1:]])
    titles = ("background", "farther", "near")
    return ["noise", "method", "whole", "head", *(f"{t} %" for t in titles)], body


def flat_rows(options: argparse.Namespace) -> tuple[list[str], list[list[str]]]:
    """Return head and body of the table of flat images."""
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
    return ["result", *map(str, SIGNALS)], [[name, *row] for name, row in cells.items()]


def least_bias(most: float | None) -> np.ndarray:
    """Return the mean errors of the best results of at least 0, for signals from 0 on, in sigma.

    `most` is what the mean of a background may be.
    """
    at = np.linspace(-0.4, 1.2, 401)
    signal = np.linspace(0, 1.5, 61)
    curve = rician.squared_signal()
    shown = np.interp(signal**2, curve.values, curve.at) - curve.at[0]
    chance = np.exp(-((at - shown[:, None]) ** 2) / 2 / LEFT**2)
    chance /= chance.sum(axis=1, keepdims=True)
    usual = rician.unbiased_signal(at + curve.at[0]).clip(0)
    # Unknown: the result at each filtered value, and the largest error of all.
    one = np.ones((len(signal), 1))
    falls = np.eye(len(at))[:-1] - np.eye(len(at))[1:]
    above = [np.hstack([chance, -one]), np.hstack([-chance, -one])]
    above.append(np.hstack([falls, np.zeros((len(falls), 1))]))
    limit = [signal, -signal, np.zeros(len(falls))]
    if most is not None:
        above.append(np.append(chance[0], 0)[None])
        limit.append(np.array([most]))
    bounds = [(v, v) if far else (0, None) for v, far in zip(usual, at > 0.6, strict=True)]
    found = linprog(
        np.append(np.zeros(len(at)), 1),
        A_ub=np.vstack(above),
        b_ub=np.concatenate(limit),
        bounds=[*bounds, (0, None)],
    )
    return chance @ found.x[:-1] - signal


def main() -> None:
    """Print the least bias there can be."""
    print(f"Results of at least 0, errors of {LEFT:g}: mean errors in % of sigma.\n")
    print("| background at most | background | largest of all signals |\n| ---: | ---: | ---: |")
    for most in ALLOWED:
        error = 100 * least_bias(most)
        named = "" if most is None else f"{100 * most:g}"
        print(f"| {named} | {error[0]:.1f} | {np.abs(error).max():.1f} |")


if __name__ == "__main__":
    main()
