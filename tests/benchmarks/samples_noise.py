"""Error left on the built-in samples, whose truth is known, by what a filter is told of the noise.

Tables of quality_noise.py, which runs them.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np
from scipy.ndimage import zoom

import napari_gpu_denoise as gd

sys.path.insert(0, str(Path(__file__).parents[2] / "sample_data"))
import make_samples

AXES = {"fluorescence": "TYX", "mri": "ZYX", "ultrasound": "TYX"}
ENLARGED = (1.0, 1.7, 2.5)  # as images are displayed, with coarser grains
TIMES = (0.75, 1.0, 1.25, 1.5, 2.0, 3.0)  # of the estimate, to find the best sigma


def error(image: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    """Return the root mean square error, and what of it is not the same everywhere."""
    difference = image.astype(np.float64) - truth
    return float(np.sqrt(np.mean(difference**2))), float(difference.std())


def sample_rows(options: argparse.Namespace) -> tuple[list[str], list[list[str]]]:
    """Return head and body of the table: one row a sample and filter."""
    head = [
        "sample",
        "filter",
        "noisy",
        'noise="gaussian"',
        "best one sigma",
        'noise="auto"',
        "model",
    ]
    body = []
    for name, axes in AXES.items():
        truth, noisy = getattr(make_samples, name)()
        estimate = gd.estimate_noise(noisy, axes, device=options.device)
        for kind in gd.FILTERS:
            if set(kind().joint) <= set(axes):
                body.append(
                    [name, kind.title, *_cells(kind, truth, noisy, axes, estimate, options)]
                )
    return head, body


def speckle_rows(options: argparse.Namespace) -> tuple[list[str], list[list[str]]]:
    """Return head and body of the table of an enlarged frame: one row a size and filter."""
    head = ["enlarged", "filter", "noisy", "best one sigma", 'noise="auto"', "sigma", "true sigma"]
    truth, noisy = (each[0].astype(np.float32) for each in make_samples.ultrasound())
    body = []
    for times in ENLARGED:
        clean, image = (zoom(each, times, order=1) for each in (truth, noisy))
        image = np.clip(np.rint(image), 0, 255).astype(np.uint8)
        estimate = gd.estimate_noise(image, device=options.device)
        for kind in (gd.NLMeans, gd.BM3D):

            def left(kind: type = kind, image=image, clean=clean, **told) -> float:
                found = gd.denoise(image, kind(), dtype="float32", device=options.device, **told)
                return error(found.image, clean)[1]

            best = min(left(sigma=each * estimate.sigma[0]) for each in TIMES)
            values = error(image, clean)[1], best, left(noise=estimate), estimate.sigma[0]
            cells = [f"{each:.1f}" for each in (*values, error(image, clean)[1])]
            body.append([f"{times:g}", kind.title, *cells])
    return head, body


def _cells(
    kind: type,
    truth: np.ndarray,
    noisy: np.ndarray,
    axes: str,
    estimate: gd.NoiseEstimate,
    options: argparse.Namespace,
) -> list[str]:
    def denoised(**told) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = gd.denoise(
                noisy, kind(), axes=axes, dtype="float32", device=options.device, **told
            )
        return result.image

    def cell(values: tuple[float, float]) -> str:
        return f"{values[0]:.2f} ({values[1]:.2f})"

    plain = gd.denoise(
        noisy, kind(), noise="gaussian", axes=axes, dtype="float32", device=options.device
    )
    measured = plain.record.sigma[0]
    scan = {t: error(denoised(sigma=t * measured), truth) for t in TIMES}
    best = min(scan, key=lambda times: scan[times][0])
    return [
        cell(error(noisy, truth)),
        f"{cell(error(plain.image, truth))}, {measured:.3g}",
        f"{cell(scan[best])}, x {best:g}",
        cell(error(denoised(noise=estimate), truth)),
        estimate.models[0].summary(),
    ]
