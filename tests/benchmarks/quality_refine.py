"""Quality of refined results: PSNR of the profile `normal` as it is, refined once, and in a chain.

    python tests/benchmarks/quality_refine.py [--device NAME] [SET ...]

Sets: `set12`, `bsd68` (BM3D), `video` (VBM3D), `head` (BM4D), and with noise that depends on
brightness `photons` (VBM3D, counts up to the peak given) and `rician` (BM4D). Noise is drawn with
``numpy.random.default_rng(0)`` for each image; sigma and model are told; PSNR has the peak 255, or
that of the counts. `fluorescence` are means of many frames, with white noise (BM3D). `times` are
the milliseconds of whole calls, the least of three after one.

With noise of their own: `halves` (VBM3D, BM4D) splits measured photons into two images of half as
many; one is filtered and scored against the other, less its noise, with the largest grey level as
peak. `real` (BM3D) has the middle 256 x 256 pixels of images whose mean is known: with nothing
said, with results refined whatever the noise, and with the true deviation told as white noise.
Without names all sets are measured.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import tifffile
from quality_real import Case, _axes, _pairs, _score
from tables import show

import napari_gpu_denoise as gd
from reference.data import existing, head, microscopy_pairs, pictures

REFINE = ("off", "once", "chain")
FRAMES = 10


def noisy(clean: np.ndarray, sigma: float) -> np.ndarray:
    """Return an image with white noise."""
    noise = np.random.default_rng(0).normal(0, sigma, clean.shape)
    return clean + noise.astype(np.float32)


def psnr(image: np.ndarray, clean: np.ndarray, peak: float = 255.0) -> float:
    """Return the peak signal-to-noise ratio in dB."""
    return float(10 * np.log10(peak**2 / np.mean((image.astype(np.float64) - clean) ** 2)))


def photographs(name: str, sigmas, device) -> Iterator[tuple]:
    """Yield the mean PSNR over a set of photographs, by noise."""
    images = [one.astype(np.float32) for one in pictures(name).values()]
    for sigma in sigmas:
        given = [(noisy(clean, sigma), clean) for clean in images]
        means = [
            np.mean([psnr(gd.bm3d(y, sigma, refine=r, device=device), c) for y, c in given])
            for r in REFINE
        ]
        yield name, f"{sigma:g}", *means


def videos(device) -> Iterator[tuple]:
    """Yield the PSNR of videos, by noise."""
    for name in ("tractor", "traffic", "foliage"):
        clean = np.stack(list(pictures(name).values())[:FRAMES]).astype(np.float32)
        for sigma in (20.0, 40.0):
            given = {"axes": "TYX", "device": device}
            results = [gd.vbm3d(noisy(clean, sigma), sigma, refine=r, **given) for r in REFINE]
            yield name, f"{sigma:g}", *(psnr(one, clean) for one in results)


def heads(device) -> Iterator[tuple]:
    """Yield the PSNR of a piece of a head, by noise."""
    clean = head()[75:99, 60:140, 50:130]
    for sigma in (10.0, 20.0, 40.0):
        given = {"axes": "ZYX", "cube": "4x4x4", "device": device}
        results = [gd.bm4d(noisy(clean, sigma), sigma, refine=r, **given) for r in REFINE]
        yield "head", f"{sigma:g}", *(psnr(one, clean) for one in results)


def photons(device) -> Iterator[tuple]:
    """Yield the PSNR of a video of counted photons, by the largest count."""
    frames = np.stack(list(pictures("tractor").values())[:FRAMES]) / 255
    model = gd.PoissonGaussian(1.0, 0.0)
    for peak in (1, 3, 10, 30):
        counts = np.random.default_rng(0).poisson(frames * peak).astype(np.float32)
        given = {"noise": model, "axes": "TYX", "device": device}
        results = [gd.vbm3d(counts, refine=r, **given) for r in REFINE]
        yield "tractor, photons", f"peak {peak}", *(psnr(r, frames * peak, peak) for r in results)


def magnitudes(device) -> Iterator[tuple]:
    """Yield the PSNR of a piece of a head with Rician noise."""
    clean = head()[60:124, 40:180, 30:150]
    for sigma in (5.0, 10.0, 20.0):
        real, imaginary = np.random.default_rng(0).normal(0, sigma, (2, *clean.shape))
        image = np.hypot(clean + real, imaginary).astype(np.float32)
        given = {"noise": gd.Rician(sigma), "axes": "ZYX", "cube": "4x4x4", "device": device}
        results = [gd.bm4d(image, refine=r, **given) for r in REFINE]
        yield "head, Rician", f"{sigma:g}", *(psnr(one, clean) for one in results)


def fluorescence(device) -> Iterator[tuple]:
    """Yield the mean PSNR over means of fluorescence images, by noise."""
    wide = [case.clean for case in _pairs("widefield")]
    means = [clean for _, clean in microscopy_pairs().values()] + wide
    images = [clean[128:384, 128:384].astype(np.float32) for clean in means]
    for sigma in (10.0, 25.0, 50.0):
        given = [(noisy(clean, sigma), clean) for clean in images]
        found = [
            np.mean([psnr(gd.bm3d(y, sigma, refine=r, device=device), c) for y, c in given])
            for r in REFINE
        ]
        yield "fluorescence, means", f"{sigma:g}", *found


def halves(device) -> Iterator[tuple]:
    """Yield the PSNR of halves of the photons of measured time-lapses and volumes."""
    cells = tifffile.imread(existing("microscopy/timelapse_cell_migration.tif"))
    beads = tifffile.imread(existing("microscopy/beads_volume.tif"))[10:34, 20:120, 20:120]
    for name, image, settings, axes in (
        ("cells, frames 0 to 7", cells[:8], gd.VBM3D(), "TYX"),
        ("cells, frames 20 to 29", cells[20:30], gd.VBM3D(), "TYX"),
        ("beads", beads, gd.BM4D(), "ZYX"),
    ):
        image = image.astype(np.float64)
        (model,) = gd.estimate_noise(image, axes, device=device).models
        first, second = _split(image, model, np.random.default_rng(0))
        # Twice as many grey levels a photon, and the read noise of two images.
        told = gd.PoissonGaussian(2 * model.gain, 2**0.5 * model.read_noise, model.offset)
        scores = []
        for refine in REFINE:
            one = replace(settings, refine=refine)
            made = gd.denoise(first, one, noise=told, axes=axes, device=device).image
            error = np.mean((made - second) ** 2) - np.mean(told.variance_told_by(second))
            scores.append(10 * np.log10(image.max() ** 2 / error))
        yield name, f"gain {model.gain:.3g}", *scores


def _split(image: np.ndarray, model, random) -> tuple[np.ndarray, np.ndarray]:
    """Return two images of independent noise, each of about half the photons, at full scale."""
    electrons = (image - model.offset) / model.gain
    whole = np.maximum(np.rint(electrons), 0)
    taken = random.binomial(whole.astype(int), 0.5) + 0.5 * (electrons - whole)
    taken += 0.5 * model.read_noise / model.gain * random.standard_normal(image.shape)
    first = (model.offset + 2 * model.gain * taken).astype(np.float32)
    return first, 2 * image - first


def real(device) -> Iterator[tuple]:
    """Yield the mean PSNR over images of microscopes and cameras, by what is told."""
    sets = {"W2S": [Case(name, *pair, True) for name, pair in microscopy_pairs().items()]}
    for folder in ("widefield", "confocal", "camera", "polyu"):
        sets[folder] = list(_pairs(folder))
    anyway = patch.object(gd.BM3D, "unrefined", lambda self, noise: "")
    for name, cases in sets.items():
        parts = [
            case._replace(noisy=_middle(case.noisy), clean=_middle(case.clean)) for case in cases
        ]
        yield f"{name}, {len(cases)}", "nothing said", *_means(parts, device)
        if name == "W2S":
            with anyway:
                yield name, "refined anyway", *_means(parts, device)
        yield name, "white sigma", *_means(parts, device, _deviation)


def _middle(image: np.ndarray) -> np.ndarray:
    y, x = (length // 2 - 128 for length in image.shape[:2])
    return np.ascontiguousarray(image[y : y + 256, x : x + 256])


def _deviation(case: Case) -> float:
    clean = case.clean.astype(float)
    if case.affine:
        clean = np.polyval(np.polyfit(clean.ravel(), case.noisy.ravel().astype(float), 1), clean)
    return float(np.std(case.noisy - clean))


def _means(cases: list[Case], device, sigma=lambda case: None) -> list[float]:
    """Return the mean score over cases, by the refinement."""

    def score(case: Case, refine: str) -> float:
        given = {"axes": _axes(case.noisy), "dtype": "float32", "device": device}
        made = gd.denoise(case.noisy, gd.BM3D(refine=refine), sigma(case), **given)
        return _score(made.image, case)

    return [np.mean([score(case, refine) for case in cases]) for refine in REFINE]


def times(device) -> Iterator[tuple]:
    """Yield the milliseconds of a call on white noise for each filter."""
    cases = (
        (gd.BM3D.of(profile="fast"), (512, 512), "YX"),
        (gd.VBM3D(), (FRAMES, 540, 960), "TYX"),
        (gd.BM4D(cube="4x4x4"), (256, 256, 256), "ZYX"),
    )
    for settings, shape, axes in cases:
        image, found = noisy(np.full(shape, 100, np.float32), 20.0), []
        for refine in REFINE:
            one, least = replace(settings, refine=refine), np.inf
            for _ in range(4):
                start = time.perf_counter()
                gd.denoise(image, one, 20.0, axes=axes, device=device)
                least = min(least, time.perf_counter() - start)
            found.append(1000 * least)
        yield settings.name, " x ".join(map(str, shape)), *found


SETS = {
    "set12": lambda device: photographs("set12", (15.0, 25.0, 50.0), device),
    "bsd68": lambda device: photographs("bsd68", (25.0,), device),
    "video": videos,
    "head": heads,
    "photons": photons,
    "rician": magnitudes,
    "fluorescence": fluorescence,
    "halves": halves,
    "real": real,
    "times": times,
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sets", nargs="*", choices=[[], *SETS], help="sets, by default all")
    parser.add_argument("--device", help="device, as denoise takes it")
    options = parser.parse_args()
    rows = [
        [name, noise, *(f"{value:.2f}" for value in values)]
        for one in options.sets or SETS
        for name, noise, *values in SETS[one](options.device)
    ]
    print(f"On {gd.choose(options.device)}.\n")
    show(["", "noise", *REFINE], rows)


if __name__ == "__main__":
    main()
