"""Small TIFF files of many kinds, as other programs write them, and what may be changed in them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tifffile

from napari_gpu_denoise.run.record import Record

RECORD = Record(
    version="0.1.0",
    filter="nl_means",
    settings={"patch": 8},
    sigma=(20.5,),
    sigma_source="given",
    axes="YX",
    input_dtype="uint8",
    output_dtype="uint8",
    device="a device of 2 µm",
    saturated=3,
    nonfinite=0,
    notes=(),
    date="2026-11-20T00:00:00+00:00",
)


def noise(*shape: int, dtype: str = "uint8", seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).random(shape) * 200).astype(dtype)


def image(seed: int = 0, shape: tuple[int, ...] = (12, 14), dtype: str = "uint8") -> np.ndarray:
    return noise(*shape, dtype=dtype, seed=seed)


GREY, RGB = {"photometric": "minisblack"}, {"photometric": "rgb"}
PLAIN = GREY | {"metadata": None}
COLOURS = RGB | {"metadata": None}
SEPARATE = {"planarconfig": "separate"}
ZLIB = {"compression": "zlib"}
TILE = {"tile": (16, 32)}
IMAGEJ = {"imagej": True, "metadata": {"axes": "TZYX"}}
SIGNED = {"imagej": True, "metadata": {"axes": "TZYX", "cf": 0, "c0": -32768.0, "c1": 1.0}}
STACK = (5, 20, 30)


def named(axes: str, **options) -> dict:
    return GREY | {"metadata": {"axes": axes}, **options}


def _ome(axes: str, **options) -> dict:
    return named(axes, ome=True, **options)


# Shape, type, how it is written, and the axes that it then has.
FILES = {
    "plain": (STACK, "u2", PLAIN, "IYX"),
    "one page": ((20, 30), "u1", PLAIN, "YX"),
    "one compressed page": ((20, 30), "u2", PLAIN | ZLIB, "YX"),
    "big-endian": (STACK, "f4", PLAIN | {"byteorder": ">"}, "IYX"),
    "BigTIFF": (STACK, "i8", PLAIN | {"bigtiff": True, "byteorder": ">"}, "IYX"),
    "strips": (STACK, "u2", PLAIN | {"rowsperstrip": 7}, "IYX"),
    "LZW, predictor": (STACK, "u2", PLAIN | {"compression": "lzw", "predictor": True}, "IYX"),
    "big-endian LZW": (STACK, "i4", PLAIN | {"compression": "lzw", "byteorder": ">"}, "IYX"),
    "PackBits": (STACK, "u1", PLAIN | {"compression": "packbits"}, "IYX"),
    "tiles": ((5, 20, 50), "u2", PLAIN | TILE, "IYX"),
    "one tile a page": ((5, 16, 32), "u2", PLAIN | TILE, "IYX"),
    "tiles, Zstandard": ((2, 3, 20, 50), "f4", GREY | TILE | {"compression": "zstd"}, "QQYX"),
    "tiles, PackBits": ((5, 20, 50), "u1", PLAIN | TILE | {"compression": "packbits"}, "IYX"),
    "unknown axes": ((2, 3, 20, 30), "u1", GREY, "QQYX"),
    "named axes": ((2, 1, 3, 20, 30), "u2", named("TZCYX", description="mine"), "TZCYX"),
    "tifffile's single page": (STACK, "u2", named("TYX", truncate=True), "TYX"),
    "ImageJ": ((2, 3, 20, 30), "u2", IMAGEJ, "TZYX"),
    "ImageJ, big-endian": ((2, 3, 20, 30), "f4", IMAGEJ | {"byteorder": ">"}, "TZYX"),
    "ImageJ, one page": (
        (2, 3, 20, 30),
        "u2",
        IMAGEJ | {"truncate": True, "byteorder": ">"},
        "TZYX",
    ),
    "ImageJ, deflate": ((2, 3, 20, 30), "u2", IMAGEJ | ZLIB, "TZYX"),
    "ImageJ, signed": ((2, 3, 20, 30), "u2", SIGNED, "TZYX"),
    "ImageJ, signed, LZW": ((2, 3, 20, 30), "u2", SIGNED | {"compression": "lzw"}, "TZYX"),
    "ImageJ, colours": ((4, 20, 30, 3), "u1", RGB | {"imagej": True}, "CYXS"),
    "OME": ((2, 3, 20, 30), "u2", _ome("TCYX"), "TCYX"),
    "OME, deflate": ((4, 20, 30), "u2", _ome("TYX") | ZLIB, "TYX"),
    "OME, other axes": ((2, 4, 1, 20, 30), "u1", _ome("TQZYX"), "TQYX"),
    "OME, colours": ((3, 20, 30, 3), "u1", _ome("TYXS") | RGB, "TYXS"),
    "OME, planar colours": ((3, 3, 20, 30), "u1", _ome("TSYX") | RGB | SEPARATE, "TSYX"),
    "colours": ((20, 30, 3), "u1", COLOURS, "YXS"),
    "colours, deflate": ((4, 20, 30, 3), "u1", COLOURS | ZLIB | {"predictor": True}, "IYXS"),
    "colours, planar": ((4, 3, 20, 30), "u1", COLOURS | SEPARATE, "ISYX"),
    "colours, planar, deflate": ((4, 3, 20, 30), "u1", COLOURS | SEPARATE | ZLIB, "ISYX"),
    "colour tiles": ((2, 20, 50, 3), "u1", COLOURS | TILE | ZLIB, "IYXS"),
    "planar colour tiles": ((2, 3, 20, 50), "u2", COLOURS | SEPARATE | TILE, "ISYX"),
    "four inks": ((20, 30, 4), "u1", {"photometric": "separated", "metadata": None}, "YXS"),
    "two samples": ((20, 30, 2), "u1", PLAIN | {"planarconfig": "contig"}, "YXS"),
    "white is 0": ((4, 20, 30), "u1", {"photometric": "miniswhite", "metadata": None}, "IYX"),
    "channels last": ((5, 20, 30, 2), "u2", named("TYXC"), "TYXC"),
    "Y and X apart": ((3, 20, 4, 30), "u2", named("CYZX"), "CYZX"),
    "Y before all": ((20, 30, 4), "u2", named("YXZ"), "YXZ"),
    "alpha of a page": ((20, 30, 4), "u1", COLOURS | {"extrasamples": ["assocalpha"]}, "YXS"),
    "alpha": ((4, 20, 30, 4), "u1", RGB | {"extrasamples": [2]}, "QYXS"),
    "alpha, deflate": ((4, 20, 30, 4), "u1", RGB | {"extrasamples": [2]} | ZLIB, "QYXS"),
    "alpha, planar": ((4, 4, 20, 30), "u2", RGB | {"extrasamples": [2]} | SEPARATE, "QSYX"),
    "volumetric tiles": (
        (2, 3, 20, 40),
        "u1",
        PLAIN | {"volumetric": True, "tile": (1, 16, 16)},
        "IZYX",
    ),
    "cubes": ((16, 32, 48), "u1", PLAIN | {"volumetric": True, "tile": (16, 16, 16)}, "ZYX"),
}


def written(path: Path, kind: str, planes: int | None = None) -> np.ndarray:
    """Write a file of a kind, with so many planes if it is said; return its pixels."""
    shape, dtype, options, _ = FILES[kind]
    image = noise(*(shape if planes is None else (planes, *shape[1:])), dtype=dtype)
    tifffile.imwrite(path, image, **options)
    return image


def retagged(path: Path, name: str, value, **options) -> None:
    """Give a tag of the first page another value."""
    with tifffile.TiffFile(path, mode="r+") as tif:
        tif.pages.first.tags[name].overwrite(value, **options)


HANDMADE = """<?xml version="1.0" encoding="UTF-8"?>
<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/{year}" UUID="urn:uuid:{one}">
<Plate ID="Plate:0"><Well ID="Well:0" Row="0" Column="0">
<WellSample ID="WellSample:0" Index="0"><ImageRef ID="Image:1"/></WellSample></Well></Plate>
<Image ID="Image:0" Name="set"><Pixels ID="Pixels:0" DimensionOrder="XYZCT" Type="uint8"
 SizeX="30" SizeY="20" SizeZ="1" SizeC="1" SizeT="{frames}" PhysicalSizeX="0.3">
