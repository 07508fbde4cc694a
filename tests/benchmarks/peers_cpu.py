"""Our filters on a CPU beside programs written for CPUs, one after another in one process.

    python tests/benchmarks/peers_cpu.py [--repeats 5]

A photograph of 512 x 512 pixels, and a clip of 10 frames of 480 x 270. Programs that are not
installed are left out; none is a dependency: opencv-python-headless, scikit-image, and vapoursynth
74 with the plugin vapoursynth-bm3dcpu (AVX2). Each row tells the seconds of a whole call, and the
PSNR. VapourSynth filters one image on one core; its row for images is the time of one while as many
are filtered at once as there are cores. To compare on fewer cores, start it with ``taskset``, and
with POCL_MAX_PTHREAD_COUNT and POCL_CPU_MAX_CU_COUNT.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Callable, Iterator

import numpy as np
from cases import pictures, psnr, with_noise
from tables import seconds_of, show

import napari_gpu_denoise as gd

SIGMA = 20.0
# BM3DCUDA and its twin for CPUs filter with 0.75 times the sigma they are told.
TOLD = 1.25 * SIGMA
# Name, a call that returns a result on the scale of 0 to 255, and images filtered by a call.
Peer = tuple[str, Callable[[], np.ndarray], int]


def main() -> None:
    """Print a table for images and one for clips."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    photograph = next(each for each in pictures("set12").values() if each.shape == (512, 512))
    clip = np.stack(list(pictures("tractor").values()))[:, :270, :480]
    for clean in (photograph, clip):
        noisy, body = with_noise(clean, SIGMA), []
        for family in (ours, opencv, skimage, bm3dcpu):
            for name, call, images in family(noisy, cores):
                spent = statistics.median(seconds_of(call, options.repeats)) / images
                body.append([name, f"{spent:.3f}", psnr(call(), clean)])
        print(f"\n{cores} of {os.cpu_count()} cores, {' x '.join(map(str, clean.shape))}\n")
        show(["", "s", "PSNR, dB"], body)


def ours(noisy: np.ndarray, _: int) -> Iterator[Peer]:
    """Yield our filters; the CPU is PoCL's."""
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
    told = {"axes": "TYX"[-noisy.ndim :], "dtype": "float32", "device": device}
    for name, settings in (moving if noisy.ndim == 3 else still).items():
        yield f"ours, {name}", lambda s=settings: gd.denoise(noisy, s, SIGMA, **told).image, 1


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
    from skimage.restoration import denoise_nl_means

    if noisy.ndim == 3:
        return
    told = {"patch_size": 7, "patch_distance": 10, "h": 0.6 * SIGMA, "sigma": SIGMA}
    yield "scikit-image NL-means, fast mode", lambda: denoise_nl_means(noisy, **told), 1


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
        told = {"sigma": TOLD, **told, **({"radius": 4} if over_time else {})}
        basic = vs.core.bm3dcpu.BM3Dv2(clip, **told)
        return vs.core.bm3dcpu.BM3Dv2(clip, ref=basic, **told)

    for told in ({"block_step": 4, "bm_range": 10}, {"block_step": 8, "bm_range": 9}):
        nodes = filtered(told)

        def image(nodes=nodes) -> np.ndarray:
            """Filter as many images as there are cores, each on one, and return the first."""
            wanted = [nodes.get_frame_async(next(frames)) for _ in range(cores)]
            return 255 * np.stack([np.asarray(each.result()[0]) for each in wanted])[0]

        def video(told=told) -> np.ndarray:
            # Anew, as VapourSynth keeps frames that it has filtered.
            return 255 * np.stack([np.asarray(frame[0]) for frame in filtered(told).frames()])

        name = f"bm3dcpu, step {told['block_step']}, range {told['bm_range']}"
        yield name, video if over_time else image, 1 if over_time else cores


if __name__ == "__main__":
    main()
