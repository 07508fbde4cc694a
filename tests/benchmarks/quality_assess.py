"""How right `gd.assess` is: predicted error, detail kept, check of sigma and warnings.

    python tests/benchmarks/quality_assess.py [--tables …] [--quick] [--stride N] [--device D]

Prints one table for each of: bias (predicted over true mean square, what share of the printed
intervals holds the truth, and the detail kept, for every kind of noise) and alarms (sigma given too
low and too high, what is wrong with an image, and what is not). Noise is drawn with
``numpy.random.default_rng``. The data folder holds the pictures.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
from scipy.ndimage import gaussian_filter
from tables import print_tables, show

import napari_gpu_denoise as gd
from napari_gpu_denoise.assessment.formulas import Rings
from reference.data import head, microscopy_pairs, pictures

SIGMA = 20.0
FILTERS = {"BM3D fast": gd.BM3D.of(profile="fast"), "NL-means": gd.NLMeans()}


def scenes(stride: int = 1) -> Iterator[tuple[str, np.ndarray]]:
    """Yield 20 pictures without noise, or some of them, with their kind; 256 x 256 at most."""
    photographs, cells = list(pictures("bsd68").values()), microscopy_pairs().values()
    step = len(photographs) // 8
    found = [("photograph", clean) for clean in photographs[::step][:8]]
    found += [("head", clean) for clean in list(pictures("colin27").values())[1:7]]
    found += [("cells", clean) for _, clean in cells]
    for kind, clean in found[::stride]:
        y, x = (max(n - 256, 0) // 2 for n in clean.shape)
        yield kind, clean[y : y + 256, x : x + 256].astype(np.float32)


def bias(options: argparse.Namespace) -> None:
    """Predicted over true mean square, intervals of 90 % that hold the truth, and detail kept.

    The ratio is that of sums in units of the noise, with its standard error. Detail is the largest
    difference from the true transfer function in rings that are judged: mean and worst.
    """
    rows: dict[tuple[str, str], list[tuple[float, ...]]] = {}
    for number, (kind, clean) in enumerate(scenes(options.stride)):
        rng = np.random.default_rng([9, number * options.stride])
        for noise, noisy, truth, told in noises(clean, rng):
            key = f"{noise}, {kind}" if noise == "white" else noise
            for name, filter in FILTERS.items():
                row = compared(noisy, truth, filter, options, told)
                rows.setdefault((key, name), []).append(row)
    for noisy, truth, name, filter, told in stacks():
        rows[name, "as named"] = [compared(noisy, truth, filter, options, told)]
    body = []
    for key, found in sorted(rows.items()):
        predicted, true, held, detail = np.transpose(found)
        ratio = predicted.sum() / true.sum()
        unsure = np.std(predicted - ratio * true) * len(true) ** 0.5 / true.sum()
        cells = f"{len(found)}", f"{ratio:.3f} ± {unsure:.3f}", f"{held.mean():.0%}"
        body.append([*key, *cells, f"{detail.mean():.3f}, {detail.max():.3f}"])
    show(["noise", "filter", "cases", "ratio", "held", "detail"], body)


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
    shared = blurred(rng, clean.shape)
    shifted = [[np.roll(shared, (j, i), (0, 1)) for i in range(5)] for j in range(5)]
    table = [[float(np.mean(shared * one)) / SIGMA**2 for one in row] for row in shifted]
    table[0][0] = 1.0
    told = {"noise": gd.Correlated(SIGMA, table)}
    yield "correlated", (clean + shared).astype(np.float32), clean, told


def stacks() -> Iterator[tuple]:
    """Yield noisy, clean, name, filter and what is told of frames, slices and colours."""
    frames = np.stack(list(pictures("foliage").values())).astype(np.float32)[:9]
    colour = np.moveaxis(next(iter(pictures("colour").values())).astype(np.float32), -1, 0)
    volume = head()[60:100, 30:180, 20:160].astype(np.float32)
    known = (frames, "TYX", gd.VBM3D()), (volume, "ZYX", gd.BM4D()), (colour, "SYX", gd.BM3D())
    for clean, axes, filter in known:
        noise = np.random.default_rng(7).normal(0, SIGMA, clean.shape)
        told = {"sigma": SIGMA, "axes": axes}
        yield (clean + noise).astype(np.float32), clean, f"{axes}, {filter.name}", filter, told


def compared(noisy, clean, filter, options, told) -> tuple[float, float, bool, float]:
    """Return predicted and true mean square, whether the interval holds it, and detail's error."""
    found = gd.assess(noisy, filter, device=options.device, **told)
    result = gd.denoise(noisy, filter, dtype="float32", device=options.device, **told).image
    if isinstance(told.get("noise"), gd.Rician):
        result, clean = told["noise"].expected(result), told["noise"].expected(clean)
    inner = tuple(slice(*each) for each in found.region)
    if len(found.channels) > 1:
        inner = (0, *inner[1:])
    each, result, clean = found.channels[0], result[inner], clean[inner]
    mse = float(np.mean((result - clean) ** 2, dtype=np.float64))
    low, high = each.bounds
    rings = Rings(*clean.shape[-2:])
    truth = rings.spectrum(clean)
    transfer = rings.sums((rings.spectrum(result) * truth.conj()).real)
    apart = np.abs(transfer / rings.sums(np.abs(truth) ** 2) - each.detail.kept)
    worst = float(apart[np.array(each.detail.judged)].max(initial=0))
    return each.error**2 / each.noise**2, mse / each.noise**2, low <= mse**0.5 <= high, worst


