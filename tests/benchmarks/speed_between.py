"""Compare the speed of two checkouts in one run, turn by turn: machines differ, and are shared.

    git worktree add /tmp/before COMMIT
    python tests/benchmarks/speed_between.py --before /tmp/before [--rounds 3] [--large]

Each turn is a process of its own that times every case in one checkout as ``tools/bench.py``
does, and calls that are not told sigma. Printed is the least of all rounds, in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Filter, profile, shape; large ones are for a GPU.
CASES = (
    *(("NLMeans", profile, (512, 512)) for profile in ("normal", "fine")),
    *(("BM3D", profile, (512, 512)) for profile in ("fast", "normal")),
    ("Isoline", "normal", (512, 512)),
    ("VBM3D", "normal", (270, 480)),
)
LARGE = (
    *(("NLMeans", profile, (3456, 4608)) for profile in ("normal", "fine")),
    *(("BM3D", profile, (3456, 4608)) for profile in ("fast", "normal")),
    ("BM4D", "normal", (256, 256, 256)),
    *(("VBM3D", profile, (540, 960)) for profile in ("fast", "normal")),
)


def run_turn(cases: list, device: str | None) -> dict[str, float]:
    """Return the milliseconds of each case, by name."""
    import napari_gpu_denoise as gd
    from bench import measure, synthetic

    found = {}
    for name, profile, shape in cases:
        settings = getattr(gd, name).of(profile=profile)
        timing = measure(settings, tuple(shape), gd.choose(device), 7)
        label = f"{name} {profile}, {' x '.join(map(str, shape))}"
        found[f"{label}, kernels"] = 1e3 * timing.device_time
        found[f"{label}, call"] = 1e3 * timing.whole_call
        if name == "BM3D":
            image, taken = synthetic(tuple(shape)), []
            for _ in range(8):
                begun = time.perf_counter()
                gd.denoise(image, settings, device=device)
                taken.append(time.perf_counter() - begun)
            found[f"{label}, sigma measured"] = 1e3 * sorted(taken)[len(taken) // 2]
    return found


def main() -> None:
    """Take turns, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--before", type=Path, required=True, help="the other checkout")
    parser.add_argument("--device", help="number of the OpenCL device, or part of its name")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--large", action="store_true", help="images for a GPU, too")
    parser.add_argument("--turn", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    cases = [*CASES, *(LARGE if options.large else ())]
    if options.turn:
        print(json.dumps(run_turn(cases, options.device)))
        return
    least: dict[Path, dict[str, float]] = {options.before.resolve(): {}, ROOT: {}}
    for _ in range(options.rounds):
        for folder, times in least.items():
            own = (str(folder / each) for each in ("src", "tools"))
            path = os.pathsep.join([*own, os.environ.get("PYTHONPATH", "")])
            turn = [sys.executable, __file__, *sys.argv[1:], "--turn"]
            done = subprocess.run(
                turn, env={**os.environ, "PYTHONPATH": path}, capture_output=True, check=True
            )
            for name, value in json.loads(done.stdout.splitlines()[-1]).items():
                times[name] = min(value, times.get(name, value))
    before, now = least.values()
    print("| ms | before | now | change |\n| :--- | ---: | ---: | ---: |")
    for name, value in now.items():
        print(f"| {name} | {before[name]:.3f} | {value:.3f} | {value / before[name] - 1:+.1%} |")


if __name__ == "__main__":
    main()
