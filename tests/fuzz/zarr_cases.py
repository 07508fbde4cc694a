"""Folders of OME-Zarr that are damaged, or lie, in the ways of `file_cases`."""

from __future__ import annotations

import json
import tempfile
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from fuzz.file_cases import NUMBERS, damage_bytes, reading
from fuzz.watching import Case
from zarr_stores import FORMATS, write_store

_IMAGES = (("YX", (14, 12)), ("ZYX", (3, 9, 8)), ("CYX", (2, 9, 8)), ("TCZYX", (2, 2, 2, 9, 8)))
_TYPES = ("u1", "i2", "u2", "i4", "f4", "f8")
_WORDS = ("", "z", "scale", "translation", "space", "time", "channel", "blosc", "uint8", "../0")
# An axis of thousands is an image like any other, and takes its time.
_LENGTHS = tuple(number for number in NUMBERS if number < 100 or number > 2**62)
_HEADS = ("zarr.json", ".zarray", ".zattrs", ".zgroup")


@lru_cache
def seed(number: int) -> tuple[dict[str, bytes], np.ndarray]:
    """Return the files of an image, by their names in its folder, and its pixels, none of 0."""
    axes, shape = _IMAGES[number % 4]
    image = np.random.default_rng(number).integers(1, 200, shape).astype(_TYPES[number % 6])
    version = list(FORMATS)[number // 12 % 2]
    chunks = tuple(min(5, n) for n in shape)
    shards = tuple(2 * c for c in chunks) if version == "0.5" and number % 5 == 0 else None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "in.ome.zarr")
        write_store(path, image, axes, version, levels=1 + number % 2, chunks=chunks, shards=shards)
        files = sorted(one for one in path.rglob("*") if one.is_file())
        return {one.relative_to(path).as_posix(): one.read_bytes() for one in files}, image


def lie_in_json(rng: Random, tree: Any) -> str:
    """Remove, repeat or replace something in a tree of JSON, in place; return what was done."""
    places = []

    def walk(node: Any) -> None:
        for key in node if isinstance(node, dict) else range(len(node)):
            places.append((node, key))
            if isinstance(node[key], (dict, list)):
                walk(node[key])

    walk(tree)
    if not places:
        return "nothing"
    node, key = rng.choice(places)
    way = rng.randrange(4)
    if way == 0:
        del node[key]
        return f"without {key}"
    if way == 1 and isinstance(node, list):
        node.insert(key, node[key])
        return f"{key} twice"
    others = (None, True, [], {}, -1, 0.5, 1e30, float("nan"), *_LENGTHS, *_WORDS)
    node[key] = rng.choice(others)
    return f"{key} {node[key]!r}"


def zarr_case(rng: Random, folder: Path) -> Case:
    """An image of OME-Zarr whose metadata or chunks were changed, or one of whose files is gone."""
    number = rng.randrange(24)
    held, pixels = seed(number)
    files = dict(held)
    heads = [name for name in files if Path(name).name in _HEADS]
    chunks = [name for name in files if name not in heads and name.startswith("0")]
    way, known = rng.randrange(6), False
    name = rng.choice(chunks if way < 2 else heads)
    if way == 0:
        done, known = "no file", True
        del files[name]
    elif way in (1, 2):
        data = bytearray(files[name])
        done = damage_bytes(rng, data)
        files[name] = bytes(data)
    else:
        tree = json.loads(files[name])
        done = "+".join(lie_in_json(rng, tree) for _ in range(rng.choice((1, 1, 1, 2))))
        files[name] = json.dumps(tree).encode()
    path = folder / "data" / "in.ome.zarr"
    for each, data in files.items():
        (path / each).parent.mkdir(parents=True, exist_ok=True)
        (path / each).write_bytes(data)
    told = f"OME-Zarr {number}, {name}: {done}"
    return reading(rng, folder, told, pixels if known else None, path.name)


ZARR_CASES = {"OME-Zarr": zarr_case}