def blurred(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Return noise that neighbouring pixels share."""
    noise = gaussian_filter(rng.standard_normal(shape), 0.6, mode="wrap")
    return noise * SIGMA / noise.std()


def white(clean: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return a picture with white noise."""
    return clean + rng.normal(0, SIGMA, clean.shape)


# What is in a picture, and the sigma that is told in units of the true one.
ALARMS = {
    "nothing": (white, 1.0),
    **{f"sigma times {factor:g}": (white, factor) for factor in (0.6, 0.75, 1.33, 1.6)},
    "noise of neighbours correlated": (lambda c, r: c + blurred(r, c.shape), 1.0),
    "clipped at 10 and 90 %": (lambda c, r: np.clip(white(c, r), *np.percentile(c, (10, 90))), 1.0),
    "rows, 6 grey levels": (lambda c, r: white(c, r) + r.normal(0, 6, (len(c), 1)), 1.0),
    "hot pixels, 1 in 1000": (lambda c, r: white(c, r) + 200 * (r.random(c.shape) < 1e-3), 1.0),
}


def alarms(options: argparse.Namespace) -> None:
    """In how many pictures which warning is given, and the mean sigma that is suggested."""
    words, body = ("correlated", "clipped", "rows", "hot", "sigma"), []
    for name, filter in FILTERS.items():
        for title, (spoiled, told) in ALARMS.items():
            counts, offers, total = dict.fromkeys(words, 0), [], 0
            for number, (_, clean) in enumerate(scenes(options.stride)):
                noisy = spoiled(clean, np.random.default_rng(number)).astype(np.float32)
                found = gd.assess(noisy, filter, told * SIGMA, device=options.device)
                total += 1
                for word in words:
                    counts[word] += any(word in each for each in found.warnings)
                if found.check is not None and not found.check.fits:
                    offers.append(found.check.best * told)
            offered = f"{len(offers)}, to {np.mean(offers):.2f}" if offers else "0"
            body.append([name, title, f"{total}", *map(str, counts.values()), offered])
    show(["filter", "wrong", "pictures", *words, "another sigma"], body)


if __name__ == "__main__":
    print_tables(__doc__, (bias, alarms))
