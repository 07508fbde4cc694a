"""Gain of simulated scenes of few photons: how near it is, and how honest its errors are.

    python tests/benchmarks/photon_scenes.py [--scenes 200] [--only KIND ...] [--json FILE]

Each scene has a gain, an offset, read noise and a type of its own. For each kind of scene: how often
the noise is called Poisson-Gaussian, Gaussian, or that the image cannot tell; bias, scatter and mean
error of the gain; how often the true gain is within two standard errors.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.ndimage import gaussian_filter

from napari_gpu_denoise import estimate_noise

SIDE = 256


class Scene(NamedTuple):
    """An image with photon and read noise."""

    image: np.ndarray
    axes: str
    gain: float  # grey levels per electron
    read: float  # grey levels
    offset: float
    expected: np.ndarray  # electrons


def spots(rng: np.random.Generator, shape: tuple[int, int], number: int, blur: float) -> np.ndarray:
    """Return points of unequal brightness as a lens shows them; the brightest pixel is 1."""
    field = np.zeros(shape)
    np.add.at(field, tuple(rng.integers(0, n, number) for n in shape), rng.gamma(2, 0.5, number))
    found = gaussian_filter(field, blur, mode="wrap")
    return found / found.max()


def threads(rng: np.random.Generator, shape: tuple[int, int], number: int, blur: float) -> np.ndarray:
    """Return filaments that wind through the field; the brightest pixel is 1."""
    field = np.zeros(shape)
    steps = 2 * max(shape)
    for _ in range(number):
        angle = rng.uniform(0, 2 * np.pi) + np.cumsum(rng.normal(0, 0.06, steps))
        path = [
            rng.uniform(0, n) + 0.5 * np.cumsum(each)
            for n, each in zip(shape, (np.sin(angle), np.cos(angle)), strict=True)
        ]
        place = tuple(each.astype(int) % n for n, each in zip(shape, path, strict=True))
        np.add.at(field, place, rng.uniform(0.4, 1))
    found = gaussian_filter(field, blur, mode="wrap")
    return found / found.max()


def cells(rng: np.random.Generator, shape: tuple[int, int], number: int) -> np.ndarray:
    """Return smooth bodies with some texture inside, on a dark ground; the brightest pixel is 1."""
    y, x = np.mgrid[: shape[0], : shape[1]]
    field = np.zeros(shape)
    for _ in range(number):
        cy, cx = (rng.uniform(0, n) for n in shape)
        a, b = rng.uniform(8, 30, 2)
        inside = ((y - cy) / a) ** 2 + ((x - cx) / b) ** 2 < 1
        field = np.maximum(field, rng.uniform(0.3, 1) * inside)
    field *= 1 + 0.25 * gaussian_filter(rng.standard_normal(shape), 2) * 2 * np.sqrt(np.pi) * 2
    found = np.maximum(gaussian_filter(field, 1.2), 0)
    return found / found.max()


def _plane(rng: np.random.Generator, kind: str, shape: tuple[int, int]) -> np.ndarray:
    """Return the expected electrons of a plane."""
    blur = rng.uniform(1.0, 2.0)
    ground = rng.choice([0.2, 1.0, 5.0])
    if kind == "background":  # hardly anything but a ground that is not quite even
        slope = gaussian_filter(rng.standard_normal(shape), 60)
        slope = (slope - slope.min()) / np.ptp(slope)
        return rng.choice([0.5, 2, 10]) * (0.5 + slope) + 20 * spots(rng, shape, 8, blur)
    if kind == "filaments":
        return ground + rng.choice([10, 40, 150]) * threads(rng, shape, rng.integers(4, 16), blur)
    if kind == "vesicles":
        return ground + rng.choice([10, 40, 150]) * spots(rng, shape, rng.integers(40, 400), blur)
    if kind == "cells":
        return ground + rng.choice([10, 40, 150]) * cells(rng, shape, rng.integers(3, 12))
    # "counts": a mean of 0.1 to 1
    found = cells(rng, shape, 8) + 0.5 * threads(rng, shape, 8, blur)
    found += rng.choice([0.02, 0.1]) * found.max()
    return found * rng.choice([0.1, 0.2, 0.5, 1.0]) / found.mean()


def _expected(rng: np.random.Generator, kind: str) -> tuple[np.ndarray, str]:
    if kind == "stack":
        planes = []
        names = rng.choice(["filaments", "vesicles", "cells"], 2)
        for name in names:
            whole = _plane(rng, name, (128, 160))
            for z in range(3):
                for t in range(3):
                    moved = np.roll(whole, (5 * t + 2 * z, 3 * t), (0, 1))
                    planes.append(gaussian_filter(moved, 0.7 * abs(z - 1)))
        found = np.reshape(planes, (2, 3, 3, 128, 160))
        return found.transpose(2, 1, 0, 3, 4), "TZCYX"
    return _plane(rng, kind, (SIDE, SIDE)), "YX"


KINDS = ("background", "filaments", "vesicles", "cells", "counts", "stack")


def scene(kind: str, seed: int) -> Scene:
    """Return a scene of a kind; the seed decides everything else."""
    rng = np.random.default_rng([KINDS.index(kind), seed])
    expected, axes = _expected(rng, kind)
    dtype = np.dtype(str(rng.choice(["uint8", "uint16", "float32"])))
    offset = float(rng.choice([0, 100]))
    if kind == "counts":
        gain, read, offset = 1.0, 0.0, 0.0
    else:
        gain = float(rng.choice([0.5, 1.0, 3.0]))
        read = float(rng.choice([0.0, 1.0, 2.0, 5.0]))
    if dtype == np.uint8:
        room = (255 - offset) / (1.3 * float(expected.max()) + 6)
        gain = min(gain, max(room, 0.5))
    electrons = rng.poisson(expected)
    image = offset + gain * electrons + rng.normal(0, read, expected.shape) if read else (
        offset + gain * electrons
    )
    if dtype.kind == "u":
        image = np.clip(np.rint(image), 0, np.iinfo(dtype).max)
    return Scene(image.astype(dtype), axes, gain, read, offset, expected)
