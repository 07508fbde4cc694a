"""Images whose noise is weak, or of an unusual kind, filtered with nothing said.

    python tests/benchmarks/quality_trust.py [--tables TABLE ...] [--device D] [--stride N]

Each row is a kind of image: how many there are, mean PSNR in dB of the image as it is, of the
result with nothing said and with the noise told, how many are worse than the image by more than
0.1 dB, the largest loss against the image and against the result of told noise, and which models
were found. Planes are filtered by BM3D, volumes by BM4D, both in the profile `fast`.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

import imageio.v3 as imageio
import numpy as np
from cases import Case as Shot
from cases import affine_fit, magnitudes, real_pairs, with_noise
from tables import print_tables, show

import napari_gpu_denoise as gd
from napari_gpu_denoise.protocol.filter import Filter
from reference.data import existing, head, microscopy_pairs, pictures
from scenes import psnr

WORSE = 0.1  # dB
WEAK = 0.4, 1, 2, 3, 5
CENTRE = None  # of 192 x 192


class Case(NamedTuple):
    """An image with noise, what it should be, and how it is filtered where its noise is told."""

    noisy: np.ndarray
    clean: np.ndarray
    told: Callable[[np.ndarray], np.ndarray] | None = None
    axes: str = "YX"
    affine: bool = False  # whether the clean one is known up to an affine map
    scale: float = 255.0  # grey levels that PSNR refers to


def textures(options: argparse.Namespace) -> None:
    """Photographs full of texture with weak white noise, whole and two crops of 192 x 192."""
    parts = {"whole": np.s_[:, :], "centre": CENTRE, "corner": np.s_[:192, :192]}
    grey = list(pictures("trust").values())[:: options.stride]
    rows = []
    for name, part in parts.items():
        images = [_part(image, part) for image in grey]
        for sigmas in (WEAK, (10,)):
            cases = (_white(image, sigma) for image in images for sigma in sigmas)
            rows.append(_row(f"grey, {name}, sigma {_span(sigmas)}", cases, options))
    colour = _colour()[:: options.stride]
    for name, part in parts.items():
        cases = (_white(_part(image, part), sigma) for image in colour for sigma in WEAK)
        rows.append(_row(f"colour, {name}, sigma {_span(WEAK)}", cases, options))
    _print(rows)


def unchanged(options: argparse.Namespace) -> None:
    """How much photographs without noise change, grey levels rms."""
    rows = []
    for name, images in (("grey", list(pictures("trust").values())), ("colour", _colour())):
        changes = []
        for image in images[:: options.stride]:
            for part in (np.s_[:, :], CENTRE, np.s_[:192, :192]):
                clean = _part(image, part).astype(np.float32)
                result = _filtered(clean, "YXS"[: clean.ndim], options)
                changes.append(np.sqrt(np.mean(np.square(result - clean))))
        rows.append([name, len(changes), float(np.quantile(changes, 0.95)), float(max(changes))])
    show(["clean images", "number", "95 % change by at most", "largest"], rows)


def laws(options: argparse.Namespace) -> None:
    """Photographs with noise that falls, has a hump or a trough, or saturates with brightness."""
    shapes = {
        "constant": lambda x: 1 + 0 * x,
        "falls": lambda x: 1.6 - 1.4 * x,
        "hump": lambda x: 0.3 + 1.4 * np.exp(-np.square((x - 0.45) / 0.2)),
        "trough": lambda x: 1.6 - 1.3 * np.exp(-np.square((x - 0.45) / 0.2)),
        "saturates": lambda x: 0.2 + 1.2 * np.minimum(x / 0.35, 1),
    }
    images = [*list(pictures("set12").values())[::3], *list(pictures("bsd68").values())[::17]]
    rows = []
    for name, shape in shapes.items():
        cases = (
            _law(image, lambda x, s=s, shape=shape: s * shape(np.clip(x / 255, 0, 1)))
            for image in images[:: options.stride]
            for s in (5, 12)
        )
        rows.append(_row(f"sigma {name}", cases, options))
    for gain, read in ((0.5, 3), (2, 5), (5, 10)):
        cases = (_photons(image, gain, read) for image in images[:: options.stride])
        rows.append(_row(f"photons, gain {gain}, read noise {read}", cases, options))
    _print(rows)


def volumes(options: argparse.Namespace) -> None:
    """Rician volumes, volumes with white noise, and single volumes of a perfusion series."""
    scans = {
        name: np.load(existing(f"trust/{name}.npz"))["a"].astype(np.float32)
        for name in ("chris_t1", "FLAIR", "CT_AVM")
    }
    scans = {name: scan * np.float32(255 / scan.max()) for name, scan in scans.items()}
    scans["head"] = head()[60:84, 40:136, 40:136]
    rows = []
    for sigma in (12.75, 25.5):
        for dtype in (np.float32, np.uint8):
            cases = (_magnitudes(scan, sigma, dtype) for scan in scans.values())
            rows.append(_row(f"Rician, sigma {sigma}, {np.dtype(dtype)}", cases, options))
    cases = (_white(scan, s, axes="ZYX") for scan in scans.values() for s in (2, 8, 20))
    rows.append(_row("volumes, white, sigma 2 to 20", cases, options))
    series = np.load(existing("trust/repeat_pcasl.npz"))["a"].astype(np.float32)
    pairs = []
    for k, volume in enumerate(series):
        others = [j for j in range(k % 2, len(series), 2) if j != k]
        mean = series[others].mean(axis=0)
        pairs.append(Case(volume, mean, axes="ZYX", scale=float(series.max())))
    rows.append(_row("perfusion, single volumes", pairs[:: 3 * options.stride], options))
    result = _filtered(series, "TZYX", options)
    noisy, filtered = (
        np.mean([_score(image, case) for image, case in zip(images, pairs, strict=True)])
        for images in (series, result)
    )
    _print(rows)
    print(f"perfusion series TZYX: {noisy:.2f} dB, BM3D of planes {filtered:.2f}")


def pairs(options: argparse.Namespace) -> None:
    """Cameras and microscopes: one shot and the mean of many."""
    more = [path for path in sorted(existing("trust").glob("*_g.*"))]
    shots = {
        "CC15": real_pairs("camera"),
        "PolyU": real_pairs("polyu"),
        "Nam and PolyU": (
            Shot(path.stem, imageio.imread(path.with_name(path.name.replace("_g.", "_x."))), mean)
            for path, mean in zip(more, map(imageio.imread, more), strict=True)
        ),
        "wide-field": real_pairs("widefield"),
        "confocal": real_pairs("confocal"),
        "W2S": (Shot("", *pair, affine=True) for pair in microscopy_pairs().values()),
    }
    rows = []
    for name, given in shots.items():
        cases = [Case(s.noisy, s.clean, axes=s.axes, affine=s.affine) for s in given]
        rows.append(_row(name, cases, options))
        if cases[0].noisy.ndim == 3:
            for way, change in (("luminance", _luminance), ("reduced by 2", _reduced)):
                rows.append(_row(f"{name}, {way}", list(map(change, cases)), options))
    _print(rows)


def _part(image: np.ndarray, part: tuple | None) -> np.ndarray:
    if part is CENTRE:
        y, x = ((length - 192) // 2 for length in image.shape[:2])
        part = np.s_[y : y + 192, x : x + 192]
    return image[part]


def _colour() -> list[np.ndarray]:
    """Return photographs in colour: facades, and means of many shots of cameras."""
    files = [*existing("real/camera").glob("*_mean.*"), *existing("real/polyu").glob("*_mean.*")]
    return [*pictures("repeats").values(), *map(imageio.imread, sorted(files))]


def _span(sigmas: tuple) -> str:
    return f"{sigmas[0]}" + f" to {sigmas[-1]}" * (len(sigmas) > 1)


def _white(clean: np.ndarray, sigma: float, axes: str = "") -> Case:
    axes = axes or "YXS"[: clean.ndim]
    given = {"axes": axes, "dtype": "float32"}
    told = lambda image: gd.denoise(image, _filter(axes), sigma, **given).image  # noqa: E731
    return Case(with_noise(clean, sigma), clean, told, axes)


def _law(clean: np.ndarray, law: Callable[[np.ndarray], np.ndarray]) -> Case:
    """Return an image whose noise has a standard deviation that depends on the grey level."""
    clean = clean.astype(np.float64)
    noisy = clean + law(clean) * np.random.default_rng(0).normal(size=clean.shape)
    level = np.linspace(-100, 355, 4551)
    steps = np.diff(level) / law((level[1:] + level[:-1]) / 2)
    stable = np.concatenate([[0], np.cumsum(steps)])

    def told(image: np.ndarray) -> np.ndarray:
        even = np.interp(image, level, stable).astype(np.float32)
        return np.interp(gd.bm3d(even, 1.0, profile="fast"), stable, level)

    return Case(noisy.astype(np.float32), clean, told)


def _photons(clean: np.ndarray, gain: float, read: float) -> Case:
    random = np.random.default_rng(0)
    noisy = gain * random.poisson(clean / gain) + random.normal(0, read, clean.shape)
    given = {"noise": gd.PoissonGaussian(gain, read), "profile": "fast"}
    return Case(noisy.astype(np.float32), clean, lambda image: gd.bm3d(image, **given))


def _magnitudes(clean: np.ndarray, sigma: float, dtype: type) -> Case:
    noisy = magnitudes(clean, sigma)
    if dtype is np.uint8:
        noisy = np.rint(noisy).clip(0, 255).astype(dtype)
    given = {"noise": gd.Rician(sigma), "axes": "ZYX", "dtype": "float32"}
    return Case(noisy, clean, lambda i: gd.denoise(i, _filter("ZYX"), **given).image, "ZYX")


def _luminance(case: Case) -> Case:
    noisy, clean = (np.rint(each @ (0.299, 0.587, 0.114)) for each in (case.noisy, case.clean))
    return case._replace(noisy=noisy.astype(np.uint8), clean=clean, axes="YX")


def _reduced(case: Case) -> Case:
    """Return means of 2 x 2 pixels, rounded."""
    y, x = (length // 2 for length in case.clean.shape[:2])
    parts = (i[: 2 * y, : 2 * x].reshape(y, 2, x, 2, -1) for i in (case.noisy, case.clean))
    noisy, clean = (np.rint(each.mean(axis=(1, 3))).astype(np.uint8) for each in parts)
    return case._replace(noisy=noisy, clean=clean)


def _filter(axes: str) -> Filter:
    return (gd.BM4D if axes == "ZYX" else gd.BM3D).of(profile="fast")


def _filtered(image: np.ndarray, axes: str, options: argparse.Namespace) -> np.ndarray:
    given = {"axes": axes, "dtype": "float32", "device": options.device}
    return gd.denoise(image, _filter(axes), **given).image


def _score(image: np.ndarray, case: Case) -> float:
    return psnr(affine_fit(image, case.clean) if case.affine else image, case.clean, case.scale)


def _row(name: str, cases: Iterator[Case] | list[Case], options: argparse.Namespace) -> list:
    scores, models = [], Counter()
    for case in cases:
        auto = _filtered(case.noisy, case.axes, options)
        told = np.nan if case.told is None else _score(case.told(case.noisy), case)
        scores.append((_score(case.noisy, case), _score(auto, case), told))
        found = gd.estimate_noise(case.noisy, case.axes, device=options.device)
        models[found.name if any(found.sigma) else "none"] += 1
    noisy, auto, told = np.array(scores).T
    worse = np.count_nonzero(auto < noisy - WORSE)
    lost = [float(np.min(auto - other)) for other in (noisy, told)]
    names = ", ".join(f"{n} {k}" for k, n in models.items())
    means = (float(np.mean(each)) for each in (noisy, auto, told))
    return [name, len(auto), *means, worse, *lost, names]


def _print(rows: list[list]) -> None:
    head = ["images", "number", "noisy", "auto", "told", "worse", "worst", "behind told", "found"]
    show(head, rows)


TABLES = [textures, unchanged, laws, volumes, pairs]

if __name__ == "__main__":
    print_tables(__doc__, TABLES)
