"""PSNR of filters on a piece of a head (colin27), whole and with every third or fifth slice.

    python tests/benchmarks/quality_volumes.py
    python tests/benchmarks/quality_volumes.py --sigma 10 40 --seeds 2

White Gaussian noise; the piece is 24 x 80 x 80 voxels, or 24 slices of 67 at a spacing of three.
"""

from __future__ import annotations

import argparse

import numpy as np

import napari_gpu_denoise as gd
from reference.data import head
from scenes import psnr

PIECES = {
    "all slices": np.s_[75:99, 60:140, 50:130],
    "every third": np.s_[50:122:3, 60:140, 50:130],
    "every fifth": np.s_[30:150:5, 60:140, 50:130],
}
FILTERS = {
    "bm3d, slice by slice": gd.BM3D(),
    "nl_means, slices=2": gd.NLMeans(slices=2),
    "nl_means, fine, slices=2": gd.NLMeans.of(profile="fine", slices=2),
    "pixelwise, volume": gd.NLMeansPixelwise.of(profile="volume"),
    "pixelwise, volume, spacing=off": gd.NLMeansPixelwise.of(profile="volume", spacing="off"),
    "bm4d, fast": gd.BM4D.of(profile="fast"),
    "bm4d, fast, cube=4x4x4": gd.BM4D.of(profile="fast", cube="4x4x4"),
    "bm4d, fast, cube=2x4x8": gd.BM4D.of(profile="fast", cube="2x4x8"),
    "bm4d, fast, cube=1x8x8": gd.BM4D.of(profile="fast", cube="1x8x8"),
    "bm4d": gd.BM4D(),
}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sigma", type=float, nargs="+", default=[20.0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", default="", help="filters whose names begin so")
    parser.add_argument("--device")
    args = parser.parse_args()
    volume = head()
    cases = [(piece, sigma) for piece in PIECES for sigma in args.sigma]
    print("| | " + " | ".join(f"{piece}, sigma {sigma:g}" for piece, sigma in cases) + " |")
    print("| --- |" + " ---: |" * len(cases))
    chosen = {name: one for name, one in FILTERS.items() if name.startswith(args.only)}
    rows: dict[str, list[float]] = {name: [] for name in ("noisy", *chosen)}
    for piece, sigma in cases:
        clean = volume[PIECES[piece]].astype(np.float64)
        found: dict[str, list[float]] = {name: [] for name in rows}
        for seed in range(args.seeds):
            noisy = clean + np.random.default_rng(seed).normal(0, sigma, clean.shape)
            found["noisy"].append(psnr(noisy, clean))
            for name, settings in chosen.items():
                out = gd.denoise(noisy, settings, sigma, axes="ZYX", device=args.device).image
                found[name].append(psnr(out, clean))
        for name, values in found.items():
            rows[name].append(float(np.mean(values)))
    for name, values in rows.items():
        print(f"| {name} | " + " | ".join(f"{value:.2f}" for value in values) + " |")


if __name__ == "__main__":
    main()
