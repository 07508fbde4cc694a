"""Noisy pictures that the quality benchmarks measure on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from reference.data import existing, microscopy_pairs, pictures
from scenes import psnr


@dataclass(frozen=True)
class Case:
    """A noisy picture and what it should become."""

    name: str
    noisy: np.ndarray
    clean: np.ndarray
    sigma: float = 0.0
    affine: bool = False  # whether the clean one is known up to an affine map

    def score(self, result: np.ndarray) -> float:
        """Return the PSNR of a result in dB."""
        if self.affine:
            result = affine_fit(result, self.clean)
        return psnr(result, self.clean)

    @property
    def axes(self) -> str:
        return "YXS"[: self.clean.ndim]


def affine_fit(image: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return ``a * image + b``, as near to the target as can be."""
    image = np.asarray(image, np.float64)
    return np.polyval(np.polyfit(image.ravel(), np.asarray(target, float).ravel(), 1), image)


def with_noise(clean: np.ndarray, sigma: float, seed: int = 0) -> np.ndarray:
    """Return an image with white Gaussian noise, float32."""
    noise = np.random.default_rng(seed).normal(0, sigma, clean.shape)
    return (clean + noise).astype(np.float32)


def magnitudes(clean: np.ndarray, sigma: float, seed: int | tuple = 0) -> np.ndarray:
    """Return magnitudes with Rician noise, float32."""
    real, imaginary = np.random.default_rng(seed).normal(0, sigma, (2, *clean.shape))
    return np.hypot(clean + real, imaginary).astype(np.float32)


def cases(name: str, sigma: float, seed: int, stride: int) -> Iterator[Case]:
    """Yield the pictures of a set with noise."""
    if name == "w2s":
        for stem, (noisy, clean) in list(microscopy_pairs().items())[::stride]:
            sigma = float(np.std(noisy - affine_fit(clean, noisy)))
            yield Case(stem, noisy.astype(np.float32), clean, sigma, affine=True)
        return
    for stem, clean in list(pictures(name).items())[::stride]:
        yield Case(stem, with_noise(clean, sigma, seed), clean, sigma)


def real_pairs(folder: str) -> Iterator[Case]:
    """Yield images of cameras or microscopes, each with the mean of many shots."""
    import imageio.v3 as imageio

    affine = folder == "confocal"
    for path in sorted(existing(f"real/{folder}").glob("*_mean.*")):
        named = (path.with_name(path.name.replace("_mean", kind)) for kind in ("_real", "_noisy"))
        pair = [imageio.imread(each) for each in (next(p for p in named if p.exists()), path)]
        if affine:
            pair = [each[..., 0] if each.ndim == 3 else each for each in pair]
        yield Case(path.stem.removesuffix("_mean"), *pair, affine=affine)
