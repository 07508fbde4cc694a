"""Arrays: every filter on types, layouts, forms of sigma, tiles, tiny and non-finite images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from . import adapters, images
from .adapters import FILTERS, denoise
from .answers import Case
from .images import NX, NY, colour, movie, noisy

# Filters as they are, and with settings that join further axes.
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    **{kind: (kind, {}) for kind in FILTERS},
    "nl_means over time": ("nl_means", {"frames_before": 2, "frames_after": 1}),
    "nl_means over slices": ("nl_means", {"slices": 1}),
    "bm3d joint": ("bm3d", {"channels": "joint"}),
    "vbm3d without delay": ("vbm3d", {"frames_after": 0}),
    "isoline joint": ("isoline", {"channels": "joint"}),
}


def fits(way: str, axes: str | None) -> bool:
    """Return whether a filter finds the axes that it needs."""
    axes = axes or ""
    if way.endswith(("over time", "without delay")):
        return "T" in axes
    if way.endswith("over slices"):
        return "Z" in axes
    if way.endswith("joint"):
        return "C" in axes or "S" in axes
    return True


def cases() -> Iterator[Case]:
    """Yield the cases."""
    yield from _types()
    yield from _layouts()
    yield from _sigmas()
    yield from _nonfinite()
    yield from _tiles()
    yield from _shapes()
    yield from _calls()


def _case(name: str, way: str, image: Callable[[], Any], sigma: Any, **options: Any) -> Case:
    kind, changes = WAYS[way]

    def run():
        return denoise(image(), kind, sigma, changes=changes, **options)

    return Case(f"{name} / {way}", run)


def _types() -> Iterator[Case]:
    for kind in FILTERS:
        shape, axes = ((5, NY, NX), "TYX") if kind == "vbm3d" else ((NY, NX), "YX")
        for name, (image, sigma) in images.types(*shape).items():
            yield _case(f"type {name}", kind, lambda image=image: image, sigma, axes=axes)
        for given, wanted in (("uint8", "float32"), ("float32", "uint8"), ("uint16", "int8")):
            image = partial(noisy, *shape, dtype=given)
            name = f"type {given} to {wanted}"
            yield _case(name, kind, image, 15.0, axes=axes, dtype=wanted)
        for name in ("uint8", "int32 offset", "float32 tiny", "float64 offset"):
            image = images.types(*shape)[name][0]
            yield _case(f"type {name}, measured", kind, lambda image=image: image, None, axes=axes)


def layouts() -> dict[str, tuple[Callable[[], Any], str | None]]:
    """Return arrays with their axes."""
    stack = partial(movie, frames=4)

    def four() -> np.ndarray:
        return noisy(2, 3, NY, NX, dtype="uint16")

    def five() -> np.ndarray:
        return noisy(2, 2, 2, NY, NX, dtype="uint8")

    return {
        "YX": (noisy, "YX"),
        "no names": (noisy, None),
        "planes without names": (stack, None),
        "XY": (lambda: noisy().T, "XY"),
        "dots": (stack, ".YX"),
        "independent Q": (stack, "QYX"),
        "TYX": (stack, "TYX"),
        "tyx": (stack, "tyx"),
        "ZYX": (stack, "ZYX"),
        "CYX": (partial(noisy, 2, NY, NX), "CYX"),
        "one channel": (partial(noisy, 1, NY, NX), "CYX"),
        "YXC": (lambda: np.moveaxis(noisy(2, NY, NX), 0, -1), "YXC"),
        "YXS": (colour, "YXS"),
        "SYX of four": (partial(noisy, 4, NY, NX, dtype="uint8"), "SYX"),
        "TZYX": (four, "TZYX"),
        "ZTYX": (four, "ZTYX"),
        "TCYX": (four, "TCYX"),
        "dots and T": (four, ".TYX"),
        "XYT": (lambda: stack().T, "XYT"),
        "YXT, not contiguous": (lambda: np.moveaxis(stack(), 0, -1)[::2, ::-1], "YXT"),
        "TYXS": (partial(colour, 3), "TYXS"),
        "TCZYX": (five, "TCZYX"),
        "CZTYX": (five, "CZTYX"),
        "one frame": (partial(movie, frames=1), "TYX"),
        "one slice": (partial(movie, frames=1), "ZYX"),
        "Fortran order": (lambda: np.asfortranarray(noisy()), "YX"),
        "steps and reversed": (lambda: noisy(96, 112)[::-2, ::2], "YX"),
        "broadcast frames": (lambda: np.broadcast_to(noisy(), (3, NY, NX)), "TYX"),
        "nested lists": (lambda: noisy(12, 14).tolist(), "YX"),
    }


def _layouts() -> Iterator[Case]:
    for name, (image, axes) in layouts().items():
        for way in WAYS:
            if fits(way, axes and axes.upper()):
                yield _case(f"layout {name}", way, image, 15.0, axes=axes)


def _sigmas() -> Iterator[Case]:
    ramp = np.linspace(5, 25, NY * NX).reshape(NY, NX)
    hole = np.where(np.arange(NX) < 20, 0.0, ramp)
    planes = np.linspace(8, 20, 4)
    two = partial(noisy, 2, NY, NX)
    by_channel = partial(noisy, 4, 2, NY, NX)
    stack = partial(movie, frames=4)
    forms: dict[str, tuple[Callable[[], Any], str, Any]] = {
        "zero": (stack, "TYX", 0),
        "tiny": (stack, "TYX", 1e-6),
        "huge": (stack, "TYX", 1e7),
        "numpy number": (stack, "TYX", np.float32(15)),
        "per frame": (stack, "TYX", planes),
        "per frame, one zero": (stack, "TYX", [8, 0, 12, 16]),
        "map": (stack, "TYX", ramp),
        "map with zeros": (stack, "TYX", hole),
        "map of zeros": (stack, "TYX", hole * 0),
        "map of equal values": (stack, "TYX", np.full((NY, NX), 15.0)),
        "map and channels": (by_channel, "TCYX", ramp),
        "per channel": (by_channel, "TCYX", [10, 20]),
        "per channel, one zero": (by_channel, "TCYX", (0, 20)),
        "per channel and frame": (by_channel, "TCYX", np.linspace(8, 20, 8).reshape(4, 2)),
        "measured": (stack, "TYX", None),
        "measured by channel": (by_channel, "TCYX", None),
    }
    for name, (image, axes, sigma) in forms.items():
        for way in ("nl_means", "nl_means over time", "bm3d", "bm3d joint", "vbm3d", "isoline"):
            if fits(way, axes):
                yield _case(f"sigma {name}", way, image, sigma, axes=axes)
    for name, sigma in (("per sample", [10, 20, 15]), ("map", ramp), ("one zero", [10, 0, 15])):
        for way in ("bm3d", "isoline", "nl_means", "isoline joint"):
            yield _case(f"sigma {name} of colours", way, colour, sigma, axes="YXS")
    yield _case("sigma per slice", "nl_means over slices", stack, planes, axes="ZYX")
    yield _case("sigma per plane", "bm3d", two, [10, 20], axes=".YX")


def _spotted(*shape: int) -> np.ndarray:
    image = noisy(*shape)
    image[..., 5:8, 10:14] = np.nan
    image[..., 30, 40] = np.inf
    image[..., 0, 0] = -np.inf
    return image


def _nonfinite() -> Iterator[Case]:
    def lost() -> np.ndarray:
        image = noisy(4, NY, NX)
        image[1] = np.nan
        return image

    def channels() -> np.ndarray:
        image = noisy(4, 2, NY, NX).astype(np.float64)
        image[:, 0, 7, 7] = np.nan
        return image

    inputs = {
        "spots": (partial(_spotted, 4, NY, NX), "TYX"),
        "a frame lost": (lost, "TYX"),
        "one channel": (channels, "TCYX"),
        "all": (lambda: np.full((2, NY, NX), np.nan, np.float32), "TYX"),
    }
    for name, (image, axes) in inputs.items():
        for way in ("nl_means", "nl_means over time", "bm3d", "vbm3d", "isoline"):
            options = {"axes": axes, "nonfinite": "keep"}
            yield _case(f"non-finite {name}", way, image, 15.0, **options)
            if name == "spots":
                yield _case(f"non-finite {name}, measured", way, image, None, **options)


def _tiles() -> Iterator[Case]:
    # Limits that make a few tiles of each; with wide windows there would be thousands.
    near = {"window_basic": 9, "window_final": 9}
    video = {"frames_before": 1, "frames_after": 1, "window_nearest": 5, "window_next": 3}
    one, some = partial(noisy, 200, 180), partial(noisy, 4, 120, 130, dtype="uint16")
    three = partial(noisy, 3, 120, 130)
    plans: list[tuple[str, dict[str, Any], Callable[[], Any], str, tuple[int, ...]]] = [
        ("nl_means", {}, one, "YX", (400_000, 1_000_000, 4_000_000)),
        ("isoline", {}, one, "YX", (400_000, 1_000_000, 4_000_000)),
        ("bm3d", near, one, "YX", (1_000_000, 2_000_000)),
        ("bm3d", {}, one, "YX", (4_000_000,)),
        ("vbm3d", video, some, "TYX", (1_000_000, 1_500_000, 10_000_000)),
        ("nl_means", {"frames_before": 1, "frames_after": 2}, some, "TYX", (1_500_000,)),
        ("nl_means", {"slices": 1}, some, "ZYX", (1_500_000,)),
        ("isoline", {"channels": "joint"}, three, "CYX", (2_000_000,)),
        ("bm3d", {"channels": "joint", **near}, three, "CYX", (2_000_000,)),
    ]
    ramp = np.linspace(5, 25, 200 * 180).reshape(200, 180)
    for kind, changes, image, axes, limits in plans:
        for limit in limits:
            for sigma in (15.0, ramp) if image is one and limit == 1_000_000 else (15.0,):
                said = "" if sigma is not ramp else " and a map"
                joined = "".join(f" {name}" for name in changes)
                work = partial(_tiled, image, kind, sigma, changes, axes, limit)
                yield Case(f"tiles {limit}{said} {axes} / {kind}{joined}", work)


def _tiled(image: Callable[[], Any], kind: str, sigma: Any, changes: dict, axes: str, limit: int):
    return denoise(image(), kind, sigma, changes=changes, axes=axes, memory_limit=limit)


def _shapes() -> Iterator[Case]:
    for shape in ((1, 1), (1, 50), (50, 1), (3, 50), (7, 9), (2, 2), (8, 8), (17, 33)):
        for kind in FILTERS:
            whole, axes = ((3, *shape), "TYX") if kind == "vbm3d" else (shape, "YX")
            name = f"shape {shape[0]} x {shape[1]}"
            yield _case(name, kind, partial(noisy, *whole), 15.0, axes=axes)
            if shape in ((1, 1), (7, 9)):
                yield _case(f"{name}, measured", kind, partial(noisy, *whole), None, axes=axes)


def _calls() -> Iterator[Case]:
    for way in ("nl_means", "nl_means over time", "bm3d", "vbm3d", "isoline"):
        for frames in (0, 3, -1, slice(1, 4), slice(-2, None)):
            yield _case(f"frames {frames}", way, movie, None, axes="TYX", frames=frames)
        kind, changes = WAYS[way]
        work = partial(adapters.steps, movie(), kind, 15.0, changes=changes, axes="TYX")
        yield Case(f"steps / {way}", work)
    for kind in FILTERS:
        axes = "TYX" if kind == "vbm3d" else "YX"
        image = movie(frames=3) if kind == "vbm3d" else noisy()
        plain = partial(adapters.function, kind, image, 15.0, axes=axes)
        yield Case(f"function / {kind}", plain)
        yield Case(f"function with a profile / {kind}", partial(plain, profile="normal"))
        measured = partial(adapters.function, kind, image, axes=axes, dtype="float64")
        yield Case(f"function, measured, float64 / {kind}", measured)
    first = partial(adapters.function, "bm3d", noisy(), 15.0, profile="fast", threshold=3)
    yield Case("function with a profile and a setting / bm3d", first)
