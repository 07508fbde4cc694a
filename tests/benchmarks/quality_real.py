"""Images of cameras and microscopes, and processed photographs, with nothing said of the noise.

    python tests/benchmarks/quality_real.py [--tables TABLE ...] [--device D] [--profile P]

PSNR in dB against the mean of many shots: of the image as it is, of BM3D and NL-means with nothing
said, of BM3D with the best of nine white sigmas of 0.5 to 5.6 times the true deviation, and the
noise that was found. Confocal images are scored after an affine fit. "clean" prints the change of
images without noise, grey levels rms, instead.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
from cases import Case, real_pairs
from scipy import ndimage
from tables import print_tables, show

import napari_gpu_denoise as gd
from reference.data import pictures

TIMES = np.geomspace(0.5, 5.6, 9)
WORSE = 0.1  # dB


def cameras() -> list[Case]:
    """Return camera JPEGs of CC15 and PolyU."""
    return [*real_pairs("camera"), *real_pairs("polyu")]


def camera(options: argparse.Namespace) -> None:
    """Camera JPEGs of CC15 and PolyU."""
    _show(cameras(), options)


def reduced(options: argparse.Namespace) -> None:
    """The same, reduced by 2 (mean of 2 x 2 pixels, rounded)."""
    _show([replace(c, noisy=_half(c.noisy), clean=_half(c.clean)) for c in cameras()], options)


def microscope(options: argparse.Namespace) -> None:
    """Wide-field and confocal fluorescence."""
    _show([*real_pairs("widefield"), *real_pairs("confocal")], options)


def clean(options: argparse.Namespace) -> None:
    """Change of images without noise, grey levels rms, by BM3D and NL-means."""
    images = dict(pictures("repeats")) | {case.name: case.clean for case in cameras()}
    images |= dict(list(pictures("bsd68").items())[:: 4 * options.stride])
    rows = []
    for name, image in images.items():
        case = Case(name, image, image)
        changes = [_filtered(case, kind, options) - image for kind in (gd.BM3D, gd.NLMeans)]
        rms = [np.sqrt(np.mean(np.square(each))) for each in changes]
        rows.append([name, *map(float, rms), _words(case, options)])
    show(["image", "BM3D", "NL-means", "found"], rows)


def crops(options: argparse.Namespace) -> None:
    """Crops of 256 x 256 pixels, also as luminance and sharpened, and those worse than their input.

    Some have more texture than noise.
    """
    scores, worse = [], []
    for case in _crops(options.stride):
        noisy, auto = (case.score(i) for i in (case.noisy, _filtered(case, gd.BM3D, options)))
        scores.append((noisy, auto))
        if auto < noisy - WORSE:
            worse.append(f"{case.name} {auto - noisy:.1f}")
    means = np.mean(scores, axis=0)
    rows = [[f"{len(scores)}", *means, "; ".join(worse) or "none"]]
    show(["crops", "noisy", "BM3D", "worse by more than 0.1 dB"], rows)


def _crops(stride: int) -> Iterator[Case]:
    ways = {
        "": lambda image: image,
        "luminance": lambda image: image @ (0.299, 0.587, 0.114),
        "sharpened": lambda image: 2 * image - ndimage.gaussian_filter(image, (1, 1, 0)),
    }
    for case in cameras()[::stride]:
        for way, process in ways.items():
            noisy, clean = (process(each.astype(float)) for each in (case.noisy, case.clean))
            noisy = np.rint(noisy).clip(0, 255).astype(np.uint8)
            for y, x in np.ndindex(*(length // 256 for length in clean.shape[:2])):
                part = np.s_[y * 256 : (y + 1) * 256, x * 256 : (x + 1) * 256]
                yield Case(f"{case.name} {way} {y}{x}", noisy[part], clean[part])


def _half(image: np.ndarray) -> np.ndarray:
    y, x = (length // 2 for length in image.shape[:2])
    parts = image[: 2 * y, : 2 * x].reshape(y, 2, x, 2, *image.shape[2:])
    return np.rint(parts.mean(axis=(1, 3))).astype(np.uint8)


def _filtered(
    case: Case, kind: type, options: argparse.Namespace, sigma: float | None = None
) -> np.ndarray:
    filter = kind.of(profile=options.profile) if kind is gd.BM3D else kind()
    given = {"axes": case.axes, "dtype": "float32", "device": options.device}
    return gd.denoise(case.noisy, filter, sigma, **given).image


def _words(case: Case, options: argparse.Namespace) -> str:
    found = gd.estimate_noise(case.noisy, case.axes, device=options.device)
    sigmas = " / ".join(f"{sigma:.1f}" for sigma in found.sigma)
    more = f" ({found.models[0].summary()})" if len(found.models) == 1 else ""
    return f"{found.name} {sigmas}{more}"


def _show(cases: Iterable[Case], options: argparse.Namespace) -> None:
    rows, scores = [], []
    for case in list(cases)[:: options.stride]:
        deviation = float((case.noisy.astype(np.float64) - case.clean).std())
        results = [case.noisy, *(_filtered(case, k, options) for k in (gd.BM3D, gd.NLMeans))]
        tried = {np.nan: np.nan}
        for times in () if options.auto else TIMES:
            sigma = float(times * deviation)
            tried[times] = case.score(_filtered(case, gd.BM3D, options, sigma))
        best = max(tried, key=lambda times: np.nan_to_num(tried[times]))
        scores.append([*map(case.score, results), float(tried[best])])
        about = f"{best:.2g}", f"{deviation:.1f}", _words(case, options)
        rows.append([case.name, *scores[-1], *about])
    rows.append(["mean", *np.mean(scores, axis=0), "", "", ""])
    head = ["image", "noisy", "BM3D", "NL-means", "best white", "at", "true sigma", "found"]
    show(head, rows)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the profile of BM3D, and a faster run."""
    parser.add_argument("--profile", default="normal", help="of BM3D")
    parser.add_argument("--auto", action="store_true", help="leave out the best white sigma")


if __name__ == "__main__":
    print_tables(__doc__, (camera, reduced, microscope, clean, crops), add_options)
