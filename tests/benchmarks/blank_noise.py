"""What constant areas and NaN around an image cost when its noise is measured.

A table of quality_noise.py, which runs it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from cases import Case, cases

import napari_gpu_denoise as gd

SIGMA = 10.0
BORDER = 60
FRAMES, STEP = 5, 4  # of a registered stack, and its motion a frame, pixels

View = Callable[[np.ndarray, float | str], np.ndarray]


def bordered(image: np.ndarray, fill: float | str) -> np.ndarray:
    """An image with a border; of the pixels of its edge if `fill` is "edge"."""
    if fill == "edge":
        return np.pad(image, BORDER, mode="edge")
    return np.pad(image, BORDER, constant_values=fill)


def round_view(image: np.ndarray, fill: float) -> np.ndarray:
    """An image seen through a round opening."""
    y, x = np.indices(image.shape)
    middle = np.array(image.shape) / 2
    inside = np.hypot(y - middle[0], x - middle[1]) < middle.min()
    return np.where(inside, image, image.dtype.type(fill))


def sheared(image: np.ndarray, fill: float) -> np.ndarray:
    """An image whose rows are shifted, as the planes of a deskewed volume."""
    height, width = image.shape
    found = np.full((height, width + height), fill, image.dtype)
    for k, row in enumerate(image):
        found[k, k : k + width] = row
    return found


def page(image: np.ndarray, fill: float) -> np.ndarray:
    """An image on a page."""
    height, width = image.shape
    found = np.full((2 * height, 2 * width), fill, image.dtype)
    found[50 : 50 + height, 60 : 60 + width] = image
    return found


VIEWS: dict[str, View] = {
    "border": bordered,
    "round view": round_view,
    "sheared": sheared,
    "page": page,
}
FILLS = {"float32": (0, 100, -1, np.nan), "uint8": (0, 100)}


def _score(result: np.ndarray, truth: np.ndarray, read: np.ndarray) -> float:
    return float(10 * np.log10(255**2 / np.mean(np.square(result[read] - truth[read]))))


def blank_rows(options: argparse.Namespace) -> tuple[list[str], list[list[str]]]:
    """Return head and body of the table: one row a kind of area, type and value."""
    head = ["area", "type", "value", "sigma", "models", "noisy", "auto", "sigma given", "kept"]
    body = []
    shots = list(cases("bsd68", SIGMA, 0, options.stride))
    for name, view in VIEWS.items():
        for dtype, fills in FILLS.items():
            for fill in fills:
                found = [_measured(case, view, dtype, fill, options.device) for case in shots]
                body.append([name, dtype, f"{fill:g}", *_cells(found)])
    for dtype in FILLS:
        found = [_measured(case, bordered, dtype, "edge", options.device) for case in shots]
        body.append(["border", dtype, "edge", *_cells(found)])
    found = [_registered(case, options.device) for case in shots]
    body.append(["registered stack, VBM3D", "float32", "nan", *_cells(found)])
    return head, body


def _cells(found: list[tuple]) -> list[str]:
    sigma, models, *decibels, kept = zip(*found, strict=True)
    counts = ", ".join(f"{models.count(name)} {name}" for name in dict.fromkeys(models))
    numbers = [f"{np.mean(each):.2f}" for each in decibels]
    return [f"{min(sigma):.2f} to {max(sigma):.2f}", counts, *numbers, f"{np.mean(kept):.2%}"]


def _measured(case: Case, view: View, dtype: str, fill: float | str, device: str | None) -> tuple:
    """Return sigma, model, PSNR noisy, filtered and with the true sigma, and the share kept.

    Repeated edges need not be kept.
    """
    noisy = case.noisy
    if dtype != "float32":
        noisy = np.rint(noisy).clip(0, np.iinfo(dtype).max)
    image = view(noisy.astype(dtype), fill)
    truth = view(case.clean.astype(np.float32), np.nan)
    read = np.isfinite(truth)
    told = {"axes": "YX", "nonfinite": "keep", "dtype": "float32", "device": device}
    result = gd.denoise(image, gd.BM3D(), **told)
    best = gd.bm3d(image, SIGMA, **told)
    kept = np.mean((result.image == image)[~read]) if fill != "edge" and np.isfinite(fill) else 1.0
    scores = [_score(each, truth, read) for each in (image, result.image, best)]
    return result.record.sigma[0], result.record.noise[0]["model"], *scores, kept


def _registered(case: Case, device: str | None) -> tuple:
    """Return the same for a stack that moved and was registered, with NaN where nothing is."""
    height, width = case.clean.shape
    rng = np.random.default_rng(0)
    truth = np.full((FRAMES, height, width), np.nan, np.float32)
    for t, frame in enumerate(truth):
        frame[: height - STEP * t, STEP * t :] = case.clean[: height - STEP * t, STEP * t :]
    image = (truth + rng.normal(0, SIGMA, truth.shape)).astype(np.float32)
    read = np.isfinite(truth)
    told = {"axes": "TYX", "nonfinite": "keep", "device": device}
    result = gd.denoise(image, gd.VBM3D(), **told)
    best = gd.vbm3d(image, SIGMA, **told)
    scores = [_score(each, truth, read) for each in (image, result.image, best)]
    return result.record.sigma[0], result.record.noise[0]["model"], *scores, 1.0
