"""Quality of refined results: PSNR of the profile `normal` as it is, refined once, and in a chain.

    python tests/benchmarks/quality_refine.py [--tables photographs video times …] [--device NAME]

Noise is drawn with ``numpy.random.default_rng(0)`` for each image; sigma and model are told; PSNR
has the peak 255, or that of the counts.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import tifffile
from cases import cases, magnitudes, real_pairs, with_noise
from tables import print_tables, seconds_of, show

import napari_gpu_denoise as gd
from reference.data import existing, head, microscopy_pairs, pictures
from scenes import psnr

REFINE = ("off", "once", "chain")
FRAMES = 10


def _show(rows: list[tuple[str, str, Callable[[str], float]]]) -> None:
    """Print the scores of rows, each by what the setting `refine` gives."""
    show(["", "noise", *REFINE], ([name, noise, *map(of, REFINE)] for name, noise, of in rows))


def _of_images(images: list[np.ndarray], sigma: float, device: object) -> Callable[[str], float]:
    """Return the mean PSNR of BM3D over images, by the setting."""
    given = [(with_noise(clean, sigma), clean) for clean in images]

    def score(refine: str) -> float:
        results = (gd.bm3d(noisy, sigma, refine=refine, device=device) for noisy, _ in given)
        return float(np.mean([psnr(r, c) for r, (_, c) in zip(results, given, strict=True)]))

    return score


def photographs(options: argparse.Namespace) -> None:
    """BM3D, means over Set12 and BSD68."""
    rows = []
    for name, sigmas in (("set12", (15, 25, 50)), ("bsd68", (25,))):
        images = list(pictures(name).values())[:: options.stride]
        rows += [(name, f"{s}", _of_images(images, s, options.device)) for s in sigmas]
    _show(rows)


def fluorescence(options: argparse.Namespace) -> None:
    """BM3D, mean over means of many fluorescence images, with white noise."""
    means = [clean for _, clean in microscopy_pairs().values()]
    means += [case.clean for case in real_pairs("widefield")]
    images = [clean[128:384, 128:384].astype(np.float32) for clean in means]
    _show([("means", f"{s}", _of_images(images, s, options.device)) for s in (10, 25, 50)])


def video(options: argparse.Namespace) -> None:
    """VBM3D of videos with white noise, and of counted photons up to a peak."""
    rows = []
    for name in ("tractor", "traffic", "foliage"):
        clean = np.stack(list(pictures(name).values())[:FRAMES]).astype(np.float32)
        for sigma in (20, 40):
            given = {"sigma": sigma, "axes": "TYX", "device": options.device}
            noisy = with_noise(clean, sigma)
            rows.append((name, f"{sigma}", _by_setting(gd.vbm3d, noisy, clean, 255, given)))
    frames = np.stack(list(pictures("tractor").values())[:FRAMES]) / 255
    for peak in (1, 3, 10, 30):
        counts = np.random.default_rng(0).poisson(frames * peak).astype(np.float32)
        given = {"noise": gd.PoissonGaussian(1.0, 0.0), "axes": "TYX", "device": options.device}
        score = _by_setting(gd.vbm3d, counts, frames * peak, peak, given)
        rows.append(("tractor, photons", f"up to {peak}", score))
    _show(rows)


def _by_setting(
    function: Callable, noisy: np.ndarray, clean: np.ndarray, peak: float, given: dict
) -> Callable[[str], float]:
    return lambda refine: psnr(function(noisy, refine=refine, **given), clean, peak)


def volume(options: argparse.Namespace) -> None:
    """BM4D of pieces of a head, with white and Rician noise."""
    rows, given = [], {"axes": "ZYX", "cube": "4x4x4", "device": options.device}
    clean = head()[75:99, 60:140, 50:130]
    for sigma in (10, 20, 40):
        score = _by_setting(
            gd.bm4d, with_noise(clean, sigma), clean, 255, {"sigma": sigma, **given}
        )
        rows.append(("head", f"{sigma}", score))
    clean = head()[60:124, 40:180, 30:150]
    for sigma in (5, 10, 20):
        told = {"noise": gd.Rician(float(sigma)), **given}
        score = _by_setting(gd.bm4d, magnitudes(clean, sigma), clean, 255, told)
        rows.append(("head, Rician", f"{sigma}", score))
    _show(rows)


def halves(options: argparse.Namespace) -> None:
    """Measured photons, split into two images of half as many.

    One is filtered and scored against the other, less its noise, with the largest grey level as
    peak.
    """
    cells = tifffile.imread(existing("microscopy/timelapse_cell_migration.tif"))
    beads = tifffile.imread(existing("microscopy/beads_volume.tif"))[10:34, 20:120, 20:120]
    rows = []
    for name, image, settings, axes in (
        ("cells, frames 0 to 7", cells[:8], gd.VBM3D(), "TYX"),
        ("beads", beads, gd.BM4D(), "ZYX"),
    ):
        image = image.astype(np.float64)
        (model,) = gd.estimate_noise(image, axes, device=options.device).models
        first, second = _split(image, model, np.random.default_rng(0))
        # Twice as many grey levels a photon, and the read noise of two images.
        told = gd.PoissonGaussian(2 * model.gain, 2**0.5 * model.read_noise, model.offset)
        found = [name, f"gain {model.gain:.3g}"]
        for refine in REFINE:
            given = {"noise": told, "axes": axes, "device": options.device}
            made = gd.denoise(first, replace(settings, refine=refine), **given).image
            error = np.mean((made - second) ** 2) - np.mean(told.variance_told_by(second))
            found.append(10 * np.log10(image.max() ** 2 / error))
        rows.append(found)
    show(["", "noise", *REFINE], rows)


def _split(image: np.ndarray, model, random) -> tuple[np.ndarray, np.ndarray]:
    """Return two images of independent noise, each of about half the photons, at full scale."""
    electrons = (image - model.offset) / model.gain
    whole = np.maximum(np.rint(electrons), 0)
    taken = random.binomial(whole.astype(int), 0.5) + 0.5 * (electrons - whole)
    taken += 0.5 * model.read_noise / model.gain * random.standard_normal(image.shape)
    first = (model.offset + 2 * model.gain * taken).astype(np.float32)
    return first, 2 * image - first


def real(options: argparse.Namespace) -> None:
    """BM3D of fluorescence (W2S), nothing said: as it is, and refined whatever the noise."""
    shots = list(cases("w2s", 0, 0, options.stride))

    def score(refine: str) -> float:
        results = (gd.bm3d(case.noisy, refine=refine, device=options.device) for case in shots)
        return float(np.mean([case.score(r) for case, r in zip(shots, results, strict=True)]))

    _show([("W2S", "nothing said", score)])
    with patch.object(gd.BM3D, "unrefined", lambda self, noise: ""):
        _show([("W2S", "refined anyway", score)])


def times(options: argparse.Namespace) -> None:
    """Milliseconds of whole calls on white noise, the least of three."""
    rows = []
    for settings, shape, axes in (
        (gd.BM3D.of(profile="fast"), (512, 512), "YX"),
        (gd.VBM3D(), (FRAMES, 540, 960), "TYX"),
        (gd.BM4D(cube="4x4x4"), (256, 256, 256), "ZYX"),
    ):
        image = with_noise(np.full(shape, 100, np.float32), 20.0)
        given = {"axes": axes, "device": options.device}

        def least(refine: str, settings=settings, image=image, given=given) -> float:
            one = replace(settings, refine=refine)
            return 1e3 * seconds_of(lambda: gd.denoise(image, one, 20.0, **given), 3)[0]

        rows.append((settings.name, " x ".join(map(str, shape)), least))
    _show(rows)


if __name__ == "__main__":
    print_tables(__doc__, (photographs, fluorescence, video, volume, halves, real, times))
