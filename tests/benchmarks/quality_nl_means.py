"""Quality of NL-means: mean PSNR beside that of scikit-image and OpenCV.

    python tests/benchmarks/quality_nl_means.py [--quick] [--sets bsd68 ...] [--sigma 20]

Every method knows sigma. Settings in brackets are chosen, per set, for the best mean PSNR on the
middle of four of its pictures; h is in units of sigma. Ours are the defaults, and the finest
steps. Search windows are 21 x 21 everywhere. OpenCV filters 8-bit images, so it gets the noisy
picture rounded and clipped.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib.util import find_spec

import numpy as np
from cases import Case, cases
from skimage.restoration import denoise_nl_means
from tables import print_tables, show

import napari_gpu_denoise as gd

SETS = ("bsd68", "set12", "denoiselab13", "tractor", "colin27")


@dataclass(frozen=True)
class Method:
    """A filter to measure; a `grid` holds the settings to choose from."""

    name: str
    run: Callable[..., np.ndarray]
    grid: dict[str, tuple] = field(default_factory=dict)


def scikit_image(
    noisy: np.ndarray, sigma: float, *, patch: int, h: float, reach: int = 10, fast: bool = True
) -> np.ndarray:
    """Filter with scikit-image; `h` in units of sigma, `reach` pixels around each."""
    given = {"patch_size": patch, "patch_distance": reach, "h": h * sigma, "sigma": sigma}
    return denoise_nl_means(noisy, **given, fast_mode=fast)


def opencv(
    noisy: np.ndarray, sigma: float, *, patch: int, h: float, window: int = 21
) -> np.ndarray:
    """Filter with OpenCV (opencv-python-headless); `h` in units of sigma."""
    import cv2

    rounded = np.rint(noisy).clip(0, 255).astype(np.uint8)
    return cv2.fastNlMeansDenoising(rounded, None, h * sigma, patch, window)


def methods(device: str | None) -> list[Method]:
    """Return what to compare."""

    def ours(noisy: np.ndarray, sigma: float, **settings) -> np.ndarray:
        return gd.nl_means(noisy, sigma, device=device, **settings)

    patches, strengths = {"patch": (3, 5, 7)}, (0.7, 0.8, 0.85, 0.9, 0.95, 1.0, 1.1, 1.2)
    found = [
        Method("ours", ours),
        Method("ours", ours, {"patch": (5,), "step": (1,)}),
        Method("scikit-image fast", scikit_image, {**patches, "h": (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)}),
    ]
    if find_spec("cv2"):
        found.append(Method("OpenCV", opencv, {**patches, "h": strengths}))
    return found


def best_settings(method: Method, examples: list[Case]) -> dict:
    """Return the settings of the grid with the best mean PSNR on the middle of some pictures."""
    choices = [
        dict(zip(method.grid, values, strict=True))
        for values in itertools.product(*method.grid.values())
    ]
    small = []
    for case in examples:
        y, x = (max(0, (length - 192) // 2) for length in case.clean.shape)
        middle = np.s_[y : y + 192, x : x + 192]
        small.append(replace(case, noisy=case.noisy[middle], clean=case.clean[middle]))

    def total(choice: dict) -> float:
        return sum(case.score(method.run(case.noisy, case.sigma, **choice)) for case in small)

    return choices[0] if len(choices) == 1 else max(choices, key=total)


def photographs(options: argparse.Namespace) -> None:
    """Mean PSNR in dB by set."""
    for name in options.sets:
        examples, body = list(cases(name, options.sigma, 0, 1)), []
        examples = examples[:: max(1, len(examples) // 4)][:4]
        for method in methods(options.device):
            settings = best_settings(method, examples)
            scores = [
                case.score(method.run(case.noisy, case.sigma, **settings))
                for seed in range(options.seeds)
                for case in cases(name, options.sigma, seed, options.stride)
            ]
            chosen = ", ".join(f"{key} {value}" for key, value in settings.items())
            body.append([f"{method.name} ({chosen})" if chosen else method.name, np.mean(scores)])
        print(f"\n{name}, sigma {options.sigma:g}, {len(scores)} noisy pictures\n")
        show(["method", "PSNR"], body)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add sets and noise."""
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--sigma", type=float, default=20.0, help="noise on the scale of 255")


if __name__ == "__main__":
    print_tables(__doc__, (photographs,), add_options)
