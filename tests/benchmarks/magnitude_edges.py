"""Why a background beside an object comes out too bright, where magnitudes have Rician noise.

A table of quality_noise.py, which runs it. Whatever is filtered, the exact means are known, so that
what the filter does and what the way back makes of it can be told apart.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
from magnitudes_noise import FILTERS, background, decibels, draws, head_slices
from skimage.data import shepp_logan_phantom

import napari_gpu_denoise as gd
from napari_gpu_denoise.noise.models import rician

PERCENT = 9
DRAWN = 4  # draws of a phantom for one of each slice of the head
STRAIGHT = 2.0  # sigma; way back without a root up to that signal


def edge_rows(options: argparse.Namespace) -> tuple[list[str], list[list[str]]]:
    """Return head and body of the table of what is left beside an edge, and why."""
    level = 2.55 * PERCENT
    phantom = (255 * shepp_logan_phantom()[::2, ::2]).astype(np.float32)
    body = []
    for picture, images in (("head", head_slices(options)), ("Shepp-Logan", [phantom] * DRAWN)):
        found: dict[str, list[np.ndarray]] = {}
        for clean, noises in draws(images, options, level):
            empty, near = background(clean)
            scores: dict[str, list[tuple[float, ...]]] = {}
            # Parts of complex noise do not cancel in pairs, as magnitudes do; signs make them.
            normals = (noises[0].real / level, -noises[0].real / level)
            for noise, normal in zip(noises, normals, strict=True):
                seen = np.abs(clean + noise) / level
                for name, added, result in edge_results(clean / level, seen, normal, options):
                    quality = decibels(level * result[~empty], clean[~empty])
                    means = [
                        100 * float(v[part].mean())
                        for v in (added, result)
                        for part in (empty, near)
                    ]
                    scores.setdefault(name, []).append((*means, quality))
            for name, rows in scores.items():
                found.setdefault(name, []).append(np.mean(rows, axis=0))
        for name, rows in found.items():
            *means, quality = np.mean(rows, axis=0)
            error = np.std([row[2] for row in rows]) / len(rows) ** 0.5
            cells = [f"{value:+.2f}" for value in means]
            cells[2] += f" ± {error:.2f}"
            body.append([picture, name, *cells, f"{quality:.2f}"])
    titles = ("added to background %", "near %", "background %", "near %", "object")
    return ["picture", "what is filtered", *titles], body


def edge_results(
    signal: np.ndarray, magnitude: np.ndarray, normal: np.ndarray, options: argparse.Namespace
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield what a filter added to the stabilised means of an image, and the result, in sigma."""
    model = gd.Rician(1.0)
    curve = rician.squared_signal()
    means = np.interp(signal**2, curve.values, curve.at).astype(np.float32)
    seen = model.stabilise(magnitude)
    least = curve.at[0]
    joint = np.interp(STRAIGHT**2, curve.values, curve.at) - least
    faint = (np.interp(1.0, curve.values, curve.at) - least) * STRAIGHT / joint
    one = f"1 sigma as {faint:.2f}"
    for name, call in FILTERS.items():

        def filtered(image: np.ndarray, sigma: float | np.ndarray = 1.0, call=call) -> np.ndarray:
            return call(image, sigma, axes="YX", device=options.device)

        plain = filtered(seen)
        usual = model.inverse(plain)
        yield f"{name}, magnitudes", plain - means, usual
        straight = np.where(
            np.abs(plain - least) < joint, (plain - least) * STRAIGHT / joint, usual
        )
        yield f"{name}, straight way back ({one})", plain - means, straight
        for whose, known in (("a first result's", np.maximum(usual, 0)), ("the true", signal)):
            told = filtered(seen, deviation(known))
            yield f"{name}, {whose} deviation told", told - means, model.inverse(told)
        other = filtered((means + normal).astype(np.float32))
        yield f"{name}, normal noise instead", other - means, model.inverse(other)
        other = filtered((signal + normal).astype(np.float32))
        yield f"{name}, additive noise, no curve", other - signal, other


def deviation(signal: np.ndarray) -> np.ndarray:
    """Return the standard deviation of stabilised magnitudes, signal in sigma."""
    at = np.arange(0, 40, 0.02)
    magnitude, chance = rician.rice(at)
    values = rician.stabilised_magnitude(magnitude)
    mean = (chance * values).sum(axis=1)
    variance = (chance * (values - mean[:, None]) ** 2).sum(axis=1)
    return np.interp(signal, at, np.sqrt(variance)).astype(np.float32)
