"""The Shapiro-Wilk NL-means: the paper's figures, and what each test is worth.

    python tests/benchmarks/quality_swnlm.py [--tables paper settings] [--quick]

PSNR has the peak 255, on float results, and is the mean over pictures and draws. Times:
``python tools/bench.py --filter swnlm --shape 512x512``.
"""

from __future__ import annotations

from argparse import Namespace

import numpy as np
from cases import cases, with_noise
from tables import print_tables, show

import napari_gpu_denoise as gd
from reference.data import pictures
from scenes import psnr

PRINTED = {"boat": 25.47, "peppers": 27.11}
SIGMAS = (10, 20, 40)
FILTERS = {
    "default": gd.SWNLM(),
    "alpha=0: without W": gd.SWNLM(alpha=0),
    "patch=7": gd.SWNLM(patch=7),
    "widen=1.5": gd.SWNLM(widen=1.5),
    "fewest=30": gd.SWNLM(fewest=30),
    "paper": gd.SWNLM.of(profile="paper"),
    "nl_means_pixelwise": gd.NLMeansPixelwise(),
    "nl_means": gd.NLMeans(),
}


def paper(options: Namespace) -> None:
    """Table 7 of van der Vuurst 2023, SWNLM: sigma 40, noise rounded and clipped to 0..255."""
    body = []
    for name, printed in PRINTED.items():
        clean, found = pictures("denoiselab13")[name], []
        for seed in range(options.seeds):
            noisy = np.clip(np.rint(with_noise(clean, 40, seed)), 0, 255)
            found.append(psnr(gd.swnlm(noisy, 40, profile="paper", device=options.device), clean))
        mean = float(np.mean(found))
        body.append([name, printed, mean, mean - printed])
    show(["picture", "printed", "ours", "difference"], body)


def settings(options: Namespace) -> None:
    """BSD68, white Gaussian noise; lonely: pixels that no other one resembles, at sigma 20."""
    body = []
    for name, chosen in FILTERS.items():
        row = [name]
        for sigma in SIGMAS:
            found = [
                case.score(gd.denoise(case.noisy, chosen, sigma, device=options.device).image)
                for seed in range(options.seeds)
                for case in cases("bsd68", sigma, seed, options.stride)
            ]
            row.append(np.mean(found))
        lonely = ""
        if isinstance(chosen, gd.SWNLM):
            counts = {**chosen.as_dict(), "show": "pixels"}
            alone = [
                np.mean(gd.swnlm(case.noisy, 20, device=options.device, **counts) == 1)
                for case in cases("bsd68", 20, 0, options.stride)
            ]
            lonely = f"{100 * np.mean(alone):.1f} %"
        body.append([*row, lonely])
    show(["settings", *(f"sigma {sigma}" for sigma in SIGMAS), "lonely"], body)


if __name__ == "__main__":
    print_tables(__doc__, (paper, settings))
