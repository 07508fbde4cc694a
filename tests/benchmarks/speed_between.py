"""Compare the speed of two checkouts in one run, turn by turn: machines differ, and are shared.

    git worktree add /tmp/before COMMIT
    python tests/benchmarks/speed_between.py --before /tmp/before [--device N] [--rounds 3]
        [--only TEXT] [--large]

Each turn is a process of its own, that takes one checkout and times every case: the device time of
all kernels and a whole call with sigma given, as ``gpu-denoise bench`` measures them; and the first
call of a fresh process on 512 x 512 pixels, once kernels are cached on disk. Printed is the least
of all rounds, in milliseconds.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SMALL = (512, 512)
# Filter, profile, shape; large ones are for a GPU.
CASES = (
    *((name, profile, SMALL) for name, profile in (("NLMeans", "normal"), ("NLMeans", "fine"))),
    *(("BM3D", profile, SMALL) for profile in ("fast", "normal")),
    *(("Isoline", profile, SMALL) for profile in ("normal", "paper")),
    *(("VBM3D", profile, (270, 480)) for profile in ("fast", "normal")),
    ("NLMeans", "video", (270, 480)),
)
LARGE = (
    *(("NLMeans", profile, (3456, 4608)) for profile in ("normal", "fine")),
    *(("BM3D", profile, (3456, 4608)) for profile in ("fast", "normal")),
    ("Isoline", "normal", (1080, 1920)),
    *(("VBM3D", profile, (540, 960)) for profile in ("fast", "normal", "high")),
    ("NLMeans", "video", (540, 960)),
)


def time_cases(cases: list[str], device: str | None) -> dict[str, dict[str, float]]:
    """Time cases with the checkout on the path."""
    import napari_gpu_denoise as gd

    try:
        bench = importlib.import_module("napari_gpu_denoise.cli.bench")
    except ModuleNotFoundError:
        bench = importlib.import_module("napari_gpu_denoise.bench")  # before November 2026
    found = {}
    for text in cases:
        name, profile, *shape = text.split()
        settings = getattr(gd, name).of(profile=profile)
        timing = bench.measure(settings, tuple(map(int, shape)), gd.choose(device), repeats=5)
        found[text] = {"device": 1e3 * timing.device_time, "call": 1e3 * timing.whole_call}
    return found


def time_first_calls(device: str | None) -> dict[str, dict[str, float]]:
    """Time the import and the first call in this fresh process, of the filter that is asked for."""
    import numpy as np

    name = os.environ["FIRST_CALL"]
    image = np.random.default_rng(0).normal(100, 20, SMALL).astype(np.float32)
    start = time.perf_counter()
    import napari_gpu_denoise as gd

    getattr(gd, name)(image, 20, device=device)
    return {f"first call {name}": {"call": 1e3 * (time.perf_counter() - start)}}


def turn(checkout: Path, arguments: list[str], **environment: str) -> dict[str, dict[str, float]]:
    """Run this script as a worker on a checkout; return what it prints."""
    path = os.pathsep.join([str(checkout / "src"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, __file__, "--worker", *arguments]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": path, **environment},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--before", type=Path, help="root of the other checkout")
    parser.add_argument("--device")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="cases that hold this text")
    parser.add_argument("--large", action="store_true", help="large images as well: for a GPU")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("cases", nargs="*", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        first = "FIRST_CALL" in os.environ
        print(
            json.dumps(
                time_first_calls(args.device) if first else time_cases(args.cases, args.device)
            )
        )
        return
    cases = [" ".join(map(str, (n, p, *s))) for n, p, s in (*CASES, *(LARGE if args.large else ()))]
    cases = [case for case in cases if args.only in case]
    device = ["--device", args.device] if args.device else []
    best: dict[tuple[str, str, str], float] = {}
    for number in range(args.rounds):
        for label, checkout in (("before", args.before), ("after", ROOT)):
            found = turn(checkout, [*device, *cases])
            for name in ("nl_means", "bm3d", "isoline"):
                # Once more in the first round, for the kernels to be in the cache.
                for _ in range(1 + (number == 0)):
                    first = turn(checkout, device, FIRST_CALL=name)
                found |= first
            for case, times in found.items():
                for what, value in times.items():
                    key = case, what, label
                    best[key] = min(best.get(key, value), value)
        print(table(best), flush=True)


def table(best: dict[tuple[str, str, str], float]) -> str:
    """Return the times so far, in milliseconds."""
    rows = [
        "| case | device before | after | call before | after |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for case in dict.fromkeys(case for case, *_ in best):
        row = [
            f"{best[case, what, label]:.3g}" if (case, what, label) in best else ""
            for what in ("device", "call")
            for label in ("before", "after")
        ]
        rows.append(f"| {case} | {' | '.join(row)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
