"""Print what transforms of models of noise cost on a device, in microseconds.

    python tests/benchmarks/speed_noise.py [--shape 1080x1920] [--device N]

Times are medians from profiling events; each transform reads and writes every pixel once.
"""

from __future__ import annotations

import argparse
import math
import statistics

import numpy as np
import pyopencl as cl
from tables import show

import napari_gpu_denoise as gd
from napari_gpu_denoise.opencl.device import choose
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.opencl.program import session
from napari_gpu_denoise.run.flow.work import Stabilisation

MODELS = (gd.PoissonGaussian(2.0, 4.0, 10.0), gd.Rician(10.0), gd.Speckle(4.0, least=0.2))


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="1080x1920")
    parser.add_argument("--device", default=None)
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args()
    here, pixels = session(choose(args.device)), math.prod(map(int, args.shape.split("x")))
    print(f"{here.device}, {args.shape}\n")
    queue = here.queue(profiling=True)
    values = np.linspace(0, 1000, pixels, dtype=np.float32)
    buffer = cl.Buffer(here.context, cl.mem_flags.READ_WRITE, values.nbytes)
    body = []
    for model in MODELS:
        around = Stabilisation([model], Arena(here), signed=True, maps=False)
        row = [model.name]
        for way in (around.forward, around.inverse):
            times = []
            for _ in range(1 + args.repeats):
                cl.enqueue_copy(queue, buffer, values)
                ((_, event),) = way(queue, buffer, np.zeros(1, int), pixels)
                event.wait()
                times.append(event.profile.end - event.profile.start)
            row.append(f"{statistics.median(times[1:]) / 1e3:.1f}")
        body.append(row)
    show(["model", "there", "back"], body)


if __name__ == "__main__":
    main()
