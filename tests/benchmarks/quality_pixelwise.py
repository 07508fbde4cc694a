"""Quality of exact pixelwise NL-means, beside the papers and other programs.

    python tests/benchmarks/quality_pixelwise.py [--quick] [--tables papers frames ...]

PSNR has the peak 255, on float results; noise is white Gaussian, neither rounded nor clipped unless
a table says so. Every method knows sigma. Volumes are in quality_bm4d.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec

import imageio.v3 as imageio
import numpy as np
from cases import cases, with_noise
from quality_nl_means import Method, best_settings, opencv, scikit_image
from tables import print_tables, show

import napari_gpu_denoise as gd
from reference.data import existing, pictures
from scenes import psnr

SIGMA = 20.0


def papers(options: argparse.Namespace) -> None:
    """Conventional NL-means of van der Vuurst 2023, table 7: sigma 40, the noisy image rounded and
    clipped to 0..255; the profile "conventional".
    """
    body = []
    for name, printed in (("boat", 24.67), ("peppers", 25.70)):
        clean, scores = pictures("denoiselab13")[name], []
        for seed in range(options.seeds):
            noisy = np.clip(np.rint(with_noise(clean, 40, seed)), 0, 255)
            given = {"profile": "conventional", "device": options.device}
            scores.append(psnr(gd.nl_means_pixelwise(noisy, 40, **given), clean))
        body.append([name, printed, f"{np.mean(scores):.3f}", np.ptp(scores)])
    show(["picture", "printed, dB", "ours, dB", "spread over seeds"], body)


def frames(options: argparse.Namespace) -> None:
    """Goossens et al. 2010, table 1: colour video, sigma 25, past frames searched. Theirs is an
    unnamed clip of 720 x 480, ours the middle of `tractor`, its frames from the fourth on. As they
    did, h is chosen for each.
    """
    files = sorted(existing("video/tractor_clean").glob("*.png"))
    clean = np.stack([imageio.imread(file) for file in files[:6]]).astype(np.float64)
    clean = clean[:, 130:400, 200:600]
    printed = {21: (36.79, 37.20, 37.24, 37.17), 7: (35.40, 36.19, 36.26, 36.33)}
    given = {"axes": "TYXS", "frames": slice(3, None), "device": options.device}
    body = []
    for window, theirs in printed.items():
        body.append([f"{window} x {window}, printed", *theirs])
        found = []
        for past in range(4):
            best = []
            for strength in (1.8, 1.9, 2.0):
                own = {"window": window, "strength": strength, "frames_before": past}
                filter = gd.NLMeansPixelwise.of(profile="goossens", channels="joint", **own)
                results = (
                    gd.denoise(with_noise(clean, 25, seed), filter, 25.0, **given).image
                    for seed in range(options.seeds)
                )
                best.append(np.mean([psnr(out, clean[3:]) for out in results]))
            found.append(max(best))
        body.append([f"{window} x {window}, ours", *found])
    show(["search window", *(f"{n} past frames" for n in range(4))], body)


def photographs(options: argparse.Namespace) -> None:
    """BSD68, sigma 20, mean PSNR in dB. Settings of other programs are the best of some on three
    pictures.
    """

    def pixelwise(**settings) -> Callable:
        return lambda noisy, sigma: gd.nl_means_pixelwise(
            noisy, sigma, device=options.device, **settings
        )

    def patchwise(noisy, sigma, **settings) -> np.ndarray:
        return gd.nl_means(noisy, sigma, device=options.device, **settings)

    ways = [
        Method("ours, exact", pixelwise()),
        Method("ours, patch=3, window=11", pixelwise(patch=3, window=11, strength=0.95)),
        Method("ours, goossens", pixelwise(profile="goossens")),
        Method("ours, conventional", pixelwise(profile="conventional")),
        Method("nl_means (patchwise)", patchwise),
        Method("nl_means", patchwise, {"profile": ("fine",)}),
        *others(),
    ]
    body = []
    for way in ways:
        chosen = best_settings(way, list(cases("bsd68", SIGMA, 0, 24)))
        row = [", ".join([way.name, *(f"{key}={value}" for key, value in chosen.items())])]
        for stride in (options.stride, 8 * options.stride):
            scores = [
                case.score(way.run(case.noisy, SIGMA, **chosen))
                for seed in range(options.seeds)
                for case in cases("bsd68", SIGMA, seed, stride)
            ]
            row.append(np.mean(scores))
        body.append(row)
    show(["", "pictures", "every eighth of these"], body)


def others() -> Iterator[Method]:
    """Yield other programs that are there."""
    grid = {"patch": (3, 5, 7), "reach": (5, 6, 10), "h": (0.6, 0.7, 0.8, 0.9)}
    yield Method("scikit-image, fast mode", scikit_image, grid)
    grid = {"patch": (3, 5), "reach": (5,), "h": (0.6, 0.7, 0.8)}
    yield Method("scikit-image, slow mode", partial(scikit_image, fast=False), grid)
    if find_spec("cv2"):
        grid = {"patch": (3, 5, 7), "window": (11, 13, 21), "h": (0.7, 0.8, 0.9, 1.0, 1.1)}
        yield Method("OpenCV, 8 bit", opencv, grid)


if __name__ == "__main__":
    print_tables(__doc__, (papers, frames, photographs))
