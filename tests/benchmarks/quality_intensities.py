"""Print what filters leave of the brightness of discs: mean and peak, by their size and contrast.

    python tests/benchmarks/quality_intensities.py [--seeds 2]

Discs with soft edges lie on a flat background, with Gaussian noise of sigma 10. The contrast of a
disc is the mean over its pixels, less that of the background around it.
"""

from __future__ import annotations

import argparse

import numpy as np

import napari_gpu_denoise as gd

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
    print("| filter | radius | " + " | ".join(f"{c} sigma" for c in CONTRASTS) + " |")
    print("| --- " * (2 + len(CONTRASTS)) + "|")
    for name, settings in FILTERS.items():
        for radius in RADII:
            row = []
            for contrast in CONTRASTS:
                kept, spread, noisy_spread = [], [], []
                for seed in range(seeds):
                    rng = np.random.default_rng((seed, radius, contrast))
                    clean, distance = phantom(radius, contrast, rng)
                    noisy = (clean + SIGMA * rng.standard_normal(clean.shape)).astype(np.float32)
                    result = gd.denoise(noisy, settings, SIGMA).image
                    true, raw, found = (
                        contrasts(each, distance, radius) for each in (clean, noisy, result)
                    )
                    kept.append(found.mean() / true.mean())
                    spread.append(np.std(found - true))
                    noisy_spread.append(np.std(raw - true))
                ratio = np.mean(spread) / np.mean(noisy_spread)
                row.append(f"{100 * np.mean(kept):.0f} % ({ratio:.2f})")
            print(f"| {name} | {radius} | " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
