"""How often standard errors of noise parameters hold the true value.

    python tests/benchmarks/error_bars.py [--images 200] [--only KIND ...] [--side 160]

Each image has a smooth scene, with fine texture in a part of it, and noise of one kind with
parameters of its own; the model is named. Of each parameter with a finite standard error: share of
the images in which 1.64 of these hold the true value, which is 90 % if they are right, mean and
spread of the error in units of the stated one, and how many state none.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.ndimage import gaussian_filter
from tables import show_rows

import napari_gpu_denoise as gd

WITHIN = 1.645  # standard errors, which hold 90 % of normal values


def scene(rng: np.random.Generator, side: int) -> np.ndarray:
    """Return shading, discs, and texture in some places, from 20 to 220."""
    y, x = np.mgrid[:side, :side] / side
    light = x * rng.uniform(-1, 1) + y * rng.uniform(-1, 1) + 0.4 * np.cos(rng.uniform(3, 9) * x)
    for _ in range(8):
        (cy, cx), r = rng.uniform(0, 1, 2), rng.uniform(0.05, 0.2)
        light = light + rng.uniform(-0.5, 0.8) * ((y - cy) ** 2 + (x - cx) ** 2 < r * r)
    leaves = gaussian_filter(rng.standard_normal(x.shape), 1.0)
    light = light + 0.3 * leaves * (gaussian_filter(rng.standard_normal(x.shape), side / 8) > 0)
    light = gaussian_filter(light, 0.7)
    return 20 + 200 * (light - light.min()) / np.ptp(light)


Made = tuple[np.ndarray, dict[str, float]]  # an image, and the parameters of its noise


def gaussian(rng: np.random.Generator, clean: np.ndarray) -> Made:
    sigma = rng.uniform(4, 20)
    return clean + rng.normal(0, sigma, clean.shape), {"sigma": sigma}


def correlated(rng: np.random.Generator, clean: np.ndarray) -> Made:
    sigma, width = rng.uniform(6, 20), rng.uniform(0.6, 1.0)
    noise = gaussian_filter(rng.standard_normal(clean.shape), width, mode="wrap")
    kernel = gaussian_filter(np.pad([[1.0]], 16), width)
    return clean + sigma * noise / math.sqrt(np.square(kernel).sum()), {"sigma": sigma}


def photons(rng: np.random.Generator, clean: np.ndarray) -> Made:
    gain, read = math.exp(rng.uniform(-0.7, 1.6)), rng.uniform(0, 8)
    offset = float(rng.choice([0, 100]))
    image = offset + gain * rng.poisson(clean / gain) + rng.normal(0, read, clean.shape)
    return image, {"gain": gain, "read_noise": read, "offset": offset}


def rician(rng: np.random.Generator, clean: np.ndarray) -> Made:
    sigma = rng.uniform(4, 20)
    object_ = np.where(clean > np.quantile(clean, 0.4), clean, 0.0)
    real, imaginary = rng.normal(0, sigma, (2, *clean.shape))
    return np.hypot(object_ + real, imaginary), {"sigma": sigma}


def speckle(rng: np.random.Generator, clean: np.ndarray) -> Made:
    looks = rng.uniform(1, 10)
    return clean * rng.gamma(looks, 1 / looks, clean.shape), {"looks": looks}


def signal_dependent(rng: np.random.Generator, clean: np.ndarray) -> Made:
    levels = np.linspace(0, 240, 4)
    deviation = np.interp(clean, levels, rng.uniform(3, 14, 4))
    image = clean + deviation * rng.standard_normal(clean.shape)
    return image, {"": math.sqrt(np.square(deviation).mean())}  # the root mean variance


KINDS: dict[str, Callable] = {
    "gaussian": gaussian,
    "correlated": correlated,
    "poisson-gaussian": photons,
    "rician": rician,
    "speckle": speckle,
    "signal-dependent": signal_dependent,
}


def coverage(kind: str, number: int, side: int) -> list[dict[str, Any]]:
    """Return a row of the table for each parameter of a kind of noise."""
    found: dict[str, list[tuple[float, float]]] = {}
    for seed in range(number):
        rng = np.random.default_rng([sorted(KINDS).index(kind), seed])
        image, truth = KINDS[kind](rng, scene(rng, side))
        estimate = gd.estimate_noise(image.astype(np.float32), model=kind)
        for name, true in truth.items():
            value = getattr(estimate.models[0], name) if name else estimate.sigma[0]
            error = estimate.errors[0].get(name, math.nan) if name else estimate.standard_error[0]
            found.setdefault(name, []).append((value - true, error))
    rows = []
    for name, values in found.items():
        stated = [each for each in values if np.isfinite(each[1])] or [(math.nan, math.nan)]
        off, error = np.array(stated).T
        rows.append(
            {
                "noise": kind,
                "parameter": name or "sigma",
                "held %": 100 * np.mean(np.abs(off) <= WITHIN * error),
                "mean / error": np.mean(off / error),
                "spread / error": np.std(off / error),
                "not stated": sum(not np.isfinite(each[1]) for each in values),
            }
        )
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--images", type=int, default=200, help="of each kind")
    parser.add_argument("--side", type=int, default=160, help="of images, pixels")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS))
    options = parser.parse_args()
    kinds = (coverage(kind, options.images, options.side) for kind in options.only)
    show_rows(row for rows in kinds for row in rows)


if __name__ == "__main__":
    main()
