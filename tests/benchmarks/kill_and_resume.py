"""Kill one run at random moments, resume it each time, and compare with a run left alone.

    python tests/benchmarks/kill_and_resume.py [--kinds zarr tiff] [--kills 20] [--seed 0]

Printed are the parts of the run, those that were begun in all runs together, the most that one kill
cost, and whether the result is the same to the bit.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
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

# Each part that is begun, and each that is written, adds a line to a file.
_CALL = """
import os, sys
from napari_gpu_denoise.cli import main
from napari_gpu_denoise.files import resuming
from napari_gpu_denoise.run import by_parts as several

log = os.open(sys.argv.pop(1), os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def told(word, call):
    def called(*given):
        os.write(log, word)
        return call(*given)
    return called

def wrote(self, *given, plain=resuming.ResumeLedger.wrote):
    plain(self, *given)
    os.write(log, b"w")

several.filter_part = told(b"b", several.filter_part)
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
        folder = Path(tempfile.mkdtemp())
        try:
            rows.append(_killed(kind, folder, args))
        finally:
            shutil.rmtree(folder)
    show(["", "kills", "parts", "begun", "most lost by a kill", "result"], rows)


def _killed(kind: str, folder: Path, args: argparse.Namespace) -> list[str]:
    shape = args.planes, args.side, args.side
    path = write_zarr(folder / "in.ome.zarr", shape, "ZYX", args.side)
    if kind == "tiff":
        planes = gd.read(path).data
        path = folder / "in.tif"
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
    rest = time.monotonic() - begun - start
    parts = log.read_bytes().count(b"w")
    print(
        f"{kind}: {parts} parts, {start:.1f} s to the first and {rest:.1f} s from there", flush=True
    )
    log.unlink()
    log.touch()
    rng, kills, most = random.Random(args.seed), 0, 0
    while True:
        before = log.read_bytes()
        process = subprocess.Popen([*command, "-o", str(target), "--resume"])
        if kills < args.kills:
            # One in five before the first part is begun, the others in the middle of one, spread
            # over the parts that are left, however fast this run is.
            left = parts - before.count(b"w")
            early = left < 2 or rng.random() < 0.2
            after = -1 if early else rng.randint(0, 2 * (left - 1) // (args.kills - kills + 1))
            until = rng.uniform(0.2, start) if early else rng.uniform(0, rest / parts)
            while process.poll() is None and _new(log, before).count(b"w") < after:
                time.sleep(0.005)
            while not early and log.read_bytes() == before and process.poll() is None:
                time.sleep(0.005)
            time.sleep(until)
        else:
            process.wait()
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            kills += 1
            new = _new(log, before)
            most = max(most, new.count(b"b") - new.count(b"w"))
            moment = "before a part" if early else f"in a part after {after}"
            print(f"  killed {moment}: {new.decode()}", flush=True)
            continue
        status = process.returncode
        if status:
            raise SystemExit("It failed.")
        break
    told = log.read_bytes()
    same = np.array_equal(gd.read(whole).data, gd.read(target).data)
    counts = [str(kills), str(parts), str(told.count(b"b")), str(most)]
    left = [each.name for each in log.parent.iterdir() if each.name.startswith(".")]
    return [kind, *counts, "equal to the bit" if same and not left else "DIFFERENT"]


def _new(log: Path, before: bytes) -> bytes:
    return log.read_bytes()[len(before) :]


if __name__ == "__main__":
    main()
