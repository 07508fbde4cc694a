"""OME-Zarr that is damaged, or hostile: names, links, pipes, codecs and sizes that lie."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import napari_gpu_denoise as gd
from fuzz import payload
from fuzz.file_cases import NUMBERS, SMALL, as_large, damage_bytes, reading
from fuzz.json_cases import nodes
from fuzz.tiff_seeds import seed as tiff_seed
from fuzz.watching import Case, Loss, Outside
from zarr_stores import write_plate, write_store

# Pixels of images are 1 to 199, those of the bystander are this one.
SECRET = 251
_HEADS = ("zarr.json", ".zarray", ".zattrs", ".zgroup")
_IMAGES = (("YX", (14, 12)), ("ZYX", (3, 9, 8)), ("CYX", (2, 9, 8)), ("TCZYX", (2, 2, 2, 9, 8)))
_TYPES = ("u1", "i2", "u2", "i4", "f4", "f8")
# Names in metadata: of other folders, of none, and of what shells and browsers know.
_WORDS = ("..", ".", "/", "//", "A//1", "A/1/", "./0", "0/..", "~", "*", "%2e%2e", "C:\\secret")
_WORDS += ("memory://a", "0::file:///etc/passwd", "/etc/passwd", "/dev/zero", "$HOME", "`id`")
_WORDS += (".zattrs", "zarr.json", "c/0/0", "labels", "", "a\0b", "\ud800", "x" * 300, "x/" * 2000)


def files_of(path: Path) -> dict[str, bytes]:
    """Return what a folder holds, by names in it."""
    files = sorted(one for one in path.rglob("*") if one.is_file())
    return {one.relative_to(path).as_posix(): one.read_bytes() for one in files}


def put_files(path: Path, files: dict[str, bytes]) -> None:
    """Write files by their names in a folder."""
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)


@lru_cache
def _bystander() -> dict[str, bytes]:
    """Return an image as others would be read, whose pixels are all `SECRET`."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_store(Path(folder, "s.ome.zarr"), np.full((14, 12), SECRET, "u1"), "YX")
        return files_of(path)


def plant(folder: Path) -> None:
    """Put an image, a TIFF and a text where no case may look."""
    put_files(folder / "secret.ome.zarr", _bystander())
    put_files(folder, {"secret.tif": tiff_seed("strips")[0], "secret.txt": b"a bystander"})


@lru_cache
def seed(number: int) -> tuple[dict[str, bytes], dict[str, np.ndarray]]:
    """Return the files of an image or a plate, and its images, none of 0, by their places."""
    version, plate = ("0.4", "0.5")[number % 2], number % 3 == 0
    (axes, shape), values = _IMAGES[number // 6 % 4], np.random.default_rng(number)
    places = ("A/1/0", "A/1/1", "B/2/0") if plate else ("",)
    images = {p: values.integers(1, 200, shape).astype(_TYPES[number % 6]) for p in places}
    chunks = tuple(min(5, n) for n in shape)
    options: dict[str, Any] = {"levels": 1 + (not plate), "chunks": chunks}
    if version == "0.5" and number % 5 == 0:
        options["shards"] = tuple(2 * c for c in chunks)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "in.ome.zarr")
        if plate:
            write_plate(path, images, axes, version, **options)
        else:
            write_store(path, images[""], axes, version, **options)
        return files_of(path), images


def lie_in_json(rng: Random, tree: Any) -> str:
    """Remove, repeat or replace something in a tree of JSON, in place; return what was done."""
    places = [*nodes(tree, None)]
    if not places:
        return "nothing"
    node, key = rng.choice(places)
    way = rng.randrange(5)
    if way == 0:
        del node[key]
        return f"without {key}"
    if way == 1 and isinstance(node, list):
        node.insert(key, node[key])
        return f"{key} twice"
    if way == 2 and isinstance(node[key], list):
        node[key] = node[key] * rng.choice((2, 65, 1001))
        return f"{key} repeated"
    # An axis of thousands is an image like any other, and takes its time.
    lengths = (number for number in NUMBERS if number < 100 or number > 2**62)
    words = ["z", "scale", "translation", "space", "time", "channel", "blosc", "uint8", "../0"]
    others = (None, True, [], {}, -1, 0.5, 1e30, float("nan"), *lengths, "", *words, 10**400)
    node[key] = rng.choice(others)
    return f"{key} {str(node[key])[:40]}"


