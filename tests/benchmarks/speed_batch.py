"""Print how long the command line takes for a batch of TIFF files: its start, and each file.

    python tests/benchmarks/speed_batch.py [--files 40] [--shape 16 1024 1024] [--repeats 3] \
        [--folder /dev/shm] [--options vbm3d --sigma 20]

Each run is a process of its own. The start is the run of a single file less what each of the
others adds; the first run of all, which fills caches, is left out. The least of the repeats counts,
and the most memory that any run held.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import tifffile
from tables import show

COMMAND = "import sys; from napari_gpu_denoise.cli import main; sys.exit(main(sys.argv[1:]))"


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--files", type=int, default=40)
    add("--shape", type=int, nargs="+", default=[16, 1024, 1024])
    add("--repeats", type=int, default=3)
    add("--folder", help="where the files are made, by default that for temporary ones")
    add("--options", nargs=argparse.REMAINDER, default=["vbm3d", "--sigma", "20"])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        axes, rng = "TZYX"[-len(args.shape) :].replace("Z", "T"), np.random.default_rng(0)
        raw = Path(folder, "raw")
        raw.mkdir()
        for number in range(args.files):
            pixels = rng.normal(1000, 20, args.shape).astype(np.uint16)
            tifffile.imwrite(raw / f"{number:03}.tif", pixels, metadata={"axes": axes})
        inputs = sorted(raw.iterdir())
        run(args, inputs[:1], Path(folder, "first"))
        one, some = (
            min(run(args, few, Path(folder, f"out{len(few)}")) for _ in range(args.repeats))
            for few in (inputs[:1], inputs)
        )
        each = (some - one) / (args.files - 1)
        digest = hashlib.sha256()
        for path in sorted(Path(folder, f"out{args.files}").iterdir()):
            digest.update(tifffile.imread(path).tobytes())
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    row = [some, one - each, 1000 * each, round(memory), digest.hexdigest()[:16]]
    show([f"{args.files} files, s", "start, s", "a file, ms", "MiB of memory", "pixels"], [row])


def run(args: argparse.Namespace, inputs: list[Path], output: Path) -> float:
    """Return the seconds of a process that denoises files."""
    command = [sys.executable, "-c", COMMAND, *args.options]
    # As installed packages have it: elsewhere every process would compile their source.
    env = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    started = time.perf_counter()
    command += [*inputs, "-o", output, "--overwrite", "--quiet"]
    subprocess.run(command, check=True, env=env)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
