"""Quality of BM3D: mean PSNR per set, and picture by picture beside the `bm3d` package.

    python tests/benchmarks/quality_bm3d.py [--quick] [--peer] [--peer-cache FILE] [--json FILE]

The noise of each picture is drawn with ``numpy.random.default_rng(seed)``; PSNR has the peak 255,
on float results, and is the mean over pictures and seeds. Every method knows sigma. Ours are
profiles with nothing changed; "fixed" are the fixed parameters of Davy and Ehret 2020: DCT in both
steps, Hadamard along the stacks, step 3, window 39, groups of 16 and 32. Colour pictures are
filtered as colours (opponent) and channel by channel (separate). Times are those of a whole call,
NumPy to NumPy; those of the package are from the run that filled its file.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from cases import Case, cases
from peer_bm3d import PROFILES as PEER_PROFILES
from peer_bm3d import PeerScores
from profiles_bm3d import PROFILES, settings_of

import napari_gpu_denoise as gd

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))
from published import SETS

SIGMAS = {
    "bsd68": (15.0, 20.0, 25.0, 50.0),
    "set12": (15.0, 20.0, 25.0, 50.0),
    "denoiselab13": (20.0,),
    "tractor": (20.0,),
    "colin27": (20.0,),
    "colour": (25.0,),
}
# Means that Davy and Ehret 2020 have published, in dB; `published_mean` knows those of others.
DAVY = {("bsd68", 20.0): {"fast": 29.34, "normal": 29.50, "fixed": 29.27}}
# Returns PSNR and seconds for the case of a set with a seed, or None where it cannot run.
Method = Callable[[str, Case, int], tuple[float, float] | None]


@dataclass(frozen=True)
class Score:
    """What one method made of one noisy picture."""

    set: str
    sigma: float
    seed: int
    picture: str
    method: str
    psnr: float
    seconds: float


def ours(device: str | None, profile: str, **changes) -> Method:
    """Return our filter with a profile."""
    settings = replace(settings_of(profile), **changes)

    def run(name: str, case: Case, seed: int) -> tuple[float, float]:
        axes = "YXS" if case.noisy.ndim == 3 else "YX"
        start = time.perf_counter()
        result = gd.bm3d(case.noisy, case.sigma, axes=axes, settings=settings, device=device)
        return case.score(result), time.perf_counter() - start

    return run


def methods(options: argparse.Namespace, colour: bool) -> dict[str, Method]:
    """Return what to compare, by name."""
    found: dict[str, Method] = {}
    for profile in options.profiles:
        if colour:
            for channels in ("opponent", "separate"):
                name = f"ours {profile}, {channels}"
                found[name] = ours(options.device, profile, channels=channels)
        else:
            found[f"ours {profile}"] = ours(options.device, profile)
    if options.peer is not None:
        peer = PeerScores(options.peer_cache)
        for profile in options.peer or ("np",):
            found[f"bm3d package, {profile}"] = lambda name, case, seed, profile=profile: (
                peer.score(name, case, seed, profile)
            )
    return found


def measure(name: str, sigma: float, options: argparse.Namespace) -> list[Score]:
    """Return the scores of every method on one set at one noise level."""
    found = []
    for title, method in methods(options, name == "colour").items():
        rows = []
        for seed in range(1 if options.quick else options.seeds):
            for case in cases(name, sigma, seed, 8 if options.quick else 1):
                result = method(name, case, seed)
                if result is not None:
                    rows.append(Score(name, sigma, seed, case.name, title, *result))
        mean = f"{np.mean([r.psnr for r in rows]):.2f} dB" if rows else "not installed, not kept"
        print(f"{name}, sigma {sigma:g}, {title}: {mean}", file=sys.stderr)
        found += rows
    return found


def published_mean(name: str, sigma: float, profile: str) -> float | None:
    """Return the published mean PSNR of BM3D on a set, if there is one."""
    if name in SETS and profile == "normal" and sigma in SETS[name].levels:
        return SETS[name].rows["BM3D"][SETS[name].levels.index(sigma)]
    return DAVY.get((name, sigma), {}).get(profile)


def mean(scores: list[Score], **wanted) -> float:
    """Return the mean PSNR of those scores that have these attributes."""
    return float(
        np.mean([s.psnr for s in scores if all(getattr(s, k) == v for k, v in wanted.items())])
    )


def names(scores: list[Score], attribute: str) -> list:
    """Return the values that an attribute takes, each once, in order."""
    return list(dict.fromkeys(getattr(s, attribute) for s in scores))


def row(*cells) -> str:
    """Return one line of a table."""
    return f"| {' | '.join(map(str, cells))} |"


def show_means(scores: list[Score]) -> None:
    """Print the means of one set, one row per method, one column per sigma."""
    name, sigmas = scores[0].set, names(scores, "sigma")
    counts = f"{len(names(scores, 'picture'))} pictures, mean PSNR in dB"
    print(f"\n{name}: {counts}\n")
    print(row("method", *(f"sigma {s:g}" for s in sigmas), "seeds", "time a picture, s"))
    print(row(":---", *("---:" for _ in sigmas), "---:", "---:"))
    for title in names(scores, "method"):
        rows = [s for s in scores if s.method == title]
        cells = [f"{mean(rows, sigma=s):.3f}" if s in names(rows, "sigma") else "" for s in sigmas]
        seconds = np.mean([s.seconds for s in rows])
        print(row(title, *cells, len(names(rows, "seed")), f"{seconds:.3f}"))
        known = [published_mean(name, s, title.removeprefix("ours ")) for s in sigmas]
        if any(known):
            cells = [f"{value:.2f}" if value else "" for value in known]
            print(row(f"published, {title.removeprefix('ours ')}", *cells, "", ""))
    sys.stdout.flush()


def show_pictures(scores: list[Score]) -> None:
    """Print one set at one sigma, one row per picture, one column per method and per difference.

    A difference is taken over the seeds that both methods have.
    """
    titles = names(scores, "method")
    peers = [title for title in titles if title.startswith("bm3d package")]
    print(f"\n{scores[0].set}, sigma {scores[0].sigma:g}, picture by picture\n")
    ours = [title for title in titles if title not in peers and not title.endswith(", separate")]
    gains = [(title, peer) for peer in peers for title in ours]
    pairs = [(title, title.replace("opponent", "separate")) for title in ours]
    gains += [(a, b) for a, b in pairs if a != b]
    print(row("picture", *titles, *(f"{a} - {b}" for a, b in gains)))
    print(row(":---", *("---:" for _ in (*titles, *gains))))
    worst = {gain: np.inf for gain in gains}
    for picture in names(scores, "picture"):
        rows = [s for s in scores if s.picture == picture]
        cells = [f"{mean(rows, method=title):.2f}" for title in titles]
        for a, b in gains:
            shared = set(names([s for s in rows if s.method == b], "seed"))
            same = [s for s in rows if s.seed in shared]
            gain = mean(same, method=a) - mean(same, method=b)
            worst[a, b] = min(worst[a, b], gain)
            cells.append(f"{gain:+.3f}")
        print(row(picture, *cells))
    if gains:
        print(row("least", *("" for _ in titles), *(f"{worst[gain]:+.3f}" for gain in gains)))
    sys.stdout.flush()


def main() -> None:
    """Measure, print, and write JSON where asked to."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--sets", nargs="+", choices=SIGMAS, default=("bsd68", "set12", "colour"))
    add("--sigmas", nargs="+", type=float, help="noise on the scale of 255 (default: by set)")
    add("--profiles", nargs="*", choices=PROFILES, default=PROFILES, help="none: the package alone")
    add("--seeds", type=int, default=3)
    add("--quick", action="store_true", help="every eighth picture, one seed")
    add("--device", help="number of the OpenCL device, or part of its name")
    add("--peer", nargs="*", choices=PEER_PROFILES, help="also the bm3d package (default: np)")
    add("--peer-cache", type=Path, help="file that keeps the scores of the package")
    add("--json", type=Path, help="also write every score to this file")
    options = parser.parse_args()
    if options.profiles:
        print(f"Ours runs on {gd.choose(options.device)}; the bm3d package on the CPU.")
    scores: list[Score] = []
    for name in options.sets:
        found = []
        for sigma in options.sigmas or SIGMAS[name]:
            found += measure(name, sigma, options)
        if found:
            show_means(found)
        if name in ("set12", "colour"):
            for sigma in names(found, "sigma"):
                show_pictures([s for s in found if s.sigma == sigma])
        scores += found
    if options.json:
        options.json.write_text(json.dumps([asdict(s) for s in scores], indent=1) + "\n")


if __name__ == "__main__":
    main()
