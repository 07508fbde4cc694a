"""What `estimate_noise` makes of noise that is known: the model, sigma, and the time it takes.

python tests/benchmarks/noise_estimates.py [--tables models sigma one] [--quick] [--device N]
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from cases import magnitudes, with_noise
from scipy.ndimage import gaussian_filter
from tables import print_tables, seconds_of, show, show_rows

import napari_gpu_denoise as gd
from napari_gpu_denoise import estimate_noise
from napari_gpu_denoise.noise.estimate import measure_noise
from reference.data import photograph, pictures

SETS = ("bsd68", "set12", "denoiselab13")
SIGMAS = (5, 10, 20, 30, 50)
PHOTONS = ((0.3, 0), (0.5, 2), (1, 2), (1, 5), (2, 2), (2, 5), (5, 2), (5, 10))  # gain, read noise
LOOKS = (1, 4, 16)
CORRELATED = (10, 20)
PERCENT = (3, 5, 9)
RATIOS, WEAK = (1.5, 2, 3), 20.0  # of signal to sigma, and that


class Noise(NamedTuple):
    """Noise on a set of pictures, its model, what makes it, and a parameter that is known."""

    title: str
    set: str
    model: str
    make: Callable[[np.ndarray, int], np.ndarray]
    true: float
    parameter: str = "sigma"


def photons(picture: np.ndarray, seed: int, gain: float, read: float) -> np.ndarray:
    """Return a picture with photon and read noise."""
    rng = np.random.default_rng(seed)
    return gain * rng.poisson(picture / gain) + rng.normal(0, read, picture.shape)


def speckled(picture: np.ndarray, seed: int, looks: float) -> np.ndarray:
    """Return a picture with speckle."""
    return picture * np.random.default_rng(seed).gamma(looks, 1 / looks, picture.shape)


def weak(picture: np.ndarray, seed: int, ratio: float) -> np.ndarray:
    """Return magnitudes of the inner part of a head, with an empty stripe; its median is known."""
    inner = picture[50:150, 40:140]
    inner = inner * (ratio * WEAK / np.median(inner))
    inner[:10] = 0
    return magnitudes(inner, WEAK, seed)


def _noises() -> Iterator[Noise]:
    for name in SETS:
        for sigma in SIGMAS:
            make = partial(_white, sigma=sigma)
            yield Noise(f"Gaussian, sigma {sigma}", name, "gaussian", make, sigma)
        for gain, read in PHOTONS:
            make = partial(photons, gain=gain, read=read)
            title = f"photons, gain {gain}, read noise {read}"
            yield Noise(title, name, "poisson-gaussian", make, gain, "gain")
        for looks in LOOKS:
            make = partial(speckled, looks=looks)
            yield Noise(f"speckle, looks {looks}", name, "speckle", make, looks, "looks")
        for sigma in CORRELATED:
            make = partial(_correlated, sigma=sigma)
            yield Noise(f"correlated (told), sigma {sigma}", name, "correlated", make, sigma)
    for percent in PERCENT:
        sigma = 2.55 * percent
        make = partial(_white, sigma=sigma)
        yield Noise(f"Gaussian, {percent} %", "colin27", "gaussian", make, sigma)
        for dtype in ("float32", "uint8"):
            make = partial(_rician, sigma=sigma, dtype=dtype)
            yield Noise(f"Rician, {percent} %, {dtype}", "colin27", "rician", make, sigma)
    for ratio in RATIOS:
        title = f"Rician, grey levels of {ratio} sigma, 10 % background"
        yield Noise(title, "colin27", "rician", partial(weak, ratio=ratio), WEAK)


def _white(picture: np.ndarray, seed: int, sigma: float) -> np.ndarray:
    return with_noise(picture, sigma, seed)


def _correlated(picture: np.ndarray, seed: int, sigma: float) -> np.ndarray:
    noise = gaussian_filter(np.random.default_rng(seed).normal(size=picture.shape), 0.8)
    return picture + sigma * noise / noise.std()


def _rician(picture: np.ndarray, seed: int, sigma: float, dtype: str) -> np.ndarray:
    return magnitudes(picture, sigma, seed).astype(dtype)


def models(options: argparse.Namespace) -> None:
    """Models found on simulated noise; errors of the parameter (sigma, gain, looks) where right.

    Last: how many of these are within 1.645 stated standard errors; 90 % if these are right.
    """
    rows = []
    for noise in _noises():
        found = []
        for seed, picture in enumerate(list(pictures(noise.set).values())[:: options.stride]):
            noisy = noise.make(picture.astype(np.float64), seed)
            model = noise.model if "told" in noise.title else "auto"
            found.append(estimate_noise(noisy, model=model, device=options.device))
        right = [each for each in found if each.name == noise.model]
        sigma = noise.parameter == "sigma"
        values = [e.sigma[0] if sigma else getattr(e.models[0], noise.parameter) for e in right]
        error = 100 * (np.array(values or [np.nan]) / noise.true - 1)
        stated = [
            each.standard_error[0] if sigma else each.errors[0].get(noise.parameter, np.nan)
            for each in right
        ]
        held = np.abs(error) <= 164.5 * np.array(stated or [np.nan]) / noise.true
        others = Counter(each.name for each in found if each.name != noise.model)
        rows.append(
            {
                "noise": noise.title,
                "set": noise.set,
                "right": f"{len(right)} of {len(found)}",
                "taken for": ", ".join(f"{k} {n}" for k, n in others.items()),
                "bias %": error.mean(),
                "mean error %": np.abs(error).mean(),
                "worst %": np.abs(error).max(),
                "held %": 100 * held.mean() if right else np.nan,
            }
        )
    show_rows(rows)


def sigma(options: argparse.Namespace) -> None:
    """Sigma of white noise on BSD68, whatever model is found, beside scikit-image: errors in %."""
    from skimage.restoration import estimate_sigma

    rows = []
    clean = list(pictures("bsd68").values())[:: options.stride]
    for level in SIGMAS:
        noisy = [with_noise(picture, level, seed) for seed, picture in enumerate(clean)]
        for name, method in (
            ("estimate_noise", lambda i: estimate_noise(i, device=options.device).sigma[0]),
            ("scikit-image", estimate_sigma),
        ):
            error = 100 * (np.array([method(image) for image in noisy]) / level - 1)
            rows.append([level, name, error.mean(), np.abs(error).mean(), np.abs(error).max()])
    show(["sigma", "method", "bias", "mean error", "worst"], rows)


def one(options: argparse.Namespace) -> None:
    """Milliseconds for one photograph, the median of 20 calls: estimates, and calls of filters.

    `measured` is what every call without sigma measures, which does not look for structured noise.
    """
    device, rows = gd.choose(options.device), []
    for shape in options.shapes:
        scene = photograph(*map(int, shape.split("x")))
        noisy = with_noise(scene, 20, 1)
        images = {
            "float32": noisy,
            "uint16, photons": np.rint(photons(scene, 1, 2, 5) + 100).clip(0).astype(np.uint16),
            "uint8": np.clip(np.rint(noisy), 0, 255).astype(np.uint8),
        }
        for kind, image in images.items():
            calls = {
                "estimate_noise": partial(estimate_noise, image, device=device),
                "measured": partial(measure_noise, image, None, "auto", device),
            }
            for name, filter in (
                ("nl_means", gd.NLMeans()),
                ("bm3d fast", gd.BM3D.of(profile="fast")),
            ):
                calls[name] = partial(gd.denoise, image, filter, device=device)
                calls[f"{name}, sigma"] = partial(gd.denoise, image, filter, 20.0, device=device)
            times = {
                name: 1e3 * float(np.median(seconds_of(call, 20, warm=3)))
                for name, call in calls.items()
            }
            found = estimate_noise(image, device=device).models[0].name
            rows.append({"image": f"{shape} {kind}", **times, "model": found})
    show_rows(rows)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the sizes of photographs."""
    sizes = ["512x512", "2048x2048", "3456x4608"]
    parser.add_argument("--shapes", nargs="+", default=sizes, help="of the table `one`")


if __name__ == "__main__":
    print_tables(__doc__, (models, sigma, one), add_options)
