"""NL-means of magnitudes: what its own means bring, beside a transform of the noise.

    python tests/benchmarks/quality_nl_means_noise.py [--tables rician weak] [--quick]

Numbers are means over pictures and draws; PSNR has the peak 255, on float results.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

import numpy as np
from cases import magnitudes
from scipy.ndimage import binary_erosion
from tables import print_tables, show

import napari_gpu_denoise as gd
from reference.data import pictures
from scenes import psnr

FACTORS = (0.6, 0.8, 1.0, 1.2, 1.4)
Rows = dict[str, list[tuple[float, ...]]]
# What draws noise on a picture, and its sigma there.
Noise = tuple[Callable[[np.ndarray, np.random.Generator], np.ndarray], Callable]


def _show(title: str, heads: tuple[str, ...], rows: Rows) -> None:
    print(f"\n{title}\n")
    show(["", *heads], ([name, *np.mean(values, axis=0)] for name, values in rows.items()))


def rician(options: argparse.Namespace) -> None:
    """Slices of a head, 0 to 255, with Rician noise: PSNR, and what is left of the bias.

    The head is where it is brighter than 10 %; the background is where it is exactly 0, 12 pixels
    from all else.
    """
    clean = list(pictures("colin27").values())[:: options.stride]
    for percent in (3, 5, 9):
        sigma, rows = 255 * percent / 100, {}
        for number, head in enumerate(clean):
            far, inside = binary_erosion(head == 0, iterations=12), head > 25.5
            for seed in range(options.seeds):
                noisy = magnitudes(head, sigma, 1000 * number + seed)
                for name, made in _of_magnitudes(noisy, sigma, options.device):
                    empty = made[far].astype(np.float64) / sigma
                    row = 100 * empty.mean(), 100 * np.sqrt(np.mean(np.square(empty)))
                    row = psnr(made, head), psnr(made[inside], head[inside]), *row
                    rows.setdefault(name, []).append(row)
        heads = ("PSNR", "head alone", "background, mean, % of sigma", "its rms")
        _show(f"colin27, {len(clean)} slices, sigma {percent} %", heads, rows)


def weak(options: argparse.Namespace) -> None:
    """Magnitudes of one constant signal, 200 x 200 pixels: the mean result, in units of sigma."""
    signals, rows, sigma = (0.0, 0.3, 0.5, 1.0, 2.0, 3.0), {}, 20.0
    for seed in range(options.seeds):
        found: dict[str, list[float]] = {}
        for signal in signals:
            noisy = magnitudes(np.full((200, 200), signal * sigma), sigma, seed)
            for name, made in _of_magnitudes(noisy, sigma, options.device):
                found.setdefault(name, []).append(float(made.mean() / sigma))
        for name, values in found.items():
            rows.setdefault(name, []).append(tuple(values))
    _show("mean result by signal", tuple(f"{signal:g}" for signal in signals), rows)


def _of_magnitudes(noisy, sigma, device) -> Iterator[tuple[str, np.ndarray]]:
    model = gd.Rician(sigma)
    for name, profile in (("", "normal"), ("fine, ", "fine")):
        options = {"profile": profile, "device": device}
        yield name + "plain", gd.nl_means(noisy, sigma, **options)
        made = model.inverse(gd.nl_means(model.stabilise(noisy), 1.0, **options))
        yield name + "stabilised, signed", made
        yield name + "rician=True", gd.nl_means(noisy, sigma, rician=True, **options)


if __name__ == "__main__":
    print_tables(__doc__, (rician, weak))
