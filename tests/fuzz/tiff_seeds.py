"""Small TIFF files of many kinds, none of whose rows is 0, and where their tags are."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tifffile

import napari_gpu_denoise as gd
from files.tiffs import COLOURS, GREY, handmade, noise, written

SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 16: 8, 17: 8}
TWIN = "1.ome.tif"  # the second file of the set of seeds


def _images(path: Path, count: int, **options) -> None:
    """Write images that are no stack."""
    with tifffile.TiffWriter(path) as tif:
        for number in range(count):
            tif.write(noise(12 + number % 2, 14), **GREY, **options)


def _imagej(path: Path, dtype: str = "u2") -> None:
    metadata = {"axes": "TCYX", "Info": "made\nby hand", "Labels": ["a", "b", "c", "d"]}
    metadata |= {"unit": "um", "finterval": 2.5, "LUTs": [np.ones((3, 256), "u1")] * 2}
    tifffile.imwrite(path, noise(2, 2, 12, 14, dtype=dtype), imagej=True, metadata=metadata)


def _palette(path: Path) -> None:
    options = COLOURS | {"photometric": "palette", "colormap": np.ones((3, 256), "u2")}
    tifffile.imwrite(path, noise(12, 14), **options)


def _ours(make: Callable[[Path], object], path: Path) -> None:
    """Write a file as this package writes its results, with a record."""
    start = path.with_name("start" + path.name)
    make(start)
    picture = gd.read(start)
    result = gd.denoise(picture.data, gd.NLMeans(patch=4, window=7, step=2, neighbours=4), 0)
    gd.write(path, result.image, picture, result.record)


def _set(path: Path) -> None:
    """Write an OME-TIFF set of two files; the second is beside the first."""
    handmade(path.parent).rename(path)


_LIKE_TESTS = ("strips", "tiles", "colours, deflate", "LZW, predictor", "PackBits", "BigTIFF")
_LIKE_TESTS += ("tiles, Zstandard", "big-endian", "big-endian LZW", "named axes", "OME")
_LIKE_TESTS += ("colours", "alpha of a page", "colours, planar", "one page")
_MAKE: dict[str, Callable[[Path], object]] = {
    **{kind: partial(written, kind=kind) for kind in _LIKE_TESTS},
    "pages": partial(_images, count=3, contiguous=False, metadata=None),
    "series": partial(_images, count=2),
    "ImageJ": _imagej,
    "ImageJ signed": partial(_imagej, dtype="i2"),
    "OME set": _set,
    "palette": _palette,
    "ours": partial(_ours, partial(written, kind="one page")),
    "ours ImageJ": partial(_ours, _imagej),
    "ours OME": partial(_ours, partial(written, kind="OME, deflate")),
}
NAMES = tuple(_MAKE)
# Those that say how many planes they hold.
DECLARED = ("named axes", "ImageJ", "ImageJ signed", "OME", "OME set", "ours ImageJ", "ours OME")


@lru_cache
def seed(name: str) -> tuple[bytes, bytes, np.ndarray]:
    """Return a file, the file beside it if it is of a set, and its pixels."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "in.tif")
        _MAKE[name](path)
        twin = path.with_name(TWIN)
        beside = twin.read_bytes() if twin.exists() else b""
        return path.read_bytes(), beside, np.asarray(gd.read(path).data)


class Entry(NamedTuple):
    """Where an entry of a directory of tags is, and what it holds."""

    at: int
    code: int
    kind: int
    count: int
    value_at: int  # of the values, in the entry or elsewhere
    order: str
    big: bool


@lru_cache
def layout(data: bytes) -> tuple[tuple[Entry, ...], tuple[int, ...]]:
    """Return the entries of all directories of a file, and where the links between them are."""
    order = "<" if data[:2] == b"II" else ">"
    big = data[2:4] in (b"+\0", b"\0+")
    link, word = (8, "Q") if big else (4, "I")
    links, entries = [link], []
    (at,) = struct.unpack_from(order + word, data, link)
    while at:
        (number,) = struct.unpack_from(order + ("Q" if big else "H"), data, at)
        at += 8 if big else 2
        size = 20 if big else 12
        for k in range(number):
            start = at + size * k
            code, kind = struct.unpack_from(order + "HH", data, start)
            (count,) = struct.unpack_from(order + word, data, start + 4)
            value_at = start + (12 if big else 8)
            if count * SIZES.get(kind, 1) > (8 if big else 4):
                (value_at,) = struct.unpack_from(order + word, data, value_at)
            entries.append(Entry(start, code, kind, count, value_at, order, big))
        links.append(at + size * number)
        (at,) = struct.unpack_from(order + word, data, links[-1])
    return tuple(entries), tuple(links)
