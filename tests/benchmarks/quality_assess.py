"""How right `gd.assess` is: predicted error, its map, detail kept and check of sigma.

    python tests/benchmarks/quality_assess.py [--tables …] [--quick] [--seeds N] [--device D]

Prints one table for each of: bias (predicted over true mean square, and what share of the printed
intervals holds the truth), bars (20 pictures: photographs, slices of a head, fluorescence, with
noise of sigma 20), kinds (photons, magnitudes, correlated noise, video, volume, colours), real
(single frames of fluorescence), strength (sigma given too low and too high), alarms (what is wrong
with an image, and what is not) and times (1024 x 1024). Noise is drawn with
``numpy.random.default_rng(seed)``. The data folder holds the pictures.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from cases import affine_fit
from scipy.ndimage import gaussian_filter
from tables import print_tables, show

import napari_gpu_denoise as gd
from napari_gpu_denoise.assessment.formulas import MAP_WIDTH, Rings
from napari_gpu_denoise.cli.bench import synthetic

sys.path.insert(0, str(Path(__file__).parents[1]))
from reference.data import head, microscopy_pairs, pictures

SIGMA = 20.0
FILTERS = {"BM3D fast": gd.BM3D.of(profile="fast"), "NL-means": gd.NLMeans()}


HEAD = ("true PSNR", "predicted", "error %", "map", "detail, worst", "mean", "best sigma")
DIGITS = (2, 2, 1, 2, 3, 3, 2)


def scenes() -> Iterator[tuple[str, np.ndarray]]:
    """Yield 20 pictures without noise, with their kind."""
    photographs = list(pictures("bsd68").values())
    for k in (0, 8, 16, 24, 32, 40, 48, 56):
        yield f"photograph {k + 1}", photographs[k].astype(np.float32)
    for name, clean in list(pictures("colin27").items())[1:7]:
        yield f"head, {name}", clean
    for name, (_, clean) in microscopy_pairs().items():
        yield f"cells {name.removeprefix('input_avg1_')}", clean.astype(np.float32)


def noisy_of(clean: np.ndarray, seed: int, sigma: float = SIGMA) -> np.ndarray:
    """Return a picture with noise."""
    noise = np.random.default_rng(seed).normal(0, sigma, clean.shape)
    return (clean + noise).astype(np.float32)


def bias(options: argparse.Namespace) -> None:
    """Predicted over true mean square, and the share of intervals of 90 % that hold the truth.

    Crops of 256 x 256 of photographs, head and cells. The ratio is that of sums in units of the
    noise, with its standard error; "noise known" is less the noise of that very image, whose
    variance is not exactly that expected. "measured" has white noise that is not told.
    """
    rows: dict[tuple[str, str], list[tuple[float, ...]]] = {}
    for number, (title, x) in enumerate(scenes()):
        if number % options.stride:
            continue
        y0, x0 = (max(n - 256, 0) // 2 for n in x.shape)
        crop = x[y0 : y0 + 256, x0 : x0 + 256]
        for kind, noisy, clean, told in noises(crop, np.random.default_rng([9, number])):
            for name, filter in {**FILTERS, "BM3D normal": gd.BM3D()}.items():
                if "normal" in name and number % 4:
                    continue
                found = gd.assess(noisy, filter, device=options.device, **told)
                each = found.channels[0]
                run = gd.denoise(noisy, filter, dtype="float32", device=options.device, **told)
                model = told.get("noise")
                truth, result = (
                    model.expected(image) if isinstance(model, gd.Rician) else image
                    for image in (clean, run.image)
                )
                mse = float(np.mean((result - truth) ** 2, dtype=np.float64))
                drawn = np.mean((noisy - truth) ** 2, dtype=np.float64)
                if model is None:
                    expected = told.get("sigma", SIGMA) ** 2
                else:
                    expected = np.mean(model.variance_told_by(noisy))
                low, high = each.bounds
                numbers = each.error**2, mse, each.error**2 - drawn + expected
                held = low <= mse**0.5 <= high
                picture = title.split()[0].rstrip(",")
                key = f"{kind}, {picture}" if kind == "white" else kind
                row = *(number / each.noise**2 for number in numbers), held
                rows.setdefault((key, name), []).append(row)
    body = []
    for (kind, name), found in sorted(rows.items()):
        told, true, known, held = np.transpose(found)
        cells = []
        for predicted in (told, known):
            ratio = predicted.sum() / true.sum()
            unsure = np.std(predicted - ratio * true) * len(true) ** 0.5 / true.sum()
            cells.append(f"{ratio:.3f} ± {unsure:.3f}")
        body.append([kind, name, f"{len(found)}", *cells, f"{held.mean():.0%}"])
    show(["noise", "filter", "cases", "ratio", "noise known", "held"], body)


def noises(clean: np.ndarray, rng: np.random.Generator) -> Iterator[tuple]:
    """Yield kind, noisy, clean and what is told."""
    for sigma in (5, 10, 20, 50):
        noisy = (clean + rng.normal(0, sigma, clean.shape)).astype(np.float32)
        yield "white", noisy, clean, {"sigma": sigma}
    noisy = (clean + rng.normal(0, SIGMA, clean.shape)).astype(np.float32)
    yield "white, measured", noisy, clean, {}
    for most in (5, 20, 100):
        light = np.maximum(clean, 0) * (most / 255)
        counts = rng.poisson(light) + rng.normal(0, 0.5, light.shape)
        told = {"noise": gd.PoissonGaussian(1.0, 0.5)}
        yield f"photons, at most {most}", counts.astype(np.float32), light, told
    for sigma in (6, 12, 25):
        parts = (clean + rng.normal(0, sigma, clean.shape), rng.normal(0, sigma, clean.shape))
        yield "magnitudes", np.hypot(*parts).astype(np.float32), clean, {"noise": gd.Rician(sigma)}


def bars(options: argparse.Namespace) -> None:
    """Twenty pictures, sigma 20 given: predicted and true error.

    Error of the predicted mean square in %, correlation of the map of expected error with the true
    error (root of the mean over the same area), largest and mean difference of the detail kept in
    rings that are judged. Bars: 10 %, 0.7, 0.06.
    """
    for name, filter in FILTERS.items():
        body, missed = [], [0, 0, 0]
        for number, (title, clean) in enumerate(scenes()):
            if number % options.stride:
                continue
            noisy = noisy_of(clean, number)
            found = gd.assess(noisy, filter, SIGMA, peak=255, device=options.device)
            cells = compared(found, noisy, clean, filter, options)
            for k, wrong in enumerate((abs(cells[2]) > 10, cells[3] < 0.7, cells[4] > 0.06)):
                missed[k] += wrong
            body.append([title, *(f"{cell:.{d}f}" for cell, d in zip(cells, DIGITS, strict=True))])
        print(f"\n{name}; pictures beyond the bars: {missed}\n")
        show(["", *HEAD], body)


def compared(found, noisy, clean, filter, options, **told) -> list[float]:
    """Return the numbers of `HEAD`."""
    told = told or {"sigma": SIGMA}
    result = gd.denoise(noisy, filter, dtype="float32", device=options.device, **told).image
    if isinstance(told.get("noise"), gd.Rician):
        result, clean = told["noise"].expected(result), told["noise"].expected(clean)
    inner = tuple(slice(*each) for each in found.region)
    error = (result[inner] - clean[inner]).astype(np.float32)
    mse = float(np.mean(error**2))
    around = [0] * (error.ndim - 2) + [MAP_WIDTH] * 2
    true_map = np.sqrt(gaussian_filter(error**2, around))
    return [
        10 * np.log10(found.peak**2 / mse),
        10 * np.log10(found.peak**2 / found.mse),
        100 * (found.mse / mse - 1),
        float(np.corrcoef(true_map.ravel(), found.error_map.ravel())[0, 1]),
        *detail_difference(found, result[inner], clean[inner]),
        found.check.best if found.check else np.nan,
    ]


def detail_difference(found, result: np.ndarray, clean: np.ndarray) -> tuple[float, float]:
    """Return the largest and the mean difference of the detail kept in rings that are judged."""
    if clean.ndim == 3 and len(found.channels) > 1:
        result, clean = result[0], clean[0]
    rings = Rings(*clean.shape[-2:])
    truth = rings.spectrum(clean)
    power = rings.sums(np.abs(truth) ** 2)
    transfer = rings.sums((rings.spectrum(result) * truth.conj()).real) / power
    detail = found.channels[0].detail
    apart = np.abs(transfer - detail.kept)[np.array(detail.judged)]
    return float(apart.max(initial=0)), float(apart.mean()) if apart.size else 0.0


def kinds(options: argparse.Namespace) -> None:
    """Other noise, frames, volumes and colours; the noise given as a model or as sigma 20."""
    body = []
    for title, noisy, clean, filter, told in other_kinds():
        found = gd.assess(noisy, filter, peak=255, device=options.device, **told)
        cells = compared(found, noisy, clean, filter, options, **told)
        body.append([title, *(f"{cell:.{d}f}" for cell, d in zip(cells, DIGITS, strict=True))])
    show(["", *HEAD], body)


def other_kinds() -> Iterator[tuple]:
    """Yield title, noisy, clean, filter and what it is told."""
    rng = np.random.default_rng(7)
    photograph = list(pictures("bsd68").values())[8].astype(np.float32)
    fast = FILTERS["BM3D fast"]
    for most in (20, 5):
        model, light = gd.PoissonGaussian(1.0, 0.5), photograph * (most / 255)
        counts = rng.poisson(light) + rng.normal(0, 0.5, light.shape)
        told = {"noise": model}
        yield f"photons, at most {most}", counts.astype(np.float32), light, fast, told
    for name, filter in FILTERS.items():
        clean = head()[60]
        parts = (clean + rng.normal(0, 12, clean.shape), rng.normal(0, 12, clean.shape))
        magnitude = np.hypot(*parts).astype(np.float32)
        yield f"magnitudes, {name}", magnitude, clean, filter, {"noise": gd.Rician(12)}
    shared = gaussian_filter(rng.standard_normal(photograph.shape), 0.6, mode="wrap")
    shared *= 15 / shared.std()
    shifted = [[np.roll(shared, (j, i), (0, 1)) for i in range(5)] for j in range(5)]
    table = [[float(np.mean(shared * one)) / 225 for one in row] for row in shifted]
    table[0][0] = 1.0
    for name, filter in FILTERS.items():
        noisy = (photograph + shared).astype(np.float32)
        told = {"noise": gd.Correlated(15, table)}
        yield f"correlated noise, {name}", noisy, photograph, filter, told
    frames = np.stack(list(pictures("foliage").values())).astype(np.float32)[:9]
    noisy = (frames + rng.normal(0, SIGMA, frames.shape)).astype(np.float32)
    over_time = {"sigma": SIGMA, "axes": "TYX"}
    yield "video, VBM3D", noisy, frames, gd.VBM3D(), over_time
    near = gd.NLMeans(frames_before=2, frames_after=2)
    yield "video, NL-means, 2 frames", noisy, frames, near, over_time
    volume = head()[60:100, 30:180, 20:160]
    noisy = (volume + rng.normal(0, SIGMA, volume.shape)).astype(np.float32)
    yield "volume, BM4D", noisy, volume, gd.BM4D(), {"sigma": SIGMA, "axes": "ZYX"}
    colour = np.moveaxis(next(iter(pictures("colour").values())).astype(np.float32), -1, 0)
    noisy = (colour + rng.normal(0, SIGMA, colour.shape)).astype(np.float32)
    yield "colour, BM3D fast", noisy, colour, fast, {"sigma": SIGMA, "axes": "SYX"}


def real(options: argparse.Namespace) -> None:
    """Fluorescence with its own noise, which is measured; BM3D fast, grey levels of each frame."""
    body, filter = [], FILTERS["BM3D fast"]
    for name, (frame, mean) in microscopy_pairs().items():
        noisy = frame.astype(np.float32)
        clean = affine_fit(mean, noisy)
        noise = gd.estimate_noise(noisy, device=options.device)
        found = gd.assess(noisy, filter, noise=noise, device=options.device)
        result = gd.denoise(noisy, filter, noise=noise, dtype="float32", device=options.device)
        truth = float(np.sqrt(np.mean((result.image - clean) ** 2)))
        levels = (found.channels[0].noise, float(np.std(noisy - clean)), found.error, truth)
        cells = [f"{each:.2f}" for each in levels]
        body.append([name.removeprefix("input_avg1_"), *cells, f"{len(found.warnings)}"])
    show(["", "noise measured", "true", "expected error", "true", "warnings"], body)


def strength(options: argparse.Namespace) -> None:
    """Check of sigma: in how many of the twenty pictures another sigma is suggested, and its mean.

    Given and suggested sigma as multiples of the true one.
    """
    body = []
    for name, filter in FILTERS.items():
        for told in (0.6, 0.75, 1.0, 1.33, 1.6):
            offers, warned, count = [], 0, 0
            for number, (_, clean) in enumerate(scenes()):
                if number % options.stride:
                    continue
                noisy = noisy_of(clean, number)
                found = gd.assess(noisy, filter, told * SIGMA, device=options.device)
                if found.check is not None and not found.check.fits:
                    offers.append(found.check.best * told)
                warned += bool(found.warnings)
                count += 1
            mean = f"{np.mean(offers):.2f}" if offers else ""
            body.append([name, f"{told:g}", f"{len(offers)} of {count}", mean, f"{warned}"])
    show(["", "sigma given", "suggested", "mean suggestion", "any warning"], body)


def alarms(options: argparse.Namespace) -> None:
    """What is wrong with a picture, and in how many of the twenty which warning says so."""
    words = ("correlated", "clipped", "rows", "hot", "sigma")
    body = []
    for title, spoiled in SPOILED.items():
        counts, pictures_read = dict.fromkeys(words, 0), 0
        for number, (_, clean) in enumerate(scenes()):
            if number % options.stride:
                continue
            pictures_read += 1
            noisy = spoiled(clean, np.random.default_rng(number)).astype(np.float32)
            found = gd.assess(noisy, FILTERS["BM3D fast"], SIGMA, device=options.device)
            for word in words:
                counts[word] += any(word in each for each in found.warnings)
        body.append([title, f"{pictures_read}", *map(str, counts.values())])
    show(["", "pictures", *words], body)


def _blurred(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    noise = gaussian_filter(rng.standard_normal(shape), 0.6)
    return noise * SIGMA / noise.std()


SPOILED = {
    "nothing": lambda c, r: c + r.normal(0, SIGMA, c.shape),
    "noise correlated between neighbours": lambda c, r: c + _blurred(r, c.shape),
    "clipped at 10 and 90 %": lambda c, r: np.clip(
        c + r.normal(0, SIGMA, c.shape), *np.percentile(c, (10, 90))
    ),
    "rows, 6 grey levels": lambda c, r: (
        c + r.normal(0, SIGMA, c.shape) + r.normal(0, 6, (len(c), 1))
    ),
    "hot pixels, 1 in 1000": lambda c, r: (
        c + r.normal(0, SIGMA, c.shape) + 200 * (r.random(c.shape) < 1e-3)
    ),
}


def times(options: argparse.Namespace) -> None:
    """Seconds for 1024 x 1024 float32, sigma given; the best of five calls after the first."""
    image = synthetic((1024, 1024))
    body = []
    for name, filter in {**FILTERS, "BM3D normal": gd.BM3D()}.items():
        taken = []
        for _ in range(6):
            start = time.perf_counter()
            gd.assess(image, filter, SIGMA, device=options.device)
            taken.append(time.perf_counter() - start)
        alone = []
        for _ in range(6):
            start = time.perf_counter()
            gd.denoise(image, filter, SIGMA, device=options.device)
            alone.append(time.perf_counter() - start)
        seconds = (min(taken[1:]), float(np.median(taken[1:])), min(alone[1:]))
        body.append([name, *(f"{each:.2f}" for each in seconds)])
    show(["", "best, s", "median, s", "filter alone, s"], body)


def main() -> None:
    """Print the tables that are asked for."""
    print_tables(__doc__, (bias, bars, kinds, real, strength, alarms, times))


if __name__ == "__main__":
    main()
