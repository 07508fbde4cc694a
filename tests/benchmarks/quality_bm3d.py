"""Quality of BM3D: mean PSNR by set, beside published values and the `bm3d` package.

    python tests/benchmarks/quality_bm3d.py [--quick] [--peer np] [--peer-cache FILE]

PSNR has the peak 255, on float results, and is the mean over pictures and draws. Every method knows
sigma. Ours are profiles with nothing changed; "fixed" are the fixed parameters of Davy and Ehret
2020: DCT in both steps, Hadamard along the stacks, step 3, window 39, groups of 16 and 32. Colour
pictures are filtered as colours (opponent). Times are those of a whole call, NumPy to NumPy.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from cases import cases
from peer_bm3d import OF_PACKAGE, PROFILES, PackageScores, settings_of
from tables import print_tables, show

import napari_gpu_denoise as gd

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))
from published import SETS as PUBLISHED

SETS = {
    "bsd68": (15.0, 20.0, 25.0, 50.0),
    "set12": (15.0, 20.0, 25.0, 50.0),
    "colour": (25.0,),
}
# Means that Davy and Ehret 2020 have published, in dB, at sigma 20 on BSD68.
DAVY = {"fast": 29.34, "normal": 29.50, "fixed": 29.27}


def photographs(options: argparse.Namespace) -> None:
    """Mean PSNR in dB by set and sigma, and the seconds a picture takes."""
    package = PackageScores(options.peer_cache)
    for name in options.sets:
        columns: list[dict[str, float]] = []
        for sigma in SETS[name]:
            found: dict[str, list[float]] = {}
            seconds: dict[str, list[float]] = {}
            for seed in range(options.seeds):
                for case in cases(name, sigma, seed, options.stride):
                    for profile in options.profiles:
                        given = {"axes": case.axes, "device": options.device}
                        start = time.perf_counter()
                        result = gd.bm3d(case.noisy, sigma, settings=settings_of(profile), **given)
                        taken = time.perf_counter() - start
                        seconds.setdefault(f"ours {profile}", []).append(taken)
                        found.setdefault(f"ours {profile}", []).append(case.score(result))
                    for profile in options.peer:
                        score = package.score(name, case, seed, profile)
                        found.setdefault(f"bm3d package, {profile}", []).append(score)
            means = {title: float(np.mean(each)) for title, each in found.items()}
            columns.append(means | published(name, sigma))
        body = [
            [title, *(each.get(title, np.nan) for each in columns), _median(seconds.get(title))]
            for title in dict.fromkeys(title for each in columns for title in each)
        ]
        print(f"\n{name}:\n")
        show(["method", *(f"sigma {sigma:g}" for sigma in SETS[name]), "time, s"], body)


def published(name: str, sigma: float) -> dict[str, float]:
    """Return the published mean PSNR of BM3D on a set, as far as there is one."""
    known = {"published, normal": np.nan}
    if name in PUBLISHED and sigma in PUBLISHED[name].levels:
        row = PUBLISHED[name].rows["BM3D"]
        known["published, normal"] = row[PUBLISHED[name].levels.index(sigma)]
    if (name, sigma) == ("bsd68", 20.0):
        known |= {f"published, {profile}": value for profile, value in DAVY.items()}
    return known


def _median(seconds: list[float] | None) -> str:
    return f"{np.median(seconds):.3f}" if seconds else ""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add sets, profiles and the package."""
    add = parser.add_argument
    add("--sets", nargs="+", choices=SETS, default=SETS)
    add("--profiles", nargs="*", choices=PROFILES, default=PROFILES, help="none: the package alone")
    add("--peer", nargs="*", choices=OF_PACKAGE, default=(), help="also the bm3d package")
    add("--peer-cache", type=Path, help="file that keeps the scores of the package")


if __name__ == "__main__":
    print_tables(__doc__, (photographs,), add_options)
