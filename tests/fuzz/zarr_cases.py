"""OME-Zarr that is damaged, or hostile: names, links, pipes, codecs and sizes that lie."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import napari_gpu_denoise as gd
from fuzz import payload
from fuzz.file_cases import NUMBERS, OPTIONS, SMALL, as_large, command, damage_bytes, reading
from fuzz.json_cases import nodes
from fuzz.tiff_seeds import seed as tiff_seed
from fuzz.watching import Case, Loss, Outside
from zarr_stores import FORMATS, describe, write_plate, write_store

# Pixels of images are 1 to 199, those of the bystander are this one.
SECRET = 251
_HEADS = ("zarr.json", ".zarray", ".zattrs", ".zgroup")
_IMAGES = (("YX", (14, 12)), ("ZYX", (3, 9, 8)), ("CYX", (2, 9, 8)))
_PLATE = ("A/1/0", "A/1/1", "B/2/0")
# What pixels are read after a change: those that were there, as long as nothing is said to be
# missing; some of this tree; or any, as bytes are taken for others.
_SAME, _OWN, _ANY = 2, 1, 0


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
    texts = {"secret.tif": tiff_seed("strips")[0], "secret.txt": b"a bystander"}
    put_files(folder, texts)


@lru_cache
def seed(number: int) -> tuple[dict[str, bytes], np.ndarray]:
    """Return the files of an image, by their names in its folder, and its pixels, none of 0."""
    axes, shape = (*_IMAGES, ("TCZYX", (2, 2, 2, 9, 8)))[number % 4]
    types, version = ("u1", "i2", "u2", "i4", "f4", "f8"), list(FORMATS)[number // 12 % 2]
    image = np.random.default_rng(number).integers(1, 200, shape).astype(types[number % 6])
    chunks = tuple(min(5, n) for n in shape)
    shards = tuple(2 * c for c in chunks) if version == "0.5" and number % 5 == 0 else None
    options = {"levels": 1 + number % 2, "chunks": chunks, "shards": shards}
    with tempfile.TemporaryDirectory() as folder:
        return files_of(write_store(Path(folder, "in"), image, axes, version, **options)), image


def lie_in_json(rng: Random, tree: Any) -> str:
    """Remove, repeat or replace something in a tree of JSON, in place; return what was done."""
    places = [*nodes(tree, None)]
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
    # An axis of thousands is an image like any other, and takes its time.
    lengths = (number for number in NUMBERS if number < 100 or number > 2**62)
    words = ["z", "scale", "translation", "space", "time", "channel", "blosc", "uint8", "../0"]
    others = (None, True, [], {}, -1, 0.5, 1e30, float("nan"), *lengths, "", *words)
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
    put_files(path, files)
    told = f"OME-Zarr {number}, {name}: {done}"
    return reading(rng, folder, told, pixels if known else None, path.name)


@lru_cache
def tree(number: int) -> tuple[dict[str, bytes], dict[str, np.ndarray]]:
    """Return the files of an image or a plate, and the pixels of each image by its place."""
    version, plate = ("0.4", "0.5")[number % 2], number // 2 % 3 == 0
    (axes, shape), values = _IMAGES[number // 6 % 3], np.random.default_rng(number)
    images = {
        place: values.integers(1, 200, shape).astype(("u1", "u2", "f4")[number % 3])
        for place in (_PLATE if plate else ("",))
    }
    chunks = tuple(min(5, n) for n in shape)
    options: dict[str, Any] = {"levels": 1 + (not plate), "chunks": chunks}
    if number % 5 == 0 and version == "0.5":
        options["shards"] = tuple(2 * c for c in chunks)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "in.ome.zarr")
        if plate:
            write_plate(path, images, axes, version, **options)
        else:
            write_store(path, images[""], axes, version, **options)
        if not plate and number % 4 == 0:
            describe(path / "labels", version, labels=["cells"])
            labels = images[""].astype("u1")
            write_store(path / "labels" / "cells", labels, axes, version, levels=1)
        return files_of(path), images


# Names in metadata: of other folders, of none, of metadata, and of what shells and browsers know.
_WORDS = ("..", ".", "...", "/", "//", "A//1", "A/1/", "/0", "./0", "0/.", "0/..", "~", "~root")
_WORDS += ("*", "?", "%2e%2e", "%2E", "..;/..", "C:\\secret", "\\\\a\\b", "CON", "ä", "memory://a")
_WORDS += ("0::file:///etc/passwd", "/etc/passwd", "/dev/zero", "$HOME", "`id`", "|id", "link", "1")
_WORDS += (".zattrs", "zarr.json", ".zarray", "c/0/0", "labels", "labels/cells", "0", "", " ..")


def _names(folder: Path) -> tuple[Any, ...]:
    """Return what metadata may name instead of a folder within."""
    secret = folder / "secret" / "secret.ome.zarr"
    climbs = [f"{'../' * n}secret/secret.ome.zarr" for n in range(1, 6)]
    found = [*climbs, *(f"{one}/0" for one in climbs), str(secret), f"/{secret}", f"{secret}/0"]
    found += [f"file://{secret}", f"A/{climbs[3]}", f"0/{climbs[2]}", f"0/../0/{climbs[1]}"]
    found += [climbs[2].replace("/", "\\"), str(secret).replace("/", "\\")]
    found += [climbs[2].replace("..", dots) for dots in ("%2e%2e", ".. ", "\uff0e\uff0e")]
    found += [*_WORDS, "a\0b", "0\n", "\ud800", "x" * 300, "x/" * 2000 + "x", "x/" * 40]
    found += [payload.EXPRESSION, None, 5, -1, 0.5, True, [], {}, [["0"]], {"path": "0"}, 10**400]
    return tuple(found)


class _Tree:
    """The tree that a case changes, on the disk, and what its pixels were."""

    def __init__(self, rng: Random, folder: Path) -> None:
        self.rng, self.folder, self.root = rng, folder, folder / "data" / "in.ome.zarr"
        self.number = rng.randrange(60)
        files, self.images = tree(self.number)
        self.plate = "" not in self.images
        put_files(self.root, files)

    def all_files(self) -> list[Path]:
        """Return the files that are there now, without following links."""
        found = []
        for place, _, names in os.walk(self.root):
            found += [Path(place, name) for name in names]
        return sorted(found)

    def heads(self, *, arrays: bool = False) -> list[Path]:
        """Return files of metadata, all or those of arrays."""
        found = [one for one in self.all_files() if one.name in _HEADS and _is_file(one)]
        if not arrays:
            return found
        return [one for one in found if one.parent.name in ("0", "1") and _is_array(one)]

    def chunks(self) -> list[Path]:
        """Return the files of chunks."""
        return [one for one in self.all_files() if one.name not in _HEADS and _is_file(one)]

    def finest_chunks(self) -> list[Path]:
        """Return those of the finest levels of images."""
        finest = tuple(os.path.join(self.root, place, "0", "") for place in self.images)
        return [one for one in self.chunks() if str(one).startswith(finest)]


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _is_array(path: Path) -> bool:
    return path.name == ".zarray" or b'"array"' in path.read_bytes()


def _retold(file: Path, change: Callable[[Any], Any]) -> None:
    told = json.loads(file.read_text())
    file.write_text(json.dumps(change(told) or told))


def lie_in_names(tree: _Tree) -> tuple[str, int]:
    """Change the path of a well, an image, a level or a label."""
    name = tree.rng.choice(_names(tree.folder))
    several = tree.rng.randrange(4) == 0
    heads = [one for one in tree.heads() if b'"path"' in one.read_bytes()]
    head = tree.rng.choice(heads)
    told = json.loads(head.read_text())
    places = [
        (node, key)
        for node, key in nodes(told, None)
        if key == "path" or (isinstance(node, list) and isinstance(node[key], str))
    ]
    chosen = places if several else [tree.rng.choice(places)]
    for node, key in chosen:
        node[key] = name
    head.write_text(json.dumps(told))
    return f"{_short(tree, head)} names {str(name)[:60]!r}", _OWN


def link(tree: _Tree) -> tuple[str, int]:
    """Put a link in the place of a file or a folder."""
    secret = tree.folder / "secret" / "secret.ome.zarr"
    files = tree.all_files()
    file = tree.rng.choice(files)
    # What the user names may itself be a link.
    above = [one for one in file.parents if tree.root in one.parents]
    place = tree.rng.choice([file, file, file, *above])
    inside = tree.rng.choice(files)
    same = secret / "zarr.json" if place.name in _HEADS else secret / "0" / "c" / "0" / "0"
    goals = [secret, secret, same, same, secret / "0", tree.folder / "secret", tree.folder]
    goals += [Path("/dev/zero"), Path("/etc/passwd"), Path("/"), place, place.parent, tree.root]
    goals += [inside, inside, inside.parent, Path("gone"), Path("..", "..", "secret"), Path("0")]
    goals += [Path(os.path.relpath(same, place.parent)), tree.folder / "secret" / "secret.txt"]
    goal = tree.rng.choice(goals)
    _remove(place)
    with contextlib.suppress(OSError, NotImplementedError):  # not every user of Windows may
        place.symlink_to(goal)
    return f"{_short(tree, place)} links to {str(goal).replace(str(tree.folder), '')}", _OWN


def pipe(tree: _Tree) -> tuple[str, int]:
    """Put a pipe in the place of a file or a folder."""
    file = tree.rng.choice(tree.all_files())
    above = [one for one in file.parents if tree.root in one.parents]
    place = tree.rng.choice([file, file, file, *above])
    _remove(place)
    if hasattr(os, "mkfifo"):
        os.mkfifo(place)
    return f"{_short(tree, place)} is a pipe", _SAME


def miss(tree: _Tree) -> tuple[str, int]:
    """Remove chunks."""
    chunks = tree.finest_chunks() if tree.rng.randrange(4) else tree.chunks()
    gone = tree.rng.sample(chunks, min(len(chunks), tree.rng.choice((1, 1, 2, 5, 100))))
    for each in gone:
        each.unlink()
    return f"{len(gone)} chunks missing", _SAME


def lie_in_codecs(tree: _Tree) -> tuple[str, int]:
    """Name codecs of any kind, with chunks that run code where a codec would open them."""
    import numcodecs.registry

    rng, head = tree.rng, tree.rng.choice(tree.heads(arrays=True))
    registry = numcodecs.registry
    names = sorted({*registry.codec_registry, *registry.entries, "pickle", "dill", "vlen-array"})
    name = "pickle" if rng.randrange(4) == 0 else rng.choice(names)
    texts = [payload.EXPRESSION, "|O", "O", "<u2", "|V8", "S4", "<M8[s]", "object", "c16", "", "%s"]
    values = [*texts, None, -1, 0, 1, 2**31, 2**63, 1e300, [], {}, [1, 2], {"id": "pickle"}, True]
    keys = ("dtype", "astype", "encode_dtype", "decode_dtype", "object_codec", "level", "clevel")
    keys += ("cname", "elementsize", "keepbits", "digits", "scale", "offset", "protocol")
    keys += ("typesize", "blocksize", "format", "filters", "preset", "order", "labels")
    keys += ("location", "chunk_shape")
    options = {key: rng.choice(values) for key in rng.sample(keys, rng.randrange(5))}
    odd = rng.choice((*values, *_names(tree.folder)))

    def change(told: dict) -> None:
        way = rng.randrange(10)
        if "zarr_format" in told and told["zarr_format"] == 3:
            full = rng.choice((f"numcodecs.{name}", name, f"zarr.{name}", f"https://a/{name}"))
            codec = {"name": full, "configuration": options}
            plain = {"name": "bytes", "configuration": {"endian": "little"}}
            inner = {"chunk_shape": [1, 1], "codecs": [codec], "index_codecs": [plain]}
            lists = ([codec], [plain, codec], [codec, plain], [plain] * 20, [plain, *[codec] * 17])
            lists += ([{"name": "sharding_indexed", "configuration": inner}], [full], [], None, odd)
            lists += ([{"name": "vlen-utf8"}, codec], [{"name": full, "must_understand": False}])
            if way < 6:
                told["codecs"] = rng.choice(lists)
            elif way == 6:
                types = (*texts, "string", "bytes", "struct", {"name": "O"}, odd)
                told["data_type"] = rng.choice(types)
            elif way == 7:
                told["fill_value"] = rng.choice((*values, payload.PICKLE.hex(), "NaN", "0xff", odd))
            else:
                places = ("storage_transformers", "chunk_key_encoding", "chunk_grid", "extra")
                key = rng.choice(places)
                some = {"name": full, "configuration": {**options, "separator": odd}}
                told[key] = rng.choice((some, [some], odd, {"name": "v2", "configuration": {}}))
            return
        codec = {"id": name, **options}
        if way < 3:
            told["compressor"] = rng.choice((codec, odd, [codec]))
        elif way < 6:
            told["filters"] = rng.choice(([codec], [codec, codec], [codec] * 20, codec, odd, [odd]))
        elif way == 6:
            told["dtype"] = rng.choice((*texts, [["a", "<u2"]], [["a", "|O"]], odd))
            told["filters"] = rng.choice((None, [codec], [{"id": "vlen-bytes"}], [{"id": "json2"}]))
        elif way == 7:
            told["fill_value"] = rng.choice((*values, payload.PICKLE.hex(), "NaN", odd))
        else:
            key = rng.choice(("dimension_separator", "order", "zarr_format", "chunks", "extra"))
            told[key] = odd

    _retold(head, change)
    if rng.randrange(3):
        for each in tree.chunks():
            if head.parent in each.parents:
                each.write_bytes(payload.PICKLE)
    return f"{_short(tree, head)} has the codec {name} {options}", _ANY


def lie_in_sizes(tree: _Tree) -> tuple[str, int]:
    """Declare far more pixels, chunks or bytes of a chunk than there are."""
    rng, head = tree.rng, tree.rng.choice(tree.heads(arrays=True))
    # Up to some thousand missing chunks are filled, which takes its time.
    lengths = (0, 1, -1, 30, 100, 2**16, 2**20, 2**31, 2**32 + 1, 2**62, 2**63, 2**64, 10**400)
    length, other = rng.choice(lengths), rng.choice((*lengths, 0.5, "9", None, [9]))

    def grown(sizes: Any) -> Any:
        if not isinstance(sizes, list):
            return other
        way = rng.randrange(4)
        if way == 0:
            return [length] * len(sizes)
        if way == 1:
            return [*sizes, length]
        if way == 2 and len(sizes) > 1:
            return sizes[1:]
        at = rng.randrange(len(sizes))
        return [*sizes[:at], rng.choice((length, other)), *sizes[at + 1 :]]

    def change(told: dict) -> None:
        both = rng.randrange(3)
        if both != 1:
            told["shape"] = grown(told.get("shape"))
        if both == 0:
            return
        with contextlib.suppress(KeyError, TypeError):
            if told.get("zarr_format") == 3:
                grid = told["chunk_grid"]["configuration"]
                grid["chunk_shape"] = grown(grid["chunk_shape"])
            else:
                told["chunks"] = grown(told["chunks"])

    _retold(head, change)
    return f"{_short(tree, head)} declares {length}, {str(other)[:20]}", _ANY


def repeat(tree: _Tree) -> tuple[str, int]:
    """Repeat an entry of a list very often, or nest metadata very deeply."""
    rng, head = tree.rng, tree.rng.choice(tree.heads())
    times = rng.choice((2, 65, 1001, 20_000))
    told = json.loads(head.read_text())
    lists = [node[key] for node, key in nodes(told, None) if isinstance(node[key], list)]
    lists = [each for each in lists if each]
    if lists and rng.randrange(3):
        rng.choice(lists)[:] = rng.choice(lists) * times
        head.write_text(json.dumps(told))
        return f"{_short(tree, head)} repeats a list {times} times", _ANY
    deep = rng.choice((100, 900, 3000, 100_000))
    opened, closed = rng.choice((("[", "]"), ('{"a":', "}")))
    text, inside = head.read_text().rstrip(), opened * deep + "1" + closed * deep
    key = rng.choice(("attributes", "extra", "ome", "multiscales", "shape", "napari-gpu-denoise"))
    head.write_text(f'{text[:-1]}, "{key}": {inside}}}' if rng.randrange(4) else opened * deep)
    return f"{_short(tree, head)} is {deep} deep", _ANY


_WAYS = (lie_in_names, lie_in_names, link, link, pipe, miss, miss, lie_in_codecs, lie_in_codecs)
_WAYS += (lie_in_sizes, repeat)


def _short(tree: _Tree, path: Path) -> str:
    return os.path.relpath(path, tree.root)


def _remove(path: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path)


def prepare_target(tree: _Tree) -> str:
    """Put something where a result will be: an earlier one, with links out of it, or others."""
    rng, secret = tree.rng, tree.folder / "secret"
    way, target = rng.randrange(8), tree.folder / "out" / "out.ome.zarr"
    if way > 4:
        return "new"
    if way < 3:
        put_files(target, _bystander())
    if way == 0:
        return "earlier"
    goals = (secret, secret / "secret.ome.zarr", secret / "secret.txt", Path("/dev/zero"), target)
    with contextlib.suppress(OSError, NotImplementedError):
        if way < 3:
            place = target / rng.choice(("0", "A", "A/1", "zarr.json"))
            _remove(place)
            place.parent.mkdir(exist_ok=True)
            place.symlink_to(rng.choice(goals))
        elif way == 3:
            target.write_text("no folder")
        else:
            from napari_gpu_denoise.files.resuming import unfinished_folder

            hidden = unfinished_folder(target)
            if rng.randrange(2):
                hidden.symlink_to(rng.choice(goals))
            else:
                hidden.mkdir()
                name = rng.choice(("lock", "image", "pixels", "parts", "image/0"))
                (hidden / name).parent.mkdir(exist_ok=True)
                if rng.randrange(3) == 0 and hasattr(os, "mkfifo"):
                    os.mkfifo(hidden / name)
                else:
                    (hidden / name).symlink_to(rng.choice(goals))
    return ("links in an earlier", "links in an earlier", "a file", "links in the unfinished")[
        way - 1
    ]


def tree_case(rng: Random, folder: Path) -> Case:
    """An image or a plate of OME-Zarr that is hostile in one to three ways."""
    found = _Tree(rng, folder)
    told, kept = [], _SAME
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        # By an earlier change it may not be possible.
        with contextlib.suppress(OSError, ValueError, LookupError, RecursionError):
            text, keeps = rng.choice(_WAYS)(found)
            told.append(text)
            kept = min(kept, keeps)
            continue
        kept = _ANY
    ready = prepare_target(found)
    way = rng.choice((read_it, batch_it, batch_it, batch_it, command_it))
    options = {"url": not rng.randrange(3), "overwrite": not rng.randrange(3)}
    options |= {"resume": not rng.randrange(5), "into": not rng.randrange(3)}
    images = found.images if kept == _SAME else {}
    options["own"] = kept != _ANY
    place = rng.choice([*found.images]) if way is read_it else ""
    large = not rng.randrange(3)

    def run() -> None:
        with as_large() if large else contextlib.nullcontext():
            way(found.root / place, folder / "out", images, place, options)

    shown = {key: value for key, value in options.items() if value}
    where = f"tree {found.number} {place}".strip()
    how = f"{way.__name__} {shown}, {ready}{', large' * large}"
    return Case(f"{how}: {where}, {'; '.join(told)}", run)


def _url(path: Path, options: dict) -> str:
    return path.as_uri() if options["url"] else str(path)


def _check(data: np.ndarray, pixels: np.ndarray | None, notes: Any, own: bool) -> None:
    """Raise if pixels are those of the bystander, or others than they were without a word."""
    if own and (data == SECRET).any():
        raise Outside("pixels of the bystander")
    if pixels is not None and not notes and not np.array_equal(data, pixels):
        raise Loss(f"{pixels.shape} became {data.shape}, or others, without a note")


def read_it(path: Path, out: Path, images: dict, place: str, options: dict) -> None:
    """Read an image, or a plate, which is refused."""
    picture = gd.read(_url(path, options))
    _check(picture.data, images.get(place), picture.notes, options["own"])
    repr(picture)
    target = out / "out.ome.zarr"
    gd.write(_url(target, options), picture.data, picture, overwrite=options["overwrite"])
    if not np.array_equal(gd.read(target).data, picture.data, equal_nan=True):
        raise Loss("what was written is not what was read")


def batch_it(path: Path, out: Path, images: dict, place: str, options: dict) -> None:
    """Denoise an image, or those of a plate."""
    target = _url(out if options["into"] else out / "out.ome.zarr", options)
    given = {name: options[name] for name in ("overwrite", "resume")}
    report = gd.run_batch(_url(path, options), gd.NLMeans(**SMALL), 10, output=target, **given)
    repr(report.as_dict())
    if report.cancelled or not report.files:
        raise Loss("the report holds no file")
    for file in report.files:
        if not isinstance(file.error, (gd.errors.DenoiseError, MemoryError, type(None))):
            raise file.error
        if file.output is None:
            continue
        before, after = gd.read(file.input), gd.read(file.output)
        if before.data.shape != after.data.shape:
            raise Loss(f"{before.data.shape} became {after.data.shape}")
        within = file.input.relative_to(path).as_posix()
        known, notes = images.get("" if within == "." else within), (*before.notes, *file.notes)
        _check(before.data, known, notes, options["own"])
        _check(np.rint(after.data), None, (), options["own"])
    if len(report.files) < len(images):
        raise Loss(f"{len(report.files)} of {len(images)} images were found")
    if report.failed:
        raise report.failed[0].error


def command_it(path: Path, out: Path, images: dict, place: str, options: dict) -> None:
    """Denoise it with the command line."""
    target = out if options["into"] else out / "out.ome.zarr"
    added = [f"--{name}" for name in ("overwrite", "resume") if options[name]]
    code, _, told = command(["nl-means", _url(path, options), "-o", str(target), *OPTIONS, *added])
    if code:
        raise gd.errors.DenoiseError(told)
