"""Print how fast NL-means is on a device: whole runs, and each search kernel against the plain one.

    python tests/benchmarks/speed_nl_means.py --shape 3456x4608 [--device N] [--searches]

The plain search is the naive form of Davy and Ehret 2020, section
4.1.2; the others follow their sections 4.1.3 to 4.1.5. Times are device times from profiling
events, the least of the repeats for single kernels, medians for whole runs.
"""

from __future__ import annotations

import argparse

import numpy as np
from tables import kernel_times

from napari_gpu_denoise.cli.bench import measure, synthetic
from napari_gpu_denoise.filters.nl_means import NLMeans
from napari_gpu_denoise.filters.pixels import Launcher
from napari_gpu_denoise.filters.search.patch_search import (
    PatchSearch,
    SearchSettings,
    Variant,
    choose_variant,
    fitting_variants,
)
from napari_gpu_denoise.opencl.device import choose
from napari_gpu_denoise.opencl.memory import borrow
from napari_gpu_denoise.opencl.program import session
from napari_gpu_denoise.protocol.tiles import Span, Tile

SETTINGS = {"default": NLMeans(), "P5,S1": NLMeans(patch=5, step=1)}


def search_times(settings: NLMeans, variant: Variant, image, device, repeats: int) -> float:
    """Return the least device time of one search kernel, in ms."""
    import pyopencl as cl

    ny, nx = image.shape
    tile = Tile(0, Span.whole(1), Span.whole(1), Span.whole(ny), Span.whole(nx))
    wanted = SearchSettings(
        settings.patch, settings.step, settings.window, settings.neighbours, (0, 0), 0
    )
    chosen = session(device)
    with borrow(chosen) as arena:
        queue = chosen.queue(profiling=True)
        search = PatchSearch(wanted, arena, variant)
        source = arena.buffer("image", image.nbytes)
        cl.enqueue_copy(queue, source, image)
        times = []
        for _ in range(repeats):
            run = Launcher(arena, queue)
            search.enqueue(run, tile, source)
            queue.finish()
            times.append(
                sum(e.profile.end - e.profile.start for name, e in run.launches if name == "search")
            )
        return min(times) * 1e-6


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", default="512x512")
    parser.add_argument("--device", default=None)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--searches", action="store_true", help="time every search kernel as well")
    args = parser.parse_args()
    device = choose(args.device)
    shape = tuple(int(n) for n in args.shape.split("x"))
    for title, settings in SETTINGS.items():
        print(f"== {title}")
        print(kernel_times(measure(settings, shape, device, args.repeats)), end="\n\n")
        if not args.searches:
            continue
        wanted = SearchSettings(
            settings.patch, settings.step, settings.window, settings.neighbours, (0, 0), 0
        )
        variants = [Variant("search_plain", {})]
        if device.float_lanes > 1:
            variants.append(choose_variant(wanted, device))
        variants += fitting_variants(wanted, device)
        image = synthetic(shape).astype(np.float32)
        for variant in variants:
            time = search_times(settings, variant, image, device, args.repeats)
            text = ", ".join(f"{k}={v}" for k, v in variant.constants.items())
            mark = "  <- used" if variant == choose_variant(wanted, device) else ""
            print(f"{variant.kernel:<14} {time:10.3f} ms   {text}{mark}")
        print()


if __name__ == "__main__":
    main()
