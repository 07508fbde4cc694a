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
from large_files import SIGMA, write_zarr
from tables import show

import napari_gpu_denoise as gd
from napari_gpu_denoise.files.cluster import THREADS_OF_POCL
from napari_gpu_denoise.run import request


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    add("--cores", type=int, default=2, help="of each worker")
    add("--device", default="portable", help="part of its name")
    add("--filter", default="BM3D")
    add("--profile", default="fast")
    add("--planes", type=int, default=16)
    add("--side", type=int, default=1024)
    add("--part", type=int, default=1 << 22, help="bytes of a part: pixels and result")
    args = parser.parse_args()
    request.USUAL_LIMITS = request.Limits(part_bytes=args.part)
    filter = getattr(gd, args.filter).of(profile=args.profile)
    print(
        f"{gd.choose(args.device)}, {filter.name} {args.profile}, {args.planes} planes of "
        f"{args.side} x {args.side} uint16, {args.cores} cores for each worker\n",
        flush=True,
    )
    times, digests = {}, set()
    with tempfile.TemporaryDirectory() as folder:
        shape = (args.planes, args.side, args.side)
        source = write_zarr(Path(folder, "in.ome.zarr"), shape, "ZYX", args.side)
        for count in args.workers:
            target = Path(folder, f"out{count}.ome.zarr")
            times[count] = timed(source, target, filter, count, args)
            digests.add(hashlib.sha256(gd.read(target).data.tobytes()).hexdigest())
    alone = min(times) * times[min(times)]
    show(["workers", "s", "times one worker"], ([n, s, alone / s] for n, s in times.items()))
    print(f"\nResults equal: {len(digests) == 1}")


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
