"""BM3D told of the spectrum of the noise against BM3D told of one sigma.

    python tests/benchmarks/quality_correlated.py [--quick] [--device N] [--json FILE]

The clip of moving cars with blurred noise (frames 2 and 4 are left out), then photographs with
simulated noise (every third one of Set12), and the time of a picture of 512 x 512. PSNR in dB of
float results, peak 255. The best single sigma is looked for anew in every picture, on a grid that
is refined once or, for the clip, twice.
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
from scipy.ndimage import gaussian_filter

sys.path.insert(0, str(Path(__file__).parents[1]))
import napari_gpu_denoise as gd
from napari_gpu_denoise.filters import BM3D
from napari_gpu_denoise.noise.models import Correlated
from napari_gpu_denoise.noise.spectrum import noise_spectrum
from reference.data import data_folder, pictures
from scenes import psnr

FRAMES = (0, 1, 3, 5, 6, 7, 8, 9)
BLURS = {"0.5": 0.5, "0.8": 0.8, "1.2": 1.2, "2": 2.0, "1.2 along x": (0.0, 1.2)}
LAGS = 5


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
            estimated = tuple(noise_spectrum(plane).model() for plane in planes)
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

                known, read = true_model(noise), noise_spectrum(noisy).model()
                single = best_sigma(score, 1.5 * sigma, 2)
                plain = [score(noise=known, prefilter=choice) for choice in ("off", "on")]
                found.append((*single, *plain, score(noise=known), score(noise=read)))
            names = ("best sigma", "with it", "prefilter off", "on", "true spectrum")
            means = np.mean(found, axis=0).tolist()
            case = {"case": f"Set12, noise of {sigma:g} blurred by {name}"}
            rows.append({**case, **dict(zip((*names, "estimated"), means, strict=True))})
    return rows


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
    parser.add_argument("--device", type=int, help="which device, as `gpu-denoise devices` counts")
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    arguments = parser.parse_args()
    device = gd.choose(arguments.device)
    print(device)
    rows = []
    for part in (times, clip, photographs):
        for row in part(device, arguments.quick):
            rows.append(row)
            print(
                "; ".join(f"{k} {v:.3f}" if k != "case" else v for k, v in row.items()), flush=True
            )
    if arguments.json:
        arguments.json.write_text(json.dumps({"device": str(device), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
