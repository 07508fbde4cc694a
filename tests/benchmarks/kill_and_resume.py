"""Kill one run at random moments, resume it each time, and compare with a run left alone.

    python tests/benchmarks/kill_and_resume.py [--kinds zarr tiff] [--kills 20] [--seed 0]

Printed are the parts of the run, those that were begun in all runs together, the most that one kill
cost, and whether the result is the same to the bit.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import tifffile
from large_files import SIGMA, write_zarr
from tables import show

import napari_gpu_denoise as gd

# Each part that is begun, and each that is written, adds a letter to a file.
_CALL = """
import os, sys
from napari_gpu_denoise.cli import main
from napari_gpu_denoise.files import resuming
from napari_gpu_denoise.run import by_parts

log = os.open(sys.argv.pop(1), os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def filter_part(*given, plain=by_parts.filter_part, **options):
    os.write(log, b"b")
    return plain(*given, **options)

def wrote(self, *given, plain=resuming.ResumeLedger.wrote):
    plain(self, *given)
    os.write(log, b"w")

by_parts.filter_part = filter_part
resuming.ResumeLedger.wrote = wrote
sys.exit(main())
"""


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", nargs="+", choices=("zarr", "tiff"), default=["zarr", "tiff"])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--side", type=int, default=700)
    parser.add_argument("--planes", type=int, default=60)
    args = parser.parse_args()
    rows = []
    for kind in args.kinds:
        with tempfile.TemporaryDirectory() as folder:
            rows.append([kind, *_killed(kind, Path(folder), args)])
    show(["", "kills", "parts", "begun", "most lost by a kill", "result"], rows)


def _killed(kind: str, folder: Path, args: argparse.Namespace) -> list[object]:
    path = write_zarr(folder / "in.ome.zarr", (args.planes, args.side, args.side), "ZYX", args.side)
    if kind == "tiff":
        planes, path = gd.read(path).data, folder / "in.tif"
        tifffile.imwrite(path, planes, metadata={"axes": "ZYX"})
    suffix = "".join(path.suffixes)
    whole, target, log = folder / f"whole{suffix}", folder / f"out{suffix}", folder / "log"
    # A limit that makes many parts of a small file.
    command = [sys.executable, "-c", _CALL, str(log), "bm3d", str(path), "--profile", "fast"]
    command += ["--sigma", str(SIGMA), "--quiet", "--memory-limit-host", "420M"]
    begun = time.monotonic()
    alone = subprocess.Popen([*command, "-o", str(whole)])
    while not log.exists() and alone.poll() is None:
        time.sleep(0.01)
    start = time.monotonic() - begun
    if alone.wait():
        raise SystemExit("It failed.")
    parts = log.read_bytes().count(b"w")
    each = (time.monotonic() - begun - start) / parts
    log.write_bytes(b"")
    rng, kills, most, code = random.Random(args.seed), 0, 0, None
    while code is None:
        before = log.read_bytes()
        process = subprocess.Popen([*command, "-o", str(target), "--resume"])
        if kills < args.kills:
            left = parts - before.count(b"w")
            _wait(process, log, rng, left, args.kills - kills, start, each)
        else:
            process.wait()
        code = process.poll()
        if code is None:
            process.kill()
            process.wait()
            kills += 1
            new = log.read_bytes()[len(before) :]
            most = max(most, new.count(b"b") - new.count(b"w"))
    if code:
        raise SystemExit("It failed.")
    same = np.array_equal(gd.read(whole).data, gd.read(target).data)
    hidden = [each.name for each in folder.iterdir() if each.name.startswith(".")]
    result = "equal to the bit" if same and not hidden else "DIFFERENT"
    return [kills, parts, log.read_bytes().count(b"b"), most, result]


def _wait(
    process: subprocess.Popen,
    log: Path,
    rng: random.Random,
    left: int,
    kills: int,
    start: float,
    each: float,
) -> None:
    """Wait for the moment of a kill: one in five before a part is begun, the others within one.

    They are spread over the parts that are `left`, however fast this run is; a start takes `start`
    seconds, and a part `each`.
    """
    before = log.read_bytes()
    if left < 2 or rng.random() < 0.2:
        time.sleep(rng.uniform(0.2, start))
        return
    after = rng.randint(0, 2 * (left - 1) // (kills + 1))
    while process.poll() is None:
        new = log.read_bytes()[len(before) :]
        if new and new.count(b"w") >= after:
            break
        time.sleep(0.005)
    time.sleep(rng.uniform(0, each))


if __name__ == "__main__":
    main()
