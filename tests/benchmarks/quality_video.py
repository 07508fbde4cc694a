"""Print how well filters over time denoise a video, beside those that take frame by frame.

    python tests/benchmarks/quality_video.py [--clips tractor traffic foliage] [--sigmas 10 20 40]
        [--seeds 0 1 2] [--device N] [--filters NAME ...]

The videos are of the shared data: tractor, 10 frames of 540 x 800, traffic, 10 of 375 x 500, and
foliage, 16 of 480 x 720 in which the camera moves over fine texture; luminance, with white Gaussian
noise, neither rounded nor clipped. ``tractor:17`` is the first frame of tractor, cut so that it
moves by 17 pixels along x from each of six frames to the next. PSNR is the mean over frames, peak
255. "Flicker" is the standard deviation, in grey levels, of how the error of a pixel changes from
one frame to the next, where the clean frames hardly change (their mean difference over 9 x 9 pixels
is below 1).
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np
from cases import pictures  # puts the folder of the tests on the path
from scipy.ndimage import uniform_filter

import napari_gpu_denoise as gd

FILTERS = {
    "NL-means, frame by frame": gd.NLMeans(),
    "NL-means, over time": gd.NLMeans.of(profile="video"),
    "BM3D fast, frame by frame": gd.BM3D.of(profile="fast"),
    "BM3D normal, frame by frame": gd.BM3D(),
    "VBM3D": gd.VBM3D(),
    "VBM3D, motion of up to 7 pixels": gd.VBM3D(window_nearest=15),
    "VBM3D fast": gd.VBM3D.of(profile="fast"),
    "VBM3D high": gd.VBM3D.of(profile="high"),
    "VBM3D live": gd.VBM3D.of(profile="live"),
    "VBM3D, causal": gd.VBM3D(frames_after=0),
}


@dataclass(frozen=True)
class Score:
    """PSNR in dB, of all frames and of those from the fifth on, and flicker in grey levels."""

    psnr: float
    later: float
    flicker: float


def still_places(clean: np.ndarray) -> np.ndarray:
    """Return where frames hardly change, (t - 1, y, x)."""
    change = np.abs(np.diff(clean, axis=0))
    return np.array([uniform_filter(one, 9) < 1 for one in change])


def score(result: np.ndarray, clean: np.ndarray, still: np.ndarray) -> Score:
    """Compare a result with the clean video."""
    error = result.astype(np.float64) - clean
    psnr = 10 * np.log10(255**2 / np.mean(error**2, axis=(1, 2)))
    change = np.diff(error, axis=0)[still]
    return Score(psnr.mean(), psnr[4:].mean(), change.std())


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clips", nargs="+", default=["tractor", "traffic", "foliage"])
    parser.add_argument("--sigmas", type=float, nargs="+", default=[10, 20, 40])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--device", default=None)
    parser.add_argument("--filters", nargs="+", default=list(FILTERS))
    args = parser.parse_args()
    for clip in args.clips:
        print_table(clip, args)


def frames_of(clip: str) -> np.ndarray:
    """Return the clean frames of a clip, or of a picture that moves, (t, y, x)."""
    name, _, step = clip.partition(":")
    frames = np.stack(list(pictures(name).values())).astype(np.float64)
    if not step:
        return frames
    width = frames.shape[2] - 5 * int(step)
    return np.stack([frames[0, :, t * int(step) :][:, :width] for t in range(6)])


def print_table(clip: str, args: argparse.Namespace) -> None:
    """Print the scores of all filters on a clip."""
    clean = frames_of(clip)
    still = still_places(clean)
    print(f"{clip}: {len(clean)} frames, {still.mean():.1%} of the pixels stand still")
    print(f"| seeds {args.seeds} | " + " | ".join(f"{s:g}" for s in args.sigmas))
    for name in args.filters:
        cells = []
        for sigma in args.sigmas:
            found = []
            for seed in args.seeds:
                noise = np.random.default_rng(seed).normal(0, sigma, clean.shape)
                noisy = (clean + noise).astype(np.float32)
                result = gd.denoise(noisy, FILTERS[name], sigma, axes="TYX", device=args.device)
                found.append(score(result.image, clean, still))
            means = np.mean([(one.psnr, one.later, one.flicker) for one in found], axis=0)
            cells.append("{:.3f}, {:.3f}, {:.2f}".format(*means))
        print(f"| {name} | " + " | ".join(cells), flush=True)


if __name__ == "__main__":
    main()
