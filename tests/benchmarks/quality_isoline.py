"""Quality of the isoline filter: the paper's table, step by step, and speckle.

    python tests/benchmarks/quality_isoline.py [--tables paper steps speckle] [--quick]

PSNR is the mean over pictures and draws; gains are over the noisy picture. Every method is told
sigma, or the number of looks. "To the letter" is ``profile="paper"``, other names are profiles or
settings, with nothing else changed.

The paper (figure 10) adds noise that is not everywhere that of sigma 25: its noisy picture of zelda
has 17.71 dB in the place of 20.17, so means are over the other twelve.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable

import numpy as np
from cases import Case, cases
from scipy.ndimage import uniform_filter
from scipy.special import digamma, polygamma
from tables import print_tables, show

import napari_gpu_denoise as gd
from reference.data import pictures

SIGMA = 25.0
# Gains of the hybrid filter in figure 10, dB; the last one has other noise.
PAPER = {
    **{"airplane": 8.97, "barbara": 4.22, "boat": 7.21, "couple": 7.05, "elaine": 9.09},
    **{"fingerprint": 5.73, "goldhill": 7.84, "lena": 9.22, "man": 6.36, "mandrill": 3.04},
    **{"peppers": 9.15, "stream": 5.00, "zelda": 10.00},
}
APART = "zelda"
LETTER = {"profile": "paper"}
LINES = {"staircase": 0, "max_length": 5}
DEFAULT = "+ extension: the default"
STEPS: dict[str, dict] = {
    "hybrid to the letter": LETTER,
    "soft: means along lines alone": {**LINES, "thickness": 1, "method": "pi-pd"},
    "+ two pixels thick": {**LINES, "method": "pi-pd"},
    "+ window where the slope is low": LINES,
    "+ staircase correction": {"max_length": 5},
    DEFAULT: {},
    "default, but no window (pi-pd)": {"method": "pi-pd"},
    **{f"default, but thickness {n}": {"thickness": n} for n in (1, 3)},
    **{f"default, but staircase {n}": {"staircase": n} for n in (0, 7, 15, 21)},
}
LOOKS = (1.0, 4.0, 16.0)
FACTORS = (1.0, 1.1, 1.2, 1.3, 1.4)
Method = Callable[[Case], np.ndarray]
# PSNR by method and picture, means over draws.
Scores = dict[str, dict[str, float]]


def isoline(device: str | None, **settings) -> Method:
    """Return our filter with these settings."""
    return lambda case: gd.isoline(case.noisy, case.sigma, device=device, **settings)


def scores_of(examples: Iterable[Case], methods: dict[str, Method]) -> Scores:
    """Return what methods make of noisy pictures."""
    found: dict[str, dict[str, list]] = {title: {} for title in methods}
    for case in examples:
        for title, method in methods.items():
            found[title].setdefault(case.name, []).append(case.score(method(case)))
    return {
        title: {name: float(np.mean(each)) for name, each in rows.items()}
        for title, rows in found.items()
    }


def gains(options: argparse.Namespace, methods: dict[str, Method]) -> tuple[Scores, dict]:
    """Return what methods gain on denoiselab13, and the PSNR of the noisy pictures."""
    examples = (
        case
        for seed in range(options.seeds)
        for case in cases("denoiselab13", SIGMA, seed, options.stride)
    )
    scores = scores_of(examples, {"noisy": lambda case: case.noisy, **methods})
    noisy = scores.pop("noisy")
    gained = {
        title: {name: value - noisy[name] for name, value in rows.items()}
        for title, rows in scores.items()
    }
    return gained, noisy


def mean(scores: dict[str, float], names: Iterable[str]) -> float:
    """Return the mean over pictures, without the one set apart."""
    return float(np.mean([scores[name] for name in names if name != APART]))


def paper(options: argparse.Namespace) -> None:
    """The table of figure 10: gains in dB on denoiselab13, sigma 25."""
    device = options.device
    methods = {
        "hybrid to the letter": isoline(device, **LETTER),
        "default": isoline(device),
        "fine": isoline(device, profile="fine"),
        "NL-means": lambda case: gd.nl_means(case.noisy, case.sigma, device=device),
        "5 x 5 mean": lambda case: uniform_filter(case.noisy, 5, mode="mirror"),
    }
    gained, noisy = gains(options, methods)
    gained["paper, hybrid"] = PAPER
    body = [[name, noisy[name], *(rows[name] for rows in gained.values())] for name in noisy]
    means = (mean(rows, noisy) for rows in (noisy, *gained.values()))
    show(["picture", "noisy", *gained], [*body, [f"mean without {APART}", *means]])


def steps(options: argparse.Namespace) -> None:
    """What single settings are worth: mean gains in dB on denoiselab13 without zelda, sigma 25."""
    methods = {title: isoline(options.device, **changes) for title, changes in STEPS.items()}
    gained, noisy = gains(options, methods)
    means = {title: mean(rows, noisy) for title, rows in gained.items()}
    body = [[title, gain, f"{gain - means[DEFAULT]:+.2f}"] for title, gain in means.items()]
    show(["settings", "gain", "to the default"], body)


def speckle(options: argparse.Namespace) -> None:
    """The criterion for speckle beside the additive one on the logarithm: denoiselab13, dB.

    A picture, raised by one grey level so that none is 0, is multiplied by noise of a gamma
    distribution with mean 1. The additive filter sees its logarithm, with the standard deviation
    that noise has there; the exponential of what it yields is divided by what the mean of the
    logarithm falls short by. "Best sigma" is that times one of five factors, chosen for each number
    of looks on the very pictures that are scored, in favour of the additive filter.
    """
    rows: dict[str, list[float]] = {}
    for looks in LOOKS:
        criterion = {"criterion": "multiplicative", "looks": looks}
        methods = {"noisy": lambda case: case.noisy}
        for title, changes in (("default", {}), ("fine", {"profile": "fine"})):
            methods[f"multiplicative, {title}"] = isoline(options.device, **criterion, **changes)
            for factor in FACTORS:
                method = on_logarithm(options.device, looks, factor, **changes)
                methods[f"additive on the logarithm, {title}, sigma x {factor:g}"] = method
        scores = scores_of(speckled(looks, options), methods)
        for title, each in scores.items():
            rows.setdefault(title, []).append(mean(each, each))
    body = [[title, *values] for title, values in rows.items() if "sigma x" not in title]
    for title in ("default", "fine"):
        names = [f"additive on the logarithm, {title}, sigma x {factor:g}" for factor in FACTORS]
        body.append([f"additive on the logarithm, {title}", *rows[names[0]]])
        best = np.max([rows[name] for name in names], axis=0)
        body.append([f"additive on the logarithm, {title}, best sigma", *best])
    show(["method", *(f"looks {looks:g}" for looks in LOOKS)], body)


def speckled(looks: float, options: argparse.Namespace) -> Iterable[Case]:
    """Yield pictures, a grey level brighter, with speckle."""
    for seed in range(options.seeds):
        for stem, picture in list(pictures("denoiselab13").items())[:: options.stride]:
            clean = picture.astype(np.float32) + 1
            noise = np.random.default_rng(seed).gamma(looks, 1 / looks, clean.shape)
            # Sigma is not used, but 0 would mean that there is no noise.
            yield Case(stem, (clean * noise).astype(np.float32), clean, 1.0)


def on_logarithm(device: str | None, looks: float, factor: float, **settings) -> Method:
    """Return the additive filter of the logarithm, told `factor` times the noise that it has."""
    sigma = factor * float(np.sqrt(polygamma(1, looks)))
    bias = digamma(looks) - np.log(looks)
    return lambda case: np.exp(
        gd.isoline(np.log(case.noisy), sigma, device=device, **settings) - bias
    )


if __name__ == "__main__":
    print_tables(__doc__, (paper, steps, speckle))
