"""Print the tables of docs/guide/choosing_settings.md and make its picture.

    python docs/make_settings_tables.py
    python docs/make_settings_tables.py --filter bm3d   # the table of one filter, and no picture

Runs the filters on the built-in samples, whose truth is known, with one setting changed at a time.
The error is the root mean square of the difference to the truth, in grey levels, after removing the
mean of that difference. Needs matplotlib and an OpenCL device.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np

import napari_gpu_denoise as gd

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "sample_data"))
import make_samples  # noqa: E402

AXES = {"fluorescence": "TYX", "mri": "ZYX", "ultrasound": "TYX"}
SIGMA = {"fluorescence": 15.0, "mri": 36.0, "ultrasound": 22.0}
# Of each filter: its profiles come first, and need not be listed.
CHANGES = {
    "nl_means": (
        {"strength": 0.7},
        {"strength": 1.4},
        {"step": 2},
        {"neighbours": 8},
        {"neighbours": 32},
        {"window": 11},
        {"frames_before": 2, "frames_after": 2},
        {"slices": 1},
    ),
    "nl_means_pixelwise": (
        {"strength": 0.6},
        {"strength": 1.0},
        {"patch": 3},
        {"patch": 7},
        {"window": 9},
        {"window": 21},
        {"frames_before": 1, "frames_after": 1},
        {"slices": 1, "patch_slices": 1},
    ),
    "bm3d": (
        {"threshold": 2.4},
        {"threshold": 3.1},
        {"step_basic": 4, "step_final": 4},
        {"window_basic": 21, "window_final": 21},
        {"neighbours_basic": 32},
        {"transform_basic": "dct"},
    ),
    "vbm3d": (
        {"frames_before": 2, "frames_after": 2},
        {"frames_before": 8, "frames_after": 8},
        {"step_basic": 3, "step_final": 3},
        {"neighbours_basic": 16, "neighbours_final": 16},
    ),
    "bm4d": (
        {"cube": "4x4x4"},
        {"cube": "2x4x8"},
        {"cube": "1x8x8"},
        {"threshold": 2.6},
        {"threshold": 3.2},
        {"wiener_sigma": 0.7},
        {"wiener_sigma": 1.1},
        {"step_basic": 4, "step_final": 4},
        {"window_basic": 9, "window_final": 9},
        {"neighbours_basic": 16, "neighbours_final": 16},
    ),
    "isoline": (
        {"staircase": 0},
        {"choice": "hard"},
        {"method": "pi-pd"},
        {"segment_length": 3},
        {"segment_length": 8},
        {"thickness": 1},
    ),
}


def error(image: np.ndarray, truth: np.ndarray) -> float:
    """Return the root mean square error without the mean difference."""
    return float(np.std(image.astype(np.float64) - truth))


def denoise(noisy: np.ndarray, axes: str, sigma: float, settings=None) -> np.ndarray:
    """Denoise, by default by NL-means, and keep the fractions."""
    return gd.denoise(noisy, settings or gd.NLMeans(), sigma, axes=axes, dtype="float32").image


def row(cells: Iterable[object]) -> str:
    """Return one line of a Markdown table."""
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def sigma_table(samples: dict) -> None:
    """Print the error against sigma, as a multiple of what was estimated."""
    factors = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0)
    names = [f"{factor:g}" for factor in factors]
    print(row(["sample", "estimate", "noisy", *names]))
    print(row(["---"] + ["---:"] * (len(factors) + 2)))
    for name, (truth, noisy) in samples.items():
        sigma = gd.estimate_noise(noisy, AXES[name]).sigma[0]
        errors = [error(denoise(noisy, AXES[name], f * sigma), truth) for f in factors]
        cells = [f"{value:.1f}" for value in (sigma, error(noisy, truth), *errors)]
        print(row([name, *cells]))


def settings_table(kind: type, samples: dict) -> None:
    """Print the error against the settings, changed one at a time, and what they cost."""
    print(row([kind.title, "work", *samples]))
    print(row(["---"] + ["---:"] * (len(samples) + 1)))
    _, *others = kind.presets
    profiles = [{"profile": name} for name in others]
    for change in ({}, *profiles, *CHANGES.get(kind.name, ())):
        settings = kind.of(**change)
        along = {*settings.joint} & {*"TZ"}
        cells = []
        for name, (truth, noisy) in samples.items():
            if along <= {*AXES[name]}:
                found = error(denoise(noisy, AXES[name], SIGMA[name], settings), truth)
                cells.append(f"{found:.1f}")
            else:
                cells.append("")
        label = ", ".join(f"`{key}={value}`" for key, value in change.items()) or "defaults"
        work = settings.operations_per_pixel / kind().operations_per_pixel
        print(row([label, f"{work:.2g}", *cells]))


def time_table(samples: dict) -> None:
    """Print the error where frames are not alike in brightness, or too much alike."""
    truth = samples["fluorescence"][0].astype(np.float64)
    sigma, random = SIGMA["fluorescence"], np.random.default_rng(0)
    numbers = np.arange(len(truth))
    gains = {
        "constant brightness": np.ones(len(truth)),
        "bleaching, 5 % per frame": 0.95**numbers,
        "flicker, ± 10 %": 1 + 0.1 * random.uniform(-1, 1, len(truth)),
    }
    filters = {
        "BM3D": gd.BM3D(),
        "VBM3D": gd.VBM3D(),
        "NL-means, 2 + 2": gd.NLMeans(frames_before=2, frames_after=2),
    }
    print(row(["white noise", *filters]))
    print(row(["---"] + ["---:"] * len(filters)))
    videos = {}
    for name, gain in gains.items():
        clean = 100 + (truth - 100) * gain[:, None, None]
        noisy = clean + random.normal(0, sigma, clean.shape)
        videos[name] = clean, noisy.astype(np.float32)
    videos["every frame duplicated"] = tuple(
        np.repeat(one, 2, 0) for one in videos["constant brightness"]
    )
    for name, (clean, noisy) in videos.items():
        errors = [error(denoise(noisy, "TYX", sigma, one), clean) for one in filters.values()]
        print(row([name, *(f"{value:.1f}" for value in errors)]))


def picture(samples: dict) -> None:
    """Save one corner of a frame, filtered with several sigmas."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    _, noisy = samples["fluorescence"]
    part = np.s_[8, 30:126, 20:116]
    low, high = np.percentile(noisy[8], (0.5, 99.7))
    shown = {"noisy": noisy[part]}
    for sigma, words in ((6, "too low"), (12, "as estimated"), (15, "right"), (45, "too high")):
        shown[f"sigma {sigma}: {words}"] = denoise(noisy, "TYX", sigma)[part]
    figure, places = plt.subplots(1, len(shown), figsize=(12, 2.75), facecolor="white")
    for place, (title, image) in zip(places, shown.items(), strict=True):
        place.imshow(image, cmap="gray", vmin=low, vmax=high, interpolation="nearest")
        place.set_title(title, fontsize=11)
        place.axis("off")
    figure.subplots_adjust(left=0.004, right=0.996, bottom=0.01, top=0.89, wspace=0.03)
    figure.savefig(HERE / "images" / "sigma.png", dpi=100)
    plt.close(figure)


def main() -> None:
    """Print all tables and make the picture, or print one."""
    parser = argparse.ArgumentParser(description="Make the tables of choosing settings.")
    names = [kind.name for kind in gd.FILTERS]
    parser.add_argument("--filter", choices=names, help="print the table of this filter only")
    only = parser.parse_args().filter
    samples = {name: getattr(make_samples, name)() for name in AXES}
    if only is None:
        sigma_table(samples)
    for kind in gd.FILTERS:
        if only in (None, kind.name):
            print()
            settings_table(kind, samples)
    if only in (None, "vbm3d"):
        print()
        time_table(samples)
    if only is None:
        picture(samples)


if __name__ == "__main__":
    main()
