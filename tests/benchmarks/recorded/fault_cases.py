"""Bad inputs: which class of error each one raises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import dask.array as da
import numpy as np

import napari_gpu_denoise as gd

from .adapters import FILTERS, batch, denoise, failing, in_new_folder, isoline_maps, lazily, stream
from .adapters import estimate as measure
from .adapters import settings as made
from .answers import Case
from .images import colour, movie, noisy


class _Stop:
    """A caller that asks for a stop at once."""

    def is_set(self) -> bool:
        return True


def _with(image: Any, value: float) -> Any:
    image[3, 4] = value
    return image


def cases() -> Iterator[Case]:
    """Yield the cases."""
    for name, work in {**_inputs(), **_noise(), **_settings(), **_elsewhere()}.items():
        yield Case(f"fault {name}", partial(failing, work))


def _inputs() -> dict[str, Callable[[], Any]]:
    def bad(image: Any, kind: str = "nl_means", sigma: Any = 9.0, **options: Any):
        return partial(denoise, image, kind, sigma, **options)

    image = noisy()
    stack = movie()
    return {
        "one axis": bad(np.zeros(5)),
        "a number": bad(7.0),
        "empty": bad(np.zeros((0, 5))),
        "complex": bad(image + 1j),
        "text": bad(np.array([["a", "b"]])),
        "long double": bad(image.astype(np.longdouble)),
        "NaN": bad(_with(noisy(), np.nan)),
        "infinity": bad(_with(noisy(), np.inf), "bm3d"),
        "NaN kept as integers": bad(_with(noisy(), np.nan), nonfinite="keep", dtype="uint8"),
        "unknown policy": bad(image, nonfinite="ignore"),
        "too many axes named": bad(image, axes="TYX"),
        "an axis twice": bad(stack, axes="YYX"),
        "no Y": bad(stack, axes="TZX"),
        "a digit": bad(stack, axes="3YX"),
        "no T": bad(image, "vbm3d", axes="YX", changes={"frames_after": 0}),
        "frames without T": bad(stack, axes="ZYX", frames=1),
        "frames beyond": bad(stack, axes="TYX", frames=99),
        "frames with a step": bad(stack, axes="TYX", frames=slice(0, 6, 2)),
        "type of text": bad(image, dtype="str"),
        "type unknown": bad(image, dtype="uint7"),
        "complex type": bad(image, dtype="complex64"),
        "memory limit of 1": bad(image, memory_limit=1),
        "no such device": bad(image, device="no such device"),
        "device 99": bad(image, device=99),
        "stopped": bad(image, cancel=_Stop()),
        "opponent of two": bad(
            noisy(2, 48, 56), "bm3d", axes="CYX", changes={"channels": "opponent"}
        ),
        "guide beyond": bad(
            noisy(2, 48, 56), "bm3d", axes="CYX", changes={"channels": "joint", "guide": 2}
        ),
        "frames before without T": bad(stack, changes={"frames_before": 1}),
        "slices without Z": bad(stack, changes={"slices": 1}, axes="TYX"),
    }


def _noise() -> dict[str, Callable[[], Any]]:
    def bad(sigma: Any = None, image: Any = None, kind: str = "bm3d", **options: Any):
        return partial(denoise, noisy() if image is None else image, kind, sigma, **options)

    two, mixed = noisy(2, 48, 56), (gd.Gaussian(3), gd.Rician(3))
    own = {"criterion": "multiplicative"}
    return {
        "sigma negative": bad(-1),
        "sigma NaN": bad(np.nan),
        "sigma infinite": bad(np.inf),
        "sigma of text": bad("much"),
        "sigma of three channels for two": bad([1, 2, 3], two, axes="CYX"),
        "sigma a map of another shape": bad(np.ones((5, 6))),
        "sigma complex": bad(1j),
        "sigma empty": bad([]),
        "noise unknown": bad(noise="pink"),
        "noise a list of words": bad(noise=["gaussian"]),
        "noise True": bad(noise=True),
        "noise an object": bad(noise=object()),
        "noise of three for two": bad(image=two, noise=(gd.Rician(3),) * 3, axes="CYX"),
        "noise of several kinds": bad(image=two, noise=mixed, axes="CYX"),
        "noise too small": bad(noise=gd.Rician(1e-30)),
        "noise for speckle settings": bad(kind="isoline", noise=gd.Rician(3), changes=own),
        "noise for Rician settings": bad(
            kind="nl_means", noise=gd.Speckle(3), changes={"rician": True}
        ),
        "noise for Pearson": bad(
            kind="nl_means", noise=gd.Rician(3), changes={"distance": "pearson"}
        ),
        "gain 0": partial(gd.PoissonGaussian, 0, 1),
        "read noise negative": partial(gd.PoissonGaussian, 1, -1),
        "gain lost": partial(gd.PoissonGaussian, 1e-9, 1),
        "Rician 0": partial(gd.Rician, 0),
        "looks NaN": partial(gd.Speckle, np.nan),
        "table too small": partial(gd.Correlated, 1, [[1]]),
        "model unknown": partial(gd.NoiseModel.from_dict, {"model": "pink"}),
        "model without parameters": partial(gd.NoiseModel.from_dict, {"model": "rician"}),
        "estimate of nothing": partial(gd.NoiseEstimate.from_dict, {}),
        "measure all NaN": partial(measure, np.full((48, 48), np.nan)),
        "measure as pink": partial(measure, noisy(), "YX", "pink"),
        "measure bool": partial(measure, np.eye(20) > 0),
        "measure with other axes": partial(measure, noisy(), "TYX"),
    }


def _settings() -> dict[str, Callable[[], Any]]:
    found: dict[str, Callable[[], Any]] = {}
    for kind in FILTERS:
        found[f"{kind} unknown setting"] = partial(made, kind, nonsense=1)
        found[f"{kind} unknown profile"] = partial(made, kind, "nonsense")
        both = partial(FILTERS[kind].of, FILTERS[kind](), profile="normal")
        found[f"{kind} settings and profile"] = both
    bad: list[tuple[str, dict[str, Any]]] = [
        ("nl_means", {"patch": 0}),
        ("nl_means", {"patch": 4.5}),
        ("nl_means", {"step": 9}),
        ("nl_means", {"window": 8}),
        ("nl_means", {"strength": "much"}),
        ("nl_means", {"flicker": 2}),
        ("nl_means", {"window": 101, "slices": 16}),
        ("nl_means", {"rician": True, "distance": "pearson"}),
        ("bm3d", {"neighbours_basic": 3}),
        ("bm3d", {"window_final": 40}),
        ("bm3d", {"transform_basic": "wavelet"}),
        ("vbm3d", {"window_nearest": 4}),
        ("vbm3d", {"frames_before": 17}),
        ("isoline", {"staircase": 4}),
        ("isoline", {"length": 9, "pixels": 4}),
        ("isoline", {"method": "pi-ld", "show": "classes"}),
        ("isoline", {"looks": 0}),
    ]
    for kind, changes in bad:
        told = ", ".join(f"{name}={value}" for name, value in changes.items())
        found[f"{kind} {told}"] = partial(made, kind, **changes)
    return found


def _elsewhere() -> dict[str, Callable[[], Any]]:
    lazy = da.from_array(movie(), chunks=(2, 48, 56))
    unknown = lazy[lazy.mean(axis=(1, 2)) > 0]
    shapes = [noisy(), noisy(20, 20)]
    types = [noisy(), noisy(dtype="uint8")]

    def file(*given: Any, **options: Any) -> Any:
        with in_new_folder():
            return batch(*given, **options)

    return {
        "dask of unknown shape": partial(lazily, unknown, "bm3d", 9.0),
        "dask with NaN": partial(lazily, da.from_array(_with(noisy(), np.nan)), "bm3d", 9.0),
        "dask, sigma negative": partial(lazily, lazy, "bm3d", -9.0),
        "stream of two shapes": partial(stream, "nl_means", shapes, 9.0),
        "stream of two types": partial(stream, "bm3d", types, 9.0),
        "stream with T": partial(stream, "vbm3d", [movie()], 9.0, axes="TYX"),
        "stream with NaN": partial(stream, "vbm3d", [_with(noisy(), np.nan)], 9.0),
        "stream, sigma by number negative": partial(stream, "bm3d", movie(), lambda k: -k),
        "maps of NaN": partial(isoline_maps, _with(noisy(), np.nan), 9.0),
        "maps with opponent speckle": partial(
            isoline_maps,
            colour(),
            axes="YXS",
            changes={"channels": "opponent", "criterion": "multiplicative"},
        ),
        "batch of nothing": partial(file, [], "bm3d", 9.0, output="out/"),
        "batch of no match": partial(file, "*.tif", "bm3d", 9.0, output="out/"),
        "batch into a text file": partial(file, "a.tif", "bm3d", 9.0, output="out.txt"),
        "read of nothing": partial(gd.read, "/no/such/file.tif"),
        "choose nothing": partial(gd.choose, "no such device"),
    }
