"""Accuracy of the noise estimate on photographs, beside that of scikit-image.

    python tests/benchmarks/sigma_estimate.py [--quick] [--json FILE]

Prints, per set and noise level, the mean and the worst relative error over all pictures and three
seeds, and the mean time of a call.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from skimage.restoration import estimate_sigma

from napari_gpu_denoise import estimate_noise

sys.path.insert(0, str(Path(__file__).parents[1]))
from reference.data import pictures

METHODS: dict[str, Callable[[np.ndarray], float]] = {
    "napari-gpu-denoise": lambda image: estimate_noise(image).sigma[0],
    "scikit-image": lambda image: float(estimate_sigma(image)),
}
SETS = ("bsd68", "set12", "denoiselab13")
SIGMAS = (5, 10, 20, 30, 50)


def measure(clean: list[np.ndarray], sigma: float, seeds: int) -> list[dict]:
    """Return one row per method."""
    errors: dict[str, list[float]] = {name: [] for name in METHODS}
    seconds = dict.fromkeys(METHODS, 0.0)
    for picture in clean:
        for seed in range(seeds):
            noise = np.random.default_rng(seed).normal(0, sigma, picture.shape)
            noisy = (picture + noise).astype(np.float32)
            for name, method in METHODS.items():
                start = time.perf_counter()
                errors[name].append(method(noisy) / sigma - 1)
                seconds[name] += time.perf_counter() - start
    return [
        {
            "sigma": sigma,
            "method": name,
            "mean error %": 100 * float(np.mean(np.abs(found))),
            "bias %": 100 * float(np.mean(found)),
            "least %": 100 * float(np.min(found)),
            "largest %": 100 * float(np.max(found)),
            "time ms": 1000 * seconds[name] / len(found),
        }
        for name, found in errors.items()
    ]


def main() -> None:
    """Measure, print, and write JSON where asked to."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="every eighth picture, one seed")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    options = parser.parse_args()
    rows = []
    for name in SETS:
        clean = list(pictures(name).values())[:: 8 if options.quick else 1]
        print(f"\n{name}: {len(clean)} pictures\n")
        print("| sigma | method | mean error % | bias % | least % | largest % | time ms |")
        print("| ---: | :--- | ---: | ---: | ---: | ---: | ---: |")
        for sigma in SIGMAS:
            for row in measure(clean, sigma, 1 if options.quick else 3):
                numbers = [f"{row[k]:.1f}" for k in list(row)[2:]]
                print("|", " | ".join([str(sigma), row["method"], *numbers]), "|", flush=True)
                rows.append({"set": name, **row})
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
