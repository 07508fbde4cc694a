"""The Shapiro-Wilk NL-means: the paper's figures, W against SciPy, and what each test is worth.

    python tests/benchmarks/quality_swnlm.py [--tables paper statistic settings speed] [--quick]

PSNR has the peak 255, on float results, and is the mean over pictures and draws.
"""

from __future__ import annotations

import time
from argparse import Namespace

import numpy as np
import pyopencl as cl
from cases import cases
from scipy import stats
from tables import print_tables, show

import napari_gpu_denoise as gd
from filters.test_swnlm import w_of
from reference.data import pictures
from scenes import psnr

PRINTED = {"boat": 25.47, "peppers": 27.11, "airplane": 26.70, "mandrill": 23.58}
SIGMAS = (10, 20, 40)
FILTERS = {
    "default": gd.SWNLM(),
    "patch=7": gd.SWNLM(patch=7),
    "patch=3": gd.SWNLM(patch=3),
    "alpha=0: without W": gd.SWNLM(alpha=0),
    "alpha=0.025": gd.SWNLM(alpha=0.025),
    "widen=1.5": gd.SWNLM(widen=1.5),
    "widen=2": gd.SWNLM(widen=2),
    "widen=3": gd.SWNLM(widen=3),
    "patch=7, widen=1.5": gd.SWNLM(patch=7, widen=1.5),
    "patch=7, widen=2": gd.SWNLM(patch=7, widen=2),
    "fewest=1": gd.SWNLM(fewest=1),
    "fewest=30": gd.SWNLM(fewest=30),
    "fewest=1, fallback=keep": gd.SWNLM(fewest=1, fallback="keep"),
    "paper": gd.SWNLM.of(profile="paper"),
    "paper, alpha=0": gd.SWNLM.of(profile="paper", alpha=0),
    "nl_means_pixelwise": gd.NLMeansPixelwise(),
    "nl_means": gd.NLMeans(),
}


def paper(options: Namespace) -> None:
    """Table 7 of van der Vuurst 2023, SWNLM: sigma 40, noise rounded and clipped to 0..255.

    Airplane and mandrill are other grey versions than the paper's.
    """
    known, body = pictures("denoiselab13"), []
    for name, printed in PRINTED.items():
        clean, found = next(v for k, v in known.items() if name in k).astype(np.float64), []
        for seed in range(options.seeds):
            noise = np.random.default_rng(seed).normal(0, 40, clean.shape)
            noisy = np.clip(np.rint(clean + noise), 0, 255).astype(np.float32)
            found.append(psnr(gd.swnlm(noisy, 40, profile="paper", device=options.device), clean))
        mean = float(np.mean(found))
        body.append([name, f"{printed:.2f}", f"{mean:.2f}", f"{mean - printed:+.2f}"])
    show(["picture", "printed", "ours", "difference"], body)


def statistic(options: Namespace) -> None:
    """W of 10,000 draws of normal values, in float32 as kernels compute it, against SciPy."""
    device, body = gd.choose(options.device), []
    for patch in (3, 5, 7):
        rng = np.random.default_rng(patch)
        draws = rng.normal(size=(patch**2, 10000))
        draws += rng.uniform(-1, 1, 10000) * draws.std(axis=0) / patch - draws.mean(axis=0)
        draws = draws.astype(np.float32)
        expected = [stats.shapiro(one.astype(np.float64)).statistic for one in draws.T]
        lanes = max((n for n in (4, 8, 16) if n <= device.float_lanes), default=1)
        error = np.abs(w_of(draws, patch, lanes, device) - expected)
        body.append([f"{patch**2} values", f"{error.max():.1e}", f"{error.mean():.1e}"])
    show(["", "largest difference", "mean"], body)


def settings(options: Namespace) -> None:
    """BSD68, white Gaussian noise; lonely: pixels that no other one resembles, at sigma 20."""
    body = []
    for name, chosen in FILTERS.items():
        row = [name]
        for sigma in SIGMAS:
            found = [
                case.score(gd.denoise(case.noisy, chosen, sigma, device=options.device).image)
                for seed in range(options.seeds)
                for case in cases("bsd68", sigma, seed, options.stride)
            ]
            row.append(f"{np.mean(found):.2f}")
        if isinstance(chosen, gd.SWNLM):
            counts = {**chosen.as_dict(), "show": "pixels"}
            alone = [
                np.mean(gd.swnlm(case.noisy, 20, device=options.device, **counts) == 1)
                for case in cases("bsd68", 20, 0, options.stride)
            ]
            row.append(f"{100 * np.mean(alone):.1f} %")
        else:
            row.append("")
        body.append(row)
    show(["settings", *(f"sigma {sigma}" for sigma in SIGMAS), "lonely"], body)


def speed(options: Namespace) -> None:
    """The picture "boat", 512 x 512, ms of a whole call and of its kernels, least of 7 calls."""
    clean = next(v for k, v in pictures("denoiselab13").items() if "boat" in k)
    body = []
    for sigma in (20, 40):
        noise = np.random.default_rng(0).normal(0, sigma, clean.shape)
        noisy = np.clip(np.rint(clean + noise), 0, 255).astype(np.float32)
        for name in ("default", "patch=7", "paper", "nl_means_pixelwise"):
            whole, kernels = _times(noisy, FILTERS[name], sigma, options.device)
            row = [f"{name}, sigma {sigma}", f"{whole:.2f}", f"{sum(kernels.values()):.2f}"]
            body.append([*row, ", ".join(f"{k} {v:.2f}" for k, v in kernels.items())])
    show(["settings", "call", "kernels", "of these"], body)


def _times(noisy, chosen, sigma, name) -> tuple[float, dict[str, float]]:
    """Return ms of a whole call, and of each kernel on the device."""
    from napari_gpu_denoise.opencl.memory import borrow
    from napari_gpu_denoise.opencl.program import session
    from napari_gpu_denoise.protocol.plan import TileSigma
    from napari_gpu_denoise.protocol.tiles import Span, Tile

    device = gd.choose(name)
    calls = []
    for _ in range(8):
        start = time.perf_counter()
        gd.denoise(noisy, chosen, sigma, device=device)
        calls.append(time.perf_counter() - start)
    made, kernels = session(device), {}
    with borrow(made) as arena:
        queue = made.queue(profiling=True)
        plan = chosen.plan(arena)
        tile = Tile(0, *map(Span.whole, (1, 1, *noisy.shape)))
        source, out = arena.buffer("in", noisy.nbytes), arena.buffer("out", noisy.nbytes)
        level = arena.buffer("level", 4)
        cl.enqueue_copy(queue, source, noisy)
        cl.enqueue_copy(queue, level, np.float32([sigma]))
        for _ in range(7):
            events = plan.enqueue(
                queue, tile, source, out, TileSigma(level, read_levels=level, even=True)
            )
            queue.finish()
            for key, event in events:
                took = (event.profile.end - event.profile.start) * 1e-6
                kernels[key] = min(kernels.get(key, took), took)
    return 1e3 * min(calls[1:]), kernels


if __name__ == "__main__":
    print_tables(__doc__, [paper, statistic, settings, speed])
