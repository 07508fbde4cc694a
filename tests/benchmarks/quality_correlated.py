"""BM3D given the spectrum of the noise against BM3D given one sigma.

    python tests/benchmarks/quality_correlated.py [--quick] [--parts PART ...] [--device N]
        [--json FILE]

The clip of moving cars with blurred noise (frames 2 and 4 are left out), photographs with
simulated noise (every third one of Set12), pictures whose neighbouring pixels share a little noise
(and how often that is noticed), and the time of a picture of 512 x 512. PSNR in dB of float
results, peak 255. The best single sigma is looked for anew in every picture, on a grid that is
refined once or, for the clip, twice. Real pictures are in quality_real.py.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import imageio.v3 as imageio
import numpy as np
from scipy.ndimage import gaussian_filter, zoom
from scipy.optimize import brentq

sys.path.insert(0, str(Path(__file__).parents[1]))
import napari_gpu_denoise as gd
from napari_gpu_denoise.filters import BM3D
from napari_gpu_denoise.noise.correlation import noise_spectrum
from napari_gpu_denoise.noise.models import Correlated
from reference.data import data_folder, microscopy_pairs, pictures
from scenes import psnr

FRAMES = (0, 1, 3, 5, 6, 7, 8, 9)
BLURS = {"0.5": 0.5, "0.8": 0.8, "1.2": 1.2, "2": 2.0, "1.2 along x": (0.0, 1.2)}
LAGS = 5
# Weakly shared noise: correlation of neighbours, and along which axes.
WEAK = {
    "0.1": (0.1, (0, 1)),
    "0.2": (0.2, (0, 1)),
    "0.3": (0.3, (0, 1)),
    "0.4": (0.4, (0, 1)),
    "0.5": (0.5, (0, 1)),
    "0.2 along y": (0.2, (0,)),
}
SHIFTS = {"moved by 1/4 pixel": 0.25, "moved by 1/2 pixel": 0.5}
WEAK_SIGMAS = (5, 10, 20, 30)
STEPS = {"bsd68": 12, "set12": 6, "colin27": 6}


def true_model(noise: np.ndarray) -> Correlated:
    """Return the model of noise that is known, (y, x)."""
    noise = noise - noise.mean()
    ny, nx = noise.shape
    table = np.empty((LAGS, LAGS))
    for dy in range(LAGS):
        for dx in range(LAGS):
            left, right = slice(nx - dx), slice(dx, None)
            up, down = noise[: ny - dy], noise[dy:]
            one, other = up[:, left] * down[:, right], up[:, right] * down[:, left]
            table[dy, dx] = (one.mean() + other.mean()) / 2
    return Correlated(np.sqrt(table[0, 0]), table / table[0, 0])


def best_sigma(
    score: Callable[[float], float], around: float, grids: int = 3
) -> tuple[float, float]:
    """Return the best single sigma and its score."""
    found = {}
    for width, count in ((4.0, 9), (1.35, 7), (1.08, 5))[:grids]:
        for sigma in around * np.geomspace(1 / width, width, count):
            found[float(sigma)] = score(float(sigma))
        around = max(found, key=found.get)
    return around, found[around]


def climbed(score: Callable[[float], float], sigma: float, step: float = 1.15) -> float:
    """Return the best score that is found from a sigma on, in steps of 15 % uphill."""
    best, begun = score(sigma), sigma
    for factor in (step, 1 / step):
        while (found := score(sigma * factor)) > best:
            best, sigma = found, sigma * factor
        if sigma != begun:
            break
    return best


def clip(device, quick: bool) -> list[dict]:
    """Return a row for each profile and way of channels, means over the frames."""
    folder, rows = data_folder() / "video", []
    for profile, channels in (("normal", "opponent"), ("normal", "separate"), ("fast", "opponent")):
        found = []
        for number in FRAMES[:: 4 if quick else 1]:
            names = (f"traffic_{kind}/frame_{number}.png" for kind in ("clean", "correlated_noise"))
            clean, noisy = (imageio.imread(folder / name) for name in names)
            settings = BM3D.of(profile=profile, channels=channels)

            def score(sigma=None, noise=None, given=(noisy, settings), clean=clean):
                options = {"axes": "YXS", "dtype": "float32", "device": device}
                return psnr(gd.denoise(*given, sigma, noise=noise, **options).image, clean)

            planes = [noisy[..., c] for c in range(3)]
            estimated = tuple(Correlated.of_spectrum(noise_spectrum(plane)) for plane in planes)
            known = noisy.astype(np.float64) - clean
            oracle = tuple(true_model(known[..., c]) for c in range(3))
            sigma, best = best_sigma(score, 4.6)
            told = score(noise=estimated), score(noise=oracle)
            found.append((psnr(noisy, clean), sigma, best, *told))
        names = ("noisy", "best sigma", "with it", "estimated spectrum", "true spectrum")
        means = np.mean(found, axis=0).tolist()
        row = {"case": f"traffic, {profile}, {channels}", **dict(zip(names, means, strict=True))}
        row["least gain"] = min(each[3] - each[2] for each in found)
        rows.append(row)
    return rows


def photographs(device, quick: bool) -> list[dict]:
    """Return a row for each blur and strength of the noise, means over Set12."""
    rows = []
    chosen = list(pictures("set12").values())[:: 6 if quick else 3]
    for name, width in BLURS.items():
        for sigma in (10.0, 25.0):
            found = []
            for seed, clean in enumerate(chosen):
                drawn = np.random.default_rng(seed).normal(size=clean.shape)
                noise = gaussian_filter(drawn, width, mode="wrap")
                noise *= sigma / noise.std()
                noisy = (clean + noise).astype(np.float32)

                def score(sigma=None, noise=None, noisy=noisy, clean=clean, **changes):
                    options = {"noise": noise, "device": device, **changes}
                    return psnr(gd.bm3d(noisy, sigma, **options), clean)

                known, read = true_model(noise), Correlated.of_spectrum(noise_spectrum(noisy))
                single = best_sigma(score, 1.5 * sigma, 2)
                plain = [score(noise=known, prefilter=choice) for choice in ("off", "on")]
                found.append((*single, *plain, score(noise=known), score(noise=read)))
            names = ("best sigma", "with it", "prefilter off", "on", "true spectrum")
            means = np.mean(found, axis=0).tolist()
            case = {"case": f"Set12, noise of {sigma:g} blurred by {name}"}
            rows.append({**case, **dict(zip((*names, "estimated"), means, strict=True))})
    return rows


def weak(device, quick: bool) -> list[dict]:
    """Return a row for each kind of weakly shared noise and its strength, means over pictures."""
    chosen = [
        picture
        for name, step in STEPS.items()
        for picture in list(pictures(name).values())[:: step * (2 if quick else 1)]
    ]
    chosen += [mean for _, mean in microscopy_pairs().values()][:: 6 if quick else 3]
    rows = []
    for name in (*WEAK, *SHIFTS, "twice as large"):
        for sigma in WEAK_SIGMAS:
            found, noticed, errors = [], 0, []
            for seed, picture in enumerate(chosen):
                clean, noise = weakly_shared(name, picture, np.random.default_rng(seed))
                noise *= sigma / noise.std()
                noisy = (clean + noise).astype(np.float32)

                def score(sigma=None, noise=None, noisy=noisy, clean=clean):
                    return psnr(gd.bm3d(noisy, sigma, noise=noise, device=device), clean)

                one, spectrum = (
                    gd.estimate_noise(noisy, model="gaussian").sigma[0],
                    noise_spectrum(noisy),
                )
                noticed += not spectrum.white
                model = Correlated.of_spectrum(spectrum)
                errors.append(abs((one if spectrum.white else model.sigma) / sigma - 1))
                best = climbed(score, max(one, sigma))
                told = score(one), score(noise=model)
                auto = told[0 if spectrum.white else 1]
                found.append((*told, auto, best, score(noise=true_model(noise))))
            names = ("as white noise", "estimated spectrum", "as noticed", "best sigma", "true")
            means = np.mean(found, axis=0).tolist()
            case = {"case": f"noise of {sigma:g}, {name}", "noticed": noticed / len(chosen)}
            rows.append({**case, "sigma error": float(np.mean(errors))})
            rows[-1].update(zip(names, means, strict=True))
    return rows


def weakly_shared(
    name: str, clean: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return a picture and its noise; what is moved or made larger is so with its noise."""
    clean = clean.astype(np.float64)
    if name in WEAK:
        correlation, axes = WEAK[name]
        width = brentq(lambda w: _neighbours(w) - correlation, 0.2, 2)
        widths = [width * (axis in axes) for axis in range(2)]
        return clean, gaussian_filter(rng.normal(size=clean.shape), widths, mode="wrap", truncate=6)
    if name in SHIFTS:
        share, noise = SHIFTS[name], rng.normal(size=clean.shape)
        for axis in range(2):
            clean = (1 - share) * clean + share * np.roll(clean, 1, axis)
            noise = (1 - share) * noise + share * np.roll(noise, 1, axis)
        return clean, noise
    ny, nx = (length // 2 for length in clean.shape)
    small = clean[: 2 * ny, : 2 * nx].reshape(ny, 2, nx, 2).mean(axis=(1, 3))
    options = {"order": 1, "mode": "grid-wrap", "grid_mode": True}
    return zoom(small, 2, **options), zoom(rng.normal(size=small.shape), 2, **options)


def _neighbours(width: float) -> float:
    """Return how neighbours of white noise correlate after a Gaussian blur."""
    impulse = np.zeros(41)
    impulse[20] = 1
    kernel = gaussian_filter(impulse, width, truncate=6)
    return float(kernel[1:] @ kernel[:-1] / (kernel @ kernel))


def times(device, quick: bool) -> list[dict]:
    """Return the seconds that a picture of 512 x 512 takes, the least of several."""
    rows, image = [], pictures("denoiselab13")["lena"].astype(np.float32)
    noise = gaussian_filter(np.random.default_rng(0).normal(size=image.shape), 1.2, mode="wrap")
    noise *= 10 / noise.std()
    model = true_model(noise)
    kinds = {
        "one sigma": {"sigma": 10.0},
        "spectrum, no prefilter": {"noise": model, "prefilter": "off"},
        "spectrum": {"noise": model},
    }
    for profile in ("normal", "fast"):
        for name, options in kinds.items():
            taken = []
            for _ in range(3 if quick else 7):
                begun = time.perf_counter()
                gd.bm3d(image + noise, profile=profile, device=device, **options)
                taken.append(time.perf_counter() - begun)
            rows.append({"case": f"512 x 512, {profile}, {name}", "seconds": min(taken)})
    return rows


def main() -> None:
    """Measure, print, and write JSON where asked to."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few frames and photographs")
    names = ("times", "clip", "photographs", "weak")
    parser.add_argument("--parts", nargs="+", choices=names, help="which ones; default: all")
    parser.add_argument("--device", type=int, help="which device, as `gpu-denoise devices` counts")
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    arguments = parser.parse_args()
    device = gd.choose(arguments.device)
    print(device)
    rows = []
    parts = {part.__name__: part for part in (times, clip, photographs, weak)}
    for name in arguments.parts or parts:
        part = parts[name]
        for row in part(device, arguments.quick):
            rows.append(row)
            print(
                "; ".join(f"{k} {v:.3f}" if k != "case" else v for k, v in row.items()), flush=True
            )
    if arguments.json:
        arguments.json.write_text(json.dumps({"device": str(device), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
