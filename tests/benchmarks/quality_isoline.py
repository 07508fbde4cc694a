"""Quality of the isoline filter: the paper's table, step by step, other sets, colour, speckle.

    python tests/benchmarks/quality_isoline.py [TABLE ...] [--sigma 25] [--seeds 3] [--quick]

TABLE is any of ``paper``, ``steps``, ``sets``, ``colour``, ``speckle``; all by default. The noise
of each picture is drawn with ``numpy.random.default_rng(seed)``; PSNR has the peak 255, on float
results, and is the mean over pictures and seeds. Gains are over the noisy picture. Every method is
told sigma, or the number of looks. "To the letter" is ``profile="paper"``, other names are profiles
or settings, with nothing else changed.

The paper (figure 10) adds noise that is not everywhere that of sigma 25: its noisy picture of zelda
has 17.71 dB in the place of 20.17, so means are over the other twelve.

Speckle multiplies a picture, raised by one grey level so that none is 0, by noise of a gamma
distribution with mean 1. The additive filter sees its logarithm, with the standard deviation that
noise has there, the square root of trigamma(looks); the exponential of what it yields is divided by
what the mean of the logarithm falls short by. "Best sigma" is that times one of 1, 1.1, 1.2, 1.3,
1.4, chosen for each number of looks on the very pictures that are scored, in favour of the additive
filter. ``--sigma`` is that of the tables ``paper`` and ``steps``; the others have their own.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Iterator

import numpy as np
from cases import Case, cases, pictures
from scipy.ndimage import uniform_filter
from scipy.special import digamma, polygamma

import napari_gpu_denoise as gd

# Gains of the hybrid filter in figure 10, dB at sigma 25.
PAPER = {
    "airplane": 8.97,
    "barbara": 4.22,
    "boat": 7.21,
    "couple": 7.05,
    "elaine": 9.09,
    "fingerprint": 5.73,
    "goldhill": 7.84,
    "lena": 9.22,
    "man": 6.36,
    "mandrill": 3.04,
    "peppers": 9.15,
    "stream": 5.00,
    "zelda": 10.00,
}
# Its noisy picture has other noise.
APART = "zelda"
LETTER = {"profile": "paper"}
STEPS: dict[str, dict] = {
    "hybrid to the letter": LETTER,
    "PI-PD to the letter": {**LETTER, "method": "pi-pd"},
    "PI-LD to the letter": {**LETTER, "method": "pi-ld"},
    "hybrid to the letter, two pixels thick": {**LETTER, "thickness": 2},
    "hybrid to the letter, staircase correction": {**LETTER, "staircase": 11},
    "soft: means along lines alone": {
        "staircase": 0,
        "max_length": 5,
        "thickness": 1,
        "method": "pi-pd",
    },
    "+ two pixels thick": {"staircase": 0, "max_length": 5, "method": "pi-pd"},
    "+ window where the slope is low": {"staircase": 0, "max_length": 5},
    "+ staircase correction": {"max_length": 5},
    "+ extension: the default": {},
    "default, but no window (pi-pd)": {"method": "pi-pd"},
    "default, but no staircase correction": {"staircase": 0},
    **{f"default, but thickness {n}": {"thickness": n} for n in (1, 3)},
    **{f"default, but max_length {n}": {"max_length": n} for n in (5, 15, 45)},
    **{f"default, but softness {s:g}": {"softness": s} for s in (0.05, 0.2)},
    **{f"default, but staircase {n}": {"staircase": n} for n in (5, 7, 9, 13, 15, 21)},
}
SIGMAS = (5.0, 10.0, 15.0, 25.0, 50.0)
LOOKS = (1.0, 4.0, 16.0)
FACTORS = (1.0, 1.1, 1.2, 1.3, 1.4)
Method = Callable[[Case], np.ndarray]
# PSNR by method and picture, means over seeds.
Scores = dict[str, dict[str, float]]


def isoline(device: str | None, **settings) -> Method:
    """Return our filter with these settings."""

    def run(case: Case) -> np.ndarray:
        axes = "YXS" if case.noisy.ndim == 3 else "YX"
        return gd.isoline(case.noisy, case.sigma, axes=axes, device=device, **settings)

    return run


def nl_means(device: str | None) -> Method:
    """Return our NL-means with its defaults."""
    return lambda case: gd.nl_means(case.noisy, case.sigma, device=device)


def mean_filter(case: Case) -> np.ndarray:
    """Return means over 5 x 5 pixels."""
    return uniform_filter(case.noisy, 5, mode="mirror")


def unchanged(case: Case) -> np.ndarray:
    """Return the noisy picture."""
    return case.noisy


def on_logarithm(device: str | None, looks: float, factor: float = 1.0, **settings) -> Method:
    """Return the additive filter of the logarithm, told `factor` times the noise that it has."""
    sigma = factor * float(np.sqrt(polygamma(1, looks)))
    bias = digamma(looks) - np.log(looks)

    def run(case: Case) -> np.ndarray:
        return np.exp(gd.isoline(np.log(case.noisy), sigma, device=device, **settings) - bias)

    return run


def speckled(name: str, looks: float, seed: int, stride: int) -> Iterator[Case]:
    """Yield the pictures of a set, a grey level brighter, with speckle."""
    for stem, picture in list(pictures(name).items())[::stride]:
        clean = picture.astype(np.float32) + 1
        noise = np.random.default_rng(seed).gamma(looks, 1 / looks, clean.shape)
        # Sigma is not used, but 0 would mean that there is no noise.
        yield Case(stem, (clean * noise).astype(np.float32), clean, 1.0)


def score(
    examples: Callable[[int, int], Iterator[Case]],
    methods: dict[str, Method],
    options: argparse.Namespace,
) -> Scores:
    """Return what methods make of noisy pictures; `examples` takes a seed and a stride."""
    found: dict[str, dict[str, list]] = {title: {} for title in methods}
    for seed in range(1 if options.quick else options.seeds):
        for case in examples(seed, 8 if options.quick else 1):
            for title, method in methods.items():
                found[title].setdefault(case.name, []).append(case.score(method(case)))
        means = (f"{title} {np.mean([*rows.values()][-1]):.2f}" for title, rows in found.items())
        print(f"seed {seed}, the last picture: {'; '.join(means)}", file=sys.stderr)
    return {
        title: {name: float(np.mean(each)) for name, each in rows.items()}
        for title, rows in found.items()
    }


def mean(scores: dict[str, float], apart: str | None = None) -> float:
    """Return the mean over pictures, without the one set apart."""
    return float(np.mean([value for name, value in scores.items() if name != apart]))


def gains(scores: Scores) -> Scores:
    """Return what methods gain over the noisy picture."""
    noisy = scores["noisy"]
    return {
        title: {name: value - noisy[name] for name, value in rows.items()}
        for title, rows in scores.items()
        if title != "noisy"
    }


def heading(title: str, *columns: str) -> None:
    """Print a title and the first lines of a table."""
    print(f"\n{title}\n")
    row(*columns)
    row(":---", *("---:" for _ in columns[1:]))


def row(*cells) -> None:
    """Print one line of a table, numbers with two decimals."""
    texts = (f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in cells)
    print(f"| {' | '.join(texts)} |", flush=True)


def show_paper(options: argparse.Namespace) -> None:
    """Print the table of figure 10."""
    ours = functools.partial(isoline, options.device)
    methods = {
        "noisy": unchanged,
        "hybrid to the letter": ours(**LETTER),
        "default": ours(),
        "fine": ours(profile="fine"),
        "5 x 5 mean": mean_filter,
    }
    examples = functools.partial(cases, "denoiselab13", options.sigma)
    scores = score(examples, methods, options)
    gained = gains(scores) | {"paper, hybrid": PAPER}
    heading(
        f"denoiselab13, sigma {options.sigma:g}: noisy PSNR and gains in dB "
        "(the paper's are at sigma 25)",
        *("picture", "noisy", *gained),
    )
    noisy = scores["noisy"]
    for name in noisy:
        row(name, noisy[name], *(rows[name] for rows in gained.values()))
    shared = [{name: rows[name] for name in noisy} for rows in gained.values()]
    row(f"mean without {APART}", mean(noisy, APART), *(mean(rows, APART) for rows in shared))


def show_steps(options: argparse.Namespace) -> None:
    """Print what single settings are worth."""
    methods = {title: isoline(options.device, **changes) for title, changes in STEPS.items()}
    examples = functools.partial(cases, "denoiselab13", options.sigma)
    gained = gains(score(examples, {"noisy": unchanged, **methods}, options))
    default = mean(gained["+ extension: the default"], APART)
    heading(
        f"denoiselab13 without {APART}, sigma {options.sigma:g}: mean gains in dB",
        *("settings", "gain", "to the default", "mandrill"),
    )
    for title, rows in gained.items():
        gain = mean(rows, APART)
        row(title, gain, f"{gain - default:+.2f}", rows.get("mandrill", ""))


def show_sets(options: argparse.Namespace) -> None:
    """Print means of other sets, and of other noise."""
    methods = {
        "hybrid to the letter": isoline(options.device, **LETTER),
        "default": isoline(options.device),
        "fine": isoline(options.device, profile="fine"),
        "nl_means": nl_means(options.device),
        "5 x 5 mean": mean_filter,
    }
    for name in ("bsd68", "set12"):
        found = [
            score(functools.partial(cases, name, s), {"noisy": unchanged, **methods}, options)
            for s in SIGMAS
        ]
        heading(f"{name}: mean PSNR in dB", "method", *(f"sigma {s:g}" for s in SIGMAS))
        for title in found[0]:
            row(title, *(mean(scores[title]) for scores in found))


def show_colour(options: argparse.Namespace) -> None:
    """Print colour pictures, filtered in each way."""
    ways = ("opponent", "joint", "separate")
    methods = {way: isoline(options.device, channels=way) for way in ways}
    methods["opponent, fine"] = isoline(options.device, channels="opponent", profile="fine")
    examples = functools.partial(cases, "colour", 25.0)
    scores = score(examples, {"noisy": unchanged, **methods}, options)
    heading("colour, sigma 25: PSNR in dB", "picture", *scores)
    for name in scores["noisy"]:
        row(name, *(rows[name] for rows in scores.values()))
    row("mean", *(mean(rows) for rows in scores.values()))


def show_speckle(options: argparse.Namespace) -> None:
    """Print what the criterion for speckle gives beside the additive one on the logarithm."""
    settings = {
        "default": {},
        "fine": {"profile": "fine"},
        "hybrid to the letter": LETTER,
        "PI-PD to the letter": {**LETTER, "method": "pi-pd"},
    }
    found = []
    for looks in LOOKS:
        methods = {"noisy": unchanged}
        for title, changes in settings.items():
            speckle = {"criterion": "multiplicative", "looks": looks}
            methods[f"multiplicative, {title}"] = isoline(options.device, **speckle, **changes)
            logarithm = functools.partial(on_logarithm, options.device, looks, **changes)
            methods[f"additive on the logarithm, {title}"] = logarithm()
            # To the letter nothing depends on sigma.
            if title in ("default", "fine"):
                for factor in FACTORS:
                    methods[f"{title} x {factor:g}"] = logarithm(factor)
        examples = functools.partial(speckled, "denoiselab13", looks)
        scores = {k: mean(v) for k, v in score(examples, methods, options).items()}
        for title in ("default", "fine"):
            values = [scores.pop(f"{title} x {factor:g}") for factor in FACTORS]
            scores[f"additive on the logarithm, {title}, best sigma"] = max(values)
        found.append(scores)
    heading("denoiselab13: mean PSNR in dB", "method", *(f"looks {looks:g}" for looks in LOOKS))
    row("noisy", *(scores["noisy"] for scores in found))
    for title in settings:
        for kind in (f"multiplicative, {title}", f"additive on the logarithm, {title}"):
            for name in (kind, f"{kind}, best sigma"):
                if name in found[0]:
                    row(name, *(scores[name] for scores in found))


TABLES = {
    "paper": show_paper,
    "steps": show_steps,
    "sets": show_sets,
    "colour": show_colour,
    "speckle": show_speckle,
}


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"{', '.join(TABLES)}; or all")
    parser.add_argument("--sigma", type=float, default=25.0, help="noise of paper and steps")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="every eighth picture, one seed")
    parser.add_argument("--device", help="number of the OpenCL device, or part of its name")
    options = parser.parse_args()
    unknown = set(options.tables) - set(TABLES)
    if unknown:
        parser.error(f"no table {', '.join(sorted(unknown))}: choose from {', '.join(TABLES)}")
    print(f"Runs on {gd.choose(options.device)}.")
    for name in options.tables or TABLES:
        TABLES[name](options)


if __name__ == "__main__":
    main()
