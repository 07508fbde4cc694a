"""Print time and memory of the command line on files larger than memory, and check the results.

    python tests/benchmarks/out_of_core.py zarr --filters bm3d vbm3d
    python tests/benchmarks/out_of_core.py tiff --side 30000

`zarr` makes an OME-Zarr of 40 x 4 x 10 planes of 1640 x 1640 uint16 (8.6 GB), `tiff` a BigTIFF of
one plane of uint8. "Busy" is the share of the time from the first kernel to the end in which the
device computed, by nvidia-smi. Memory is the most that the process held at any time, as the system
counted it. A crop of the middle is compared with the same filter in memory, to the bit; it is read
with as much around it as the filter looks at.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from large_files import SIGMA, write_tiff, write_zarr
from tables import show

import napari_gpu_denoise as gd
from napari_gpu_denoise.files import formats
from napari_gpu_denoise.filters import filters_for
from napari_gpu_denoise.run.job import start
from napari_gpu_denoise.run.request import Run

_CALL = "import sys; from napari_gpu_denoise.cli import main; sys.exit(main())"
_CROP = 96  # pixels of the crop along Y and X
_FEW = {"T": 3, "Z": 2, "C": 1}  # and along other axes


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("kind", choices=("zarr", "tiff"))
    add("--filters", nargs="+", default=["bm3d"])
    add("--profile", default="fast")
    add("--sigma", type=float, default=SIGMA)
    add("--shape", type=int, nargs=5, default=(40, 4, 10, 1640, 1640), help="T C Z Y X")
    add("--chunk", type=int, default=820)
    add("--side", type=int, default=30_000, help="of the TIFF")
    add("--folder", type=Path, default=Path("."), help="for input and result")
    add("--options", default="", help="further options of gpu-denoise, in one text")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = Path(name)
        if args.kind == "zarr":
            path = write_zarr(folder / "in.ome.zarr", tuple(args.shape), "TCZYX", args.chunk)
        else:
            path = write_tiff(folder / "in.tif", args.side)
        rows = [_row(path, filter, args) for filter in args.filters]
    head = ["", "GB of pixels", "seconds", "GB/s", "million pixels/s", "MB of memory"]
    show([*head, "crop", "busy"], rows)


def _row(path: Path, filter: str, args: argparse.Namespace) -> list[object]:
    target = path.with_name("out" + "".join(path.suffixes))
    command = [sys.executable, "-c", _CALL, filter, str(path)]
    command += ["-o", str(target), "--sigma", str(args.sigma), "--dtype", "same", "--quiet"]
    command += ["--profile", args.profile, *args.options.split()]
    print("gpu-denoise", " ".join(command[3:]), flush=True)
    begun = time.perf_counter()
    process = subprocess.Popen(command)
    with _watched() as busy:
        _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begun
    if status:
        raise SystemExit(f"It failed with {os.waitstatus_to_exitcode(status)}.")
    with formats.open_stack(path) as one, formats.open_stack(target) as made:
        pixels, shape, stored = one.data.size, one.data.shape, one.data.nbytes / 1e9
        same = "equal" if _same(one, made, filter, args) else "DIFFERENT"
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    working = [share for share in busy if share]
    load = f"{np.mean(busy[busy.index(working[0]) :]):.0f} %" if working else ""
    title = f"{filter} {args.profile}, {path.name}, {' x '.join(map(str, shape))}"
    rates = (stored, f"{seconds:.1f}", stored / seconds, f"{pixels / seconds / 1e6:.3g}")
    return [title, *rates, f"{used.ru_maxrss * 1024 / 1e6:.0f}", same, load]


@contextlib.contextmanager
def _watched() -> Iterator[list[int]]:
    """Yield a list to which the load of the first NVIDIA device is added every half second."""
    shares: list[int] = []
    if shutil.which("nvidia-smi") is None:
        yield shares
        return
    query = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.5):
            told = subprocess.run(query, capture_output=True, text=True, check=False).stdout
            shares.append(int(told.split()[0]))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield shares
    finally:
        ended.set()
        watching.join()


def _same(one, made, filter: str, args: argparse.Namespace) -> bool:
    """Return whether a crop of the middle is what the filter makes of it in memory."""
    (kind,) = filters_for(filter.replace("-", "_"))
    settings = kind.of(profile=args.profile)
    run = Run(settings, args.sigma, axes=one.filter_axes, dtype="same")
    job = start(run, one.data)
    reads, inner, yields = [], [], []
    for axis, n, margin in zip(one.axes, one.data.shape, job.margins, strict=True):
        size = min(_FEW.get(axis, _CROP), n)
        first, (before, after) = (n - size) // 2, margin
        # The grid of patches begins where the crop does, and has one more at its end.
        low = max(first - before - 64, 0) // 48 * 48 if axis in "YX" else max(first - before, 0)
        high = min(first + size + after + 64 * (axis in "YX"), n)
        reads.append(slice(low, high))
        inner.append(slice(first - low, first - low + size))
        yields.append(slice(first, first + size))
    pixels = np.asarray(one.data[tuple(reads)])
    whole = gd.denoise(pixels, settings, args.sigma, axes=one.filter_axes, dtype="same").image
    return np.array_equal(whole[tuple(inner)], np.asarray(made.data[tuple(yields)]))


if __name__ == "__main__":
    main()
