"""What models of noise bring: quality with sigma measured, and with noise that is not of one sigma.

    python tests/benchmarks/quality_noise.py [--tables …] [--quick] [--seeds N] [--device D]

Prints one table for each of: sigma (BSD68, measured and true), photons (fluorescence with its own
noise), magnitudes (a head with Rician noise), edges (what is left of it beside an object, and why),
flat (Rician noise on a flat image), inverse (the exact unbiased one), correlated (a video),
colours (white noise that they share), planes (stacks whose planes differ), places (corners with
more noise), samples (the built-in ones), speckle (ultrasound as displayed, enlarged) and areas
(constant ones around an image, and edges that are repeated). Noise is drawn with
``numpy.random.default_rng(seed)``, one seed a picture and draw. The data folder holds the pictures.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import imageio.v3 as imageio
import numpy as np
from blank_noise import blank_rows
from cases import Case, cases
from magnitude_edges import edge_rows
from magnitudes_noise import decibels, flat_rows, head_rows
from places_noise import place_rows
from planes_noise import plane_rows
from samples_noise import sample_rows, speckle_rows
from scipy.stats import norm, poisson
from skimage.restoration import denoise_nl_means
from skimage.restoration import estimate_sigma as scikit_sigma
from tables import print_tables, show

import napari_gpu_denoise as gd
from napari_gpu_denoise.noise.photon import single_image_noise

sys.path.insert(0, str(Path(__file__).parents[1]))
from reference.data import data_folder, pictures

Rows = dict[str, list[float]]

SIGMAS = (5.0, 10.0, 20.0, 30.0, 50.0)
STRENGTHS = (1.0, 1.5, 2.0, 2.5, 3.0)  # of scikit-image, units of its own sigma
TIMES = (1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0)  # of one sigma, to find the best
CLIP_FRAMES = (0, 1, 3, 5, 6, 7, 8, 9)  # 2 and 4 are to be left out
CLIP_SIGMAS = (4.0, 5.0, 6.0, 7.0, 8.0, 10.0, 12.0, 15.0, 20.0)


def _alike(correlation: float) -> np.ndarray:
    """Return what mixes white noise so that any two of three channels have this correlation."""
    values, vectors = np.linalg.eigh(correlation + (1 - correlation) * np.eye(3))
    return vectors * np.sqrt(np.maximum(values, 0))


# What mixes the noise of three channels, and their sigma.
COLOURS = {
    **{f"correlation {each:g}": (_alike(each), 15.0) for each in (-0.4, 0, 0.2, 0.4, 0.6, 0.9, 1)},
    "correlation 0.5, sigma 20, 10, 15": (_alike(0.5), (20.0, 10.0, 15.0)),
    "correlation 0.5, sigma 5, 15, 30": (_alike(0.5), (5.0, 15.0, 30.0)),
    "colour matrix, sigma 16, 15, 14": (
        ((1.7, -0.5, -0.2), (-0.3, 1.6, -0.3), (0.0, -0.5, 1.5)),
        (16.0, 15.0, 14.0),
    ),
}


def sigma(options: argparse.Namespace) -> None:
    """BM3D on BSD68, mean PSNR in dB: sigma given, measured, or the model of noise measured."""
    rows: dict[str, list[str]] = {}
    for level in SIGMAS:
        found: Rows = {}
        models: dict[str, int] = {}
        for seed in range(options.seeds):
            for case in cases("bsd68", level, seed, options.stride):

                def add(name: str, case: Case = case, **told) -> None:
                    result = gd.bm3d(case.noisy, axes="YX", device=options.device, **told)
                    found.setdefault(name, []).append(case.score(result))  # noqa: B023

                add("true sigma", sigma=case.sigma)
                add('noise="gaussian"', noise="gaussian")
                estimate = gd.estimate_noise(case.noisy, "YX", device=options.device)
                models[estimate.name] = models.get(estimate.name, 0) + 1
                add('noise="auto"', noise=estimate)
        best = np.array(found["true sigma"])
        for name, values in found.items():
            cell = f"{np.mean(values):.3f}"
            if name != "true sigma":
                cell += f" ({np.mean(values - best):+.3f}, worst {np.min(values - best):+.2f})"
            rows.setdefault(name, []).append(cell)
        said = ", ".join(f"{count} {name}" for name, count in models.items())
        rows.setdefault("models found", []).append(said)
    show(["told", *(f"sigma {level:g}" for level in SIGMAS)], [[k, *v] for k, v in rows.items()])


def photons(options: argparse.Namespace) -> None:
    """Fluorescence (w2s), PSNR in dB after an affine fit to the mean of 400 frames."""
    device = options.device
    shots = list(cases("w2s", 0, 0, options.stride))
    together = single_image_noise(np.stack([case.noisy for case in shots]))
    rows: Rows = {}
    for case in shots:

        def add(name: str, result: np.ndarray, case: Case = case) -> None:
            rows.setdefault(name, []).append(case.score(result))

        noisy = case.noisy
        add("noisy", noisy)
        own = single_image_noise(noisy)
        for name, found in (("each image", own), ("all six as one", together)):
            model = gd.PoissonGaussian(found.gain, found.read_noise, found.offset)
            for title, call in (("BM3D", gd.bm3d), ("NL-means", gd.nl_means)):
                add(f"{title}, model of {name}", call(noisy, noise=model, device=device))
            if name == "each image":
                high = gd.bm3d(noisy, noise=model, profile="high", device=device)
                add(f"BM3D high, model of {name}", high)
        add('BM3D, noise="auto"', gd.bm3d(noisy, noise="auto", device=device))
        add('BM3D, noise="gaussian"', gd.bm3d(noisy, noise="gaussian", device=device))
        scanned = [gd.bm3d(noisy, times * case.sigma, device=device) for times in TIMES]
        for times, result in zip(TIMES, scanned, strict=True):
            add(f"BM3D, {times:g} x root of mean variance", result)
        add("BM3D, best one sigma for each image", max(scanned, key=case.score))
        level = float(scikit_sigma(noisy))
        shape = {"patch_size": 5, "patch_distance": 6, "sigma": level, "preserve_range": True}
        advised = denoise_nl_means(noisy, h=0.6 * level, fast_mode=False, **shape)
        add("scikit-image NL-means, as advised (h 0.6)", advised)
        scanned = [denoise_nl_means(noisy, h=h * level, fast_mode=True, **shape) for h in STRENGTHS]
        for strength, result in zip(STRENGTHS, scanned, strict=True):
            add(f"scikit-image NL-means, h {strength:g}", result)
        add("scikit-image NL-means, best h for each image", max(scanned, key=case.score))
    names = [case.name.removeprefix("input_avg1_") for case in shots]
    body = [[k, *(f"{v:.2f}" for v in vs), f"{np.mean(vs):.2f}"] for k, vs in rows.items()]
    show(["method", *names, "mean"], body)


def magnitudes(options: argparse.Namespace) -> None:
    """Head with Rician noise (colin27): PSNR in dB, mean of the background in % of sigma.

    The background is every pixel whose true signal is 0, near those within 2 pixels of the head;
    the mean over all of them, with the standard error that draws and slices have.
    """
    show(*head_rows(options))


def edges(options: argparse.Namespace) -> None:
    """Why a background beside an edge is too bright: 9 % of Rician noise, in % of sigma.

    What a filter added to the stabilised image, then the mean of the result, of all pixels without
    signal and of those within 2 pixels of an object; PSNR of the object in dB. Beside magnitudes:
    a way back with no root; the standard deviation of each pixel as sigma, by a first result or by
    the truth; normal noise of sigma 1 on the exact means of stabilised values; and additive noise
    on the image itself.
    """
    show(*edge_rows(options))


def flat(options: argparse.Namespace) -> None:
    """The same signal everywhere, in sigma: mean error in % of sigma, of signed and other results.

    In brackets what a filter adds to the mean of the stabilised image, in thousandths.
    """
    show(*flat_rows(options))


def inverse(options: argparse.Namespace) -> None:
    """Largest |inverse(E stabilise(x)) - mean| in % of the noise, means 0 to 1000."""
    body = []
    for gain, read in ((0.28, 0.0), (0.28, 3.1), (1.0, 0.0), (1.0, 0.5), (1.0, 5.0), (5.0, 2.0)):
        model = gd.PoissonGaussian(gain, read)
        worst = 0.0
        for mean in (0, 0.01, 0.1, 0.3, 1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000):
            values, chances = drawn(model, mean)
            back = float(model.inverse((chances * model.stabilise(values)).sum()))
            noise = float(np.sqrt(model.variance(mean)))
            worst = max(worst, abs(back - mean) / (noise or 1.0))
        zero = np.random.default_rng(0).normal(0, read, (256, 256)).astype(np.float32)
        dark = gd.bm3d(zero, noise=model, axes="YX", device=options.device)
        least, finite = float(dark.min()), bool(np.isfinite(dark).all())
        cells = [f"{100 * worst:.3f}", f"{least:.2g}", "no" if finite else "yes"]
        body.append([f"{gain:g}", f"{read:g}", *cells])
    show(["gain", "read noise", "error %", "least of BM3D without light", "NaN"], body)


def drawn(model: gd.PoissonGaussian, mean: float) -> tuple[np.ndarray, np.ndarray]:
    """Return grey levels and their probabilities."""
    expected = mean / model.gain
    spread = 9 * np.sqrt(expected)
    counts = np.arange(max(0, int(expected - spread) - 10), int(expected + spread) + 30)
    normal = np.linspace(-8, 8, 801) if model.read_noise else np.zeros(1)
    weights = norm.pdf(normal) / norm.pdf(normal).sum()
    levels = model.gain * counts[:, None] + model.read_noise * normal
    return levels, poisson.pmf(counts, expected)[:, None] * weights


def correlated(options: argparse.Namespace) -> None:
    """Frames of the traffic clip with correlated noise, mean PSNR in dB."""
    rows: Rows = {}
    folder = data_folder() / "video"
    for number in CLIP_FRAMES[:: options.stride]:
        file = f"frame_{number}.png"
        noisy, clean = (
            imageio.imread(folder / name / file).astype(np.float32)
            for name in ("traffic_correlated_noise", "traffic_clean")
        )

        def add(name: str, clean: np.ndarray = clean, noisy: np.ndarray = noisy, **told) -> None:
            result = gd.bm3d(noisy, axes="YXS", device=options.device, **told)
            rows.setdefault(name, []).append(decibels(result, clean))

        rows.setdefault("noisy", []).append(decibels(noisy, clean))
        add('noise="gaussian"', noise="gaussian")
        add('noise="auto"', noise="auto")
        for level in CLIP_SIGMAS:
            add(f"sigma {level:g}", sigma=level)
    show(["told", "PSNR"], [[name, f"{np.mean(values):.2f}"] for name, values in rows.items()])


def colours(options: argparse.Namespace) -> None:
    """White noise that colours share, BM3D on photographs and means of shots: mean PSNR in dB.

    Sigma of each channel and the correlation between channels are told but for the column
    automatic; in brackets the largest loss to the truth.
    """
    clean = list(pictures("colour").values())
    shots = sorted((data_folder() / "real" / "camera").glob("*_mean.png"))
    clean += [imageio.imread(path)[..., :3] for path in shots]
    body = []
    for name, (matrix, sigmas) in COLOURS.items():
        rows: Rows = {}
        found = 0
        covariance = np.array(matrix) @ np.transpose(matrix)
        deviation = np.sqrt(np.diag(covariance))
        told = np.array(sigmas) * np.ones(3)
        shared = ((covariance / np.outer(deviation, deviation)).sum(axis=1) - 1) / 2
        truth = [gd.Gaussian(*each) for each in zip(told, shared, strict=True)]
        alone = [gd.Gaussian(each) for each in told]
        for seed in range(options.seeds):
            for picture in clean[:: options.stride]:
                white = np.random.default_rng(seed).normal(0, 1, picture.shape)
                noise = told * (white @ np.transpose(matrix)) / deviation
                noisy = (picture + noise).astype(np.float32)
                estimate = gd.estimate_noise(noisy, "YXS", device=options.device)
                found += any(getattr(model, "shared", 0) for model in estimate.models)
                for column, axes, model in (
                    ("independent", "YXS", alone),
                    ("apart", "YXC", alone),
                    ("automatic", "YXS", estimate),
                    ("true", "YXS", truth),
                ):
                    result = gd.bm3d(noisy, axes=axes, noise=model, device=options.device)
                    rows.setdefault(column, []).append(decibels(result, picture))
        loss = np.max(np.subtract(rows["true"], rows["automatic"]))
        cells = [f"{np.mean(values):.2f}" for values in rows.values()]
        cells[2] += f" ({loss:.2f})"
        body.append([name, *cells, f"{found} of {len(rows['true'])}"])
    head = ["noise", "channels independent", "channels apart", "automatic", "true", "found"]
    show(head, body)


def samples(options: argparse.Namespace) -> None:
    """Built-in samples: root mean square error in grey levels, in brackets without the mean error.

    Beside noise="gaussian" what was measured, beside the best one sigma by how much that was
    multiplied.
    """
    show(*sample_rows(options))


def speckle(options: argparse.Namespace) -> None:
    """A frame of ultrasound as displayed, enlarged: error in grey levels without the mean error."""
    show(*speckle_rows(options))


def planes(options: argparse.Namespace) -> None:
    """Noise that differs between planes, PSNR in dB."""
    head = ["stack, noise, filter", "noisy", "one sigma", "automatic", "true sigma of each"]
    show(head, plane_rows(options.device))


def places(options: argparse.Namespace) -> None:
    """Noise that differs between places, BSD68, mean PSNR in dB, and how often that was found."""
    head = ["noise, filter", "noisy", "without map", "automatic", "true map", "found"]
    show(head, place_rows(options))


def areas(options: argparse.Namespace) -> None:
    """BSD68 with constant areas around the image, sigma 10: mean PSNR in dB of BM3D on the image.

    `kept` is the share of the pixels in the area that come back as they are.
    """
    show(*blank_rows(options))


TABLES = (
    sigma,
    photons,
    magnitudes,
    edges,
    flat,
    inverse,
    correlated,
    colours,
    planes,
    places,
    samples,
    speckle,
    areas,
)


if __name__ == "__main__":
    print_tables(__doc__, TABLES)