def lie_in_names(rng: Random, tree: Any, folder: Path) -> str:
    """Change the path of a well, an image, a level or a label, in place."""
    secret = folder / "secret" / "secret.ome.zarr"
    climbs = [f"{'../' * n}secret/secret.ome.zarr" for n in range(1, 6)]
    names = [*climbs, *(f"{one}/0" for one in climbs), str(secret), f"file://{secret}"]
    names += [f"A/{climbs[3]}", f"0/{climbs[2]}", climbs[2].replace("/", "\\"), *_WORDS]
    name = rng.choice([*names, payload.EXPRESSION, None, 5, [], {"path": "0"}])
    places = [
        (node, key)
        for node, key in nodes(tree, None)
        if key == "path" or (isinstance(node, list) and isinstance(node[key], str))
    ]
    for node, key in places if rng.randrange(4) == 0 else [rng.choice(places)]:
        node[key] = name
    return f"names {str(name)[:60]!r}"


def lie_in_codecs(rng: Random, told: dict) -> str:
    """Name codecs of any kind, or types that run code, in the metadata of an array, in place."""
    from numcodecs.registry import codec_registry, entries

    name = rng.choice(("pickle", "dill", *sorted({*codec_registry, *entries})))
    values = (payload.EXPRESSION, "|O", "<u2", "M8[s]", "", None, -1, 2**63, [], {"id": "pickle"})
    keys = ("dtype", "astype", "object_codec", "level", "elementsize", "format", "chunk_shape")
    options = {key: rng.choice(values) for key in rng.sample(keys, rng.randrange(4))}
    way = rng.randrange(6)
    if way == 0:
        told["fill_value"] = rng.choice((*values, payload.PICKLE.hex(), "NaN"))
    elif told.get("zarr_format") == 3:
        codec = {"name": rng.choice((f"numcodecs.{name}", name)), "configuration": options}
        plain = {"name": "bytes", "configuration": {"endian": "little"}}
        inner = {"chunk_shape": [1, 1], "codecs": [codec], "index_codecs": [plain]}
        lists = ([codec], [plain, codec], [codec, plain], [plain] * 20, [name], [], None)
        lists += ([{"name": "sharding_indexed", "configuration": inner}],)
        told["data_type" if way == 1 else "codecs"] = rng.choice(values if way == 1 else lists)
    else:
        codec = {"id": name, **options}
        told["filters"] = rng.choice(([codec], [codec] * 20, codec, None))
        told["dtype" if way == 1 else "compressor"] = rng.choice(values) if way == 1 else codec
    return f"has the codec {name} {options}"


def link_or_pipe(rng: Random, root: Path, secret: Path) -> str:
    """Put a link or a pipe in the place of a file or a folder."""
    files = sorted(one for one in root.rglob("*") if one.is_file())
    file = rng.choice(files)
    # What the user names may itself be a link.
    place = rng.choice([file, file, *(one for one in file.parents if root in one.parents)])
    same = secret / "zarr.json" if place.name in _HEADS else secret / "0" / "c" / "0" / "0"
    goals = [secret, same, same, secret / "0", secret.parent, Path("/dev/zero"), Path("/"), place]
    goals += [place.parent, rng.choice(files), Path("gone"), Path("..", "..", "secret")]
    goal = rng.choice([*goals, Path(os.path.relpath(same, place.parent))])
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    if rng.randrange(4) == 0 and hasattr(os, "mkfifo"):
        os.mkfifo(place)
        return f"{place.relative_to(root)} is a pipe"
    with contextlib.suppress(OSError, NotImplementedError):  # not every user of Windows may
        place.symlink_to(goal)
    return f"{place.relative_to(root)} links to {goal.name}"


