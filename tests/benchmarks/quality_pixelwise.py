"""Quality of exact pixelwise NL-means, beside the papers and other programs.

    python tests/benchmarks/quality_pixelwise.py [--quick] [--tables papers frames ...]

PSNR has the peak 255, on float results; noise is white Gaussian of `default_rng(seed)`, neither
rounded nor clipped unless a table says so. Every method knows sigma.
"""

from __future__ import annotations

import itertools

import numpy as np
from tables import print_tables, show

import napari_gpu_denoise as gd
from reference.data import head, pictures
from scenes import psnr

# Six of BSD68.
SIX = (0, 11, 22, 33, 44, 55)
# Correlation of the noise of neighbouring channels, and of the first and the third.
CORRELATIONS = {"0.6, 0.3": (0.6, 0.3), "0.9, 0.8": (0.9, 0.8)}


def drawn(clean: np.ndarray, sigma: float, seed: int) -> np.ndarray:
    """Return an image with noise."""
    return clean + np.random.default_rng(seed).normal(0, sigma, clean.shape)


def mean(scores: list[float]) -> str:
    """Return a mean in dB, as it is printed."""
    return f"{np.mean(scores):.2f}"


def papers(options) -> None:
    """Conventional NL-means of van der Vuurst 2023, table 7: sigma 40, the noisy image rounded and
    clipped to 0..255; the profile "conventional".
    """
    printed, body = {"boat": 24.67, "peppers": 25.70}, []
    for name, value in printed.items():
        clean, scores = pictures("denoiselab13")[name].astype(np.float64), []
        for seed in range(options.seeds):
            noisy = np.clip(np.rint(drawn(clean, 40, seed)), 0, 255).astype(np.float32)
            settings = gd.NLMeansPixelwise.of(profile="conventional")
            scores.append(
                psnr(gd.denoise(noisy, settings, 40.0, device=options.device).image, clean)
            )
        body.append([name, f"{value:.2f}", f"{np.mean(scores):.3f}", f"{np.ptp(scores):.3f}"])
    show(["picture", "printed, dB", "ours, dB", "spread over seeds"], body)


def frames(options) -> None:
    """Goossens et al. 2010, table 1: colour video, sigma 25, past frames searched. Theirs is an
    unnamed clip of 720 x 480, ours the middle of `tractor`, its frames from the fourth on. As they
    did, h is chosen for each.
    """
    import imageio.v3 as imageio

    from reference.data import data_folder

    files = sorted((data_folder() / "video" / "tractor_clean").glob("*.png"))
    clean = np.stack([imageio.imread(file) for file in files]).astype(np.float64)
    clean = clean[:6, 130:400, 200:600]
    printed = {21: (36.79, 37.20, 37.24, 37.17), 7: (35.40, 36.19, 36.26, 36.33)}
    body = []
    for window, theirs in printed.items():
        found = []
        for past in range(4):
            best = []
            for strength in (1.8, 1.9, 2.0):
                settings = gd.NLMeansPixelwise.of(
                    profile="goossens",
                    window=window,
                    strength=strength,
                    frames_before=past,
                    channels="joint",
                )
                scores = []
                for seed in range(options.seeds):
                    noisy = drawn(clean, 25, seed).astype(np.float32)
                    kept = {"axes": "TYXS", "frames": slice(3, None), "device": options.device}
                    out = gd.denoise(noisy, settings, 25.0, **kept)
                    scores.append(psnr(out.image, clean[3:]))
                best.append(np.mean(scores))
            found.append(f"{max(best):.2f}")
        body.append([f"{window} x {window}, printed", *(f"{one:.2f}" for one in theirs)])
        body.append([f"{window} x {window}, ours", *found])
    show(["search window", *(f"{n} past frames" for n in range(4))], body)


def photographs(options) -> None:
    """BSD68, sigma 20, mean PSNR in dB; in brackets how many pictures. Settings of other programs
    are the best of some on four pictures.
    """
    clean = list(pictures("bsd68").values())[:: options.stride]
    few = list(pictures("bsd68").values())[::8]
    ways = {
        "ours, exact": lambda y: gd.nl_means_pixelwise(y, 20.0, device=options.device),
        "ours, patch=3, window=11, strength=0.95": lambda y: gd.nl_means_pixelwise(
            y, 20.0, patch=3, window=11, strength=0.95, device=options.device
        ),
        "ours, goossens": lambda y: gd.nl_means_pixelwise(
            y, 20.0, profile="goossens", device=options.device
        ),
        "ours, conventional": lambda y: gd.nl_means_pixelwise(
            y, 20.0, profile="conventional", device=options.device
        ),
        "nl_means (patchwise)": lambda y: gd.nl_means(y, 20.0, device=options.device),
        'nl_means, profile="fine"': lambda y: gd.nl_means(
            y, 20.0, profile="fine", device=options.device
        ),
    }

    def scored(way, images) -> list[float]:
        return [
            psnr(way(drawn(one, 20, seed).astype(np.float32)), one)
            for one in images
            for seed in range(options.seeds)
        ]

    body = []
    for name, way in ways.items():
        body.append([name, mean(scored(way, clean)), mean(scored(way, few))])
    for name, grid, way in others():
        choices = [
            dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())
        ]
        tried = few[::3]
        best = max(
            choices,
            key=lambda one: np.mean(
                [psnr(way(drawn(c, 20, 0).astype(np.float32), **one), c) for c in tried]
            ),
        )
        told = ", ".join(f"{key} {value:g}" for key, value in best.items())
        scores = [psnr(way(drawn(c, 20, 0).astype(np.float32), **best), c) for c in few]
        body.append([f"{name} ({told})", "", mean(scores)])
    show(["", f"{len(clean)} pictures", f"{len(few)} pictures"], body)


