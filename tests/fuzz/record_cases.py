"""Results whose records strangers have changed: read, written, resumed, and as layers of napari."""

from __future__ import annotations

import contextlib
import json
import os
from functools import cache, lru_cache
from pathlib import Path
from random import Random
from typing import Any
from xml.sax.saxutils import escape

import nibabel
import numpy as np
import tifffile

import napari_gpu_denoise as gd
from fuzz.file_cases import OPTIONS, SMALL, command, description, with_description
from fuzz.json_cases import VALUES, damage_text, damage_values
from fuzz.payload import EXPRESSION
from fuzz.tiff_seeds import seed
from fuzz.watching import Case, Loss
from napari_gpu_denoise.files.image_file import MARK
from scenes import noisy
from zarr_stores import write_store

IN_NAPARI = "records in napari"
_ENDINGS = {"plain": ".tif", "ImageJ": ".tif", "OME": ".ome.tif", "NIfTI": ".nii"}
_ENDINGS["zarr"] = ".ome.zarr"
_KEYS = ("history", "temporary", "map", "source", "source_id", "channel", "frame", "slice")
_KEYS += ("axes", "noise", "sigma", "sigma_source", "sigma_factor", "settings", "filter")
_KEYS += ("corrected", "notes", "assessment", "version", "date", "device", "saturated", "")
_KEYS += ("__class__",)
_RUNS = ({"sigma": 10}, {"noise": "rician"}, {"noise": gd.Gaussian(4.0)}, {})


@lru_cache
def records() -> tuple[dict, ...]:
    """Return records of runs, as they are stored."""
    image = noisy(3, 20, 22, dtype="uint8")
    made = (gd.denoise(image, gd.NLMeans(**SMALL), axes="ZYX", **given) for given in _RUNS)
    found = [each.record.as_dict() for each in made]
    found.append({**found[0], "corrected": ["stripes of 3 grey levels"]})
    found.append({**found[1], "assessment": {"filter": "nl_means", "channels": [{"psnr": 30.0}]}})
    return tuple(json.loads(json.dumps(found)))


def damaged(rng: Random) -> str:
    """Return the JSON of a record, most often of a changed one."""
    record: Any = dict(rng.choice(records()))
    odd = (*VALUES, EXPRESSION, "x" * 200_000, [0] * 50_000, [5], [{"model": [5]}], {"model": None})
    way = rng.randrange(8)
    if way < 3:
        record = damage_values(rng, record)
    elif way < 6:
        for _ in range(rng.choice((1, 2, 4))):
            key, more = rng.choice(_KEYS), ([dict(record)], [[]], {"x": [record["sigma"]]})
            record[key] = rng.choice((*odd, *more))
    text = json.dumps(record)
    if way == 6:
        deep = rng.choice((100, 900, 3000, 100_000))
        text = f'{text[:-1]}, "{rng.choice(_KEYS)}": {"[" * deep}{"]" * deep}}}'
    if way == 7:
        text = damage_text(rng, text)
    return text


def stored(kind: str, path: Path, texts: list[str], *, ours: bool = True) -> None:
    """Write an image whose history are these texts."""
    image = np.random.default_rng(5).integers(1, 200, (3, 12, 14)).astype("u1")
    mark = MARK if ours else ""
    lines = "\n".join(mark + text for text in texts)
    if kind == "plain":
        software = lines.encode("utf-8", "surrogatepass").decode("ascii", "replace")
        software = software.encode("ascii", "replace").decode()
        tifffile.imwrite(path, image, software=software, metadata={"axes": "ZYX"})
    elif kind == "ImageJ":
        told = {"axes": "ZYX", "Info": lines.encode("utf-8", "replace").decode()}
        tifffile.imwrite(path, image, imagej=True, metadata=told)
    elif kind == "OME" and not texts:
        path.write_bytes(seed("OME")[0])
    elif kind == "OME":
        data = seed("ours OME")[0]
        xml = description(data)
        start = xml.index('{"version"')
        end = xml.index("</", start)
        text = escape(texts[-1].replace("\0", ""))
        path.write_bytes(with_description(data, xml[:start] + text + xml[end:]))
    elif kind == "NIfTI":
        volume = nibabel.Nifti1Image(image.T.copy(), np.eye(4))
        for text in texts:
            content = (mark + text).encode("utf-8", "replace")
            volume.header.extensions.append(nibabel.nifti1.Nifti1Extension(6, content))
        nibabel.save(volume, path)
    else:
        write_store(path, image, "ZYX", "0.5", levels=1)
        told = json.loads((path / "zarr.json").read_text())
        told["attributes"]["napari-gpu-denoise"] = {"history": "HERE"}
        whole = f"[{', '.join(texts)}]" if len(texts) != 1 or texts[0][:1] != "[" else texts[0]
        told = json.dumps(told).replace('"HERE"', whole)
        (path / "zarr.json").write_text(told, "utf-8", "surrogatepass")


