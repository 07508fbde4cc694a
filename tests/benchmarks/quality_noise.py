"""What models of noise bring: quality with noise that is measured, and that is not of one sigma.

    python tests/benchmarks/quality_noise.py [--tables …] [--quick] [--seeds N] [--device D]

Noise is drawn with ``numpy.random.default_rng(seed)``, one seed a picture and draw. The data folder
holds the pictures. Rician noise and noise by place are in `magnitudes_noise` and `places_noise`.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import imageio.v3 as imageio
import numpy as np
from cases import cases
from magnitudes_noise import flat, magnitudes
from places_noise import places, planes
from tables import print_tables, show

import napari_gpu_denoise as gd
from napari_gpu_denoise.noise.patches.spectra import spectra_of
from napari_gpu_denoise.noise.photon import single_image_noise
from reference.data import existing, pictures
from scenes import psnr

sys.path.insert(0, str(Path(__file__).parents[2] / "sample_data"))
import make_samples

TIMES = (0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0)  # of one sigma, to find the best
SAMPLES = {"fluorescence": "TYX", "mri": "ZYX", "ultrasound": "TYX"}


def _alike(correlation: float) -> np.ndarray:
    """Return what mixes white noise so that any two of three channels have this correlation."""
    values, vectors = np.linalg.eigh(correlation + (1 - correlation) * np.eye(3))
    return vectors * np.sqrt(np.maximum(values, 0))


# What mixes the noise of three channels, and their sigma.
COLOURS = {
    **{f"correlation {each:g}": (_alike(each), 15.0) for each in (-0.4, 0, 0.2, 0.4, 0.6, 0.9, 1)},
    "correlation 0.5, sigma 5, 15, 30": (_alike(0.5), (5.0, 15.0, 30.0)),
    "colour matrix, sigma 16, 15, 14": (
        ((1.7, -0.5, -0.2), (-0.3, 1.6, -0.3), (0.0, -0.5, 1.5)),
        (16.0, 15.0, 14.0),
    ),
}


def photons(options: argparse.Namespace) -> None:
    """Fluorescence (w2s), PSNR in dB after an affine fit to the mean of 400 frames."""
    shots = list(cases("w2s", 0, 0, options.stride))
    rows: dict[str, list[float]] = {}
    for case in shots:
        noisy, told = case.noisy, {"device": options.device}
        own = single_image_noise(spectra_of(noisy))
        model = gd.PoissonGaussian(own.gain, own.read_noise, own.offset)
        results = {
            "noisy": noisy,
            "BM3D, model of the image": gd.bm3d(noisy, noise=model, **told),
            "NL-means, model of the image": gd.nl_means(noisy, noise=model, **told),
            'BM3D, noise="auto"': gd.bm3d(noisy, noise="auto", **told),
            'BM3D, noise="gaussian"': gd.bm3d(noisy, noise="gaussian", **told),
            **{
                f"BM3D, {times:g} x root of mean variance": gd.bm3d(
                    noisy, times * case.sigma, **told
                )
                for times in TIMES
            },
        }
        for name, result in results.items():
            rows.setdefault(name, []).append(case.score(result))
    names = [case.name.removeprefix("input_avg1_") for case in shots]
    show(["method", *names, "mean"], ([k, *v, np.mean(v)] for k, v in rows.items()))


def colours(options: argparse.Namespace) -> None:
    """White noise that colours share, BM3D on photographs and means of shots: mean PSNR in dB.

    Sigma of each channel and the correlation between channels are told but for the column
    automatic; in brackets the largest loss to the truth.
    """
    clean = list(pictures("colour").values())
    shots = sorted(existing("real/camera").glob("*_mean.png"))
    clean += [imageio.imread(path)[..., :3] for path in shots]
    body = []
    for name, (matrix, sigmas) in COLOURS.items():
        rows: dict[str, list[float]] = {}
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
                    ("channels independent", "YXS", alone),
                    ("channels apart", "YXC", alone),
                    ("automatic", "YXS", estimate),
                    ("true", "YXS", truth),
                ):
                    result = gd.bm3d(noisy, axes=axes, noise=model, device=options.device)
                    rows.setdefault(column, []).append(psnr(result, picture))
        cells = [f"{np.mean(values):.2f}" for values in rows.values()]
        cells[2] += f" ({np.max(np.subtract(rows['true'], rows['automatic'])):.2f})"
        body.append([name, *cells, f"{found} of {len(rows['true'])}"])
    show(["noise", *rows, "found"], body)


def samples(options: argparse.Namespace) -> None:
    """Built-in samples: root mean square error in grey levels, in brackets without the mean error.

    Beside noise="gaussian" what was measured, beside the best one sigma by how much that was
    multiplied.
    """
    told = ('noise="gaussian"', "best one sigma", 'noise="auto"', "model")
    body = []
    for name, axes in SAMPLES.items():
        truth, noisy = getattr(make_samples, name)()
        given = {"axes": axes, "dtype": "float32", "device": options.device}
        estimate = gd.estimate_noise(noisy, axes, device=options.device)
        for kind in gd.FILTERS:
            if set(kind().joint) <= set(axes):

                def denoised(kind: type = kind, noisy=noisy, given=given, **noise):
                    return gd.denoise(noisy, kind(), **given, **noise)

                body.append([name, kind.title, *_of_sample(truth, noisy, estimate, denoised)])
    show(["sample", "filter", "noisy", *told], body)


def _of_sample(
    truth: np.ndarray, noisy: np.ndarray, estimate: gd.NoiseEstimate, denoised: Callable
) -> list[str]:
    def error(image: np.ndarray) -> tuple[float, str]:
        difference = image.astype(np.float64) - truth
        whole = float(np.sqrt(np.mean(difference**2)))
        return whole, f"{whole:.2f} ({difference.std():.2f})"

    plain = denoised(noise="gaussian")
    measured = plain.record.sigma[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scan = {times: error(denoised(sigma=times * measured).image) for times in TIMES}
    best = min(scan, key=scan.get)
    return [
        error(noisy)[1],
        f"{error(plain.image)[1]}, {measured:.3g}",
        f"{scan[best][1]}, x {best:g}",
        error(denoised(noise=estimate).image)[1],
        estimate.models[0].summary(),
    ]


if __name__ == "__main__":
    print_tables(__doc__, (photons, magnitudes, flat, colours, planes, places, samples))
