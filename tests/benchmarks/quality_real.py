"""Images of cameras and microscopes, and processed photographs, with nothing said of the noise.

    python tests/benchmarks/quality_real.py [--tables TABLE ...] [--device D] [--profile P]

PSNR in dB against the mean of many shots or the photograph without noise: of the image as it is,
of BM3D and NL-means with nothing said, of BM3D with the best of nine white sigmas of 0.5 to 5.6
times the true deviation, and the noise that was found. Confocal images are scored after an affine
fit. "clean" prints the change of photographs without noise, grey levels rms, instead.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Iterator
from typing import NamedTuple

import imageio.v3 as imageio
import numpy as np
from scipy import ndimage
from tables import print_tables, show

import napari_gpu_denoise as gd
from reference.data import existing, pictures

TIMES = np.geomspace(0.5, 5.6, 9)
WORSE = 0.1  # dB


class Case(NamedTuple):
    """An image with noise, and what it should be."""

    name: str
    noisy: np.ndarray  # (y, x) or (y, x, 3)
    clean: np.ndarray
    affine: bool = False  # whether the clean one is known up to an affine map


def camera(options: argparse.Namespace) -> None:
    """Camera JPEGs of CC15 and PolyU."""
    _show(_pairs("camera"), options)
    _show(_pairs("polyu"), options)


def reduced(options: argparse.Namespace) -> None:
    """The same, reduced by 2 (mean of 2 x 2 pixels, rounded)."""
    _show(map(_halved, [*_pairs("camera"), *_pairs("polyu")]), options)


def microscope(options: argparse.Namespace) -> None:
    """Wide-field and confocal fluorescence."""
    _show([*_pairs("widefield"), *_pairs("confocal")], options)


def repeats(options: argparse.Namespace) -> None:
    """Facades and paving, with white noise, as uint8."""
    _show((_noisy(*each, s) for each in _repeats().items() for s in (3, 10, 25)), options)


def compressed(options: argparse.Namespace) -> None:
    """Photographs of Set12 with noise of sigma 15, then JPEG."""
    chosen = list(pictures("set12").items())[:: 4 * options.stride]
    _show((_jpeg(_noisy(*each, 15), q) for each in chosen for q in (85, 65, 45)), options)


def resampled(options: argparse.Namespace) -> None:
    """Photographs of Set12 with noise of sigma 15, rotated or enlarged."""
    ways = {
        "rotated, cubic": lambda i: ndimage.rotate(i, 7, reshape=False, order=3)[40:-40, 40:-40],
        "twice, nearest": lambda i: i.repeat(2, axis=0).repeat(2, axis=1),
        "twice, cubic": lambda i: ndimage.zoom(i, 2, order=3),
    }
    chosen = list(pictures("set12").items())[:: 4 * options.stride]
    cases = []
    for name, clean in chosen:
        _, noisy, truth, _ = _noisy(name, clean[:256, :256].astype(float), 15)
        for way, process in ways.items():
            cases.append(Case(f"{name}, {way}", process(noisy), process(truth)))
    _show(cases, options)


def clean(options: argparse.Namespace) -> None:
    """Change of images without noise, grey levels rms, by BM3D and NL-means."""
    rows = []
    mean = {each.name: each.clean for each in (*_pairs("camera"), *_pairs("polyu"))}
    chosen = list(pictures("bsd68").items())[:: 4 * options.stride]
    for name, image in (*_repeats().items(), *mean.items(), *chosen):
        changes = [_filtered(image, kind, options) - image for kind in (gd.BM3D, gd.NLMeans)]
        found = gd.estimate_noise(image, _axes(image), device=options.device)
        rms = [f"{np.sqrt(np.mean(np.square(each))):.2f}" for each in changes]
        rows.append([name, *rms, _words(found)])
    show(["image", "BM3D", "NL-means", "found"], rows)


def crops(options: argparse.Namespace) -> None:
    """Crops of the same with more texture than noise: means, and those worse than their input.

    Of the camera images 256 x 256 pixels, also as luminance and sharpened; of the repeats and of
    photographs of BSD68 192 x 192, with weak white noise.
    """
    rows = []
    for name, cases in (("cameras", _camera_crops()), ("weak noise", _weak_crops(options.stride))):
        scores, worse = [], []
        for case in cases:
            noisy = _score(case.noisy, case)
            auto = _score(_filtered(case.noisy, gd.BM3D, options), case)
            scores.append((noisy, auto))
            if auto < noisy - WORSE:
                worse.append(f"{case.name} {auto - noisy:.1f}")
        means = [f"{value:.2f}" for value in np.mean(scores, axis=0)]
        rows.append([name, f"{len(scores)}", *means, "; ".join(worse) or "none"])
    show(["crops", "number", "noisy", "BM3D", "worse by more than 0.1 dB"], rows)


def _camera_crops() -> Iterator[Case]:
    for case in (*_pairs("camera"), *_pairs("polyu")):
        pair = [each.astype(float) for each in (case.noisy, case.clean)]
        ways = {
            "": lambda image: image,
            "luminance": lambda image: image @ (0.299, 0.587, 0.114),
            "sharpened": lambda image: 2 * image - ndimage.gaussian_filter(image, (1, 1, 0)),
        }
        for way, process in ways.items():
            noisy, clean = map(process, pair)
            yield from _parts(Case(f"{case.name} {way}", noisy, clean), 256)


def _weak_crops(stride: int) -> Iterator[Case]:
    chosen = list(pictures("bsd68").items())[:: 4 * stride]
    for name, image in (*_repeats().items(), *chosen):
        for sigma in (2, 5):
            yield from list(_parts(_noisy(name, image, sigma), 192))[::2]


def _parts(case: Case, side: int) -> Iterator[Case]:
    for y, x in np.ndindex(*(length // side for length in case.noisy.shape[:2])):
        part = np.s_[y * side : (y + 1) * side, x * side : (x + 1) * side]
        noisy = np.rint(case.noisy[part]).clip(0, 255).astype(np.uint8)
        yield Case(f"{case.name} {y}{x}", noisy, case.clean[part])


def _repeats() -> dict[str, np.ndarray]:
    return pictures("repeats")


def _pairs(folder: str) -> Iterator[Case]:
    for path in sorted(existing(f"real/{folder}").glob("*_mean.*")):
        noisy = path.with_name(path.name.replace("_mean", "_real"))
        if not noisy.exists():
            noisy = path.with_name(path.name.replace("_mean", "_noisy"))
        pair = [imageio.imread(each) for each in (noisy, path)]
        if folder == "confocal":
            pair = [each[..., 0] if each.ndim == 3 else each for each in pair]
        yield Case(path.stem.removesuffix("_mean"), *pair, affine=folder == "confocal")


def _noisy(name: str, image: np.ndarray, sigma: float) -> Case:
    noise = np.random.default_rng(0).normal(0, sigma, image.shape)
    noisy = image + noise
    if image.dtype == np.uint8:
        noisy = np.rint(noisy).clip(0, 255).astype(np.uint8)
    return Case(f"{name}, sigma {sigma}", noisy, image)


def _halved(case: Case) -> Case:
    def half(image: np.ndarray) -> np.ndarray:
        y, x = (length // 2 for length in image.shape[:2])
        parts = image[: 2 * y, : 2 * x].reshape(y, 2, x, 2, *image.shape[2:])
        return np.rint(parts.mean(axis=(1, 3))).astype(np.uint8)

    return case._replace(noisy=half(case.noisy), clean=half(case.clean))


def _jpeg(case: Case, quality: int) -> Case:
    stored = io.BytesIO()
    imageio.imwrite(stored, case.noisy, extension=".jpg", quality=quality)
    noisy = imageio.imread(stored.getvalue(), extension=".jpg")
    return case._replace(name=f"{case.name}, JPEG {quality}", noisy=noisy)


def _axes(image: np.ndarray) -> str:
    return "YXS" if image.ndim == 3 else "YX"


def _filtered(
    image: np.ndarray, kind: type, options: argparse.Namespace, sigma: float | None = None
) -> np.ndarray:
    filter = kind.of(profile=options.profile) if kind is gd.BM3D else kind()
    given = {"axes": _axes(image), "dtype": "float32", "device": options.device}
    return gd.denoise(image, filter, sigma, **given).image


def _score(image: np.ndarray, case: Case) -> float:
    values, truth = (np.asarray(each, np.float64).ravel() for each in (image, case.clean))
    if case.affine:
        values = np.polyval(np.polyfit(values, truth, 1), values)
    return 10 * np.log10(255**2 / np.mean(np.square(values - truth)))


def _words(found: gd.NoiseEstimate) -> str:
    models = [str(model.summary()) for model in found.models]
    sigmas = " / ".join(f"{sigma:.1f}" for sigma in found.sigma)
    return f"{found.name} {sigmas}" + ("" if len(models) > 1 else f" ({models[0]})")


def _show(cases: Iterator[Case] | list[Case], options: argparse.Namespace) -> None:
    rows, scores = [], []
    for case in cases:
        known = case.noisy.astype(np.float64) - case.clean
        deviation = float(known.std())
        auto, other = (_score(_filtered(case.noisy, k, options), case) for k in KINDS)
        tried = {}
        if not options.auto:
            for k in TIMES:
                result = _filtered(case.noisy, gd.BM3D, options, float(k * deviation))
                tried[k] = _score(result, case)
        best = max(tried, key=tried.get, default=np.nan)
        found = gd.estimate_noise(case.noisy, _axes(case.noisy), device=options.device)
        scores.append((_score(case.noisy, case), auto, other, tried.get(best, np.nan)))
        numbers = [f"{value:.2f}" for value in scores[-1]]
        rows.append([case.name, *numbers, f"{best:.2g}", f"{deviation:.1f}", _words(found)])
    means = [f"{value:.2f}" for value in np.mean(scores, axis=0)]
    rows.append(["mean", *means, "", "", ""])
    head = ["image", "noisy", "BM3D", "NL-means", "best white", "at", "true sigma", "found"]
    show(head, rows)


KINDS = gd.BM3D, gd.NLMeans
TABLES = [camera, reduced, microscope, repeats, compressed, resampled, crops, clean]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the profile of BM3D, and a faster run."""
    parser.add_argument("--profile", default="normal", help="of BM3D")
    parser.add_argument("--auto", action="store_true", help="leave out the best white sigma")


if __name__ == "__main__":
    print_tables(__doc__, TABLES, add_options)
