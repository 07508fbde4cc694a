"""Build kernels ahead of the first call.

    python tools/warm.py [--filter NAME] [--device N|NAME] [--quiet]

Compiling is what takes the time of a first call; drivers, or pyopencl where they do not, keep the
binaries on disk. For a GPU the programs of all filters and profiles are found by rehearsals and
built, on NVIDIA's in several processes (`opencl/program.py`). The drivers of CPUs compile again
what they are to run, so that each filter runs on a tiny input.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence

import numpy as np

from bench import add_filters, chosen_filters
from napari_gpu_denoise import cli
from napari_gpu_denoise.filters.nl_means import NLMeans
from napari_gpu_denoise.noise.models import PoissonGaussian, Rician, Speckle
from napari_gpu_denoise.opencl.device import Device, choose
from napari_gpu_denoise.opencl.program import ProgramKey, session
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.run.denoise import denoise
from napari_gpu_denoise.run.part import SIGMA, builders, programs_for, tiny_image
from napari_gpu_denoise.run.request import Run

MODELS = (PoissonGaussian(2.0, 3.0), Rician(10.0), Speckle(4.0))
TYPES = ("uint8", "int16", "uint16")  # that devices convert


def cases(filters: list[type[Filter]], device: Device) -> Iterator[tuple[str, np.ndarray, Run]]:
    """Yield what to build for, in words, and a run that does it on a tiny image."""
    for kind in filters:
        for profile in kind.presets:
            settings = kind.of(profile=profile)
            image, axes = tiny_image(settings)
            yield f"{kind.name}, {profile}", image, Run(settings, SIGMA, axes=axes, device=device)
    plain = NLMeans()
    for dtype in TYPES:
        yield dtype, tiny_image(plain, dtype)[0], Run(plain, SIGMA, device=device)
    for model in MODELS:
        yield f"noise {model.name}", tiny_image(plain)[0], Run(plain, noise=model, device=device)
    # Noise is measured when a run is prepared, which builds what that needs.
    for dtype in ("float32", *TYPES):
        yield f"noise of {dtype}", tiny_image(plain, dtype)[0], Run(plain, device=device)


def build(filters: list[type[Filter]], device: Device) -> Iterator[str]:
    """Build all programs; yield what is ready, in words."""
    if device.shares_cores:
        for words, image, run in cases(filters, device):
            denoise(image, run.filter, run.sigma, noise=run.noise, axes=run.axes, device=device)
            yield words
    else:
        needed: dict[ProgramKey, str] = {}
        for words, image, run in cases(filters, device):
            for key in programs_for(run, image):
                needed.setdefault(key, words)
        for number, key in enumerate(session(device).build_all(needed, builders()), 1):
            yield f"{needed[key]}: {key[0]} ({number})"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the script as the command line is run: with its exit codes, and errors in a sentence."""
    return cli.main(argv, build_parser)


def build_parser(argv: object = ()) -> argparse.ArgumentParser:
    """Return the parser; the namespace it makes holds ``run``. It is the same for any `argv`."""
    parser = argparse.ArgumentParser("warm.py", description=__doc__.partition("\n")[0])
    add_filters(parser, "filter to compile (default: all)")
    parser.add_argument("-q", "--quiet", action="store_true", help="print errors only")
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Build the programs of the filters chosen."""
    start = time.perf_counter()
    device = choose(args.device)
    for words in build(chosen_filters(args), device):
        if not args.quiet:
            print(f"{time.perf_counter() - start:6.1f} s  {words}", flush=True)
    if not args.quiet:
        print(f"All are ready after {time.perf_counter() - start:.1f} s on {device}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
