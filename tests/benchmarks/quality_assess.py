"""How right `gd.assess` is: predicted error, its map, detail kept and check of sigma.

    python tests/benchmarks/quality_assess.py [--tables …] [--quick] [--seeds N] [--device D]

Prints one table for each of: bars (20 pictures: photographs, slices of a head, fluorescence, with
noise of sigma 20), kinds (photons, magnitudes, correlated noise, video, volume, colours), strength
(sigma told too low and too high), alarms (what is wrong with an image, and what is not) and times
(1024 x 1024). Noise is drawn with ``numpy.random.default_rng(seed)``. The data folder holds the
pictures.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.ndimage import gaussian_filter
from tables import print_tables, show

import napari_gpu_denoise as gd
from napari_gpu_denoise.assessment.detail import Rings
from napari_gpu_denoise.assessment.error import MAP_WIDTH

sys.path.insert(0, str(Path(__file__).parents[1]))
from reference.data import microscopy_pairs, pictures

SIGMA = 20.0
FILTERS = {"BM3D fast": gd.BM3D.of(profile="fast"), "NL-means": gd.NLMeans()}


def scenes() -> Iterator[tuple[str, np.ndarray]]:
    """Yield 20 pictures without noise, with their kind."""
    photographs = list(pictures("bsd68").values())
    for k in (0, 8, 16, 24, 32, 40, 48, 56):
        yield f"photograph {k + 1}", photographs[k].astype(np.float32)
    for name, clean in list(pictures("colin27").items())[1:7]:
        yield f"head, {name}", clean
    for name, (_, clean) in microscopy_pairs().items():
        yield f"cells {name.removeprefix('input_avg1_')}", clean.astype(np.float32)


def noisy_of(clean: np.ndarray, seed: int, sigma: float = SIGMA) -> np.ndarray:
    """Return a picture with noise."""
    noise = np.random.default_rng(seed).normal(0, sigma, clean.shape)
    return (clean + noise).astype(np.float32)


def bars(options: argparse.Namespace) -> None:
    """Twenty pictures, sigma 20 told: what is predicted beside what is true.

    Error of the predicted mean square in %, correlation of the map of expected error with the true
    error (root of the mean over the same area), largest and mean difference of the detail kept in
    rings that are judged. Bars: 10 %, 0.7, 0.06.
    """
    for name, filter in FILTERS.items():
        body, missed = [], [0, 0, 0]
        for number, (title, clean) in enumerate(scenes()):
            if number % options.stride:
                continue
            noisy = noisy_of(clean, number)
            found = gd.assess(noisy, filter, SIGMA, peak=255, device=options.device)
            cells = compared(found, noisy, clean, filter, options)
            for k, wrong in enumerate((abs(cells[2]) > 10, cells[3] < 0.7, cells[4] > 0.06)):
                missed[k] += wrong
            body.append([title, *(f"{cell:.{d}f}" for cell, d in zip(cells, DIGITS, strict=True))])
        print(f"\n{name}; pictures beyond the bars: {missed}\n")
        show(["", *HEAD], body)


HEAD = ("true PSNR", "predicted", "error %", "map", "detail, worst", "mean", "best sigma")
DIGITS = (2, 2, 1, 2, 3, 3, 2)


def compared(found, noisy, clean, filter, options, **told) -> list[float]:
    """Return the numbers of `HEAD`."""
    told = told or {"sigma": SIGMA}
    result = gd.denoise(noisy, filter, dtype="float32", device=options.device, **told).image
    inner = tuple(slice(*each) for each in found.region)
    error = (result[inner] - clean[inner]).astype(np.float32)
    mse = float(np.mean(error**2))
    around = [0] * (error.ndim - 2) + [MAP_WIDTH] * 2
    true_map = np.sqrt(gaussian_filter(error**2, around))
    return [
        10 * np.log10(255**2 / mse),
        10 * np.log10(255**2 / found.mse),
        100 * (found.mse / mse - 1),
        float(np.corrcoef(true_map.ravel(), found.error_map.ravel())[0, 1]),
        *detail_difference(found, result[inner], clean[inner]),
        found.check.best if found.check else np.nan,
    ]


def detail_difference(found, result: np.ndarray, clean: np.ndarray) -> tuple[float, float]:
    """Return the largest and the mean difference of the detail kept in rings that are judged."""
    rings = Rings(*clean.shape[-2:])
    truth = rings.spectrum(clean)
    power = rings.sums(np.abs(truth) ** 2)
    transfer = rings.sums((rings.spectrum(result) * truth.conj()).real) / power
    detail = found.channels[0].detail
    apart = np.abs(transfer - detail.kept)[np.array(detail.judged)]
    return float(apart.max(initial=0)), float(apart.mean()) if apart.size else 0.0


def main() -> None:
    """Print the tables that are asked for."""
    print_tables(__doc__, (bars,))


if __name__ == "__main__":
    main()
