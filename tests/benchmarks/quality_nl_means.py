"""Quality of NL-means: mean PSNR beside that of scikit-image and OpenCV.

    python tests/benchmarks/quality_nl_means.py [--quick] [--sigma 20] [--json FILE]

The noise of each picture is drawn with ``numpy.random.default_rng(seed)``; PSNR has the peak 255,
on float results, and is the mean over pictures and seeds. Every method knows sigma. Settings in
brackets are chosen, per set, for the best mean PSNR on the middle of four of its pictures; h is in
units of sigma. Ours without brackets are the defaults. Search windows are 21 x 21 everywhere.
OpenCV filters 8-bit images, so it gets the noisy picture rounded and clipped. The set ``w2s`` has
its own noise, which grows with brightness: sigma is the standard deviation of its difference to the
mean of 400 images, and scores are taken after the affine map that fits best. Times are those of a
whole call, NumPy to NumPy.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import cv2
import numpy as np
from cases import Case, cases
from skimage.restoration import denoise_nl_means

import napari_gpu_denoise as gd

PHOTOGRAPHS = ("bsd68", "set12", "denoiselab13", "tractor", "colin27")
SETS = (*PHOTOGRAPHS, "w2s")
Filter = Callable[..., np.ndarray]


@dataclass(frozen=True)
class Method:
    """A filter to measure; a `grid` holds the settings to choose from."""

    name: str
    run: Filter
    grid: dict[str, tuple] = field(default_factory=dict)

    def choices(self) -> Iterator[dict]:
        """Yield every combination of settings."""
        for values in itertools.product(*self.grid.values()):
            yield dict(zip(self.grid, values, strict=True))


def ours(**settings) -> Filter:
    """Return our filter with these settings."""
    return lambda noisy, sigma, **more: gd.nl_means(noisy, sigma, **settings, **more)


def scikit_image(noisy: np.ndarray, sigma: float, *, fast: bool, patch: int, h: float):
    """Filter with scikit-image; `h` in units of sigma."""
    return denoise_nl_means(
        noisy, patch_size=patch, patch_distance=10, h=h * sigma, sigma=sigma, fast_mode=fast
    )


def scikit_image_defaults(noisy: np.ndarray, sigma: float) -> np.ndarray:
    """Filter with the defaults of scikit-image, which are for images from 0 to 1."""
    return 255 * denoise_nl_means(noisy / 255)


def opencv(noisy: np.ndarray, sigma: float, *, patch: int, h: float) -> np.ndarray:
    """Filter with OpenCV; `h` in units of sigma."""
    rounded = np.rint(noisy).clip(0, 255).astype(np.uint8)
    return cv2.fastNlMeansDenoising(rounded, None, h * sigma, patch, 21)


def methods(device: str | None, slow: bool) -> list[Method]:
    """Return what to compare."""
    found = [
        Method("ours", ours(device=device)),
        Method("ours P5,S1", ours(device=device, patch=5, step=1)),
        Method("ours", ours(device=device), {"strength": (0.8, 1.0, 1.25, 1.5, 2.0, 3.0)}),
        Method(
            "ours, sigma estimated",
            lambda noisy, _: gd.nl_means(noisy, noise="gaussian", device=device),
        ),
        Method(
            "scikit-image fast",
            lambda *a, **k: scikit_image(*a, fast=True, **k),
            {"patch": (3, 5, 7), "h": (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.1)},
        ),
        Method("scikit-image defaults", scikit_image_defaults),
        Method(
            "OpenCV",
            opencv,
            {"patch": (3, 5, 7), "h": (0.7, 0.8, 0.85, 0.9, 0.95, 1.0, 1.1, 1.2, 1.4)},
        ),
    ]
    if slow:
        grid = {"patch": (5,), "h": (0.6, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4)}
        run = lambda *a, **k: scikit_image(*a, fast=False, **k)  # noqa: E731
        found.insert(5, Method("scikit-image slow", run, grid))
    return found


def tune(method: Method, examples: list[Case]) -> dict:
    """Return the settings of the grid with the best mean PSNR on the middle of some pictures."""
    small = []
    for case in examples:
        y, x = (max(0, (length - 192) // 2) for length in case.clean.shape)
        middle = np.s_[y : y + 192, x : x + 192]
        small.append(replace(case, noisy=case.noisy[middle], clean=case.clean[middle]))
    choices = list(method.choices())
    if len(choices) == 1:
        return choices[0]
    return max(
        choices,
        key=lambda choice: sum(c.score(method.run(c.noisy, c.sigma, **choice)) for c in small),
    )


def measure(name: str, options: argparse.Namespace) -> list[dict]:
    """Return one row per method for one set."""
    stride = 8 if options.quick else 1
    seeds = 1 if options.quick or name == "w2s" else options.seeds
    examples = list(cases(name, options.sigma, 0, 1))
    examples = examples[:: max(1, len(examples) // 4)][:4]
    rows = []
    for method in methods(options.device, not options.no_slow):
        settings = tune(method, examples)
        method.run(examples[0].noisy, options.sigma, **settings)  # compiles kernels
        scores, seconds = [], 0.0
        for seed in range(seeds):
            for case in cases(name, options.sigma, seed, stride):
                start = time.perf_counter()
                result = method.run(case.noisy, case.sigma, **settings)
                seconds += time.perf_counter() - start
                scores.append(case.score(result))
            print(
                f"{name}, {method.name} {settings or ''}, seed {seed}: {np.mean(scores):.2f} dB",
                file=sys.stderr,
            )
        rows.append(
            {
                "set": name,
                "sigma": None if name == "w2s" else options.sigma,
                "method": method.name,
                "settings": settings,
                "pictures": len(scores) // seeds,
                "seeds": seeds,
                "psnr": float(np.mean(scores)),
                "seconds": seconds / len(scores),
            }
        )
    return rows


def show(rows: list[dict]) -> None:
    """Print the rows of one set as a table."""
    first = rows[0]
    noise = "its own noise" if first["sigma"] is None else f"sigma {first['sigma']:g}"
    print(f"\n{first['set']}: {first['pictures']} pictures, {noise}, {first['seeds']} seeds\n")
    print("| method | mean PSNR, dB | time a picture, s |\n| :--- | ---: | ---: |")
    for row in rows:
        chosen = ", ".join(f"{key} {value}" for key, value in row["settings"].items())
        name = f"{row['method']} ({chosen})" if chosen else row["method"]
        print(f"| {name} | {row['psnr']:.2f} | {row['seconds']:.3f} |", flush=True)


def main() -> None:
    """Measure, print, and write JSON where asked to."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--sigma", type=float, default=20.0, help="noise on the scale of 255")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="every eighth picture, one seed")
    parser.add_argument("--no-slow", action="store_true", help="leave out scikit-image's slow mode")
    parser.add_argument("--device", help="part of the name of the OpenCL device")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    options = parser.parse_args()
    print(f"Ours runs on {gd.choose(options.device)}; the others on the CPU.")
    rows = []
    for name in options.sets:
        found = measure(name, options)
        show(found)
        rows += found
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