def zarr_case(rng: Random, folder: Path) -> Case:
    """An image or a plate, one of whose files is gone, damaged, changed, or leads elsewhere."""
    number = rng.randrange(60)
    held, images = seed(number)
    files, root = dict(held), folder / "data" / "in.ome.zarr"
    heads = [name for name in files if Path(name).name in _HEADS]
    chunks = [name for name in files if name not in heads]
    finest = [
        name for name in chunks if any(name.startswith(f"{p}/0/".lstrip("/")) for p in images)
    ]
    way, same, own = rng.randrange(7), False, True  # whether pixels stay, or are those of this tree
    name = rng.choice(finest if way == 0 else chunks if way == 1 else heads)
    done = f"{name}: "
    if way == 0:
        del files[name]
        done, same = f"{name} is gone", True
    elif way < 3:
        data = bytearray(files[name])
        done += damage_bytes(rng, data)
        files[name], own = bytes(data), False
    elif way < 6:
        arrays = [one for one in heads if b'"shape"' in files[one]]
        named = [one for one in heads if b'"path"' in files[one]]
        name = rng.choice({3: heads, 4: named, 5: arrays}[way])
        told = json.loads(files[name])
        if way == 3:
            done, own = f"{name}: {lie_in_json(rng, told)}", False
        elif way == 4:
            done = f"{name} {lie_in_names(rng, told, folder)}"
        else:
            done, own = f"{name} {lie_in_codecs(rng, told)}", False
            files |= dict.fromkeys(chunks, payload.PICKLE)
        files[name] = json.dumps(told).encode()
    put_files(root, files)
    if way == 6:
        done = link_or_pipe(rng, root, folder / "secret" / "secret.ome.zarr")
    told = f"OME-Zarr {number}, {done}"
    if rng.randrange(2) and "" in images:
        return reading(rng, folder, told, images[""] if same else None, root.name)
    known, large, url = images if same else {}, not rng.randrange(3), not rng.randrange(3)
    into = rng.randrange(3) == 0

    def run() -> None:
        with as_large() if large else contextlib.nullcontext():
            _denoise(root.as_uri() if url else root, folder / "out", into, known, own)

    return Case(f"batch{', as large planes' * large}, into {into}: {told}", run)


def _denoise(
    path: str | Path, out: Path, into: bool, images: dict[str, np.ndarray], own: bool
) -> None:
    """Denoise an image, or those of a plate; raise if pixels are lost, or of the bystander."""
    target, settings = out if into else out / "out.ome.zarr", gd.NLMeans(**SMALL)
    report = gd.run_batch(path, settings, 10, output=target, overwrite=True)
    repr(report.as_dict())
    if report.cancelled or not report.files or len(report.files) < len(images):
        raise Loss(f"{len(report.files)} of {len(images)} images were found")
    for file in report.files:
        if not isinstance(file.error, (gd.errors.DenoiseError, MemoryError, type(None))):
            raise file.error
        if file.output is None:
            continue
        before, after = gd.read(file.input), gd.read(file.output)
        if before.data.shape != after.data.shape:
            raise Loss(f"{before.data.shape} became {after.data.shape}")
        if own and any((np.rint(each.data) == SECRET).any() for each in (before, after)):
            raise Outside("pixels of the bystander")
        place = str(file.input).partition("in.ome.zarr")[2].strip("/")
        known = images.get(place)
        lost = known is not None and not np.array_equal(before.data, known)
        if lost and not (before.notes or file.notes):
            raise Loss(f"pixels of {place} are missing without a note")
    if report.failed:
        raise report.failed[0].error
