"""Print how the time of one OME-Zarr falls with the number of dask workers.

    python tests/benchmarks/speed_workers.py [--workers 1 2 4 8] [--cores 2] [--device N]

Needs zarr and dask.distributed. Each worker has cores of its own. What is timed is a whole file,
from opening it to its final name, by workers that have built their kernels.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import tempfile
import time
from pathlib import Path

import distributed
import numpy as np
import zarr
from tables import show

import napari_gpu_denoise as gd
from napari_gpu_denoise.files.cluster import THREADS_OF_POCL
from napari_gpu_denoise.run import request

SIGMA = 20.0


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    add("--cores", type=int, default=2, help="of each worker")
    add("--device", default="portable", help="part of its name")
    add("--filter", default="BM3D")
    add("--profile", default="fast")
    add("--planes", type=int, default=24)
    add("--side", type=int, default=1024)
    add("--part", type=int, default=1 << 22, help="bytes of a part: pixels and result")
    args = parser.parse_args()
    request.USUAL_LIMITS = request.Limits(part_bytes=args.part)
    filter = getattr(gd, args.filter).of(profile=args.profile)
    with tempfile.TemporaryDirectory() as folder:
        source = written(Path(folder, "in.ome.zarr"), args.planes, args.side)
        megabytes = args.planes * args.side**2 * 2 / 1e6
        print(
            f"{gd.choose(args.device)}, {filter.name} {args.profile}, {args.planes} planes of "
            f"{args.side} x {args.side} uint16, {args.cores} cores for each worker\n",
            flush=True,
        )
        times, digests = {}, set()
        for count in args.workers:
            target = Path(folder, f"out{count}.ome.zarr")
            seconds = timed(source, target, filter, count, args)
            times[count] = seconds
            print(f"{count}: {seconds:.2f} s", flush=True)
            digests.add(hashlib.sha256(zarr.open(target / "0")[...].tobytes()).hexdigest())
        print()
        alone = min(times) * times[min(times)]
        rows = [
            [str(n), f"{s:.2f}", f"{megabytes / s:.1f}", f"{alone / s:.2f}"]
            for n, s in sorted(times.items())
        ]
        show(["workers", "s", "MB/s", "times one worker"], rows)
        print(f"\nResults equal: {len(digests) == 1}")


def written(path: Path, planes: int, side: int) -> Path:
    """Write an OME-Zarr of noise on a ramp, one plane a chunk."""
    random = np.random.default_rng(0)
    one = random.normal(np.linspace(500, 3000, side), SIGMA, (side, side)).astype(np.uint16)
    group = zarr.open_group(path, mode="w", zarr_format=3)
    array = group.create_array(
        "0", shape=(planes, side, side), dtype="uint16", chunks=(1, side, side)
    )
    for number in range(planes):
        array[number] = np.roll(one, 7 * number, 0)
    axes = [{"name": "z", "type": "space"}, *({"name": a, "type": "space"} for a in "yx")]
    scale = [{"type": "scale", "scale": [1.0, 1.0, 1.0]}]
    image = {"axes": axes, "datasets": [{"path": "0", "coordinateTransformations": scale}]}
    group.attrs["ome"] = {"version": "0.5", "multiscales": [image]}
    return path


def timed(source: Path, target: Path, filter: gd.BM3D, count: int, args) -> float:
    """Return the seconds that some workers take."""
    options = {name: str(args.cores) for name in THREADS_OF_POCL}
    with (
        distributed.LocalCluster(
            n_workers=count, threads_per_worker=1, env=options, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        for number, worker in enumerate(client.nthreads()):
            client.submit(ready, number, args, filter, workers=[worker], pure=False).result()
        start = time.perf_counter()
        report = gd.run_batch(
            source, filter, SIGMA, output=target, device=args.device, client=client
        )
        seconds = time.perf_counter() - start
    for file in report.failed:
        raise file.error
    return seconds


def ready(number: int, args: argparse.Namespace, filter: gd.BM3D) -> None:
    """Give a worker cores of its own, and build its kernels."""
    cores = sorted(os.sched_getaffinity(0))
    own = {cores[(number * args.cores + k) % len(cores)] for k in range(args.cores)}
    for task in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(task), own)
    image = np.zeros((2, args.side, args.side), np.uint16)
    image[:, ::3] = 100
    gd.denoise(image, filter, SIGMA, device=args.device)


if __name__ == "__main__":
    main()
