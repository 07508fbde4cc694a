"""Noisy pictures that the quality benchmarks measure on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from reference.data import microscopy_pairs, pictures


@dataclass(frozen=True)
class Case:
    """A noisy picture and what it should become."""

    name: str
    noisy: np.ndarray
    clean: np.ndarray
    sigma: float
    affine: bool = False

    def score(self, result: np.ndarray) -> float:
        """Return the PSNR of a result in dB."""
        result = result.astype(np.float64)
        if self.affine:
            result = affine_fit(result, self.clean)
        return float(10 * np.log10(255**2 / np.mean((result - self.clean) ** 2)))


def affine_fit(image: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return ``a * image + b``, as near to the target as can be."""
    terms = np.stack([image.ravel(), np.ones(image.size)], axis=1).astype(np.float64)
    fit, *_ = np.linalg.lstsq(terms, target.ravel().astype(np.float64), rcond=None)
    return (terms @ fit).reshape(image.shape)


def cases(name: str, sigma: float, seed: int, stride: int) -> Iterator[Case]:
    """Yield the pictures of a set with noise."""
    if name == "w2s":
        for stem, (noisy, clean) in list(microscopy_pairs().items())[::stride]:
            sigma = float(np.std(noisy - affine_fit(clean, noisy)))
            yield Case(stem, noisy.astype(np.float32), clean, sigma, affine=True)
        return
    for stem, clean in list(pictures(name).items())[::stride]:
        noise = np.random.default_rng(seed).normal(0, sigma, clean.shape)
        yield Case(stem, (clean + noise).astype(np.float32), clean, sigma)
