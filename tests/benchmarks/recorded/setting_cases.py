"""Every profile, and every setting at values of its own, on an image where it matters."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from . import adapters
from .adapters import FILTERS, denoise
from .answers import Case
from .images import NX, NY, colour, movie, noisy, speckled

_COLOURS = ("YXS", {"auto", "separate", "opponent", "joint"})

# Every setting, by the name it was recorded under, with values other than the default.
SETTINGS: dict[str, dict[str, list[Any]]] = {
    "nl_means": {
        "patch": [4, 5, 16],
        "step": [1, 2, 3],
        "window": [9, 15],
        "neighbours": [1, 7, 32, 64],
        "strength": [0.5, 2.0],
        "flat": [0.0, 2.0],
        "frames_before": [1, 4],
        "frames_after": [2],
        "flicker": [False],
        "slices": [1, 2],
        "rician": [True],
        "distance": ["pearson"],
    },
    "bm3d": {
        "stages": ["basic"],
        "threshold": [0.0, 2.0],
        "wiener": [0.5, 1.5],
        "channels": ["separate", "opponent", "joint"],
        "guide": [0, 2],
        "step_basic": [1, 5],
        "step_final": [2, 8],
        "window_basic": [1, 15],
        "window_final": [9, 21],
        "neighbours_basic": [1, 4, 32],
        "neighbours_final": [2, 8, 16],
        "transform_basic": ["dct", "haar", "dft"],
        "transform_final": ["bior1.5", "haar", "dft"],
        "stack_basic": ["hadamard", "dct"],
        "stack_final": ["hadamard", "dct"],
        "similar_basic": [2.0, 100.0],
        "similar_final": [1.0, 100.0],
        "kaiser": [0.0, 3.0],
        "prefilter": ["on", "off"],
        "shared_noise": [False],
    },
    "vbm3d": {
        "frames_before": [0, 2],
        "frames_after": [0, 1],
        "stages": ["basic"],
        "threshold": [2.0],
        "wiener": [0.7],
        "flicker": [False],
        "channels": ["separate", "opponent", "joint"],
        "guide": [1],
        "window": [3, 9],
        "motion": [False],
        "window_nearest": [7],
        "coarse": [1, 3],
        "window_next": [1, 7],
        "per_frame": [1, 4],
        "step_basic": [3, 8],
        "step_final": [2, 6],
        "neighbours_basic": [2, 16],
        "neighbours_final": [4, 32],
        "transform_basic": ["bior1.5"],
        "transform_final": ["haar"],
        "stack_basic": ["hadamard"],
        "stack_final": ["dct"],
        "similar_basic": [1.0],
        "similar_final": [8.0],
        "still_basic": [0.0],
        "still_final": [0.5],
        "kaiser": [0.0],
        "shared_noise": [True],
    },
    "isoline": {
        "method": ["pi-pd", "pi-ld"],
        "choice": ["hard"],
        "length": [3, 10],
        "pixels": [10, 60],
        "thickness": [1, 3],
        "staircase": [0, 5, 21],
        "channels": ["separate", "opponent", "joint"],
        "guide": [0, 1],
        "criterion": ["multiplicative"],
        "looks": [1.0, 9.0],
        "softness": [0.01, 1.0],
        "t_max": [0.3],
        "t2_max": [0.8],
        "deviation": [0, 5],
        "show": ["classes", "directions"],
    },
}
# Settings that say nothing without another one.
_BESIDE = {
    "guide": {"channels": "joint"},
    "isoline.looks": {"criterion": "multiplicative"},
    "isoline.t_max": {"choice": "hard"},
    "isoline.t2_max": {"choice": "hard"},
    "isoline.deviation": {"method": "pi-ld"},
    "nl_means.flicker": {"frames_before": 2},
    "bm3d.prefilter_threshold": {"prefilter": "on"},
}
_MORE = (
    ("nl_means", "YX", {"patch": 4, "step": 2, "window": 7, "neighbours": 4}),
    ("nl_means", "TZYX", {"frames_before": 1, "frames_after": 1, "slices": 1}),
    ("nl_means", "TYX", {"frames_before": 2, "rician": True}),
    ("nl_means", "TYX", {"frames_after": 2, "distance": "pearson"}),
    ("bm3d", "YX", {"prefilter": "on", "prefilter_threshold": 4.0}),
    ("bm3d", "YX", {"stages": "basic", "shared_noise": False, "stack_basic": "hadamard"}),
    ("bm3d", "YXS", {"channels": "joint", "guide": 1, "stages": "basic"}),
    ("vbm3d", "TYXS", {"channels": "joint", "frames_after": 0}),
    ("vbm3d", "TYX", {"frames_before": 0, "frames_after": 0}),
    ("vbm3d", "TYX", {"stages": "basic", "motion": False, "shared_noise": True}),
    ("isoline", "YX", {"method": "pi-pd", "choice": "hard", "thickness": 3}),
    ("isoline", "YX", {"method": "pi-ld", "thickness": 3, "staircase": 0}),
    ("isoline", "YXS", {"channels": "joint", "criterion": "multiplicative", "choice": "hard"}),
    ("isoline", "YXS", {"channels": "joint", "show": "directions"}),
    ("isoline", "YX", {"criterion": "multiplicative", "show": "classes"}),
    ("isoline", "YX", {"criterion": "multiplicative", "method": "pi-ld", "staircase": 0}),
)


def cases() -> Iterator[Case]:
    """Yield the cases."""
    for kind in FILTERS:
        for profile in adapters.profiles(kind):
            for axes in ("TYX",) if kind == "vbm3d" else ("YX", "TYX", "YXS"):
                if kind == "nl_means" and profile == "video" and axes != "TYX":
                    continue
                image, sigma = _image(axes), None if axes == "YX" else 15.0
                work = partial(denoise, image, kind, sigma, profile=profile, axes=axes)
                yield Case(f"profile {profile} {axes} / {kind}", work)
    for kind, found in SETTINGS.items():
        for name, values in found.items():
            for value in values:
                yield _case(kind, name, value)
    for kind, axes, changes in _MORE:
        told = ", ".join(f"{name}={value}" for name, value in changes.items())
        multiplied = "criterion" in changes or "distance" in changes
        yield _made(f"settings {told} {axes} / {kind}", kind, axes, changes, multiplied)


def _case(kind: str, name: str, value: Any) -> Case:
    changes = {**_BESIDE.get(name, _BESIDE.get(f"{kind}.{name}", {})), name: value}
    axes = "TYX" if kind == "vbm3d" or name.startswith("frames") or name == "flicker" else "YX"
    axes = "ZYX" if name == "slices" else axes
    if name in ("channels", "guide"):
        axes = "TYXS" if kind == "vbm3d" else "YXS"
    if value == "opponent":
        axes = axes.replace("S", "C")
    multiplied = name in ("criterion", "looks", "distance")
    return _made(f"setting {name}={value} / {kind}", kind, axes, changes, multiplied)


def _made(name: str, kind: str, axes: str, changes: dict, multiplied: bool) -> Case:
    image = speckled(NY, NX) if multiplied and axes == "YX" else _image(axes)
    own = multiplied and kind == "isoline"
    work = partial(denoise, image, kind, None if own else 15.0, changes=changes, axes=axes)
    return Case(name, work)


def _image(axes: str) -> Any:
    return {
        "YX": noisy,
        "TYX": partial(movie, frames=4),
        "ZYX": partial(movie, frames=4),
        "YXS": colour,
        "YXC": colour,
        "TYXS": partial(colour, 3),
        "TYXC": partial(colour, 3),
        "TZYX": partial(noisy, 3, 3, NY, NX),
    }[axes]()
