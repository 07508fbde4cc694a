"""Results whose records strangers have changed: read, written again, resumed and denoised."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any
from xml.sax.saxutils import escape

import nibabel
import numpy as np
import tifffile

import napari_gpu_denoise as gd
from fuzz.file_cases import SMALL, description, with_description
from fuzz.json_cases import VALUES, damage_text, damage_values
from fuzz.payload import EXPRESSION
from fuzz.tiff_seeds import seed
from fuzz.watching import Case, Loss
from napari_gpu_denoise.files.image_file import MARK
from scenes import noisy
from zarr_stores import write_store

_ENDINGS = {"plain": ".tif", "ImageJ": ".tif", "OME": ".ome.tif", "NIfTI": ".nii"}
_ENDINGS["zarr"] = ".ome.zarr"
_KEYS = ("temporary", "map", "source", "source_id", "channel", "frame", "axes", "noise", "sigma")
_KEYS += ("settings", "filter", "corrected", "notes", "assessment", "version", "", "__class__")
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
            record[rng.choice(_KEYS)] = rng.choice((*odd, [dict(record)], [[]]))
    text = json.dumps(record)
    if way == 6:
        deep = rng.choice((100, 900, 3000, 100_000))
        text = f'{text[:-1]}, "{rng.choice(_KEYS)}": {"[" * deep}{"]" * deep}}}'
    return damage_text(rng, text) if way == 7 else text


def stored(kind: str, path: Path, texts: list[str], mark: str = MARK) -> None:
    """Write an image whose history are these texts."""
    image = np.random.default_rng(5).integers(1, 200, (3, 12, 14)).astype("u1")
    lines = "\n".join(mark + text for text in texts)
    if kind == "plain":
        software = lines.encode("ascii", "replace").decode()
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
        text = escape(texts[-1].replace("\0", ""))
        path.write_bytes(with_description(data, xml[:start] + text + xml[xml.index("</", start) :]))
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


def record_case(rng: Random, folder: Path) -> Case:
    """A result whose records were changed."""
    kind = rng.choice([*_ENDINGS])
    texts = [damaged(rng) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    if rng.randrange(20) == 0:
        texts *= 100
    path = folder / "data" / f"in{_ENDINGS[kind]}"
    stored(kind, path, texts)
    way = rng.choice((rewrite, rewrite, resume, resume, batch))
    number = rng.randrange(len(_RUNS))
    shown = texts[-1] if len(texts[-1]) < 3000 else f"{texts[-1][:200]} … {texts[-1][-200:]}"
    told = f"{way.__name__} {kind}, {len(texts)} records: {shown}"
    return Case(told, lambda: way(path, folder / "out", number))


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
    kinds = {ending: kind for kind, ending in _ENDINGS.items()}
    stored(kinds["".join(path.suffixes)], source, [], mark="")
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
