"""Print the tables of docs/guide/choosing_settings.md and make its picture.

    python docs/make_settings_tables.py

Runs NL-means on the built-in samples, whose truth is known, with one setting changed at a time. The
error is the root mean square of the difference to the truth, in grey levels, after removing the
mean of that difference. Needs matplotlib and an OpenCL device.
"""

from __future__ import annotations

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
CHANGES = (
    {},
    {"strength": 0.7},
    {"strength": 1.4},
    {"patch": 5},
    {"step": 2},
    {"patch": 5, "step": 1},
    {"neighbours": 8},
    {"neighbours": 32},
    {"window": 11},
    {"window": 35},
)
ALONG = {
    "T": ({"frames_before": 1, "frames_after": 1}, {"frames_before": 2, "frames_after": 2}),
    "Z": ({"slices": 1}, {"slices": 2}),
}


def error(image: np.ndarray, truth: np.ndarray) -> float:
    """Return the root mean square error without the mean difference."""
    return float(np.std(image.astype(np.float64) - truth))


def denoise(noisy: np.ndarray, axes: str, sigma: float, **changes) -> np.ndarray:
    """Denoise and keep the fractions."""
    return gd.nl_means(noisy, sigma, axes=axes, dtype="float32", **changes)


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


def settings_table(samples: dict) -> None:
    """Print the error against the settings, changed one at a time, and what they cost."""
    print(row(["setting", "work", *samples]))
    print(row(["---"] + ["---:"] * (len(samples) + 1)))
    changes = [*CHANGES, *ALONG["T"], *ALONG["Z"]]
    base = gd.NLMeans().operations_per_pixel
    for change in changes:
        cells = []
        for name, (truth, noisy) in samples.items():
            axes, settings = AXES[name], {*change}
            if (settings & {"slices"} and "Z" not in axes) or (
                settings & {"frames_before"} and "T" not in axes
            ):
                cells.append("")
            else:
                cells.append(f"{error(denoise(noisy, axes, SIGMA[name], **change), truth):.1f}")
        label = ", ".join(f"`{key}={value}`" for key, value in change.items()) or "defaults"
        work = gd.NLMeans(**change).operations_per_pixel / base
        print(row([label, f"{work:.2g}", *cells]))


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
    """Print both tables and make the picture."""
    samples = {name: getattr(make_samples, name)() for name in AXES}
    sigma_table(samples)
    print()
    settings_table(samples)
    picture(samples)


if __name__ == "__main__":
    main()
