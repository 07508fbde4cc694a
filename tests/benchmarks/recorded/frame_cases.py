"""Frames one by one, dask arrays chunk by chunk, and the maps of the isoline filter."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import dask.array as da
import numpy as np

import napari_gpu_denoise as gd

from .adapters import isoline_maps, lazily, stream
from .answers import Case
from .array_cases import WAYS
from .images import NX, NY, colour, movie, noisy, photons, speckled


def cases() -> Iterator[Case]:
    """Yield the cases."""
    yield from _streams()
    yield from _lazy()
    yield from _maps()


def _streamed(name: str, way: str, frames: Any, sigma: Any, **options: Any) -> Case:
    kind, changes = WAYS[way]
    work = partial(stream, kind, frames, sigma, changes=changes, **options)
    return Case(f"stream {name} / {way}", work)


def _streams() -> Iterator[Case]:
    ramp = np.linspace(5, 25, NY * NX).reshape(NY, NX)
    spotted = noisy(5, NY, NX)
    spotted[2, 4:7, 9] = np.nan
    ways = [way for way in WAYS if not way.endswith(("joint", "slices"))]

    def by_number(number: int) -> float:
        return 10.0 + 2 * number

    for way in ways:
        for live in (False, True):
            said = ", live" if live else ""
            yield _streamed(f"YX{said}", way, movie(), 15.0, axes="YX", live=live)
            yield _streamed(f"CYX{said}", way, noisy(4, 2, NY, NX), 15.0, axes="CYX", live=live)
            volumes = noisy(4, 3, NY, NX, dtype="uint16")
            yield _streamed(f"ZYX{said}", way, volumes, 15.0, axes="ZYX", live=live)
        yield _streamed("measured", way, photons(6, 96, 96), None)
        yield _streamed("measured as one sigma", way, movie(), None, noise="gaussian")
        yield _streamed("model", way, photons(5, NY, NX), None, noise=gd.PoissonGaussian(2, 3, 100))
        yield _streamed("sigma by number", way, movie(), by_number)
        yield _streamed("map", way, movie(), ramp)
        yield _streamed("sigma by channel", way, noisy(4, 2, NY, NX), [9, 18], axes="CYX")
        yield _streamed("colours", way, colour(4), 15.0, axes="YXS")
        yield _streamed("one frame", way, movie(frames=1), 15.0)
        yield _streamed("two frames", way, movie(frames=2), 15.0)
        yield _streamed("no frames", way, [], 15.0)
        yield _streamed("float64", way, noisy(5, NY, NX).astype(np.float64) + 1e9, 15.0)
        yield _streamed("uint8 to float32", way, movie("uint8"), 15.0, dtype="float32")
        yield _streamed("non-finite", way, spotted, 15.0, nonfinite="keep")
        yield _streamed("no noise", way, movie(), 0)
        yield _streamed("many frames", way, movie("uint8", 40), 15.0)
    volumes = noisy(3, 4, NY, NX)
    yield _streamed("volumes", "nl_means over slices", volumes, 15.0, axes="ZYX")
    for way in ("bm3d joint", "isoline joint"):
        yield _streamed("channels", way, noisy(3, 3, NY, NX), 15.0, axes="CYX")


def _lazy() -> Iterator[Case]:
    stack = movie("uint16", 6)
    chunkings = {
        "one chunk": (6, NY, NX),
        "frames": (1, NY, NX),
        "pairs of frames": (2, NY, NX),
        "blocks": (6, 24, 28),
        "small blocks": (3, 17, 19),
        "uneven": ((1, 5), (11, 37), (30, 26)),
    }
    for name, chunks in chunkings.items():
        for way in WAYS:
            axes = "ZYX" if way.endswith("slices") else "TYX"
            axes = axes.replace("T", "C") if way.endswith("joint") else axes
            kind, changes = WAYS[way]
            array = da.from_array(stack, chunks=chunks)
            work = partial(lazily, array, kind, 15.0, changes=changes, axes=axes)
            yield Case(f"dask {name} / {way}", work)
    spotted = noisy(4, NY, NX)
    spotted[1:3, 20:26, 27:30] = np.nan
    ramp = np.linspace(0, 25, NY * NX).reshape(NY, NX)
    offset = noisy(4, NY, NX).astype(np.float64) + 1e9
    models = (gd.PoissonGaussian(2, 3, 100), gd.PoissonGaussian(1, 5, 100))
    more: dict[str, tuple[np.ndarray, str, Any, dict[str, Any]]] = {
        "map": (stack, "TYX", ramp, {}),
        "sigma by frame": (stack, "TYX", [9, 0, 12, 15, 18, 21], {}),
        "no noise": (stack, "TYX", 0, {}),
        "measured": (photons(6, 96, 96), "TYX", None, {}),
        "one sigma": (stack, "TYX", None, {"noise": "gaussian"}),
        "models by channel": (photons(3, 2, NY, NX), "TCYX", None, {"noise": models}),
        "non-finite": (spotted, "TYX", 15.0, {"nonfinite": "keep"}),
        "float64": (offset, "TYX", 15.0, {}),
        "to float32": (stack, "TYX", 15.0, {"dtype": "float32"}),
        "colours": (colour(3), "TYXS", 15.0, {}),
        "tiny": (noisy(3, 3, 5), "TYX", 15.0, {}),
    }
    for name, (array, axes, sigma, options) in more.items():
        for way in ("nl_means", "nl_means over time", "bm3d", "vbm3d", "isoline"):
            kind, changes = WAYS[way]
            chunks = tuple(2 if a == "T" else 3 if a == "S" else 30 for a in axes)
            lazy = da.from_array(array, chunks=chunks)
            work = partial(lazily, lazy, kind, sigma, changes=changes, axes=axes, **options)
            yield Case(f"dask {name} / {way}", work)


def _maps() -> Iterator[Case]:
    spotted = noisy(NY, NX)
    spotted[10:12, 20] = np.nan
    ways = {
        "as it is": {},
        "pi-pd": {"method": "pi-pd"},
        "pi-ld": {"method": "pi-ld"},
        "hard": {"choice": "hard"},
        "hard pi-pd": {"method": "pi-pd", "choice": "hard"},
        "joint": {"channels": "joint"},
    }
    for name, changes in ways.items():
        for axes, image in (("YX", noisy()), ("TYX", movie(frames=3)), ("CYX", noisy(2, NY, NX))):
            work = partial(isoline_maps, image, 15.0, changes=changes, axes=axes)
            yield Case(f"maps {name} {axes}", work)
    yield Case("maps of colours", partial(isoline_maps, colour(), 15.0, axes="YXS"))
    yield Case("maps measured", partial(isoline_maps, photons(96, 96)))
    yield Case("maps as one sigma", partial(isoline_maps, photons(96, 96), noise="gaussian"))
    yield Case("maps of a model", partial(isoline_maps, photons(NY, NX), noise=gd.Rician(9)))
    yield Case("maps of speckle", partial(isoline_maps, speckled(NY, NX), noise=gd.Speckle(4)))
    looks = {"criterion": "multiplicative", "looks": 4}
    yield Case("maps of looks", partial(isoline_maps, speckled(NY, NX), changes=looks))
    yield Case("maps of a frame", partial(isoline_maps, movie(), 15.0, axes="TYX", frames=2))
    yield Case("maps non-finite", partial(isoline_maps, spotted, 15.0, nonfinite="keep"))
    yield Case("maps without noise", partial(isoline_maps, noisy(), 0))
    yield Case("maps of a profile", partial(isoline_maps, noisy(), 15.0, profile="paper"))
    tiles = partial(isoline_maps, noisy(200, 180), 15.0, memory_limit=1_000_000)
    yield Case("maps in tiles", tiles)
    by_channel = partial(isoline_maps, noisy(2, NY, NX), [0, 15], axes="CYX")
    yield Case("maps by channel", by_channel)
