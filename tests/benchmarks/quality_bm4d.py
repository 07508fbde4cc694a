"""PSNR of BM4D on volumes, beside the CPU package `bm4d` if it is there, and by shape of cubes.

    python tests/benchmarks/quality_bm4d.py
    python tests/benchmarks/quality_bm4d.py --tables cubes --sigma 20
    python tests/benchmarks/quality_bm4d.py --tables magnitudes

White Gaussian noise, one draw; the package is for non-commercial use only.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import tifffile
from scipy.ndimage import gaussian_filter
from tables import show

import napari_gpu_denoise as gd
from reference.data import existing, head
from scenes import psnr

PROFILES = ("normal", "fast", "high")
LAG = np.arange(5.0)
FACTORS = (1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0)  # of sigma, for noise taken to be white


def pieces() -> dict[str, np.ndarray]:
    """Return clean volumes (z, y, x) from 0 to 255."""
    brain = head().astype(np.float64)
    beads = tifffile.imread(existing("microscopy/beads_volume.tif")).astype(np.float64)
    return {
        "head, 24 x 80 x 80": brain[75:99, 60:140, 50:130],
        "head, 32 x 100 x 100": brain[60:92, 40:140, 30:130],
        "beads, 24 x 80 x 80": beads[:24, 20:100, 20:100] * (255 / beads.max()),
    }


def package() -> Callable[[np.ndarray, float], np.ndarray] | None:
    """Return the function of the package, for axes (z, y, x), or None if it is not there."""
    try:
        import bm4d
    except ImportError:
        return None
    return lambda noisy, sigma: bm4d.bm4d(noisy.transpose(1, 2, 0).copy(), sigma).transpose(2, 0, 1)


def noised(clean: np.ndarray, sigma: float) -> np.ndarray:
    """Return a volume with noise."""
    noise = np.random.default_rng(0).normal(0, sigma, clean.shape)
    return (clean + noise).astype(np.float32)


def profiles(args: argparse.Namespace) -> None:
    """Print the PSNR of every profile, of BM3D slice by slice, and of the package with its time."""
    other = package()
    rows = []
    for name, clean in pieces().items():
        for sigma in args.sigma:
            noisy = noised(clean, sigma)
            options = {"sigma": sigma, "axes": "ZYX", "device": args.device}
            found = [gd.bm3d(noisy, **options)]
            found += [gd.bm4d(noisy, profile=profile, **options) for profile in PROFILES]
            cells = [f"{psnr(out, clean):.2f}" for out in found]
            if other is not None:
                start = time.perf_counter()
                out = other(noisy, sigma)
                cells.append(f"{psnr(out, clean):.2f} ({time.perf_counter() - start:.0f} s)")
            rows.append([name, f"{sigma:g}", *cells])
    more = [] if other is None else ["package"]
    show(["volume", "sigma", "BM3D", *PROFILES, *more], rows)


def cubes(args: argparse.Namespace) -> None:
    """Print the PSNR by shape of cubes where slices are left out."""
    brain, rows = head().astype(np.float64)[40:140, 60:140, 50:130], []
    for every in (1, 2, 3, 5, 8):
        clean = brain[::every][:24]
        for sigma in args.sigma:
            noisy = noised(clean, sigma)
            options = {"sigma": sigma, "axes": "ZYX", "device": args.device}
            chosen = gd.denoise(noisy, gd.BM4D(), **options)
            why = next(note for note in chosen.record.notes if "cubes are" in note)
            cells = [f"{psnr(chosen.image, clean):.2f} ({why.rsplit(maxsplit=1)[-1]})"]
            for cube in ("4x4x4", "2x4x8", "1x8x8"):
                cells.append(f"{psnr(gd.bm4d(noisy, cube=cube, **options), clean):.2f}")
            cells.append(f"{psnr(gd.bm3d(noisy, **options), clean):.2f}")
            rows.append([f"every {every}", f"{sigma:g}", *cells])
    show(["slices", "sigma", "auto", "4x4x4", "2x4x8", "1x8x8", "BM3D"], rows)


def magnitudes(args: argparse.Namespace) -> None:
    """Print the PSNR inside the head for Rician noise in percent of the largest value."""
    clean = head().astype(np.float64)[60:92, 40:168, 30:158]
    inside, rows = clean > 10, []
    for percent in (5, 9, 15):
        sigma = 2.55 * percent
        parts = np.random.default_rng(0).normal(0, sigma, (2, *clean.shape))
        noisy = np.hypot(clean + parts[0], parts[1]).astype(np.float32)
        options = {"noise": gd.Rician(sigma), "axes": "ZYX", "device": args.device}
        found = (noisy, gd.bm3d(noisy, **options), gd.bm4d(noisy, **options))
        cells = [f"{psnr(out[inside], clean[inside]):.2f}" for out in found]
        rows.append([f"{percent} %", *cells])
    show(["noise", "noisy", "BM3D", "BM4D"], rows)


def series() -> dict[str, np.ndarray]:
    """Return clean volumes over time (5, z, y, x): still, moving, changing."""
    brain = head().astype(np.float64)
    still = brain[75:99, 60:140, 50:130]
    objects = np.stack([still] * 5)
    for t, volume in enumerate(objects):
        part = brain[85:95, 100:116, 100:116, None][:, ::-1, :, 0]
        volume[8:18, 16 + 2 * t : 32 + 2 * t, 12 + 4 * t : 28 + 4 * t] = part
        volume[2:10, 50:60, 65 - 5 * t : 75 - 5 * t] = 200
    starts = (40, 20, 75, 100, 55)
    return {
        "nothing moves": np.stack([still] * 5),
        "all moves by 3 voxels": np.stack(
            [brain[75:99, 60 + 3 * t :, 50:130][:, :80] for t in range(5)]
        ),
        "objects move by 4 and 5": objects,
        "all moves by 7 voxels": np.stack(
            [brain[75:99, 50 + 7 * t :, 50:130][:, :80] for t in range(5)]
        ),
        "another place each time": np.stack([brain[z : z + 24, 60:140, 50:130] for z in starts]),
    }


def times(args: argparse.Namespace) -> None:
    """Print the PSNR of the middle of three volumes, or five, by the number of times searched."""
    rows = []
    for name, clean in series().items():
        for sigma in args.sigma:
            noisy, cells = noised(clean, sigma), []
            for count in (0, 1, 2):
                some = slice(2 - max(count, 1), 3 + max(count, 1))
                frames = {"frames_before": count, "frames_after": count}
                options = {"sigma": sigma, "axes": "TZYX", "device": args.device, **frames}
                out = gd.bm4d(noisy[some], cube="4x4x4", **options)
                cells.append(f"{psnr(out[len(out) // 2], clean[2]):.2f}")
            rows.append([name, f"{sigma:g}", *cells])
    show(["volumes", "sigma", "alone", "1 and 1", "2 and 2"], rows)


def correlated(args: argparse.Namespace) -> None:
    """Print the PSNR where white noise was blurred: by the spectrum, and by a larger sigma."""
    clean, rows = next(iter(pieces().values())), []
    for blur in ((0, 0.5), (0, 0.7), (0, 1.0), (0, 2.0), (0.7, 0.7), (1.0, 0)):
        widths = blur[0], blur[1], blur[1]
        noise = gaussian_filter(
            np.random.default_rng(0).normal(size=clean.shape), widths, mode="wrap"
        )
        along_z, along_y = (np.exp(-(LAG**2) / max(2 * width, 1e-3) ** 2) for width in blur)
        table = np.outer(along_y, along_y)
        for sigma in args.sigma:
            noisy = (clean + sigma * noise / noise.std()).astype(np.float32)
            model = gd.Correlated(sigma, table, along_z=along_z)
            options = {"axes": "ZYX", "device": args.device}
            options_4d = {"cube": "4x4x4", **options}
            white = [gd.bm4d(noisy, sigma * factor, **options_4d) for factor in FACTORS]
            found = (
                *(noisy, gd.bm3d(noisy, noise=model, **options)),
                *(gd.bm4d(noisy, model.white_sigma, **options_4d),),
                *(gd.bm4d(noisy, **options_4d), gd.bm4d(noisy, noise=model, **options_4d)),
            )
            cells = [f"{psnr(out, clean):.2f}" for out in found]
            cells.insert(3, f"{max(psnr(out, clean) for out in white):.2f}")
            rows.append([f"{blur[0]}, {blur[1]}", f"{sigma:g}", *cells])
    names = "noisy", "BM3D", "larger sigma", "best sigma", "automatic", "spectrum"
    show(["blur along z, in planes", "sigma", *names], rows)


TABLES = {table.__name__: table for table in (profiles, cubes, magnitudes, times, correlated)}


def main() -> None:
    """Print the tables asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--sigma", type=float, nargs="+", default=[5.0, 10.0, 20.0, 40.0])
    parser.add_argument("--device")
    args = parser.parse_args()
    print(f"{gd.choose(args.device)}\n")
    for name in args.tables:
        TABLES[name](args)


if __name__ == "__main__":
    main()
