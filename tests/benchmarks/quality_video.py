"""Print how well filters over time denoise a video, beside those that take frame by frame.

    python tests/benchmarks/quality_video.py [--clips tractor traffic foliage] [--sigmas 10 20 40]

Luminance, with white Gaussian noise, neither rounded nor clipped. PSNR is the mean over frames,
peak 255. "Flicker" is the standard deviation, in grey levels, of how the error of a pixel changes
from one frame to the next, where the clean frames hardly change (their mean difference over 9 x 9
pixels is below 1).
"""

from __future__ import annotations

import argparse

import numpy as np
from cases import psnr, with_noise
from scipy.ndimage import uniform_filter
from tables import print_tables, show

import napari_gpu_denoise as gd
from reference.data import pictures

FILTERS = {
    "NL-means, frame by frame": gd.NLMeans(),
    "NL-means, over time": gd.NLMeans.of(profile="video"),
    "BM3D, frame by frame": gd.BM3D(),
    "VBM3D": gd.VBM3D(),
    "VBM3D fast": gd.VBM3D.of(profile="fast"),
    "VBM3D high": gd.VBM3D.of(profile="high"),
    "VBM3D live": gd.VBM3D.of(profile="live"),
}


def clips(options: argparse.Namespace) -> None:
    """PSNR in dB, that of the frames from the fifth on, and flicker."""
    for clip in options.clips:
        clean = np.stack(list(pictures(clip).values())).astype(np.float64)
        still = np.array([uniform_filter(each, 9) < 1 for each in np.abs(np.diff(clean, axis=0))])
        print(f"\n{clip}: {len(clean)} frames, {still.mean():.1%} of the pixels stand still\n")
        body = []
        for name in options.filters:
            row = [name]
            for sigma in options.sigmas:
                found = []
                for seed in range(options.seeds):
                    noisy, given = with_noise(clean, sigma, seed), {"device": options.device}
                    result = gd.denoise(noisy, FILTERS[name], sigma, axes="TYX", **given).image
                    of_frames = [psnr(*each) for each in zip(result, clean, strict=True)]
                    flicker = np.diff(result - clean, axis=0)[still].std()
                    found.append((np.mean(of_frames), np.mean(of_frames[4:]), flicker))
                row.append("{:.3f}, {:.3f}, {:.2f}".format(*np.mean(found, axis=0)))
            body.append(row)
        show(["", *(f"sigma {sigma:g}" for sigma in options.sigmas)], body)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add clips, noise and filters."""
    parser.add_argument("--clips", nargs="+", default=["tractor", "traffic", "foliage"])
    parser.add_argument("--sigmas", type=float, nargs="+", default=[10, 20, 40])
    parser.add_argument("--filters", nargs="+", choices=FILTERS, default=list(FILTERS))


if __name__ == "__main__":
    print_tables(__doc__, (clips,), add_options)
