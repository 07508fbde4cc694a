"""Time of pixelwise NL-means, and its floors: operations over the peaks of a GPU.

python tests/benchmarks/speed_pixelwise.py
python tests/benchmarks/speed_pixelwise.py --shape 512x512 --device 1
python tests/benchmarks/speed_pixelwise.py --shape 512x512 --device 1 --peers
"""

from __future__ import annotations

import statistics
import time

import numpy as np
from tables import print_speeds, speed_parser

import napari_gpu_denoise as gd
from napari_gpu_denoise.cli.bench import synthetic

# Of an NVIDIA H200: instructions and exponentials a second, words of local memory and exchanges.
INSTRUCTIONS, EXPONENTIALS, WORDS = 31.8e12, 4.0e12, 7.9e12
# For a pixel and offset, with a patch of 7.
EACH, LOADED = 15, 3.4

LARGE = {"patch": 7, "window": 21, "strength": 0.6}
CASES = {
    "patch 7, window 21": gd.NLMeansPixelwise(**LARGE),
    "the same, RGB": gd.NLMeansPixelwise(**LARGE, channels="joint"),
    "the same, Gaussian patch": gd.NLMeansPixelwise(**LARGE, patch_shape="gaussian"),
    "exact (default)": gd.NLMeansPixelwise(),
    "exact, RGB": gd.NLMeansPixelwise(channels="joint"),
    "conventional": gd.NLMeansPixelwise.of(profile="conventional"),
}


def floor(settings, pixels: int) -> float:
    """Return the shortest time in seconds that an H200 would take for a patch of 7."""
    pairs = settings.offsets * pixels
    return max(EACH * pairs / INSTRUCTIONS, pairs / EXPONENTIALS, LOADED * pairs / WORDS)


def peers(shape: tuple[int, int], repeats: int) -> None:
    """Print the times of OpenCV and scikit-image, where they are installed, by the wall clock."""
    image = np.clip(synthetic(shape), 0, 255).astype(np.uint8)

    def timed(name, call):
        times = []
        call()
        for _ in range(repeats):
            begin = time.perf_counter()
            call()
            times.append(time.perf_counter() - begin)
        print(f"| {name} | {1e3 * statistics.median(times):.1f} |")

    print("| peer on this computer's processor | whole call, ms |")
    print("| --- | ---: |")
    for name, settings in CASES.items():
        if "RGB" not in name:
            timed(f"ours, {name}", lambda s=settings: gd.denoise(image, s, 20, dtype="float32"))
    try:
        import cv2

        for patch, window in ((7, 21), (5, 13)):
            timed(
                f"OpenCV fastNlMeansDenoising, 8 bit, {patch}, {window}",
                lambda p=patch, w=window: cv2.fastNlMeansDenoising(image, None, 20, p, w),
            )
    except ImportError:
        print("| OpenCV is not installed | |")
    try:
        from skimage.restoration import denoise_nl_means

        values = image.astype(np.float32)
        for patch, reach in ((7, 10), (5, 6)):
            timed(
                f"scikit-image, fast mode, {patch}, {2 * reach + 1}",
                lambda p=patch, r=reach: denoise_nl_means(
                    values, p, r, h=12, sigma=20, fast_mode=True
                ),
            )
    except ImportError:
        print("| scikit-image is not installed | |")


def main() -> None:
    """Print a table."""
    parser = speed_parser(__doc__, "3456x4608", CASES)
    parser.add_argument("--peers", action="store_true", help="time OpenCV and scikit-image as well")
    args = parser.parse_args()
    print_speeds(args, CASES, floor)
    if args.peers:
        peers(tuple(map(int, args.shape.split("x"))), args.repeats)


if __name__ == "__main__":
    main()
