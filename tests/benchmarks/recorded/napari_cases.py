"""napari: layers that the plugin's panels add, with their records and how they look."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import dask.array as da
import numpy as np

from .adapters import of_estimate
from .answers import Answer, Case
from .images import NX, NY, colour, magnitudes, movie, noisy, photons, speckled
from .panels import TITLES, Window


def cases() -> Iterator[Case]:
    """Yield the cases."""
    yield from _filters()
    yield from _layers()
    yield from _frames()
    yield from _measurements()


def _case(name: str, kind: str, data: Any, layer: dict, axes: str | None = None, **changes: Any):
    def run() -> Answer:
        return Window(data, name="layer", **layer).filter(kind, axes, **changes)

    return Case(f"napari {name} / {kind}", run)


def _filters() -> Iterator[Case]:
    placed = {"scale": (2, 0.5, 0.25), "translate": (1, 2, 3), "axis_labels": ("t", "y", "x")}
    placed["contrast_limits"] = (0, 255)
    for kind in TITLES:
        yield _case("measured", kind, photons(6, 96, 96), {}, "TYX")
        yield _case("one sigma", kind, movie(), placed, noise="one")
        yield _case("typed sigma", kind, movie(), placed, sigma="15")
        yield _case("float32", kind, movie(), placed, sigma="15", fractions=True)
        axes = "TCYX"
        channels = noisy(3, 2, NY, NX)
        yield _case("sigma by channel", kind, channels, {}, axes, sigma="10, 20")
        lazy = da.from_array(movie(), chunks=(2, NY, NX))
        limits = {"contrast_limits": (0, 255), "axis_labels": ("t", "y", "x")}
        yield _case("lazy", kind, lazy, limits, sigma="15")
        yield _case("lazy and measured", kind, lazy, limits)
        lazy64 = da.from_array(noisy(4, NY, NX).astype(np.float64) + 1e6, chunks=(1, NY, NX))
        levels = {"contrast_limits": (1e6, 1e6 + 255)}
        yield _case("lazy float64", kind, lazy64, levels, "TYX", sigma="15")
    profiles = (("nl_means", "fine"), ("bm3d", "fast"), ("vbm3d", "fast"), ("isoline", "paper"))
    for kind, profile in profiles:
        yield _case(f"profile {profile}", kind, movie(), {}, "TYX", profile=profile, sigma="15")
    some: dict[str, dict[str, Any]] = {
        "nl_means": {"patch": 5, "step": 2, "frames_after": 2},
        "bm3d": {"threshold": 2.5, "window_basic": 21, "stages": "basic"},
        "vbm3d": {"frames_after": 0, "flicker": False},
        "isoline": {"length": 4, "thickness": 3},
    }
    for kind, settings in some.items():
        yield _case("settings", kind, movie(), {}, "TYX", settings=settings, sigma="15")


def _layers() -> Iterator[Case]:
    alpha = np.arange(NY * NX, dtype=np.uint8).reshape(NY, NX, 1)
    rgba = np.concatenate([colour(), alpha], axis=-1)
    for kind in ("nl_means", "bm3d", "isoline"):
        yield _case("image", kind, noisy(dtype="uint8"), {}, sigma="15")
        yield _case("RGB", kind, colour(), {"rgb": True}, sigma="15")
        yield _case("RGBA", kind, rgba, {"rgb": True}, sigma="15")
        lazy = da.from_array(rgba, chunks=(24, 28, 4))
        yield _case("RGBA, lazy", kind, lazy, {"rgb": True}, sigma="15")
        levels = [noisy(), noisy()[::2, ::2]]
        yield _case("multiscale", kind, levels, {"multiscale": True}, sigma="15")
        spotted = noisy()
        spotted[4:6, 9] = np.nan
        shown = {"contrast_limits": (0, 255)}
        yield _case("non-finite", kind, spotted, shown, sigma="15", keep=True)
        yield _case("non-finite refused", kind, spotted, shown, sigma="15")
        yield _case("constant", kind, np.full((NY, NX), 9, np.uint8), {})
    yield _case("no axis T", "vbm3d", movie(), {}, ".YX", sigma="15")
    yield _case("bad axes", "bm3d", movie(), {}, "TZ", sigma="15")
    yield _case("bad sigma", "bm3d", movie(), {}, "TYX", sigma="much")
    yield _case("maps", "isoline", movie(frames=3), {}, "TYX", sigma="15", maps=True)
    yield _case("maps of channels", "isoline", noisy(2, NY, NX), {}, "CYX", sigma="15", maps=True)
    looks = {"criterion": "multiplicative", "looks": 4.0}
    yield _case("maps of speckle", "isoline", speckled(NY, NX), {}, settings=looks, maps=True)
    lazy = da.from_array(movie(), chunks=(2, NY, NX))
    shown = {"contrast_limits": (0, 255)}
    yield _case("maps of lazy data", "isoline", lazy, shown, "TYX", sigma="15", maps=True)


def _frames() -> Iterator[Case]:
    for kind in TITLES:
        yield _case("one frame", kind, movie(), {}, "TYX", sigma="15", frame=2)
        lazy = da.from_array(movie(), chunks=(2, NY, NX))
        shown = {"contrast_limits": (0, 255)}
        yield _case("one frame, lazy", kind, lazy, shown, "TYX", frame=4)
    colours = colour(4)
    yield _case("one frame of colours", "vbm3d", colours, {"rgb": True}, "TYXS", frame=1)
    yield _case(
        "one frame with maps", "isoline", movie(), {}, "TYX", sigma="15", frame=1, maps=True
    )


def _measurements() -> Iterator[Case]:
    images = {
        "white": (noisy(96, 96), {}, None),
        "photons": (photons(6, 96, 96), {}, "TYX"),
        "magnitudes": (magnitudes(96, 96), {}, None),
        "colours": (colour(), {"rgb": True}, None),
        "lazy": (
            da.from_array(photons(12, 96, 96), chunks=(2, 96, 96)),
            {"contrast_limits": (0, 500)},
            "TYX",
        ),
    }
    for name, (data, layer, axes) in images.items():
        for model in ("auto", "gaussian"):
            work = partial(_measured, data, layer, axes, model)
            yield Case(f"napari noise of {name} as {model}", work)
    for kind in TITLES:
        work = partial(_handed_over, photons(6, 96, 96), kind)
        yield Case(f"napari noise handed over / {kind}", work)


def _measured(data: Any, layer: dict, axes: str | None, model: str) -> Answer:
    return of_estimate(Window(data, **layer).measure(axes, model))


def _handed_over(data: Any, kind: str) -> Answer:
    window = Window(data, name="layer")
    return window.filter(kind, "TYX", estimate=window.measure("TYX"))
