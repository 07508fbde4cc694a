"""NL-means of magnitudes and of speckle: what its own means bring, beside a transform of the noise.

    python tests/benchmarks/quality_nl_means_noise.py [TABLE ...] [--seeds 3] [--quick]

TABLE is any of ``rician``, ``weak``, ``pearson``, ``distances``, ``ultrasound``; all by default.
Noise is drawn with ``numpy.random.default_rng(seed)`` for each picture; PSNR has the peak 255, on
float results, and is the mean over pictures and seeds.

``rician``: slices of a head, 0 to 255, with sigma of 3, 5 and 9 %. The head is where it is
brighter than 10 %; the background is where it is exactly 0, 12 pixels from all else.

``weak``: magnitudes of one constant signal, 200 x 200 pixels; the mean result, in units of sigma.

``pearson``: photographs u with the noise u + sqrt(u) n, n of standard deviation 1, 2, 3, and with
gamma noise of 4 and 16 looks. "Best sigma" is the best of a grid on the very pictures that are
scored, in favour of the Euclidean distance. The bias is the mean of the result less that of the
picture, in grey levels.

``distances``: ways to make the Pearson distance, in slow NumPy, on the middle of some photographs.

``ultrasound``: the sample, on a logarithmic scale; error is the standard deviation of the
difference to its truth, frame by frame.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from scipy.ndimage import binary_erosion

import napari_gpu_denoise as gd
from napari_gpu_denoise.filters.nl_means import NLMeans
from napari_gpu_denoise.noise.speckle import speckle_noise

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "sample_data")]
import make_samples  # noqa: E402

from reference import nl_means as reference  # noqa: E402
from reference.data import pictures  # noqa: E402

FACTORS = (0.6, 0.8, 1.0, 1.2, 1.4)
SPREADS, LOOKS = (1, 2, 3), (4, 16)


def psnr(image: np.ndarray, clean: np.ndarray) -> float:
    """Return the PSNR in dB, of the peak 255."""
    return float(10 * np.log10(255**2 / np.mean((image - clean.astype(np.float64)) ** 2)))


def show(title: str, heads: tuple[str, ...], rows: dict[str, list]) -> None:
    """Print the means of rows of numbers as a table."""
    print(f"\n{title}\n\n| | {' | '.join(heads)} |\n| :--- |{' ---: |' * len(heads)}")
    for name, values in rows.items():
        cells = " | ".join(f"{value:.2f}" for value in np.mean(values, axis=0))
        print(f"| {name} | {cells} |", flush=True)


def rician(options: argparse.Namespace) -> None:
    """Magnitudes: PSNR, and what is left of the bias."""
    clean = list(pictures("colin27").values())[:: 4 if options.quick else 1]
    for percent in (3, 5, 9):
        sigma, rows = 255 * percent / 100, {}
        model = gd.Rician(sigma)
        for number, head in enumerate(clean):
            far = binary_erosion(head == 0, iterations=12)
            inside = head > 25.5
            for seed in range(options.seeds):
                rng = np.random.default_rng(1000 * number + seed)
                real, imaginary = rng.normal(0, sigma, (2, *head.shape))
                noisy = np.hypot(head + real, imaginary).astype(np.float32)
                for name, made in _of_magnitudes(noisy, sigma, model, options.device):
                    row = (
                        psnr(made, head),
                        psnr(made[inside], head[inside]),
                        100 * made[far].mean() / sigma,
                        100 * float(np.sqrt(np.mean(np.square(made[far])))) / sigma,
                        100 * (made - head)[inside].mean() / sigma,
                    )
                    rows.setdefault(name, []).append(row)
        heads = (
            "PSNR",
            "head alone",
            "background, mean, % of sigma",
            "its rms",
            "head, mean error",
        )
        show(f"colin27, {len(clean)} slices, sigma {percent} %", heads, rows)


def _of_magnitudes(noisy, sigma, model, device) -> Iterator[tuple[str, np.ndarray]]:
    for name, profile in (("", "normal"), ("fine, ", "fine")):
        options = {"profile": profile, "device": device}
        plain = gd.nl_means(noisy, sigma, **options)
        yield name + "plain", plain
        yield (
            name + "plain, 2 sigma² off the result",
            np.sqrt(np.maximum(plain.astype(np.float64) ** 2 - 2 * sigma**2, 0)),
        )
        made = model.inverse(gd.nl_means(model.stabilise(noisy), 1.0, **options))
        yield name + "stabilised, signed", made
        yield name + "stabilised, at least 0", np.maximum(made, 0)
        yield name + "rician=True", gd.nl_means(noisy, sigma, rician=True, **options)
        if not name:
            found = gd.nl_means(noisy, rician=True, **options)
            yield name + "rician=True, sigma estimated", found
            yield (
                name + "rician=True, neighbours=32",
                gd.nl_means(noisy, sigma, rician=True, neighbours=32, **options),
            )


def weak(options: argparse.Namespace) -> None:
    """What weak signals become."""
    sigma, model = 20.0, gd.Rician(20.0)
    for signal in (0.0, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0):
        rows: dict[str, list] = {}
        for seed in range(options.seeds):
            real, imaginary = np.random.default_rng(seed).normal(0, sigma, (2, 200, 200))
            noisy = np.hypot(signal * sigma + real, imaginary).astype(np.float32)
            for name, made in _of_magnitudes(noisy, sigma, model, options.device):
                rows.setdefault(name, []).append((made.mean() / sigma,))
        show(f"signal of {signal:g} sigma", ("mean result",), rows)


def _noises() -> Iterator[tuple[str, Callable, Callable]]:
    """Yield the name of a kind of noise, what draws it, and its sigma at a picture."""
    for spread in SPREADS:
        yield (
            f"u + sqrt(u) n, n of {spread}",
            lambda u, rng, s=spread: u + np.sqrt(u) * rng.normal(0, s, u.shape),
            lambda u, s=spread: s,
        )
    for looks in LOOKS:
        yield (
            f"gamma, {looks} looks",
            lambda u, rng, n=looks: u * rng.gamma(n, 1 / n, u.shape),
            lambda u, n=looks: np.sqrt(np.mean(u**2) / n / np.mean(u)),
        )


def pearson(options: argparse.Namespace) -> None:
    """Noise that grows with brightness on photographs."""
    chosen = list(pictures("denoiselab13").values())[:: 4 if options.quick else 1]
    for title, draw, sigma_of in _noises():
        rows: dict[str, list] = {}
        for number, picture in enumerate(chosen):
            clean = picture.astype(np.float64)
            for seed in range(options.seeds):
                rng = np.random.default_rng(1000 * number + seed)
                noisy = draw(clean, rng).astype(np.float32)
                for name, made in _of_speckle(noisy, clean, sigma_of(clean), options.device):
                    row = (psnr(made, clean), float(made.mean() - clean.mean()))
                    rows.setdefault(name, []).append(row)
        grid = [name for name in rows if name.startswith("Euclidean")]
        best = max(grid, key=lambda name: np.mean(rows[name], axis=0)[0])
        kept = {k: v for k, v in rows.items() if k not in grid or k == best}
        show(f"{len(chosen)} photographs, {title}", ("PSNR", "bias"), kept)


def _of_speckle(noisy, clean, sigma, device) -> Iterator[tuple[str, np.ndarray]]:
    yield "noisy", noisy
    spread = float(np.std(noisy - clean))
    for factor in FACTORS:
        made = gd.nl_means(noisy, factor * spread, device=device)
        yield f"Euclidean, best sigma ({factor:g} of that of the noise)", made
    yield "Pearson, sigma given", gd.nl_means(noisy, sigma, distance="pearson", device=device)
    yield "Pearson, sigma measured", gd.nl_means(noisy, distance="pearson", device=device)
    model = gd.Speckle(looks=speckle_noise(noisy).looks)
    logs = gd.nl_means(model.stabilise(noisy), model.sigma_after, device=device)
    yield "logarithm, looks estimated", model.inverse(logs)
    model = gd.PoissonGaussian(gain=sigma**2, read_noise=0.0)
    roots = gd.nl_means(model.stabilise(noisy), 1.0, device=device)
    yield "photons of gain sigma², stabilised", model.inverse(roots)


def distances(options: argparse.Namespace) -> None:
    """What squared differences are divided by."""
    chosen = list(pictures("denoiselab13").values())[:: 6 if options.quick else 3]
    ways = {
        "over the candidate, as published": lambda a, b: (a - b) ** 2 / _positive(b),
        "over the reference": lambda a, b: (a - b) ** 2 / _positive(a),
        "over the mean of both": lambda a, b: (a - b) ** 2 / _positive((a + b) / 2),
        "of twice the roots": lambda a, b: 4 * (_root(a) - _root(b)) ** 2,
    }
    for title, draw, sigma_of in _noises():
        rows: dict[str, list] = {}
        for number, picture in enumerate(chosen):
            y, x = (n // 2 - 64 for n in picture.shape)
            clean = picture[y : y + 128, x : x + 128].astype(np.float64)
            noisy = draw(clean, np.random.default_rng(number))
            for name, way in ways.items():
                made = by_distance(noisy, float(sigma_of(clean)), way)
                rows.setdefault(name, []).append((psnr(made, clean), (made - clean).mean()))
        show(f"{len(chosen)} photographs, {title}", ("PSNR", "bias"), rows)


def by_distance(image: np.ndarray, sigma: float, squared: Callable) -> np.ndarray:
    """Return slow NL-means with any distance, ``squared(reference, candidate)`` of each pixel."""
    patch, step, window, neighbours = 8, 4, 21, 16
    volume = image[None, None]
    offsets = reference.offset_table(window)
    room = np.array(volume.shape) - (1, 1, patch, patch)
    positions, estimates = [], []
    for y in reference.grid(image.shape[0], patch, step):
        for x in reference.grid(image.shape[1], patch, step):
            places = np.array((0, 0, y, x)) + offsets
            places = places[np.all((places >= 0) & (places <= room), axis=1)]
            patches = reference.read(volume, places, patch)
            found = squared(patches[:1], patches).mean(axis=(1, 2))
            order = np.argsort(found, kind="stable")[:neighbours]
            similar, excess = patches[order], np.maximum(found[order] - 2 * sigma**2, 0)
            weights = np.exp(-excess / sigma**2)
            made = np.tensordot(weights, similar, axes=1) / weights.sum()
            if similar.var() <= 1.05 * sigma**2 * max(similar.mean(), 0):
                made = np.full((patch, patch), similar.mean())
            positions.append((0, 0, y, x))
            estimates.append(made)
    return reference.aggregate(volume.shape, positions, estimates)[0, 0]


def _positive(levels: np.ndarray) -> np.ndarray:
    return np.maximum(levels, 0.1)


def _root(levels: np.ndarray) -> np.ndarray:
    return np.sqrt(np.maximum(levels, 0))


def ultrasound(options: argparse.Namespace) -> None:
    """The sample: what is left of the noise, with nothing told and with a sigma."""
    clean, noisy = make_samples.ultrasound()
    rows: dict[str, list] = {"noisy": [np.std(noisy.astype(np.float64) - clean)]}
    frames = noisy.astype(np.float32)

    def add(name: str, sigma: float | None, **changes) -> None:
        settings = NLMeans.of(None, **changes)
        # Pearson measures a sigma of its own.
        noise = "gaussian" if sigma is None and "distance" not in changes else None
        found = gd.denoise(frames, settings, sigma, noise=noise, axes="TYX", device=options.device)
        told = f", sigma {found.record.sigma[0]:.3g}" + " estimated" * (sigma is None)
        rows[name + told] = [np.std(found.image.astype(np.float64) - clean)]

    add("Euclidean", None)
    for sigma in (15.0, 22.0, 30.0, 40.0):
        add("Euclidean", sigma)
    add("Pearson", None, distance="pearson")
    for sigma in (1.2, 1.5, 2.5, 3.2):
        add("Pearson", sigma, distance="pearson")
    rows = {name: [values] for name, values in rows.items()}
    show("ultrasound sample", ("error, grey levels",), rows)


TABLES = {
    "rician": rician,
    "weak": weak,
    "pearson": pearson,
    "distances": distances,
    "ultrasound": ultrasound,
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tables", nargs="*", metavar="TABLE", default=list(TABLES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="every fourth picture, one seed")
    parser.add_argument("--device", help="part of the name of the OpenCL device")
    options = parser.parse_args()
    options.seeds = 1 if options.quick else options.seeds
    print(f"On {gd.choose(options.device)}.")
    for name in options.tables:
        TABLES[name](options)


if __name__ == "__main__":
    main()