def _case(rng: Random, folder: Path, ways: tuple) -> Case:
    kind = rng.choice([*_ENDINGS])
    texts = [damaged(rng) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    if rng.randrange(20) == 0:
        texts *= 100
    path = folder / "data" / f"in{_ENDINGS[kind]}"
    stored(kind, path, texts)
    way, number = rng.choice(ways), rng.randrange(len(_RUNS))

    def run() -> None:
        way(path, folder / "out", number)

    shown = texts[-1] if len(texts[-1]) < 3000 else f"{texts[-1][:200]} … {texts[-1][-200:]}"
    return Case(f"{way.__name__} {kind}, {len(texts)} records: {shown}", run)


def record_case(rng: Random, folder: Path) -> Case:
    """A result whose records were changed, for Python and the command line."""
    return _case(rng, folder, (rewrite, rewrite, resume, resume, batch, use, use_command))


def rewrite(path: Path, out: Path, number: int) -> None:
    """Read a file, and write it again with its records and another one."""
    picture = gd.read(path)
    repr(picture)
    if not all(isinstance(each, dict) for each in picture.history):
        raise Loss("a record is none")
    target = out / f"out{''.join(path.suffixes)}"
    gd.write(target, picture.data, picture, [records()[number]])
    again = gd.read(target)
    if not np.array_equal(again.data, picture.data):
        raise Loss("other pixels")
    if again.history[-1] != records()[number] or len(again.history) != len(picture.history) + 1:
        raise Loss(f"{len(picture.history)} records became {len(again.history)}")
    # All records by themselves, as napari writes them.
    gd.write(target, picture.data, picture, picture.history, overwrite=True)
    gd.read(target)


def resume(path: Path, out: Path, number: int) -> None:
    """Take a file for the result of an earlier run."""
    source = out / f"source{''.join(path.suffixes)}"
    stored({v: k for k, v in _ENDINGS.items()}["".join(path.suffixes)], source, [], ours=False)
    before = path.read_bytes() if path.is_file() else b""
    options = {"output": path, "resume": True, "axes": "ZYX", **_RUNS[number]}
    (file,) = gd.run_batch(source, gd.NLMeans(**SMALL), **options).files
    if file.error is not None:
        raise file.error
    if not file.skipped or (path.is_file() and path.read_bytes() != before):
        raise Loss("a file that existed was replaced")


def batch(path: Path, out: Path, number: int) -> None:
    """Denoise a file; its records stay, and a new one is added."""
    target = out / f"out{''.join(path.suffixes)}"
    (file,) = gd.run_batch(path, gd.NLMeans(**SMALL), output=target, **_RUNS[number]).files
    if file.error is not None:
        raise file.error
    repr(file), json.dumps(file.record.as_dict())
    if len(gd.read(target).history) != len(gd.read(path).history) + 1:
        raise Loss("records are missing")


def use(path: Path, out: Path, number: int) -> None:
    """Use what records say, as programs would."""
    named = None
    for record in gd.read(path).history[:3]:
        for make, values in (
            (gd.NoiseModel.from_dict, record.get("noise")),
            (gd.NoiseEstimate.from_dict, record),
            (gd.NoiseEstimate.from_dict, record.get("noise")),
            (lambda given: gd.NLMeans.of(**given), record.get("settings")),
        ):
            for each in values if isinstance(values, list) else [values]:
                if make.__name__ == "<lambda>" and not isinstance(each, dict):
                    continue
                try:
                    repr(make(each))
                except gd.errors.DenoiseError as error:
                    named = error
        given = {name: record.get(name) for name in ("sigma", "noise", "axes")}
        with contextlib.suppress(gd.errors.DenoiseError):
            gd.nl_means(noisy(3, 12, 14), **given, **SMALL)
    if named is not None:
        raise named


def use_command(path: Path, out: Path, number: int) -> None:
    """Denoise a file with the command line."""
    target = out / f"out{''.join(path.suffixes)}"
    code, _, told = command(["nl-means", str(path), "-o", str(target), *OPTIONS])
    if code:
        raise gd.errors.DenoiseError(told)


def napari_case(rng: Random, folder: Path) -> Case:
    """The same in layers of napari."""
    return _case(rng, folder, (in_layers,))


@cache
def viewer_model() -> Any:
    """Return the model of a viewer, without a window."""
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    from napari.components import ViewerModel

    import napari_gpu_denoise._napari.io.writing  # noqa: F401

    return ViewerModel()


def in_layers(path: Path, out: Path, number: int) -> None:
    """Open a file in layers, ask what they were made from, run a filter and save the result."""
    from napari.layers import Image

    from napari_gpu_denoise._napari.compare import pair
    from napari_gpu_denoise._napari.io import reading, writing
    from napari_gpu_denoise._napari.layers import provenance, results, source

    viewer = viewer_model()
    viewer.layers.clear()
    read = reading.get_reader(str(path))
    if read is None:
        raise Loss("no reader")
    for data, attributes, _ in read(str(path)):
        viewer.layers.append(Image(data, **attributes))
    named = None
    for layer in list(viewer.layers):
        provenance.record_of(layer), provenance.is_result(layer)
        provenance.file_origin(layer.metadata)
        provenance.origin_of(layer, viewer.layers), provenance.first_origin(layer, viewer.layers)
        provenance.made_from(layer, viewer.layers), pair.first_places(layer)
        pair.partners(layer, viewer.layers), pair.results_in(viewer.layers)
        source.suggest_axes(layer)
        try:
            captured = source.capture(layer)
            for _ in range(2):
                new = results.NewLayer("", "image", np.asarray(layer.data), {})
                about = {"filter": "nl_means", "settings": {}, "axes": "ZYX"}
                results.add_layer(viewer, captured, new, "NLMeans", about, keep=False)
        except gd.errors.DenoiseError as error:
            named = error
    pair.results_in(viewer.layers)
    for name, layers in (("one.ome.tif", viewer.layers[-1:]), ("all.ome.tif", viewer.layers[:1])):
        try:
            writing.write_images(str(out / name), [each.as_layer_data_tuple() for each in layers])
        except gd.errors.DenoiseError as error:
            named = error
    viewer.layers.clear()
    if named is not None:
        raise named
