"""Compare the speed of two checkouts in one run, turn by turn: machines differ, and are shared.

    git worktree add /tmp/before COMMIT
    python tests/benchmarks/speed_between.py --before /tmp/before [--device N] [--rounds 3]
        [--only TEXT] [--large]

Each turn is a process of its own, that takes one checkout and times every case: the device time of
all kernels and a whole call with sigma given, as ``gpu-denoise bench`` measures them; calls that
are told nothing, on photographs (with the shared data alone); and the first call of a fresh process
on 512 x 512 pixels, once kernels are cached on disk. Printed is the least of all rounds, in
milliseconds.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from reference.data import data_folder, photograph

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
    *(("BM4D", profile, (256, 256, 256)) for profile in ("fast", "normal")),
    *(("VBM3D", profile, (540, 960)) for profile in ("fast", "normal", "high")),
    ("NLMeans", "video", (540, 960)),
)


def photographs() -> np.ndarray | None:
    """Return photographs side by side, or None where the shared data is not there."""
    return None if data_folder() is None else photograph(3456, 4608)


def moving(scene: np.ndarray, shape: tuple[int, ...], sigma: float) -> np.ndarray:
    """Return noisy planes of a shape, in each of which the scene is one pixel further."""
    scene = scene[: shape[-2], : shape[-1]]
    planes = [np.roll(scene, k, 1) for k in range(math.prod(shape[:-2]))]
    noise = np.random.default_rng(0).standard_normal(shape, np.float32)
    return np.reshape(planes, shape) + np.float32(sigma) * noise


def time_cases(cases: list[str], device: str | None) -> dict[str, dict[str, float]]:
    """Time cases with the checkout on the path."""
    import napari_gpu_denoise as gd

    try:
        bench = importlib.import_module("napari_gpu_denoise.cli.bench")
    except ModuleNotFoundError:
        bench = importlib.import_module("napari_gpu_denoise.bench")  # before November 2026
    found, scene = {}, photographs()
    if scene is not None:  # else what the command filters, which has less texture
        bench.synthetic = lambda shape, sigma=20.0, seed=0: moving(scene, shape, sigma)
    for text in cases:
        name, profile, *shape = text.split()
        settings = getattr(gd, name).of(profile=profile)
        timing = bench.measure(settings, tuple(map(int, shape)), gd.choose(device), repeats=5)
        found[text] = {"device": 1e3 * timing.device_time, "call": 1e3 * timing.whole_call}
    return found


def time_untold(device: str | None, large: bool, only: str) -> dict[str, dict[str, float]]:
    """Time calls that are told neither sigma nor the cube, with the checkout on the path."""
    import napari_gpu_denoise as gd

    chosen, rng = gd.choose(device), np.random.default_rng(0)
    scene, found = photographs(), {}
    if scene is None:
        return found

    def add(name: str, call: Callable[[], object]) -> None:
        if only not in name:
            return
        call()
        times = []
        for _ in range(7):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        found[name] = {"call": 1e3 * statistics.median(times)}

    for side in (512, 2048) if large else (512,):
        noisy = moving(scene, (side, side), 20)
        photons = 4 * rng.poisson(scene[:side, :side] / 4 + 2) + 100
        inputs = {
            "float32": noisy,
            "uint16 photons": photons.astype(np.uint16),
            "uint8": noisy.clip(0, 255).round().astype(np.uint8),
        }
        for name, image in inputs.items():
            add(f"untold {side} x {side}, {name}", lambda a=image: gd.nl_means(a, device=chosen))
    if large:
        noisy = moving(scene, scene.shape, 20)
        add("estimate_noise 3456 x 4608", lambda: gd.estimate_noise(noisy, device=chosen))
        volume = moving(scene, (256, 256, 256), 20)
        for profile in ("normal", "fast"):
            for cube in ("4x4x4", "auto"):
                filter = gd.BM4D.of(profile=profile, cube=cube)
                add(
                    f"BM4D {profile} 256 x 256 x 256, cube {cube}",
                    lambda f=filter: gd.denoise(volume, f, 20, axes="ZYX", device=chosen),
                )
    return found


def time_first_calls(device: str | None) -> dict[str, dict[str, float]]:
    """Time the import and the first call in this fresh process, of the filter that is asked for."""
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
        if "FIRST_CALL" in os.environ:
            found = time_first_calls(args.device)
        else:
            found = time_cases(args.cases, args.device) | time_untold(
                args.device, args.large, args.only
            )
        print(json.dumps(found))
        return
    cases = [" ".join(map(str, (n, p, *s))) for n, p, s in (*CASES, *(LARGE if args.large else ()))]
    cases = [case for case in cases if args.only in case]
    device = [*(["--device", args.device] if args.device else []), *["--large"] * args.large]
    device += ["--only", args.only]
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
