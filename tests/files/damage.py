"""Random changes of files: bytes, numbers, tags, texts, values of JSON; and who looks elsewhere."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import re
import struct
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import tifffile

NUMBERS = (0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 32, 64, 100, 255, 256, 1000, 32767, 32768, 65535)
NUMBERS += (65536, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1, -1, -7)
FLOATS = (0.0, -0.0, -1.0, 0.5, 352.0, 1e-45, 3e38, float("nan"), float("inf"))
# Names of other files and folders, of none, and of what shells and browsers know.
NAMES = tuple(f"{'../' * n}secret/in.{end}" for n in range(1, 5) for end in ("tif", "zarr/0"))
NAMES += ("..", "", "/", "A//1", "./0", "~", "%2e%2e", "C:\\in", "memory://a", "file:///etc/passwd")
NAMES += ("/dev/zero", "../secret", "$HOME", "`id`", "zarr.json", "a\0b", "x" * 300, "x/" * 2000)
WORDS = ("", "0", "-1", "1", "2", "99", "2147483647", "9" * 30, "1e3", "nan", "x", "uint8", "XYZCT")
WORDS += ("complex", "true", "Image:0", "&unknown;", "]]>", "\\u")
# A long axis is an image like any other, and takes its time.
VALUES = (None, True, 0.5, 1e30, 10**400, 1e-320, *FLOATS, 0, 1, 2, 64, -1, 2**63, 2**64, "x", "YX")
VALUES += ([], [[]], [None], [[1, 2], [3]], {}, [{}], [0] * 50_000, "x" * 200_000, {"path": "0"})
VALUES += (json.loads(200 * "[" + 200 * "]"), {"model": [5]}, {"id": "pickle"}, *NAMES)


def nodes(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the lists and dicts that hold values, and their keys."""
    for key, each in value.items() if isinstance(value, dict) else enumerate(value):
        yield value, key
        if isinstance(each, dict | list):
            yield from nodes(each)


def damaged_values(rng: Random, value: Any) -> Any:
    """Change, remove, repeat or rename some values in nested lists and dicts."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 2, 5))):
        found = [*nodes(value)]
        if not found:
            break
        holder, key = rng.choice(found)
        way = rng.randrange(6)
        if way == 0:
            del holder[key]
        elif way == 1 and isinstance(holder, dict):
            holder[rng.choice(("x", "model", "name", "__class__"))] = holder.pop(key)
        elif way == 2:
            holder[key] = [holder[key]] * rng.choice((1, 2, 65))
        else:
            # A copy: what is changed next may be within it.
            holder[key] = copy.deepcopy(rng.choice(VALUES))
    return value


def damaged_text(rng: Random, text: str) -> str:
    """Change values, remove or repeat elements, or break a text of JSON or XML."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        # Values in quotes, numbers, elements of XML, or any place.
        pattern = rng.choice((r'(?<=")[^"<>]*(?=")', r"-?\b\d[\d.]*", r"<(?!\?|/)[^<>]+?>", ""))
        if not (found := [*re.finditer(pattern, text)]):
            continue
        one = rng.choice(found)
        is_name = text[: one.start()].endswith('FileName="')
        told = ("", one[0] * 2, "<A>") if one[0].startswith("<") else NAMES if is_name else WORDS
        rest = text[one.end() :] if pattern or rng.randrange(2) else ""
        text = text[: one.start()] + rng.choice(told) + rest
    return text


def set_number(rng: Random, data: bytearray, at: int, size: int, order: str) -> None:
    """Write an odd number of a size, or a near one, if it fits."""
    letter = {1: "B", 2: "H", 4: "I", 8: "Q"}[size]
    if not 0 <= at <= len(data) - size:
        return
    (old,) = struct.unpack_from(order + letter, data, at)
    value = rng.choice((*NUMBERS, old + 1, old - 1, old * 2, old // 2, len(data)))
    struct.pack_into(order + letter, data, at, value % 2 ** (8 * size))
    if size > 2 and rng.randrange(4) == 0:
        struct.pack_into(order + {4: "f", 8: "d"}[size], data, at, rng.choice(FLOATS))


def damage_bytes(rng: Random, path: Path) -> None:
    """Change some bytes or numbers of a file, or cut it, or put something in."""
    data = bytearray(path.read_bytes())
    way, at, size = rng.randrange(8), rng.randrange(len(data)), rng.randrange(1, 60)
    if way == 0:
        del data[at:]
    elif way == 1:
        data += rng.randbytes(size)
    elif way == 2:
        data[at : at + size] = bytes(size) if rng.randrange(2) else rng.randbytes(size)
    elif way == 3:
        del data[at : at + size]
    elif way == 4:
        data[at] ^= 1 << rng.randrange(8)
    else:
        # Most of what lies about sizes is at the start or the end.
        places = range(len(data))[rng.choice((slice(600), slice(-900, None), slice(None)))]
        for _ in range(rng.choice((1, 1, 2, 4))):
            size = rng.choice((1, 2, 2, 4, 4, 8))
            set_number(rng, data, rng.choice(places) // size * size, size, rng.choice("<>"))
    path.write_bytes(data)


def damage_tags(rng: Random, path: Path) -> None:
    """Change tags of a TIFF, their values, links between pages, or what a text of it says."""
    with tifffile.TiffFile(path) as tif:
        order, size = tif.byteorder, 8 if tif.is_bigtiff else 4
        head, entry = (8, 20) if tif.is_bigtiff else (2, 12)
        pages = [page for page in tif.pages if isinstance(page, tifffile.TiffPage)]
        tags = [tag for page in pages for tag in page.tags]
        text = tif.pages.first.description
    if text and rng.randrange(2):
        tifffile.tiffcomment(path, damaged_text(rng, text).encode("utf-8", "replace") or b" ")
        return
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        tag, page = rng.choice(tags), rng.choice(pages)
        width = {3: 2, 4: 4, 5: 4, 16: 8}.get(int(tag.dtype), 1)
        value = tag.valueoffset + width * rng.randrange(max(1, min(tag.count, 300))), width
        link = page.offset + head + entry * len(page.tags), size
        fields = (tag.offset, 2), (tag.offset + 2, 2), (tag.offset + 4, size), link
        set_number(rng, data, *rng.choice((*fields, value, value, value)), order)
    path.write_bytes(data)


def damage(rng: Random, path: Path) -> None:
    """Change a file as its content suggests."""
    data, way = path.read_bytes(), rng.randrange(8)
    if way < 6 and data[:1] in (b"{", b"["):
        text = json.dumps(damaged_values(rng, json.loads(data)))
        path.write_text(text if way < 4 else damaged_text(rng, data.decode()), "utf-8")
    elif way < 6 and data[:2] in (b"II", b"MM"):
        damage_tags(rng, path)
    else:
        damage_bytes(rng, path)


_shut: list[str] = []  # a folder of which nothing may be opened
_opened: list[str] = []


def _hear(event: str, args: tuple) -> None:
    about_files = _shut and event in ("open", "os.listdir", "os.scandir")
    if about_files and isinstance(args[0], str) and "\0" not in args[0]:
        path = os.path.realpath(args[0])
        _opened.extend([path] * path.startswith(_shut[0]))


@cache
def _listen() -> None:
    sys.addaudithook(_hear)  # it cannot be removed again


@contextlib.contextmanager
def watched(folder: Path) -> Iterator[None]:
    """See that nothing of a folder is opened or listed within the block."""
    _listen()
    _opened.clear()
    _shut.append(os.path.realpath(folder))
    try:
        yield
    finally:
        _shut.pop()
    assert not _opened
