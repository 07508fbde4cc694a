"""Small TIFF files of many kinds, all of whose pixels are above 0, and where their tags are."""

from __future__ import annotations

import struct
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tifffile

import napari_gpu_denoise as gd

SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 16: 8, 17: 8}
TWIN = "1.ome.tif"  # the second file of the set of seeds
_TILE = {"tile": (16, 16), "photometric": "minisblack"}


def _image(*shape: int, dtype: str = "u1") -> np.ndarray:
    values = np.random.default_rng(len(shape)).integers(1, 200, shape)
    return values.astype(dtype)


def _plain(path: Path, image: np.ndarray, **options) -> None:
    options = {"photometric": "minisblack", "rowsperstrip": 4, **options}
    if "tile" in options:
        del options["rowsperstrip"]
    tifffile.imwrite(path, image, **options)


def _series(path: Path) -> None:
    with tifffile.TiffWriter(path) as tif:
        tif.write(_image(12, 14), photometric="minisblack")
        tif.write(_image(2, 8, 9), photometric="minisblack")


def _pages(path: Path) -> None:
    with tifffile.TiffWriter(path) as tif:
        for _ in range(3):
            tif.write(_image(12, 14), contiguous=False, metadata=None, photometric="minisblack")


def _imagej(path: Path, dtype: str = "u2", **options) -> None:
    metadata = {"axes": "TCYX", "Info": "made\nby hand", "Labels": ["a", "b", "c", "d"]}
    metadata |= {"unit": "um", "finterval": 2.5, "LUTs": [np.ones((3, 256), "u1")] * 2}
    tifffile.imwrite(path, _image(2, 2, 12, 14, dtype=dtype), imagej=True, metadata=metadata)


def _ome(path: Path) -> None:
    metadata = {"axes": "TYX", "PhysicalSizeX": 0.3, "PhysicalSizeXUnit": "µm", "Name": "a"}
    tifffile.imwrite(path, _image(3, 12, 14), ome=True, metadata=metadata)


def _ours(path: Path, make, **options) -> None:
    """Write a file as this package writes its results, with a record."""
    start = path.with_name("start" + path.name)
    make(start, **options)
    picture = gd.read(start)
    result = gd.denoise(picture.data, gd.NLMeans(patch=4, window=7, step=2, neighbours=4), 0)
    gd.write(path, result.image, picture, result.record)


def _plain_start(path: Path) -> None:
    _plain(path, _image(12, 14))


def _set(path: Path) -> None:
    """Write an OME-TIFF set of two files; the second is beside the first."""
    ids = [f"urn:uuid:{k * 8}-{k * 4}-{k * 4}-{k * 4}-{k * 12}" for k in "12"]
    data = "".join(
        f'<TiffData IFD="0" FirstT="{t}" PlaneCount="1"><UUID FileName="{name}">{uuid}</UUID>'
        "</TiffData>"
        for t, (name, uuid) in enumerate(zip((path.name, TWIN), ids, strict=True))
    )
    for own, name in zip(ids, (path.name, TWIN), strict=True):
        xml = (
            '<?xml version="1.0" encoding="UTF-8"?><OME '
            f'xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06" UUID="{own}">'
            '<Image ID="Image:0" Name="set"><Pixels ID="Pixels:0" DimensionOrder="XYZCT" '
            'Type="uint8" SizeX="14" SizeY="12" SizeZ="1" SizeC="1" SizeT="2" '
            f'PhysicalSizeX="0.3"><Channel ID="Channel:0:0" SamplesPerPixel="1"/>{data}'
            "</Pixels></Image></OME>"
        )
        options = {"description": xml.encode(), "metadata": None, "photometric": "minisblack"}
        tifffile.imwrite(path.with_name(name), _image(12, 14), **options)


_MAKE = {
    "strips": lambda path: _plain(path, _image(12, 14)),
    "tiles": lambda path: _plain(path, _image(20, 35, dtype="u2"), **_TILE),
    "deflate": lambda path: _plain(path, _image(12, 14), compression="zlib", predictor=True),
    "lzw": lambda path: _plain(path, _image(12, 14, dtype="u2"), compression="lzw"),
    "packbits": lambda path: _plain(path, _image(12, 14), compression="packbits"),
    "zstd tiles": lambda path: _plain(path, _image(2, 20, 18), compression="zstd", **_TILE),
    "big": lambda path: _plain(path, _image(2, 12, 14), bigtiff=True),
    "big-endian": lambda path: _plain(path, _image(3, 12, 14, dtype="u2"), byteorder=">"),
    "float": lambda path: _plain(path, _image(12, 14, dtype="f4"), byteorder=">"),
    "stack": lambda path: _plain(path, _image(2, 3, 12, 14), metadata={"axes": "TZYX"}),
    "pages": _pages,
    "series": _series,
    "ImageJ": _imagej,
    "ImageJ signed": lambda path: _imagej(path, "i2"),
    "OME": _ome,
    "OME set": _set,
    "rgb": lambda path: _plain(path, _image(12, 14, 3), photometric="rgb"),
    "alpha": lambda path: _plain(
        path, _image(12, 14, 4), photometric="rgb", extrasamples=["unassalpha"]
    ),
    "separate": lambda path: _plain(
        path, _image(3, 12, 14), photometric="rgb", planarconfig="separate"
    ),
    "palette": lambda path: _plain(
        path, _image(12, 14), photometric="palette", colormap=np.ones((3, 256), "u2")
    ),
    "ours": lambda path: _ours(path, _plain_start),
    "ours ImageJ": lambda path: _ours(path, _imagej),
    "ours OME": lambda path: _ours(path, _ome),
}
NAMES = tuple(_MAKE)
# Those that say how many planes they hold.
DECLARED = ("stack", "ImageJ", "ImageJ signed", "OME", "OME set", "ours ImageJ", "ours OME")


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

    def values(self, data: bytes) -> list[int]:
        """Return whole numbers that the entry holds."""
        letter = {1: "B", 3: "H", 4: "I", 16: "Q"}[self.kind]
        return list(struct.unpack_from(f"{self.order}{self.count}{letter}", data, self.value_at))


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
