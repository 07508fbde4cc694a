"""Pixelwise NL-means beside programs that do the same on a GPU, one after another in one process.

    python tests/benchmarks/peers_pixelwise.py [--shape 3456x4608] [--device nvidia]

Those that are not installed are left out. None is a dependency: opencv-python-headless, and
vapoursynth 74 (81 refuses the first one) with the plugins vapoursynth-nlm-cuda and
vapoursynth-knlmeanscl. OpenCV loads the OpenCL library that OPENCV_OPENCL_RUNTIME names. Patch 7,
window 21; grey, and three channels that share their weights.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator

import numpy as np
from tables import seconds_of, show

import napari_gpu_denoise as gd
from bench import measure, synthetic

PATCH, WINDOW = 7, 21
# What a program is called, a filtering of the image there, and whether that moves it to the GPU
# and back.
Peer = tuple[str, Callable[[], object], bool]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="3456x4608")
    parser.add_argument("--device", help="number of the OpenCL device, or part of its name")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    shape, device = tuple(map(int, options.shape.split("x"))), gd.choose(options.device)
    print(f"{device}, {options.shape}, patch {PATCH}, window {WINDOW}, medians in ms")
    body = []
    for channels in (1, 3):
        joint = "joint" if channels == 3 else "separate"
        settings = gd.NLMeansPixelwise(patch=PATCH, window=WINDOW, channels=joint)
        timing = measure(settings, shape, device, options.repeats)
        body.append(["ours", channels, 1e3 * timing.device_time, 1e3 * timing.whole_call])
        image = synthetic((channels, *shape))
        for peers in (opencv, vapoursynth):
            for name, call, moves in peers(image):
                spent = statistics.median(seconds_of(call, options.repeats))
                on_device, whole = (_kernels(call), spent) if moves else (spent, np.nan)
                body.append([name, channels, 1e3 * on_device, 1e3 * whole])
    show(["", "channels", "on the GPU", "whole call"], body)


def opencv(image: np.ndarray) -> Iterator[Peer]:
    """Yield OpenCV's OpenCL path; image and result stay on the device."""
    try:
        import cv2
    except ImportError:
        return
    cv2.ocl.setUseOpenCL(True)
    if not cv2.ocl.haveOpenCL():
        print("OpenCV finds no OpenCL.")
        return
    device = cv2.ocl.Device.getDefault()
    levels = np.clip(np.rint(image), 0, 255).astype(np.uint8).transpose(1, 2, 0)
    held = cv2.UMat(np.ascontiguousarray(levels))

    def call():
        cv2.fastNlMeansDenoising(held, None, 20.0, PATCH, WINDOW)
        cv2.ocl.finish()

    yield f"OpenCV {cv2.__version__}, OpenCL, 8 bit ({device.name()})", call, False


def vapoursynth(image: np.ndarray) -> Iterator[Peer]:
    """Yield the plugins of VapourSynth; a frame is uploaded and downloaded."""
    try:
        import vapoursynth as vs
    except ImportError:
        return
    core, count = vs.core, len(image)
    ny, nx = image.shape[1:]
    blank = core.std.BlankClip(
        width=nx, height=ny, format=vs.RGBS if count == 3 else vs.GRAYS, length=1000, keep=True
    )
    frame = blank.get_frame(0).copy()
    for number, plane in enumerate(image):
        np.asarray(frame[number])[:] = plane / 255
    clip = core.std.ModifyFrame(blank, blank, lambda n, f: frame)
    told = {"d": 0, "a": WINDOW // 2, "s": PATCH // 2, "h": 12.0}
    told["channels"] = "Y" if count == 1 else "RGB"
    for name, space, wanted in (
        ("vs-nlm-cuda", "nlm_cuda", {"num_streams": 1}),
        ("KNLMeansCL", "knlm", {"device_type": "gpu"}),
    ):
        if not hasattr(core, space):
            continue
        frames = iter(range(1000))
        method = "NLMeans" if space == "nlm_cuda" else "KNLMeansCL"
        try:
            filtered = getattr(getattr(core, space), method)(clip, **told, **wanted)
        except vs.Error as error:
            print(f"{name} does not run here: {error}")
            continue
        yield name, lambda f=filtered, n=frames: f.get_frame(next(n)).close(), True


def _kernels(call: Callable[[], object]) -> float:
    """Return seconds of the CUDA kernels of a call, if PyTorch is there to tell them."""
    try:
        from torch.profiler import ProfilerActivity, profile
    except ImportError:
        return float("nan")
    with profile(activities=[ProfilerActivity.CUDA]) as known:
        call()
    spent = [
        event.self_device_time_total
        for event in known.key_averages()
        if "memcpy" not in event.key.lower() and "memset" not in event.key.lower()
    ]
    return 1e-6 * sum(spent)


if __name__ == "__main__":
    main()
