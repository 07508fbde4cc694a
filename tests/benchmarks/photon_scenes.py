"""Gain of simulated scenes of few photons: how near it is, and how honest its errors are.

    python tests/benchmarks/photon_scenes.py [--scenes 200] [--only KIND ...]

Each scene has a gain, an offset, read noise and a type of its own, the same in every run. For
each kind: how many channels are called Poisson-Gaussian, and of these the bias (median), scatter
(68 % are within) and mean error of the gain in %, how many gains are within 10 %, and within two of
the stated standard errors of the true one; then the latter for `single_image_noise` on all
channels, whatever they are called, and how often that does not know (an error above half the gain).
"""

from __future__ import annotations

import argparse
import math
from typing import Any, NamedTuple

import numpy as np
from scipy.ndimage import gaussian_filter
from tables import show_rows

import napari_gpu_denoise as gd
from napari_gpu_denoise.noise.patches.spectra import spectra_of
from napari_gpu_denoise.noise.photon import single_image_noise

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


def threads(
    rng: np.random.Generator, shape: tuple[int, int], number: int, blur: float
) -> np.ndarray:
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
    image = offset + gain * rng.poisson(expected)
    if read:
        image += rng.normal(0, read, expected.shape)
    if dtype.kind == "u":
        image = np.clip(np.rint(image), 0, np.iinfo(dtype).max)
    return Scene(image.astype(dtype), axes, gain, read, offset, expected)


def coverage(kind: str, number: int) -> dict[str, Any]:
    """Return a row of the table for scenes of one kind."""
    called, known, alone = [], [], []
    for seed in range(number):
        made = scene(kind, seed)
        found = gd.estimate_noise(made.image, made.axes)
        channels = [made.image]
        if "C" in made.axes:
            channels = list(np.moveaxis(made.image, made.axes.index("C"), 0))
        for image, model, errors in zip(channels, found.models, found.errors, strict=True):
            called.append(found.name)
            if math.isfinite(errors.get("gain", math.nan)):
                known.append((model.gain / made.gain - 1, errors["gain"] / made.gain))
            single = single_image_noise(spectra_of(image))
            alone.append((single.gain / made.gain - 1, single.gain_error / made.gain))
    error, stated = np.array(known).T if known else np.full((2, 1), np.nan)
    other, doubt = np.array(alone).T
    return {
        "scenes": kind,
        "channels": len(called),
        "Poisson-Gaussian": called.count("poisson-gaussian"),
        "gain known": len(known),
        "bias %": 100 * np.median(error),
        "scatter %": 100 * np.quantile(np.abs(error - np.median(error)), 0.68),
        "mean error %": 100 * np.abs(error).mean(),
        "stated %": 100 * np.median(stated),
        "within 10 %": np.count_nonzero(np.abs(error) <= 0.1),
        "within 2 errors": np.count_nonzero(np.abs(error) <= 2 * stated),
        "single: within 2 errors": np.count_nonzero(np.abs(other) <= 2 * doubt),
        "single: not known": np.count_nonzero(doubt > 0.5),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scenes", type=int, default=200, help="of all kinds together")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS)
    options = parser.parse_args()
    each, left = divmod(options.scenes, len(options.only))
    show_rows(coverage(kind, each + (k < left)) for k, kind in enumerate(options.only))


if __name__ == "__main__":
    main()
