"""Noise: models given, named and measured for every filter; estimates; what models compute."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import dask.array as da
import numpy as np

import napari_gpu_denoise as gd

from . import adapters, images
from .adapters import FILTERS, denoise
from .answers import Answer, Case
from .images import NX, NY, colour, correlated, magnitudes, noisy, photons, speckled


def models() -> dict[str, Any]:
    """Return models of noise by name."""
    return {
        "Gaussian": gd.Gaussian(15),
        "no noise": gd.Gaussian(0),
        "photons": gd.PoissonGaussian(2.0, 3.0, 100.0),
        "photons alone": gd.PoissonGaussian(0.5, 0.0),
        "photons and much read noise": gd.PoissonGaussian(0.1, 20.0, 90.0),
        "Rician": gd.Rician(12.0),
        "Rician strong": gd.Rician(60.0),
        "speckle": gd.Speckle(4.0),
        "speckle of one look": gd.Speckle(1.0, 0.01),
        "correlated": gd.Correlated(12.0, images.table()),
        "correlated, negative": gd.Correlated(12.0, images.table(-0.3, 0.1)),
        "white table": gd.Correlated(12.0, images.table(0, 0)),
    }


def _images(*outer: int) -> dict[str, np.ndarray]:
    return {
        "photons": photons(*outer, NY, NX),
        "Rician": magnitudes(*outer, NY, NX),
        "speckle": speckled(*outer, NY, NX),
        "correlated": correlated(*outer, NY, NX),
        "Gaussian": noisy(*outer, NY, NX),
    }


def cases() -> Iterator[Case]:
    """Yield the cases."""
    yield from _given()
    yield from _channels()
    yield from _measured()
    yield from _estimates()
    for name, model in models().items():
        image = np.concatenate([np.linspace(-50, 400, 60), np.geomspace(1e-3, 1e5, 40)])
        yield Case(f"model {name}", partial(adapters.noise_model, model, image))
        work = partial(adapters.noise_model, model, photons(20, 30))
        yield Case(f"model {name} of integers", work)


def _given() -> Iterator[Case]:
    for name, model in models().items():
        for kind in FILTERS:
            outer, axes = ((4,), "TYX") if kind == "vbm3d" else ((), "YX")
            key = next((key for key in _images() if name.lower().startswith(key.lower())), "")
            image = _images(*outer).get(key, noisy(*outer, NY, NX))
            work = partial(denoise, image, kind, noise=model, axes=axes)
            yield Case(f"noise {name} / {kind}", work)
    image, model = photons(NY, NX), models()["photons"]
    for kind in ("nl_means", "bm3d", "isoline"):
        for dtype in ("float32", "uint8", "int16"):
            work = partial(denoise, image, kind, noise=model, dtype=dtype)
            yield Case(f"noise photons to {dtype} / {kind}", work)
        yield Case(f"noise and sigma / {kind}", partial(denoise, image, kind, 9.0, noise=model))
        yield Case(f"noise a number / {kind}", partial(denoise, image, kind, noise=9.0))
        near = {"window_basic": 9, "window_final": 9} if kind == "bm3d" else {}
        tiles = {"noise": model, "memory_limit": 1_000_000, "changes": near}
        yield Case(f"noise in tiles / {kind}", partial(denoise, photons(200, 180), kind, **tiles))
    spotted = magnitudes(NY, NX)
    spotted[4:7, 9] = np.nan
    work = partial(denoise, spotted, "bm3d", noise=gd.Rician(12), nonfinite="keep")
    yield Case("noise Rician, non-finite / bm3d", work)
    for name, own in (("rician", {"rician": True}), ("fine", {"patch": 5, "step": 1})):
        work = partial(denoise, magnitudes(NY, NX), "nl_means", noise=gd.Rician(12), changes=own)
        yield Case(f"noise Rician, {name} / nl_means", work)
    for own in ({"frames_before": 2}, {"frames_before": 1, "frames_after": 1, "rician": True}):
        series = magnitudes(4, NY, NX)
        work = partial(
            denoise, series, "nl_means", noise=gd.Rician(12), changes=own, axes="TYX", frames=2
        )
        yield Case(f"noise Rician over time {sorted(own)} / nl_means", work)


def _channels() -> Iterator[Case]:
    each = {
        "photons": (gd.PoissonGaussian(2, 3, 100), gd.PoissonGaussian(1, 5, 100)),
        "Rician": (gd.Rician(12), gd.Rician(20)),
        "speckle": (gd.Speckle(4), gd.Speckle(2)),
        "Gaussian": (gd.Gaussian(15), gd.Gaussian(0)),
        "correlated": (
            gd.Correlated(12, images.table()),
            gd.Correlated(8, images.table(0.2, 0.6)),
        ),
    }
    for name, pair in each.items():
        for kind in FILTERS:
            outer, axes = ((3, 2), "TCYX") if kind == "vbm3d" else ((2,), "CYX")
            changes = {"channels": "joint"} if kind in ("bm3d", "isoline") else {}
            image = _images(*outer)[name]
            work = partial(denoise, image, kind, noise=pair, changes=changes, axes=axes)
            yield Case(f"noise by channel {name} / {kind}", work)
    for kind in ("nl_means", "bm3d", "isoline"):
        three = (gd.PoissonGaussian(2, 3),) * 2 + (gd.PoissonGaussian(1, 1),)
        work = partial(denoise, colour(), kind, noise=three, axes="YXS")
        yield Case(f"noise of colours / {kind}", work)


def _measured() -> Iterator[Case]:
    for kind in FILTERS:
        outer, axes = ((6,), "TYX") if kind == "vbm3d" else ((), "YX")
        shape = (*outer, 96, 96)
        makers = (("photons", photons), ("magnitudes", magnitudes), ("speckled", speckled))
        for name, maker in (*makers, ("correlated", correlated), ("noisy", noisy)):
            image = maker(*shape)
            for noise in ("auto", "gaussian", "poisson-gaussian", "rician", "speckle"):
                if noise not in ("auto", "gaussian") and name in ("correlated", "noisy"):
                    continue
                work = partial(denoise, image, kind, noise=noise, axes=axes)
                yield Case(f"noise measured as {noise}, {name} / {kind}", work)

        def handed_over(kind=kind, shape=shape, axes=axes) -> Answer:
            image = photons(*shape)
            return denoise(image, kind, noise=gd.estimate_noise(image, axes), axes=axes)

        yield Case(f"noise an estimate / {kind}", handed_over)
    for changes in ({"rician": True}, {"distance": "pearson"}):
        work = partial(denoise, magnitudes(96, 96), "nl_means", changes=changes)
        yield Case(f"noise measured by the filter {sorted(changes)} / nl_means", work)


def _estimates() -> Iterator[Case]:
    flat = images.random(9).normal(100, 5, (64, 64))
    holes = noisy(64, 64)
    holes[::9, ::7] = np.nan
    found: dict[str, tuple[Any, str | None]] = {
        "white": (noisy(128, 128), "YX"),
        "white uint8": (noisy(128, 128, dtype="uint8"), "YX"),
        "flat": (flat, "YX"),
        "photons": (photons(128, 128), "YX"),
        "photons over time": (photons(12, 96, 96), "TYX"),
        "photons over slices": (photons(6, 96, 96), "ZYX"),
        "photons of channels": (photons(4, 2, 96, 96), "TCYX"),
        "magnitudes": (magnitudes(128, 128), "YX"),
        "magnitudes repeated": (magnitudes(12, 96, 96), "TYX"),
        "speckle": (speckled(128, 128), "YX"),
        "correlated": (correlated(128, 128), "YX"),
        "correlated slices": (correlated(5, 96, 96), "ZYX"),
        "colours": (colour(2), ".YXS"),
        "no noise": (np.full((64, 64), 7, np.uint8), "YX"),
        "clipped": (np.clip(noisy(128, 128), 60, 150), "YX"),
        "holes": (holes, "YX"),
        "offset": (noisy(96, 96).astype(np.float64) + 1e9, "YX"),
        "tiny range": (noisy(96, 96) * np.float32(1e-30), "YX"),
        "huge range": (noisy(96, 96).astype(np.float64) * 1e200, "YX"),
        "6 x 6": (noisy(6, 6), "YX"),
        "1 x 1": (noisy(1, 1), "YX"),
        "planes": (noisy(20, 64, 64), None),
        "lazy": (da.from_array(photons(20, 96, 96), chunks=(3, 96, 96)), "TYX"),
        "XY": (photons(96, 128).T, "XY"),
    }
    for name, (image, axes) in found.items():
        yield Case(f"estimate {name}", partial(adapters.estimate, image, axes))
    for model in ("gaussian", "poisson-gaussian", "rician", "speckle"):
        for name in ("white", "photons", "photons over time", "magnitudes", "speckle"):
            work = partial(adapters.estimate, *found[name], model)
            yield Case(f"estimate {name} as {model}", work)
    for name in adapters.sample_names():
        yield Case(f"estimate sample {name}", partial(adapters.estimate, *adapters.sample(name)))