def others():
    """Yield the name, settings to choose from, and function of other programs that are there."""
    try:
        from skimage.restoration import denoise_nl_means
    except ImportError:
        pass
    else:
        for fast in (False, True):
            grid = {"patch": (3, 5), "reach": (5,), "h": (0.6, 0.7, 0.8)}
            if fast:
                grid = {"patch": (3, 5, 7), "reach": (5, 6, 10), "h": (0.6, 0.7, 0.8, 0.9)}

            def way(y, *, patch, reach, h, fast=fast):
                return denoise_nl_means(y, patch, reach, h=20 * h, sigma=20, fast_mode=fast)

            yield f"scikit-image, {'fast' if fast else 'slow'} mode", grid, way
    try:
        import cv2
    except ImportError:
        return

    def opencv(y, *, patch, window, h):
        levels = np.clip(np.rint(y), 0, 255).astype(np.uint8)
        return cv2.fastNlMeansDenoising(levels, None, float(20 * h), patch, window)

    grid = {"patch": (3, 5, 7), "window": (11, 13, 21), "h": (0.7, 0.8, 0.9, 1.0, 1.1)}
    yield "OpenCV, 8 bit", grid, opencv


def colour(options) -> None:
    """Three colour photographs, sigma 20 in each channel, noise correlated between neighbouring
    channels and between the first and the third: joint weights as they are, and with `whiten`.
    """
    strengths, body = (0.6, 0.75, 0.9), []
    for told, (near, far) in CORRELATIONS.items():
        root = np.linalg.cholesky(np.array([[1, near, far], [near, 1, near], [far, near, 1]]))
        for whiten in (False, True):
            found = []
            for strength in strengths:
                scores = []
                for clean in pictures("colour").values():
                    noise = np.random.default_rng(0).normal(0, 20, clean.shape) @ root.T
                    settings = gd.NLMeansPixelwise(
                        strength=strength, whiten=whiten, channels="joint"
                    )
                    noisy = (clean + noise).astype(np.float32)
                    out = gd.denoise(noisy, settings, 20.0, axes="YXS", device=options.device)
                    scores.append(psnr(out.image, clean))
                found.append(mean(scores))
            body.append([f"{told}{', whiten=True' * whiten}", *found])
    show(["correlation", *(f"strength {one:g}" for one in strengths)], body)


def volume(options) -> None:
    """A piece of the head, 24 x 80 x 80, sigma 20."""
    clean, body = head()[75:99, 60:140, 50:130].astype(np.float64), []
    ways = {
        "slice by slice": {},
        "slices=2": {"slices": 2},
        'profile="volume"': gd.NLMeansPixelwise.presets["volume"],
        "volume, window=9, slices=4": {
            **gd.NLMeansPixelwise.presets["volume"],
            **{"window": 9, "slices": 4},
        },
    }
    for name, changes in ways.items():
        scores = []
        for seed in range(options.seeds):
            noisy = drawn(clean, 20, seed).astype(np.float32)
            settings = gd.NLMeansPixelwise(**changes)
            out = gd.denoise(noisy, settings, 20.0, axes="ZYX", device=options.device)
            scores.append(psnr(out.image, clean))
        body.append([name, mean(scores)])
    show(["", "dB"], body)


def settings(options) -> None:
    """Patch, window and strength on six pictures of BSD68, seed 0, sigma 10, 20 and 40."""
    clean, body = [list(pictures("bsd68").values())[k] for k in SIX], []
    ways = {
        "default": {},
        "patch 3, window 11, h 0.95": {"patch": 3, "window": 11, "strength": 0.95},
        "patch 5, window 21, h 0.7": {"window": 21, "strength": 0.7},
        "patch 7, window 21, max, h 0.5": {
            **{"patch": 7, "window": 21, "own_weight": "max", "strength": 0.5}
        },
        "Gaussian, window 13, h 1.1": {"patch": 7, "patch_shape": "gaussian", "strength": 1.1},
        "bisquare, h 2.2": {"weights": "bisquare", "strength": 2.2},
        "goossens": gd.NLMeansPixelwise.presets["goossens"],
    }
    for name, changes in ways.items():
        found = []
        for sigma in (10, 20, 40):
            scores = []
            for one in clean:
                noisy = drawn(one, sigma, 0).astype(np.float32)
                out = gd.nl_means_pixelwise(noisy, sigma, device=options.device, **changes)
                scores.append(psnr(out, one))
            found.append(mean(scores))
        body.append([name, *found])
    show(["", "sigma 10", "sigma 20", "sigma 40"], body)


if __name__ == "__main__":
    print_tables(__doc__, (papers, frames, photographs, colour, volume, settings))
