"""PSNR of BM4D on volumes, beside the CPU package `bm4d` if it is there, and by shape of cubes.

    python tests/benchmarks/quality_bm4d.py [--tables profiles cubes …] [--sigma 5 20 40]

White Gaussian noise, one draw; the package is for non-commercial use only.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import tifffile
from cases import magnitudes as with_rician_noise
from cases import with_noise
from tables import print_tables, show

import napari_gpu_denoise as gd
from reference.data import existing, head
from scenes import psnr

PROFILES = ("normal", "fast", "high")
# Pieces of the head, whole and with every third or fifth slice.
SPACED = {
    "all slices": np.s_[75:99, 60:140, 50:130],
    "every third": np.s_[50:122:3, 60:140, 50:130],
    "every fifth": np.s_[30:150:5, 60:140, 50:130],
}
OF_SPACED = {
    "bm3d, slice by slice": gd.BM3D(),
    "nl_means, fine, slices=2": gd.NLMeans.of(profile="fine", slices=2),
    "pixelwise, slices=2": gd.NLMeansPixelwise(slices=2),
    "pixelwise, volume": gd.NLMeansPixelwise.of(profile="volume"),
    "bm4d, fast": gd.BM4D.of(profile="fast"),
    **{
        f"bm4d, fast, cube={cube}": gd.BM4D.of(profile="fast", cube=cube)
        for cube in ("4x4x4", "2x4x8", "1x8x8")
    },
    "bm4d": gd.BM4D(),
}


def profiles(options: argparse.Namespace) -> None:
    """Every profile, BM3D slice by slice, and the package with its time."""
    beads = tifffile.imread(existing("microscopy/beads_volume.tif")).astype(np.float64)
    pieces = {
        "head, 24 x 80 x 80": head().astype(np.float64)[75:99, 60:140, 50:130],
        "beads, 24 x 80 x 80": beads[:24, 20:100, 20:100] * (255 / beads.max()),
    }
    try:
        import bm4d
    except ImportError:
        bm4d = None
    rows = []
    for name, clean in pieces.items():
        for sigma in options.sigma:
            noisy = with_noise(clean, sigma)
            given = {"sigma": sigma, "axes": "ZYX", "device": options.device}
            found = [gd.bm3d(noisy, **given)]
            found += [gd.bm4d(noisy, profile=profile, **given) for profile in PROFILES]
            package = ""
            if bm4d is not None:
                start = time.perf_counter()
                out = bm4d.bm4d(noisy.transpose(1, 2, 0).copy(), sigma).transpose(2, 0, 1)
                package = f"{psnr(out, clean):.2f} ({time.perf_counter() - start:.0f} s)"
            rows.append([name, f"{sigma:g}", *(psnr(out, clean) for out in found), package])
    show(["volume", "sigma", "BM3D", *PROFILES, "package"], rows)


def cubes(options: argparse.Namespace) -> None:
    """Filters of volumes, by the distance of slices: a piece of a head, sigma 20."""
    volume, columns = head(), []
    for piece in SPACED.values():
        clean = volume[piece].astype(np.float64)
        noisy = with_noise(clean, 20)
        given = {"axes": "ZYX", "device": options.device}
        results = (gd.denoise(noisy, one, 20.0, **given).image for one in OF_SPACED.values())
        columns.append([psnr(each, clean) for each in (noisy, *results)])
    show(["", *SPACED], zip(["noisy", *OF_SPACED], *columns, strict=True))


def magnitudes(options: argparse.Namespace) -> None:
    """PSNR inside the head for Rician noise in percent of the largest value."""
    clean = head().astype(np.float64)[60:92, 40:168, 30:158]
    inside, rows = clean > 10, []
    for percent in (5, 9, 15):
        sigma = 2.55 * percent
        noisy = with_rician_noise(clean, sigma)
        given = {"noise": gd.Rician(sigma), "axes": "ZYX", "device": options.device}
        found = (noisy, gd.bm3d(noisy, **given), gd.bm4d(noisy, **given))
        rows.append([f"{percent} %", *(psnr(out[inside], clean[inside]) for out in found)])
    show(["noise", "noisy", "BM3D", "BM4D"], rows)


def times(options: argparse.Namespace) -> None:
    """PSNR of the middle of three volumes, or five, by the number of times searched."""
    brain = head().astype(np.float64)
    series = {
        f"all moves by {step} voxels": np.stack(
            [brain[75:99, 60 + step * t :, 50:130][:, :80] for t in range(-2, 3)]
        )
        for step in (0, 3, 7)
    }
    rows = []
    for name, clean in series.items():
        for sigma in options.sigma:
            noisy, found = with_noise(clean, sigma), []
            for count in (0, 1, 2):
                some = slice(2 - max(count, 1), 3 + max(count, 1))
                given = {"sigma": sigma, "axes": "TZYX", "device": options.device}
                given |= {"frames_before": count, "frames_after": count, "cube": "4x4x4"}
                out = gd.bm4d(noisy[some], **given)
                found.append(psnr(out[len(out) // 2], clean[2]))
            rows.append([name, f"{sigma:g}", *found])
    show(["volumes", "sigma", "alone", "1 and 1", "2 and 2"], rows)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the noise."""
    parser.add_argument("--sigma", type=float, nargs="+", default=[5.0, 20.0, 40.0])


if __name__ == "__main__":
    print_tables(__doc__, (profiles, cubes, magnitudes, times), add_options)
