"""What `estimate_noise` makes of noise that is known: the model, sigma, and the time it takes.

    python tests/benchmarks/noise_estimates.py [--tables models sigma real speed one] [--quick]
        [--device N] [--json FILE]

Tables: which model is found on simulated noise, and its parameters; sigma on BSD68 beside
scikit-image; measured images and samples; the time for large stacks on a device and without one,
and that of one photograph, for estimates and for calls of filters that measure it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import imageio.v3 as imageio
import numpy as np
import tifffile

import napari_gpu_denoise as gd
from napari_gpu_denoise import NoiseEstimate, estimate_noise
from napari_gpu_denoise.files import samples
from napari_gpu_denoise.noise.estimate import measure_noise

sys.path.insert(0, str(Path(__file__).parents[1]))
from reference.data import REASON, data_folder, microscopy_pairs, photograph, pictures

SETS = ("bsd68", "set12", "denoiselab13")
SIGMAS = (5, 10, 20, 30, 50)
PHOTONS = ((0.3, 0), (0.5, 2), (1, 2), (1, 5), (2, 2), (2, 5), (5, 2), (5, 10))  # gain, read noise
LOOKS = (1, 4, 16)
PERCENT = (3, 5, 9)
RATIOS, WEAK = (1.5, 2, 3), 20.0  # of signal to sigma, and that


def additive(picture: np.ndarray, rng: np.random.Generator, sigma: float) -> np.ndarray:
    """Return a picture with Gaussian noise."""
    return picture + rng.normal(0, sigma, picture.shape)


def photons(picture: np.ndarray, rng: np.random.Generator, gain: float, read: float) -> np.ndarray:
    """Return a picture with photon and read noise."""
    return gain * rng.poisson(picture / gain) + rng.normal(0, read, picture.shape)


def magnitudes(picture: np.ndarray, rng: np.random.Generator, sigma: float) -> np.ndarray:
    """Return the magnitude of a picture with complex noise."""
    real, imaginary = rng.normal(0, sigma, (2, *picture.shape))
    return np.hypot(picture + real, imaginary)


def _cases() -> Iterator[tuple[str, str, str, Callable, float, Callable[[NoiseEstimate], float]]]:
    """Yield noise, its set, its model, what makes it, a true parameter, and how to read that."""
    for name in SETS:
        for sigma in SIGMAS:
            make = lambda p, r, s=sigma: additive(p, r, s)  # noqa: E731
            yield f"Gaussian, sigma {sigma}", name, "gaussian", make, sigma, _sigma
        for gain, read in PHOTONS:
            make = lambda p, r, g=gain, s=read: photons(p, r, g, s)  # noqa: E731
            title = f"photons, gain {gain}, read noise {read}"
            yield title, name, "poisson-gaussian", make, gain, _parameter("gain")
        for looks in LOOKS:
            make = lambda p, r, n=looks: p * r.gamma(n, 1 / n, p.shape)  # noqa: E731
            yield f"speckle, looks {looks}", name, "speckle", make, looks, _parameter("looks")
    for percent in PERCENT:
        sigma = 2.55 * percent
        for kind, function in (("gaussian", additive), ("rician", magnitudes)):
            make = lambda p, r, f=function, s=sigma: f(p, r, s)  # noqa: E731
            yield f"{kind.capitalize()}, {percent} %", "colin27", kind, make, sigma, _sigma
        make = lambda p, r, s=sigma: magnitudes(p, r, s).astype(np.uint8)  # noqa: E731
        yield f"Rician, {percent} %, uint8", "colin27", "rician", make, sigma, _sigma
    for ratio in RATIOS:
        make = lambda p, r, m=ratio: magnitudes(_weak(p, m), r, WEAK)  # noqa: E731
        title = f"Rician, grey levels of {ratio} sigma, 10 % background"
        yield title, "colin27", "rician", make, WEAK, _sigma


def _weak(picture: np.ndarray, ratio: float) -> np.ndarray:
    """Return the inner part of a head whose median is so many sigma, with an empty stripe."""
    inner = picture[50:150, 40:140]
    inner = inner * (ratio * WEAK / np.median(inner))
    inner[:10] = 0
    return inner


def _sigma(found: NoiseEstimate) -> float:
    return found.sigma[0]


def _parameter(name: str) -> Callable[[NoiseEstimate], float]:
    return lambda found: getattr(found.models[0], name)


def models(options: argparse.Namespace) -> list[dict]:
    """Models found on simulated noise; errors of the parameter (sigma, gain, looks) where right."""
    rows = []
    step = 8 if options.quick else 1
    for title, name, wanted, make, true, read in _cases():
        found = []
        for seed, picture in enumerate(list(pictures(name).values())[::step]):
            noisy = make(picture.astype(np.float64), np.random.default_rng(seed))
            found.append(estimate_noise(noisy, device=options.device))
        right = [each for each in found if each.name == wanted]
        error = np.array([read(each) / true - 1 for each in right]) if right else np.array([np.nan])
        others = Counter(each.name for each in found if each.name != wanted)
        rows.append(
            {
                "noise": title,
                "set": name,
                "right": f"{len(right)} of {len(found)}",
                "taken for": ", ".join(f"{k} {n}" for k, n in others.items()),
                "bias %": 100 * error.mean(),
                "mean error %": 100 * np.abs(error).mean(),
                "median error %": 100 * np.median(np.abs(error)),
                "worst %": 100 * np.abs(error).max(),
            }
        )
    return rows


def sigma(options: argparse.Namespace) -> list[dict]:
    """Sigma of white noise on BSD68, whatever model is found, beside scikit-image."""
    from skimage.restoration import estimate_sigma

    rows = []
    clean = list(pictures("bsd68").values())[:: 8 if options.quick else 1]
    for level in SIGMAS:
        errors: dict[str, list[float]] = {"estimate_noise": [], "scikit-image": []}
        for seed, picture in enumerate(clean):
            noisy = additive(picture, np.random.default_rng(seed), level)
            found = estimate_noise(noisy, device=options.device).sigma[0]
            errors["estimate_noise"].append(found / level - 1)
            errors["scikit-image"].append(float(estimate_sigma(noisy)) / level - 1)
        for name, each in errors.items():
            rows.append(
                {
                    "sigma": level,
                    "method": name,
                    "mean error %": 100 * np.abs(each).mean(),
                    "bias %": 100 * np.mean(each),
                    "worst %": 100 * np.abs(each).max(),
                }
            )
    return rows


def real(options: argparse.Namespace) -> list[dict]:
    """Measured images, and the samples."""
    folder = data_folder()
    images: list[tuple[str, Any, str | None]] = []
    for name in samples.names():
        images.append((name, tifffile.imread(samples.path(name)), samples.info(name).axes))
    images += [(f"w2s {name[-5:]}", pair[0], None) for name, pair in microscopy_pairs().items()]
    flat = [folder / f"sensor/emva_ccd12/b_{k:03}_snap_001.png" for k in (0, 6, 12, 24, 36)]
    images.append(("CCD, five flat fields", np.stack([imageio.imread(f) for f in flat]), None))
    cells = tifffile.imread(folder / "microscopy/timelapse_cell_migration.tif")
    images.append(("cell migration", cells, "TYX"))
    for number in (0, 6):
        file = folder / f"video/traffic_correlated_noise/frame_{number}.png"
        images.append((f"traffic, frame {number}", imageio.imread(file), "YXC"))
    return [
        {"image": name, "shape": str(image.shape), "found": estimate_noise(image, axes).verdict()}
        for name, image, axes in images
    ]


def speed(options: argparse.Namespace) -> list[dict]:
    """Time of a call: the first one of a process, which builds kernels, and the best of three."""
    from napari_gpu_denoise import choose

    rng = np.random.default_rng(0)
    y, x = np.mgrid[:2048, :2048]
    scene = 300 + 200 * np.sin(x / 90) * np.cos(y / 70)
    few = [rng.poisson(scene).astype(np.uint16) for _ in range(4)]
    frames = 12 if options.quick else 100
    stack = np.stack([np.roll(few[t % 4], 37 * (t // 4), 1) for t in range(frames)])
    cases = [("TYX", stack), ("ZYX", stack[:, :512, :512]), ("YX", stack[0])]
    rows = []
    for axes, image in cases:
        for device in (choose(options.device), None):
            seconds = []
            for _ in range(4):
                start = time.perf_counter()
                with _WithoutDevice(device is None):
                    estimate_noise(image, axes, device=device)
                seconds.append(time.perf_counter() - start)
            rows.append(
                {
                    "shape": " x ".join(map(str, image.shape)),
                    "axes": axes,
                    "device": "NumPy" if device is None else str(device),
                    "first s": seconds[0],
                    "best s": min(seconds[1:]),
                }
            )
    return rows


class _WithoutDevice:
    """Keeps `estimate_noise` from using a device that it was not asked to use."""

    def __init__(self, wanted: bool):
        from napari_gpu_denoise.noise.patches import device as device_patches

        self._module, self._wanted = device_patches, wanted
        self._kept = device_patches.WORTHWHILE

    def __enter__(self) -> None:
        if self._wanted:
            self._module.WORTHWHILE = sys.maxsize

    def __exit__(self, *_: object) -> None:
        self._module.WORTHWHILE = self._kept


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "" if np.isnan(value) else f"{value:.3g}"
    return str(value)


def one(options: argparse.Namespace) -> list[dict]:
    """Milliseconds for one photograph, the median of 20 calls: estimates, and calls of filters.

    `measured` is what every call without sigma measures, which does not look for structured noise.
    """
    device = gd.choose(options.device)
    print(f"\n{device}")
    rows, rng = [], np.random.default_rng(1)
    for shape in ((512, 512), (1080, 1920), (2048, 2048), (3456, 4608)):
        scene = photograph(*shape)
        noisy = additive(scene, rng, 20)
        images = {
            "float32": noisy.astype(np.float32),
            "uint16, photons": np.rint(photons(scene, rng, 2, 5) + 100).clip(0).astype(np.uint16),
            "uint8": np.clip(np.rint(noisy), 0, 255).astype(np.uint8),
        }
        for kind, image in images.items():
            cases = {
                "estimate_noise": partial(estimate_noise, image, device=device),
                "measured": partial(measure_noise, image, None, "auto", device),
            }
            for name, filter in (
                ("nl_means", gd.NLMeans()),
                ("bm3d fast", gd.BM3D.of(profile="fast")),
            ):
                cases[name] = partial(gd.denoise, image, filter, device=device)
                cases[f"{name}, sigma"] = partial(gd.denoise, image, filter, 20.0, device=device)
            times = {name: median_time(case) for name, case in cases.items()}
            row = {"image": f"{' x '.join(map(str, shape))} {kind}", **times}
            rows.append({**row, "model": estimate_noise(image).models[0].name})
    return rows


def median_time(call: Callable[[], Any], count: int = 20) -> float:
    """Return the median of the milliseconds of some calls, after three others."""
    times = []
    for _ in range(count + 3):
        start = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - start))
    return float(np.median(times[3:]))


def main() -> None:
    """Measure, print, and write JSON where asked to."""
    tables = (models, sigma, real, speed, one)
    names = [table.__name__ for table in tables]
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tables", nargs="+", choices=names, default=names)
    parser.add_argument("--quick", action="store_true", help="every eighth picture, short stacks")
    parser.add_argument("--device", help="number or part of the name; default: as the library does")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    options = parser.parse_args()
    if data_folder() is None and set(options.tables) - {"speed"}:
        parser.error(REASON)
    found = {}
    for table in tables:
        if table.__name__ not in options.tables:
            continue
        rows = found[table.__name__] = table(options)
        print(f"\n{table.__doc__}\n")
        print("|", " | ".join(rows[0]), "|")
        print("|", " | ".join("---" for _ in rows[0]), "|")
        for row in rows:
            print("|", " | ".join(_cell(value) for value in row.values()), "|", flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1, default=float) + "\n")


if __name__ == "__main__":
    main()
