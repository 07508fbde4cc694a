"""Our filters on a CPU beside programs written for CPUs, one after another in one process.

    python tests/benchmarks/peers_cpu.py [--cores 1 2] [--repeats 5]

A photograph of 512 x 512 pixels, and a clip of 10 frames of 480 x 270. Programs that are not
installed are left out; none is a dependency: opencv-python-headless, scikit-image, and vapoursynth
74 with the plugin vapoursynth-bm3dcpu (AVX2). Each row tells the seconds of a whole call, and the
PSNR. VapourSynth filters one image on one core; its rows for more cores are times of one image
while as many are filtered at once. Processes that stand for fewer cores are held to these.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np

SIGMA = 20.0
# BM3DCUDA and its twin for CPUs filter with 0.75 times the sigma they are told.
TOLD = 1.25 * SIGMA
# Name, a call that returns a result on the scale of 0 to 255, and images filtered by a call.
Peer = tuple[str, Callable[[], np.ndarray], int]


def main() -> None:
    """Start a process for each number of cores."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        measure(options.cores[0], options.repeats)
        return
    for cores in options.cores:
        # PoCL counts the cores of the machine, whatever those of the process.
        counts = ("POCL_MAX_PTHREAD_COUNT", "POCL_CPU_MAX_CU_COUNT", "OMP_NUM_THREADS")
        env = os.environ | dict.fromkeys(counts, str(cores))
        told = ["--inside", "--cores", str(cores), "--repeats", str(options.repeats)]
        subprocess.run([sys.executable, __file__, *told], env=env, check=True)


def measure(cores: int, repeats: int) -> None:
    """Print the tables of one number of cores."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    photograph, clip = scenes()
    for clean in (photograph, clip):
        noise = np.random.default_rng(0).normal(0, SIGMA, clean.shape)
        noisy = (clean + noise).astype(np.float32)
        print(f"\n{cores} of {os.cpu_count()} cores, {' x '.join(map(str, clean.shape))}\n")
        print("| | s | PSNR, dB |\n| :--- | ---: | ---: |", flush=True)
        for family in (ours, opencv, skimage, bm3dcpu):
            for name, call, images in family(noisy, cores):
                error = np.mean((call() - clean) ** 2)
                spent = seconds(call, repeats) / images
                psnr = 10 * np.log10(255**2 / error)
                print(f"| {name} | {spent:.3f} | {psnr:.2f} |", flush=True)


def scenes() -> tuple[np.ndarray, np.ndarray]:
    """Return a photograph and a clip; of the shared data, or synthetic ones without it."""
    from cases import pictures

    from reference.data import data_folder

    if data_folder() is None:
        from napari_gpu_denoise.cli.bench import synthetic

        return synthetic((512, 512), 0), synthetic((10, 270, 480), 0)
    large = next(each for each in pictures("set12").values() if each.shape == (512, 512))
    clip = np.stack(list(pictures("tractor").values()))[:, :270, :480]
    return large.astype(np.float64), clip.astype(np.float64)


def seconds(call: Callable[[], np.ndarray], repeats: int) -> float:
    """Return the median time of a call."""
    spent = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        spent.append(time.perf_counter() - begin)
    return statistics.median(spent)


def ours(noisy: np.ndarray, _: int) -> Iterator[Peer]:
    """Yield our filters; the CPU is PoCL's."""
    import napari_gpu_denoise as gd

    device = next(each for each in gd.devices() if each.kind == "CPU")
    still = {
        "NL-means": gd.NLMeans(),
        "NL-means, patch 5, step 1": gd.NLMeans.of(profile="fine"),
        "BM3D, fast": gd.BM3D.of(profile="fast"),
        "BM3D": gd.BM3D(),
        "isoline": gd.Isoline(),
    }
    moving = {
        "NL-means, video": gd.NLMeans.of(profile="video"),
        "VBM3D, fast": gd.VBM3D.of(profile="fast"),
        "VBM3D": gd.VBM3D(),
    }
    over_time = noisy.ndim == 3
    for name, settings in (moving if over_time else still).items():
        axes = "TYX" if over_time else "YX"
        told = {"axes": axes, "dtype": "float32", "device": device}
        yield f"ours, {name}", lambda s=settings, t=told: gd.denoise(noisy, s, SIGMA, **t).image, 1


def opencv(noisy: np.ndarray, cores: int) -> Iterator[Peer]:
    """Yield OpenCV's NL-means of 8-bit images, at its best strength for photographs."""
    try:
        import cv2
    except ImportError:
        return
    if noisy.ndim == 3:
        return
    cv2.setNumThreads(cores)
    cv2.ocl.setUseOpenCL(False)
    levels = np.clip(np.rint(noisy), 0, 255).astype(np.uint8)

    def call() -> np.ndarray:
        return cv2.fastNlMeansDenoising(levels, None, 0.9 * SIGMA, 7, 21).astype(np.float64)

    yield f"OpenCV {cv2.__version__}, NL-means, 8 bit", call, 1


def skimage(noisy: np.ndarray, _: int) -> Iterator[Peer]:
    """Yield the fast mode of scikit-image's NL-means."""
    try:
        from skimage import __version__
        from skimage.restoration import denoise_nl_means
    except ImportError:
        return
    if noisy.ndim == 3:
        return
    told = {"patch_size": 7, "patch_distance": 10, "h": 0.6 * SIGMA, "sigma": SIGMA}

    yield f"scikit-image {__version__}, fast mode", lambda: denoise_nl_means(noisy, **told), 1


def bm3dcpu(noisy: np.ndarray, cores: int) -> Iterator[Peer]:
    """Yield BM3D and V-BM3D of bm3dcpu, both passes: AVX2 by hand."""
    try:
        import vapoursynth as vs
    except ImportError:
        return
    if not hasattr(vs.core, "bm3dcpu"):
        return
    from peer_vapoursynth import clip_of

    vs.core.num_threads = cores
    over_time = noisy.ndim == 3
    length = len(noisy) if over_time else 10_000
    clip = clip_of(noisy if over_time else noisy[np.newaxis], length)
    frames = iter(range(length))

    def filtered(told: dict[str, int]) -> vs.VideoNode:
        radius = {"radius": 4} if over_time else {}
        basic = vs.core.bm3dcpu.BM3Dv2(clip, sigma=TOLD, **told, **radius)
        return vs.core.bm3dcpu.BM3Dv2(clip, ref=basic, sigma=TOLD, **told, **radius)

    def image(told: dict[str, int]) -> np.ndarray:
        """Filter as many images as there are cores, each on one, and return the first."""
        wanted = [filtered_of[str(told)].get_frame_async(next(frames)) for _ in range(cores)]
        return 255 * np.stack([np.asarray(each.result()[0]) for each in wanted])[0]

    def video(told: dict[str, int]) -> np.ndarray:
        # Anew, as VapourSynth keeps frames that it has filtered.
        return 255 * np.stack([np.asarray(frame[0]) for frame in filtered(told).frames()])

    filtered_of = {}
    for told in ({"block_step": 4, "bm_range": 10}, {"block_step": 8, "bm_range": 9}):
        filtered_of[str(told)] = filtered(told)
        name = f"bm3dcpu, step {told['block_step']}, range {told['bm_range']}"
        yield name, lambda t=told: (video if over_time else image)(t), 1 if over_time else cores


if __name__ == "__main__":
    main()
