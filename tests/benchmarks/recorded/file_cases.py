"""Files: kinds of TIFF through `gd.run_batch` and the command line, whole and frame by frame."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tifffile

import napari_gpu_denoise as gd

from . import adapters
from .answers import Answer, Case
from .images import NX, NY, colour, magnitudes, movie, noisy, photons

_MICROMETRES = {"resolution": (4.0, 4.0), "resolutionunit": "NONE"}


def _imagej(path: str, image: np.ndarray, axes: str) -> None:
    metadata = {"axes": axes, "unit": "um", "spacing": 0.5, "finterval": 2.0}
    tifffile.imwrite(path, image, imagej=True, metadata=metadata, **_MICROMETRES)


def _ome(path: str, image: np.ndarray, axes: str) -> None:
    metadata = {"axes": axes, "PhysicalSizeX": 0.25, "PhysicalSizeXUnit": "µm"}
    tifffile.imwrite(path, image, ome=True, metadata=metadata)


def inputs() -> dict[str, Callable[[str], None]]:
    """Return what writes each file, by its name."""

    def rgba(path: str) -> None:
        alpha = np.arange(NY * NX, dtype=np.uint8).reshape(NY, NX, 1)
        image = np.concatenate([colour(), alpha], axis=-1)
        tifffile.imwrite(path, image, photometric="rgb", extrasamples=["unassalpha"])

    def nan(path: str) -> None:
        image = noisy()
        image[3, 4] = np.nan
        tifffile.imwrite(path, image)

    def write(image: np.ndarray, **options: Any) -> Callable[[str], None]:
        return lambda path: tifffile.imwrite(path, image, **options)

    return {
        "plain.tif": write(noisy(dtype="uint8")),
        "float.tif": write(noisy()),
        "big_endian.tif": write(noisy(dtype="uint16").astype(">u2"), byteorder=">"),
        "deflate.tif": write(noisy(dtype="uint16"), compression="zlib", predictor=True),
        "tiled.tif": write(noisy(96, 112, dtype="uint8"), tile=(32, 32)),
        "pages.tif": write(movie(frames=4)),
        "rgb.tif": write(colour(), photometric="rgb"),
        "rgba.tif": rgba,
        "nan.tif": nan,
        "imagej.tif": lambda path: _imagej(path, movie(), "TYX"),
        "imagej_slices.tif": lambda path: _imagej(path, movie(frames=4), "ZYX"),
        "imagej_channels.tif": lambda path: _imagej(path, noisy(3, 2, NY, NX), "TCYX"),
        "series.ome.tif": lambda path: _ome(path, movie(), "TYX"),
        "channels.ome.tif": lambda path: _ome(path, noisy(3, 2, NY, NX), "TCYX"),
        "volumes.ome.tif": lambda path: _ome(path, noisy(3, 3, NY, NX, dtype="uint16"), "TZYX"),
        "colours.ome.tif": lambda path: _ome(path, colour(3), "TYXS"),
        "offset.ome.tif": lambda path: _ome(path, noisy(4, NY, NX).astype(np.float64) + 1e9, "TYX"),
        "photons.tif": lambda path: _imagej(path, photons(6, 96, 96), "TYX"),
    }


def cases() -> Iterator[Case]:
    """Yield the cases."""
    whole, streamed = 1 << 40, 0
    for name in inputs():
        for kind in ("bm3d", "isoline", "nl_means"):
            yield _batch(f"file {name} / {kind}", name, kind, 15.0, whole)
    timed = [name for name in inputs() if name.startswith(("imagej", "series", "channels"))]
    timed += ["volumes.ome.tif", "colours.ome.tif", "offset.ome.tif", "photons.tif"]
    for name in timed:
        if name == "imagej_slices.tif":
            continue
        yield _batch(f"file {name} / vbm3d", name, "vbm3d", 15.0, whole)
        for kind in ("nl_means", "bm3d", "vbm3d", "isoline"):
            yield _batch(f"file {name}, frame by frame / {kind}", name, kind, 15.0, streamed)
        measured = f"file {name}, measured, frame by frame / vbm3d"
        yield _batch(measured, name, "vbm3d", None, streamed)
    more: dict[str, tuple[str, str, Any, dict[str, Any]]] = {
        "to float32": ("imagej.tif", "bm3d", 15.0, {"dtype": "float32"}),
        "other axes": ("pages.tif", "vbm3d", 15.0, {"axes": "TYX"}),
        "non-finite": ("nan.tif", "bm3d", 15.0, {"nonfinite": "keep"}),
        "photons": ("photons.tif", "vbm3d", None, {}),
        "model": ("photons.tif", "bm3d", None, {"noise": gd.PoissonGaussian(2, 3, 100)}),
        "one sigma": ("photons.tif", "nl_means", None, {"noise": "gaussian"}),
        "sigma by frame": ("imagej.tif", "bm3d", np.arange(6) * 4.0, {}),
        "map": ("imagej.tif", "vbm3d", np.linspace(5, 25, NY * NX).reshape(NY, NX), {}),
        "memory limit": ("tiled.tif", "nl_means", 15.0, {"memory_limit": 300_000}),
        "profile": ("plain.tif", "bm3d", None, {"profile": "fast"}),
        "look along time": ("imagej.tif", "nl_means", 15.0, {"changes": {"frames_before": 2}}),
    }
    for name, (path, kind, sigma, options) in more.items():
        for size, how in ((whole, ""), (streamed, ", frame by frame")):
            yield _batch(f"file {name}{how} / {kind}", path, kind, sigma, size, **options)
    yield Case("files, some of them bad", _several)
    yield Case("file denoised twice", _twice)
    yield from _commands()


def _batch(name: str, path: str, kind: str, sigma: Any, size: int, **options: Any) -> Case:
    def run() -> Answer:
        with adapters.in_new_folder(), adapters.streaming_from(size):
            inputs()[path](path)
            answer = adapters.batch(path, kind, sigma, output="out/", **options)
            return _with_files(answer)

    return Case(name, run)


def _with_files(answer: Answer) -> Answer:
    """Add what is in the folder ``out``."""
    for path in sorted(Path("out").glob("*")):
        found = adapters.file(path)
        answer.arrays.update(found.arrays)
        answer.record[path.name] = {**found.record, **_tags(path)}
    if not answer.arrays:
        answer.arrays["no file"] = np.zeros(0)
    return answer


def _tags(path: Path) -> dict[str, Any]:
    with tifffile.TiffFile(path) as tif:
        page, told = tif.pages[0], tif.imagej_metadata or {}
        names = ("XResolution", "YResolution", "ResolutionUnit", "Compression", "Photometric")
        tags = {name: str(page.tags.valueof(name)) for name in names}
        sizes = {key: told[key] for key in sorted(told) if key not in ("Info", "Labels")}
        ome = "PhysicalSizeX=" in (tif.ome_metadata or "")
        shape = [list(tif.series[0].shape), tif.series[0].axes]
        return {"tags": tags, "imagej": sizes, "physical size": ome, "shape": shape}


def _several() -> Answer:
    with adapters.in_new_folder():
        Path("raw").mkdir()
        for name in ("plain.tif", "float.tif", "nan.tif"):
            inputs()[name](f"raw/{name}")
        Path("raw/bad.tif").write_text("not what its name says")
        Path("raw/notes.txt").write_text("nothing")
        return _with_files(adapters.batch("raw/*", "nl_means", 15.0, output="out"))


def _twice() -> Answer:
    with adapters.in_new_folder():
        inputs()["series.ome.tif"]("a.tif")
        adapters.batch("a.tif", "bm3d", 15.0, output="b.tif")
        return _with_files(adapters.batch("b.tif", "isoline", 9.0, output="out/"))


def _commands() -> Iterator[Case]:
    option = adapters.options_of
    lines: dict[str, tuple[str, str, list[str]]] = {
        "sigma": ("plain.tif", "nl_means", ["--sigma", "15"]),
        "measured": ("imagej.tif", "vbm3d", []),
        "json": ("imagej.tif", "bm3d", ["--sigma", "15", "--json"]),
        "profile": ("plain.tif", "bm3d", ["--profile", "fast", "--sigma", "auto"]),
        "settings": (
            "plain.tif",
            "isoline",
            ["--sigma", "15", *option("isoline", length=4, pixels=20, choice="hard")],
        ),
        "flags": (
            "imagej.tif",
            "nl_means",
            ["--sigma", "15", *option("nl_means", frames_before=2, flicker=False)],
        ),
        "sigmas": ("imagej_channels.tif", "bm3d", ["--sigma", "10,20"]),
        "noise": ("photons.tif", "bm3d", ["--noise", "poisson-gaussian"]),
        "one sigma": ("photons.tif", "vbm3d", ["--noise", "gaussian", "--json"]),
        "axes": ("pages.tif", "vbm3d", ["--axes", "TYX", "--sigma", "15"]),
        "dtype": ("plain.tif", "isoline", ["--dtype", "float32", "--sigma", "15", "--quiet"]),
        "non-finite": ("nan.tif", "nl_means", ["--nonfinite", "keep", "--sigma", "15"]),
        "non-finite refused": ("nan.tif", "nl_means", ["--sigma", "15"]),
        "memory limit": ("tiled.tif", "nl_means", ["--memory-limit", "300k", "--sigma", "15"]),
        "no axis T": ("plain.tif", "vbm3d", ["--sigma", "15"]),
        "bad setting": ("plain.tif", "bm3d", option("bm3d", window_basic=4)),
        "bad number": ("plain.tif", "bm3d", ["--sigma", "much"]),
        "bad profile": ("plain.tif", "bm3d", ["--profile", "best"]),
        "no device": ("plain.tif", "bm3d", ["--device", "no such device"]),
        "no file": ("none.tif", "bm3d", []),
    }
    for name, (path, kind, options) in lines.items():
        yield Case(f"command {name} / {kind}", partial(_command, path, kind, options))
    for name in ("photons.tif", "imagej_channels.tif", "plain.tif", "nan.tif", "none.tif"):
        for options in ([], ["--json"], ["--model", "gaussian", "--json"]):
            work = partial(_estimated, name, options)
            yield Case(f"command estimate {' '.join([name, *options])}", work)
    yield Case("command with a map", partial(_with_other_file, "map.tif"))
    yield Case("command with an estimate", partial(_with_other_file, "noise.json"))
    yield Case("command sample", _sample)


def _command(path: str, kind: str, options: list[str]) -> Answer:
    with adapters.in_new_folder():
        if path in inputs():
            inputs()[path](path)
        return _with_files(
            adapters.command_line(adapters.COMMANDS[kind], path, "-o", "out/", *options)
        )


def _estimated(path: str, options: list[str]) -> Answer:
    with adapters.in_new_folder():
        if path in inputs():
            inputs()[path](path)
        return _with_files(adapters.command_line("estimate", path, *options))


def _with_other_file(other: str) -> Answer:
    """Filter with a map of sigma, or with an estimate, that another file holds."""
    with adapters.in_new_folder():
        _imagej("a.tif", magnitudes(4, 96, 96), "TYX")
        if other == "map.tif":
            ramp = np.linspace(5, 25, 96 * 96, dtype=np.float32).reshape(96, 96)
            tifffile.imwrite(other, ramp)
            told = ["--sigma-map", other]
        else:
            plain = gd.estimate_noise(magnitudes(4, 96, 96), "TYX").as_dict()
            Path(other).write_text(json.dumps([plain]))
            told = ["--noise", other]
        return _with_files(adapters.command_line("vbm3d", "a.tif", "-o", "out/", *told))


def _sample() -> Answer:
    with adapters.in_new_folder():
        Path("out").mkdir()
        return _with_files(adapters.command_line("sample", "fluorescence", "-o", "out/"))
