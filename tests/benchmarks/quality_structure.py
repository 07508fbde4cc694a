"""Structured noise: what is found, what is taken for it, and what is left after its removal.

    python tests/benchmarks/quality_structure.py [--tables …] [--quick] [--seeds N] [--device D]

Prints one table for each of: found (each kind simulated on microscopy, ultrasound and scenes like
electron micrographs), alarms (images without any), removed (PSNR after BM3D) and speed. Noise is
drawn with ``numpy.random.default_rng(seed)``. The data folder holds the pictures.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator

import numpy as np
from scipy.ndimage import gaussian_filter
from tables import print_tables, seconds_of, show

import napari_gpu_denoise as gd
from reference.data import microscopy_pairs, pictures
from scenes import psnr

STRENGTHS = 0.5, 1.0, 2.0  # of offsets and hum, in units of sigma
SIGMA = 20.0
SPECKLE = 23.0  # standard deviation in the ultrasound scenes, grey levels


def scenes(seeds: int) -> Iterator[tuple[str, np.ndarray, float, float]]:
    """Yield the kind of a scene, its clean image, the sigma of the noise that it gets, and a unit.

    The unit is that of the strength of hum and single pixels: sigma, or for ultrasound, whose noise
    is mostly speckle, the standard deviation of that.
    """
    for _, mean in microscopy_pairs().values():
        for seed in range(seeds):
            sigma = 8.0 + 6 * (seed % 3)
            yield "microscopy", _turned(mean.astype(np.float64), seed), sigma, sigma
    for seed in range(6 * seeds):
        sigma = 5.0 + 5 * (seed % 3)
        yield "microscopy", cells(seed), sigma, sigma
        yield "ultrasound", sector(seed), 6.0, SPECKLE
        yield "electron micrographs", micrograph(seed), 2 * sigma, 2 * sigma


def _turned(image: np.ndarray, number: int) -> np.ndarray:
    return np.rot90(image if number < 4 else image.T, number)


def cells(seed: int, size: int = 320) -> np.ndarray:
    """Return fluorescent cells with filaments and vesicles on a dim background."""
    rng = np.random.default_rng(1000 + seed)
    y, x = np.mgrid[:size, :size]
    image = 12.0 + 6 * rng.uniform() * y / size
    for _ in range(rng.integers(4, 10)):
        cy, cx, radius = *rng.uniform(0, size, 2), rng.uniform(15, 50)
        image = image + rng.uniform(20, 60) / (1 + np.exp((np.hypot(y - cy, x - cx) - radius) / 3))
    for _ in range(30):
        angle, where = rng.uniform(0, math.pi), rng.uniform(0, size, 2)
        away = (y - where[0]) * math.cos(angle) + (x - where[1]) * math.sin(angle)
        along = (x - where[1]) * math.cos(angle) - (y - where[0]) * math.sin(angle)
        image = image + 40 * np.exp(-((away / 1.5) ** 2) - (along / 40) ** 2)
    spots = np.zeros((size, size))
    spots[tuple(rng.integers(0, size, (2, 60)))] = rng.uniform(200, 900, 60)
    return np.clip(image + gaussian_filter(spots, 1.4), 0, 255)


def sector(seed: int, size: int = 320) -> np.ndarray:
    """Return an ultrasound sector with speckle, log-compressed, on a black page."""
    rng = np.random.default_rng(2000 + seed)
    y, x = np.mgrid[:size, :size]
    radius, angle = np.hypot(y + 60, x - size / 2), np.arctan2(x - size / 2, y + 60)
    echo = np.full((size, size), 1.0)
    for _ in range(8):
        cy, cx, r = *rng.uniform(0, size, 2), rng.uniform(15, 50)
        echo *= 1 + rng.uniform(-0.9, 2) / (1 + np.exp((np.hypot(y - cy, x - cx) - r) / 2))
    real, other = (gaussian_filter(rng.normal(size=(size, size)), (1.2, 2.5)) for _ in range(2))
    speckle = np.hypot(real, other) * 6
    image = np.clip(60 + SPECKLE / 1.28 * np.log(np.maximum(echo * speckle**2, 1e-3)), 0, 255)
    inside = (np.abs(angle) < 0.62) & (radius > 70) & (radius < 370)
    return np.where(inside, image, 0.0)


def micrograph(seed: int, size: int = 320) -> np.ndarray:
    """Return membranes and vesicles, dark on grey, with the grain of a resin."""
    rng = np.random.default_rng(3000 + seed)
    phase = gaussian_filter(rng.normal(size=(size, size)), 9) * 60
    membranes = 50 * np.exp(-((np.sin(phase) / 0.25) ** 2))
    grain = gaussian_filter(rng.normal(size=(size, size)), 1.2) * 20
    y, x = np.mgrid[:size, :size]
    image = 150 - membranes + grain
    for _ in range(20):
        cy, cx, r = *rng.uniform(0, size, 2), rng.uniform(4, 15)
        image = image - 45 * np.exp(-(((np.hypot(y - cy, x - cx) - r) / 1.8) ** 2))
    return np.clip(image, 0, 255)


def with_structure(kind: str, shape: tuple, sigma: float, strength: float, rng) -> np.ndarray:
    """Return structured noise of a kind, of `strength` times sigma."""
    ny, nx = shape
    y, x = np.mgrid[:ny, :nx]
    if kind == "rows":
        return np.repeat(rng.normal(0, strength * sigma, (ny, 1)), nx, axis=1)
    if kind == "columns":
        return np.repeat(rng.normal(0, strength * sigma, (1, nx)), ny, axis=0)
    if kind == "hum":
        period, angle = math.exp(rng.uniform(math.log(3), math.log(30))), rng.uniform(0, math.pi)
        way = (y * math.sin(angle) + x * math.cos(angle)) / period
        return strength * sigma * math.sqrt(2) * np.cos(2 * math.pi * (way + rng.uniform()))
    excess = 15 * sigma * strength
    return np.where(rng.random(shape) < 0.001, excess if kind == "hot" else -excess, 0.0)


def found(options: argparse.Namespace) -> None:
    """Share of simulated images in which it was found, in %: rows and so on of 0.5 to 2 sigma.

    Hum has periods of 3 to 30 pixels in any direction; 0.1 % of the pixels are hot or dead by 7.5
    to 30 sigma. For hum and pixels of ultrasound, sigma is that of the speckle. In brackets the
    number of images.
    """
    counts: dict[tuple[str, str], list[bool]] = {}
    others = 0
    total = 0
    for number, (scene, clean, sigma, unit) in enumerate(scenes(options.seeds)):
        for index, kind in enumerate(("rows", "columns", "hum", "hot", "dead")):
            for strength in STRENGTHS:
                rng = np.random.default_rng([number, index, int(2 * strength)])
                one = sigma if kind in ("rows", "columns") else unit
                structure = with_structure(kind, clean.shape, one, strength, rng)
                image = clean + rng.normal(0, sigma, clean.shape) + structure
                kinds = {each.kind for each in gd.find_structure(image).findings}
                counts.setdefault((kind, scene), []).append(kind in kinds)
                others += bool(kinds - {kind})
                total += 1
    names = list(dict.fromkeys(scene for _, scene in counts))
    body = []
    for kind in dict.fromkeys(kind for kind, _ in counts):
        cells = [counts[kind, name] for name in names]
        body.append([kind, *(f"{100 * np.mean(c):.1f} ({len(c)})" for c in cells)])
    show(["kind", *names], body)
    print(f"\nSomething else was named in {others} of {total} images.")


def alarms(options: argparse.Namespace) -> None:
    """Images without structured noise in which some was named."""
    sets: dict[str, list[tuple[str, np.ndarray]]] = {}
    clean = pictures("bsd68").items()
    for sigma in (0, 5, 10, 25, 50):
        rng = np.random.default_rng(sigma)
        sets[f"BSD68, sigma {sigma}"] = [
            (name, image + rng.normal(0, sigma, image.shape) if sigma else image)
            for name, image in clean
        ]
    for mean in (0.3, 1, 5, 50):
        rng = np.random.default_rng(int(10 * mean))
        sets[f"BSD68, {mean:g} photons"] = [
            (name, rng.poisson(image * (mean / image.mean())).astype(np.uint16))
            for name, image in clean
        ]
    for number, title in enumerate(("W2S, one frame", "W2S, mean of 400")):
        sets[title] = [(name, both[number]) for name, both in microscopy_pairs().items()]
    for name in ("set12", "denoiselab13", "colin27"):
        sets[name] = list(pictures(name).items())
    rng = np.random.default_rng(9)
    sets["scenes of the table above, with noise"] = [
        (f"{scene} {k}", image + rng.normal(0, sigma, image.shape))
        for k, (scene, image, sigma, _) in enumerate(scenes(options.seeds))
    ]
    body = []
    for title, images in sets.items():
        named = {name: gd.find_structure(image).summary() for name, image in images}
        wrong = [f"{name}: {text}" for name, text in named.items() if not text.startswith("no ")]
        text = "; ".join(wrong[:3]).replace("\n", ", ")
        body.append([title, str(len(images)), str(len(wrong)), text])
    show(["images", "number", "false alarms", "of which"], body)


def removed(options: argparse.Namespace) -> None:
    """BM3D on BSD68 and fluorescence cells, mean PSNR in dB; the filter gets sigma 20.

    The last column: offsets that are known but for their mean, which nothing in an image tells.
    """
    body = []
    clean = {
        "BSD68": list(pictures("bsd68").values())[:: options.stride],
        "cells": [cells(k) for k in range(max(2, 12 // options.stride))],
    }
    cases = [("rows", 0.375), ("rows", 0.5), ("columns", 0.5), ("rows", 1.0)]
    cases += [("hum", 0.5), ("hot", 0.5), ("hot", 1.0)]
    for name, images in clean.items():
        for kind, strength in cases:
            scores = []
            for number, image in enumerate(images):
                rng = np.random.default_rng(number)
                noisy = image + rng.normal(0, SIGMA, image.shape)
                structure = with_structure(kind, image.shape, SIGMA, strength, rng)
                striped = noisy + structure
                given = [(noisy, {}), (striped, {}), (striped, {"correct": "found"})]
                if kind in ("rows", "columns"):
                    given.append((noisy + structure.mean(), {}))
                results = (
                    gd.bm3d(each.astype(np.float32), SIGMA, device=options.device, **more)
                    for each, more in given
                )
                scores.append([psnr(result, image) for result in results])
            means = np.mean(scores, axis=0)
            losses = [f"{value - means[0]:+.2f}" for value in means[2:]]
            body.append(
                [f"{name}, {kind} {strength:g}", *means[:3], *losses, *[""] * (5 - len(means))]
            )
    show(["noise", "without it", "not removed", "removed", "loss", "loss by their mean"], body)


def speed(options: argparse.Namespace) -> None:
    """Milliseconds for a plane of 1024 x 1024, the least of five."""
    rng = np.random.default_rng(0)
    plane = rng.normal(100, 10, (1024, 1024)) + rng.normal(0, 10, (1024, 1))
    functions = (gd.find_structure, gd.remove_stripes, gd.remove_outliers)
    body = [[call.__name__, 1e3 * seconds_of(lambda c=call: c(plane))[0]] for call in functions]
    show(["function", "ms"], body)


if __name__ == "__main__":
    print_tables(__doc__, (found, alarms, removed, speed))
