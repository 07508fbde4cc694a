"""Error left on the built-in samples, whose truth is known, by what a filter is told of the noise.

A table of quality_noise.py, which runs it.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np

import napari_gpu_denoise as gd

sys.path.insert(0, str(Path(__file__).parents[2] / "sample_data"))
import make_samples

AXES = {"fluorescence": "TYX", "mri": "ZYX", "ultrasound": "TYX"}
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
