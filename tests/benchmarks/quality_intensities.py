"""Print what filters leave of the brightness of discs: mean and peak, by their size and contrast.

    python tests/benchmarks/quality_intensities.py [--seeds 2]

Discs with soft edges lie on a flat background, with Gaussian noise of sigma 10. The contrast of a
disc is the mean over its pixels, less that of the background around it.
"""

from __future__ import annotations

import argparse

import numpy as np
from tables import show

import napari_gpu_denoise as gd
from napari_gpu_denoise.protocol.filter import Filter

SIGMA, SIDE, CELL = 10.0, 512, 64
RADII = (1, 2, 4, 8, 16)
CONTRASTS = (1, 2, 4, 8)  # of sigma
FILTERS = {"NL-means": gd.NLMeans(), "BM3D": gd.BM3D()}


def phantom(radius: float, contrast: float, rng: np.random.Generator) -> tuple:
    """Return an image of discs, and the distance of each pixel from the centre of its disc."""
    y, x = np.mgrid[:SIDE, :SIDE].astype(np.float64)
    cells = SIDE // CELL
    places = rng.uniform(-8, 8, (2, cells, cells)) + CELL / 2
    centre = places.repeat(CELL, 1).repeat(CELL, 2)
    distance = np.hypot(y % CELL - centre[0], x % CELL - centre[1])
    return 100 + contrast * SIGMA * np.clip(radius + 0.5 - distance, 0, 1), distance


def contrasts(image: np.ndarray, distance: np.ndarray, radius: float) -> np.ndarray:
    """Return the measured contrast of each disc."""
    inside, around = distance <= radius, (distance > radius + 3) & (distance < radius + 9)
    measured = []
    for mask in (inside, around):
        tiles = [
            np.where(mask, part, 0).reshape(SIDE // CELL, CELL, -1, CELL).sum((1, 3))
            for part in (image, 1)
        ]
        measured.append(tiles[0] / tiles[1])
    return measured[0] - measured[1]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=2)
    seeds = parser.parse_args().seeds
    rows = (
        [name, radius, *(kept(settings, radius, contrast, seeds) for contrast in CONTRASTS)]
        for name, settings in FILTERS.items()
        for radius in RADII
    )
    show(["filter", "radius", *(f"{contrast} sigma" for contrast in CONTRASTS)], rows)


def kept(settings: Filter, radius: int, contrast: int, seeds: int) -> str:
    """Return the mean contrast that is left, and what is left of the spread of the noisy one."""
    shares, spreads = [], []
    for seed in range(seeds):
        rng = np.random.default_rng((seed, radius, contrast))
        clean, distance = phantom(radius, contrast, rng)
        noisy = (clean + SIGMA * rng.standard_normal(clean.shape)).astype(np.float32)
        images = clean, noisy, gd.denoise(noisy, settings, SIGMA).image
        true, raw, found = (contrasts(each, distance, radius) for each in images)
        shares.append(found.mean() / true.mean())
        spreads.append([np.std(each - true) for each in (found, raw)])
    after, before = np.mean(spreads, axis=0)
    return f"{100 * np.mean(shares):.0f} % ({after / before:.2f})"


if __name__ == "__main__":
    main()