<Channel ID="Channel:0:0" SamplesPerPixel="1"/>{data}
<Plane TheC="0" TheT="0" TheZ="0" DeltaT="0.5"/></Pixels>{refs}</Image>
<Image ID="Image:1"><Pixels ID="Pixels:1" DimensionOrder="XYZCT" Type="uint8"
 SizeX="1" SizeY="1" SizeZ="1" SizeC="1" SizeT="1"/></Image>
{annotations}</OME>"""
TIFFDATA = (
    '<TiffData IFD="0" FirstT="{t}" PlaneCount="2"><UUID FileName="{name}">{uuid}</UUID></TiffData>'
)
ONE, TWO = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"


def handmade(folder: Path, year: str = "2016-06", refs: str = "", annotations: str = "") -> Path:
    """Write an OME-TIFF set of two files, two frames in each; return the first."""
    data = "".join(
        TIFFDATA.format(t=2 * i, name=f"{i}.ome.tif", uuid=f"urn:uuid:{uuid}")
        for i, uuid in enumerate((ONE, TWO))
    )
    for i, uuid in enumerate((ONE, TWO)):
        xml = HANDMADE.format(
            year=year, one=uuid, data=data, frames=4, refs=refs, annotations=annotations
        )
        image = noise(2, 20, 30, seed=i)
        tifffile.imwrite(folder / f"{i}.ome.tif", image, description=xml.encode(), **PLAIN)
    return folder / "0.ome.tif"


def pyramid(path: Path, name: str = "") -> np.ndarray:
    """Write an OME-TIFF with a coarser level; return the finer."""
    image = noise(2, 128, 128)
    with tifffile.TiffWriter(path, ome=True) as tif:
        options = GREY | {"tile": (64, 64)}
        tif.write(image, subifds=1, metadata={"axes": "CYX", "Name": name}, **options)
        tif.write(image[:, ::2, ::2], subfiletype=1, **options)
    return image
