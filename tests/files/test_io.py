"""TIFF in and out: everything but the pixels survives, and no file is ever half written."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import tifffile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from napari_gpu_denoise.errors import FileError, ImageError, OutputError
from napari_gpu_denoise.files import formats, tiff
from napari_gpu_denoise.files.output import new_file
from napari_gpu_denoise.files.tiff import writing
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


def again(path: Path, dtype: str | None = None, record: Record | None = RECORD):
    """Read a file, write other pixels like it, and read that; return input, output and notes."""
    picture = formats.read(path)
    data = picture.data[..., ::-1, :] if picture.axes.endswith("YX") else picture.data
    data = np.ascontiguousarray(data if dtype is None else data.astype(dtype))
    target = path.with_name("written.tif")
    notes = tiff.write(target, data, picture, record, overwrite=True)
    result = formats.read(target)
    np.testing.assert_array_equal(result.data, data)
    assert result.data.dtype == data.dtype
    assert (result.axes, result.kind) == (picture.axes, picture.kind)
    assert result.history == picture.history + (() if record is None else (record.as_dict(),))
    return picture, result, notes


def tags(path: Path) -> dict[str, object]:
    with tifffile.TiffFile(path) as tif:
        return {tag.name: tag.value for tag in tif.pages[0].tags}


# --- what must survive ----------------------------------------------------------------------------


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    dtype=st.sampled_from(["u1", "u2", "u4", "u8", "i1", "i2", "i4", "f4", "f8"]),
    byteorder=st.sampled_from("<>"),
    bigtiff=st.booleans(),
    compression=st.sampled_from([None, "lzw", "zlib", "packbits", "zstd", "lzma"]),
    predictor=st.booleans(),
    tile=st.sampled_from([None, (16, 32)]),
    shape=st.lists(st.integers(1, 5), max_size=2).map(tuple),
    plane=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    shaped=st.booleans(),
)
def test_storage_is_kept(
    tmp_path, dtype, byteorder, bigtiff, compression, predictor, tile, shape, plane, shaped
):
    path = tmp_path / "in.tif"
    stored = noise(*shape, *plane, dtype=dtype)
    predictor = predictor and compression not in (None, "packbits") and dtype != "u8"
    tifffile.imwrite(
        path,
        stored,
        photometric="minisblack",
        byteorder=byteorder,
        bigtiff=bigtiff,
        compression=compression,
        predictor=predictor,
        tile=tile,
        metadata={} if shaped else None,
    )
    picture, _, notes = again(path)
    np.testing.assert_array_equal(picture.data, stored.reshape(picture.data.shape))
    assert picture.data.dtype == np.dtype(dtype)
    assert notes == ()
    with tifffile.TiffFile(path) as a, tifffile.TiffFile(tmp_path / "written.tif") as b:
        assert a.byteorder == b.byteorder
        assert a.is_bigtiff == b.is_bigtiff
        assert a.series[0].shape == b.series[0].shape
        for name in ("compression", "predictor", "tile", "is_tiled", "sampleformat"):
            assert getattr(a.pages[0], name) == getattr(b.pages[0], name)


IMAGEJ = {
    "axes": "TZCYX",
    "unit": "um",
    "spacing": 0.75,
    "finterval": 2.5,
    "mode": "composite",
    "min": 3.0,
    "max": 190.0,
    "loop": True,
    "Info": "made = by hand\nsecond = line",
    "Labels": [f"plane {i}" for i in range(12)],
    "Ranges": [0.0, 10.5, 1.0, 200.0],
    "LUTs": [noise(3, 256, seed=1), noise(3, 256, seed=2)],
    "Overlays": [b"Iout first", b"Iout second"],
    "ROI": b"Iout roi",
    "Properties": {"key": "value"},
}


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16", "float32"])
@pytest.mark.parametrize("byteorder", ["<", ">"])
def test_imagej_hyperstack(tmp_path, dtype, byteorder):
    path = tmp_path / "in.tif"
    stored = noise(2, 3, 2, 20, 30, dtype=dtype)
    options = {"resolution": (12.5, 7.25), "metadata": IMAGEJ, "byteorder": byteorder}
    tifffile.imwrite(path, stored, imagej=True, **options)
    picture, _, notes = again(path)
    assert picture.axes == "TZCYX"
    assert picture.kind == "imagej"
    assert notes == ()
    with tifffile.TiffFile(path) as a, tifffile.TiffFile(tmp_path / "written.tif") as b:
        before, after = a.imagej_metadata, b.imagej_metadata
        assert a.pages[0].description == b.pages[0].description
        assert a.pages[0].resolution == b.pages[0].resolution == (12.5, 7.25)
        assert b.pages[0].resolutionunit == a.pages[0].resolutionunit
        assert len(b.pages) == 12
    info = after.pop("Info")
    assert info.startswith(before.pop("Info") + "\n")
    assert json.loads(info.splitlines()[-1].split(": ", 1)[1]) == RECORD.as_dict()
    for key in before:
        np.testing.assert_array_equal(before[key], after[key], err_msg=key)
    assert after["unit"] == "um"
    assert after["spacing"] == 0.75
    assert after["finterval"] == 2.5


def test_imagej_description_is_kept_to_the_byte(tmp_path):
    """ImageJ escapes the micro sign itself, and knows keys that no library does."""
    path = tmp_path / "in.tif"
    text = (
        b"ImageJ=1.54f\nimages=6\nslices=6\nunit=\\u00B5m\nspacing=0.5\nloop=false\nxorigin=3.5\n"
    )
    tifffile.imwrite(path, noise(6, 9, 9), metadata=None, description=text, software=False)
    picture, _, _ = again(path)
    assert picture.axes == "ZYX"
    assert tags(tmp_path / "written.tif")["ImageDescription"].encode() == text.rstrip(b"\n")
    assert "Software" not in tags(tmp_path / "written.tif")


@pytest.mark.parametrize("byteorder", ["<", ">"])
def test_imagej_blocks_of_unknown_kind(tmp_path, byteorder):
    path = tmp_path / "in.tif"
    head = b"IJIJ" + b"xray" + (2).to_bytes(4, "big")
    if byteorder == "<":
        head = b"JIJI" + b"yarx" + (2).to_bytes(4, "little")
    data, lengths = head + b"one" + b"three", (len(head), 3, 5)
    extra = [(50839, 1, len(data), data, True), (50838, 4, 3, lengths, True)]
    options = {"description": b"ImageJ=1.54f\n", "metadata": None, "byteorder": byteorder}
    tifffile.imwrite(path, noise(9, 9), extratags=extra, **options)
    again(path)
    (known,) = tags(path)["IJMetadata"].items()
    assert known[1] == [b"one", b"three"]
    assert known in tags(tmp_path / "written.tif")["IJMetadata"].items()

    extra[1] = (50838, 4, 2, lengths[:2], True)  # one length is missing
    tifffile.imwrite(path, noise(9, 9), extratags=extra, **options)
    picture, _, _ = again(path)
    assert any("damaged and not kept" in note for note in picture.notes)


def test_imagej_other_order_of_dimensions(tmp_path):
    path = tmp_path / "in.tif"
    text = b"ImageJ=1.54f\nimages=6\nchannels=2\nslices=3\nhyperstack=true\norder=zct\n"
    tifffile.imwrite(path, noise(6, 9, 9), metadata=None, description=text)
    picture, _, _ = again(path)
    assert picture.axes == "CZYX"


def test_imagej_signed_16_bit(tmp_path):
    """ImageJ stores them with an offset: read as what it shows, written as it stores."""
    path = tmp_path / "in.tif"
    shown = noise(3, 10, 12, dtype="int16") - np.int16(100)
    calibration = {"cf": 0, "c0": -32768.0, "c1": 1.0, "vunit": "gray value", "axes": "ZYX"}
    stored = (shown.astype(np.int32) + 32768).astype(np.uint16)
    tifffile.imwrite(path, stored, imagej=True, metadata=calibration)
    picture = formats.read(path)
    np.testing.assert_array_equal(picture.data, shown)
    again(path)
    np.testing.assert_array_equal(tifffile.imread(tmp_path / "written.tif"), stored[:, ::-1])
    assert "c0=-32768.0" in tags(tmp_path / "written.tif")["ImageDescription"]
    _, _, notes = again(path, "float32")
    assert "c0=" not in tags(tmp_path / "written.tif")["ImageDescription"]
    assert notes == ()


@pytest.mark.parametrize("offset", [1.5, -32768.0])
def test_imagej_calibration_cannot_follow_to_float(tmp_path, offset):
    path, stored = tmp_path / "in.tif", noise(3, 10, 12, dtype="uint16")
    metadata = {"cf": 0, "c0": offset, "c1": 2.0, "vunit": "OD", "axes": "ZYX"}
    tifffile.imwrite(path, stored, imagej=True, metadata=metadata)
    np.testing.assert_array_equal(formats.read(path).data, stored)
    again(path)
    assert f"c0={offset}" in tags(tmp_path / "written.tif")["ImageDescription"]
    _, _, notes = again(path, "float32")
    assert "calibration" in notes[0]


def test_imagej_types(tmp_path):
    path = tmp_path / "in.tif"
    tifffile.imwrite(path, noise(3, 10, 12), imagej=True, metadata={"axes": "TYX", "unit": "nm"})
    _, _, notes = again(path, "float64")
    assert notes == ("ImageJ opens float64 as 32-bit numbers.",)
    assert "unit=nm" in tags(tmp_path / "written.tif")["ImageDescription"]
    with pytest.raises(OutputError, match=r"cannot hold int64.*dtype=.float32"):
        again(path, "int64")
    with pytest.raises(OutputError, match="cannot hold int64"):
        formats.check_writable(formats.read(path), np.dtype("int64"))


def test_imagej_colours(tmp_path):
    path = tmp_path / "in.tif"
    tifffile.imwrite(path, noise(3, 10, 12, 3), imagej=True, photometric="rgb")
    picture, _, notes = again(path)
    assert picture.axes.endswith("YXS")
    assert notes == ()
    assert tags(tmp_path / "written.tif")["PhotometricInterpretation"] == 2
    _, _, notes = again(path, "float32")
    assert "8 bits a channel" in notes[0]


def test_imagej_large_stack_is_one_page(tmp_path, monkeypatch):
    """Above 4 GB ImageJ writes one page with all pixels behind it; it opens no BigTIFF."""
    path = tmp_path / "in.tif"
    metadata = {"axes": "TCYX", "spacing": 2.0}
    tifffile.imwrite(path, noise(4, 2, 40, 50), imagej=True, metadata=metadata, compression="lzw")
    monkeypatch.setattr(writing, "CLASSIC_LIMIT", 1000)
    _, _, notes = again(path)
    assert "without tiles and compression" in notes[0]
    with tifffile.TiffFile(tmp_path / "written.tif") as tif:
        assert not tif.is_bigtiff
        assert len(tif.pages) == 1
    os.replace(tmp_path / "written.tif", path)
    again(path)


def test_large_files_are_bigtiff(tmp_path, monkeypatch):
    path = tmp_path / "in.tif"
    tifffile.imwrite(path, noise(4, 40, 50), photometric="minisblack")
    monkeypatch.setattr(writing, "CLASSIC_LIMIT", 1000)
    again(path)
    with tifffile.TiffFile(tmp_path / "written.tif") as tif:
        assert tif.is_bigtiff
        assert len(tif.pages) == 4


OME = {
    "axes": "TCYX",
    "Name": "the image",
    "PhysicalSizeX": 0.25,
    "PhysicalSizeXUnit": "nm",
    "PhysicalSizeY": 0.5,
    "PhysicalSizeYUnit": "nm",
    "PhysicalSizeZ": 2.0,
    "PhysicalSizeZUnit": "mm",
    "TimeIncrement": 1.5,
    "TimeIncrementUnit": "ms",
    "SignificantBits": 8,
    "Channel": {"Name": ["DAPI", "GFP µ"], "Color": [255, -1]},
    "Plane": {"DeltaT": [0.1 * i for i in range(6)], "DeltaTUnit": ["s"] * 6},
}


def ome(path: Path) -> ElementTree.Element:
    with tifffile.TiffFile(path) as tif:
        return ElementTree.fromstring(tif.ome_metadata)


def attributes(root: ElementTree.Element, name: str) -> list[dict[str, str]]:
    return [dict(element.attrib) for element in root.iter() if element.tag.endswith("}" + name)]


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16", "float32", "float64"])
@pytest.mark.parametrize("byteorder", ["<", ">"])
def test_ome(tmp_path, dtype, byteorder):
    path = tmp_path / "in.ome.tif"
    stored = noise(3, 2, 20, 30, dtype=dtype)
    options = {"photometric": "minisblack", "byteorder": byteorder}
    tifffile.imwrite(path, stored, ome=True, metadata=OME, **options)
    picture, _, notes = again(path)
    assert (picture.axes, picture.kind) == ("TCYX", "ome")
    assert notes == ()
    before, after = ome(path), ome(tmp_path / "written.tif")
    assert attributes(before, "Image") == attributes(after, "Image")
    assert attributes(before, "Channel") == attributes(after, "Channel")
    assert attributes(before, "Plane") == attributes(after, "Plane") != []
    (old,), (new,) = attributes(before, "Pixels"), attributes(after, "Pixels")
    assert new.pop("BigEndian") == str(byteorder == ">").lower()
    old.pop("BigEndian", None)
    assert old == new
    assert new["PhysicalSizeXUnit"] == "nm"
    assert new["TimeIncrement"] == "1.5"
    assert attributes(after, "TiffData") == [{"IFD": "0", "PlaneCount": "6"}]
    assert after.get("UUID") != before.get("UUID")


def test_ome_other_type(tmp_path):
    path = tmp_path / "in.ome.tif"
    tifffile.imwrite(path, noise(3, 2, 20, 30), ome=True, photometric="minisblack", metadata=OME)
    again(path, "float32")
    (pixels,) = attributes(ome(tmp_path / "written.tif"), "Pixels")
    assert pixels["Type"] == "float"
    assert "SignificantBits" not in pixels
    with pytest.raises(OutputError, match="an OME-TIFF file"):
        again(path, "uint64")


@pytest.mark.parametrize("shape, axes", [((3, 20, 30, 3), "TYXS"), ((3, 3, 20, 30), "TSYX")])
def test_ome_colours(tmp_path, shape, axes):
    path = tmp_path / "in.ome.tif"
    planar = "contig" if axes.endswith("S") else "separate"
    options = {"photometric": "rgb", "planarconfig": planar, "metadata": {"axes": axes}}
    tifffile.imwrite(path, noise(*shape), ome=True, **options)
    picture, _, _ = again(path)
    assert picture.axes == axes
    written = tags(tmp_path / "written.tif")
    assert (written["PhotometricInterpretation"], written["SamplesPerPixel"]) == (2, 3)


def test_ome_unknown_axes_and_singletons(tmp_path):
    path = tmp_path / "in.ome.tif"
    options = {"photometric": "minisblack", "metadata": {"axes": "TQZYX"}}
    tifffile.imwrite(path, noise(2, 4, 1, 20, 30), ome=True, **options)
    picture, _, _ = again(path)
    assert picture.axes == "TQYX"
    assert picture.filter_axes == "T.YX"


def test_ome_of_several_images_keeps_the_first(tmp_path):
    path = tmp_path / "in.ome.tif"
    with tifffile.TiffWriter(path, ome=True) as tif:
        for name, count in (("first", 4), ("second", 2)):
            metadata = {"axes": "TYX", "Name": name}
            tif.write(noise(count, 20, 30), photometric="minisblack", metadata=metadata)
    picture, _, _ = again(path)
    assert "holds 2 images: the first" in picture.notes[0]
    assert [i["Name"] for i in attributes(ome(tmp_path / "written.tif"), "Image")] == ["first"]


@pytest.mark.parametrize("name", ["some name", ""])
def test_ome_pyramid_keeps_the_finest_level(tmp_path, name):
    path = tmp_path / "in.ome.tif"
    image = noise(2, 128, 128)
    with tifffile.TiffWriter(path, ome=True) as tif:
        options = {"photometric": "minisblack", "tile": (64, 64)}
        tif.write(image, subifds=1, metadata={"axes": "CYX", "Name": name}, **options)
        tif.write(image[:, ::2, ::2], subfiletype=1, **options)
    picture, _, _ = again(path)
    assert "pyramid" in picture.notes[0]
    assert picture.data.shape == (2, 128, 128)


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
    """An OME-TIFF set of two files, two frames in each."""
    data = "".join(
        TIFFDATA.format(t=2 * i, name=f"{i}.ome.tif", uuid=f"urn:uuid:{uuid}")
        for i, uuid in enumerate((ONE, TWO))
    )
    for i, uuid in enumerate((ONE, TWO)):
        xml = HANDMADE.format(
            year=year, one=uuid, data=data, frames=4, refs=refs, annotations=annotations
        )
        options = {"description": xml.encode(), "metadata": None, "photometric": "minisblack"}
        tifffile.imwrite(folder / f"{i}.ome.tif", noise(2, 20, 30, seed=i), **options)
    return folder / "0.ome.tif"


def test_ome_set_of_files_becomes_one(tmp_path):
    path = handmade(tmp_path)
    picture, result, _ = again(path)
    np.testing.assert_array_equal(picture.data[:2], noise(2, 20, 30, seed=0))
    np.testing.assert_array_equal(picture.data[2:], noise(2, 20, 30, seed=1))
    assert {file.name for file in picture.files} == {"0.ome.tif", "1.ome.tif"}
    assert "spans 2 files" in picture.notes[0]
    assert [file.name for file in result.files] == ["written.tif"]
    root = ome(tmp_path / "written.tif")
    assert attributes(root, "ImageRef") == []  # the image it meant is not in the file
    assert attributes(root, "Plane")[0]["DeltaT"] == "0.5"


def test_ome_with_a_file_of_the_set_missing(tmp_path):
    path = handmade(tmp_path)
    (tmp_path / "1.ome.tif").unlink()
    picture = formats.read(path)
    assert any("2 of 4 planes" in note for note in picture.notes)
    assert not picture.data[2:].any()


@pytest.mark.parametrize("year, own", [("2016-06", "OME/2016-06"), ("2013-06", "SA/2013-06")])
@pytest.mark.parametrize("present", [False, True])
def test_ome_annotations_stand_where_the_schema_wants_them(tmp_path, year, own, present):
    namespace = f"http://www.openmicroscopy.org/Schemas/{own}"
    refs = annotations = ""
    if present:
        refs = f'<AnnotationRef xmlns="{namespace}" ID="Annotation:0"/>'
        annotations = (
            f'<StructuredAnnotations xmlns="{namespace}"><LongAnnotation ID="Annotation:0">'
            "<Value>7</Value></LongAnnotation></StructuredAnnotations>"
        )
    again(handmade(tmp_path, year, refs, annotations))
    root = ome(tmp_path / "written.tif")
    (annotations,) = root.findall(f"{{{namespace}}}StructuredAnnotations")
    assert len(annotations) == 1 + present
    names = [child.tag.rpartition("}")[2] for child in root]
    assert names.index("StructuredAnnotations") > names.index("Image")
    image = root.find("{*}Image")
    references = image.findall(f"{{{namespace}}}AnnotationRef")
    assert [r.get("ID") for r in references] == [a.get("ID") for a in annotations]
    assert image[0].tag.endswith("}Pixels")


def test_ome_that_describes_other_pixels(tmp_path):
    """The first file of a set whose metadata lie in a companion file."""
    path = tmp_path / "in.ome.tif"
    xml = (
        '<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06"><BinaryOnly '
        f'MetadataFile="set.companion.ome" UUID="urn:uuid:{ONE}"/></OME>'
    )
    options = {"description": xml.encode(), "metadata": None, "photometric": "minisblack"}
    tifffile.imwrite(path, noise(2, 20, 30), **options)
    picture, _, _ = again(path)
    assert picture.kind == "plain"
    assert "does not describe" in picture.notes[0]
    assert "ImageDescription" not in tags(tmp_path / "written.tif")


def test_plain_tags(tmp_path):
    path = tmp_path / "in.tif"
    geo = (33922, "d", 6, (0.0, 0.0, 0.0, 4.5, 5.5, 0.0), True)
    position = (286, 5, 1, (7, 2), True)
    options = {
        "description": "Größe: 3 µm".encode(),
        "resolution": ((1234567, 1000), (300, 1)),
        "resolutionunit": "centimeter",
        "software": "a microscope",
        "datetime": "2026:11:20 10:00:00",
        "iccprofile": b"profile" * 5,
        "extratags": [geo, position, (315, "s", 0, "someone", True)],
        "metadata": None,
        "photometric": "minisblack",
    }
    tifffile.imwrite(path, noise(3, 20, 30, dtype="uint16"), **options)
    again(path)
    before, after = tags(path), tags(tmp_path / "written.tif")
    for name in ("StripOffsets", "StripByteCounts"):
        before.pop(name), after.pop(name)
    software = after.pop("Software").splitlines()
    assert software[0] == before.pop("Software")
    assert json.loads(software[1].split(": ", 1)[1]) == RECORD.as_dict()
    assert after == before


def test_plain_without_resolution_or_with_nonsense(tmp_path):
    path = tmp_path / "in.tif"
    tifffile.imwrite(path, noise(20, 30), metadata=None)
    raw = bytearray(path.read_bytes())
    with tifffile.TiffFile(path) as tif:
        offset = tif.pages[0].tags["XResolution"].valueoffset
    raw[offset : offset + 8] = bytes(8)  # 0/0
    path.write_bytes(raw)
    again(path)
    assert tags(tmp_path / "written.tif")["XResolution"] == (1, 1)


def test_named_axes_of_tifffile(tmp_path):
    path = tmp_path / "in.tif"
    metadata = {"axes": "TZCYX", "key": [1, 2]}
    options = {"photometric": "minisblack", "description": "mine", "metadata": metadata}
    tifffile.imwrite(path, noise(1, 5, 1, 20, 30), **options)
    picture, _, _ = again(path)
    assert (picture.axes, picture.data.shape) == ("TZCYX", (1, 5, 1, 20, 30))
    with tifffile.TiffFile(path) as a, tifffile.TiffFile(tmp_path / "written.tif") as b:
        assert a.shaped_metadata == b.shaped_metadata
        assert b.pages[0].description == "mine"


def test_tifffile_single_page_stack(tmp_path):
    path = tmp_path / "in.tif"
    options = {"photometric": "minisblack", "metadata": {"axes": "TYX"}, "truncate": True}
    tifffile.imwrite(path, noise(5, 20, 30), **options)
    picture, _, _ = again(path)
    assert picture.data.shape == (5, 20, 30)


COLOURS = [
    ((20, 30, 3), {"photometric": "rgb"}, "YXS"),
    ((4, 20, 30, 3), {"photometric": "rgb", "compression": "zlib", "predictor": True}, "IYXS"),
    ((4, 3, 20, 30), {"photometric": "rgb", "planarconfig": "separate"}, "ISYX"),
    ((20, 30, 4), {"photometric": "rgb", "extrasamples": ["assocalpha"]}, "YXS"),
    ((20, 30, 4), {"photometric": "separated"}, "YXS"),
    ((20, 30, 2), {"photometric": "minisblack", "planarconfig": "contig"}, "YXS"),
    ((4, 20, 30), {"photometric": "miniswhite"}, "IYX"),
    ((16, 32, 48), {"photometric": "minisblack", "volumetric": True, "tile": (16, 16, 16)}, "ZYX"),
]


@pytest.mark.parametrize("shape, options, axes", COLOURS)
def test_colours_and_samples(tmp_path, shape, options, axes):
    path = tmp_path / "in.tif"
    tifffile.imwrite(path, noise(*shape), metadata=None, **options)
    picture, _, notes = again(path)
    assert (picture.axes, notes) == (axes, ())
    before, after = tags(path), tags(tmp_path / "written.tif")
    names = ("PhotometricInterpretation", "SamplesPerPixel", "ExtraSamples", "PlanarConfiguration")
    assert [before.get(name) for name in names] == [after.get(name) for name in names]


def test_colour_table(tmp_path):
    path = tmp_path / "in.tif"
    table = noise(3, 256, dtype="uint16")
    tifffile.imwrite(path, noise(20, 30), photometric="palette", colormap=table, metadata=None)
    _, _, notes = again(path)
    assert "indices are filtered" in notes[0]
    np.testing.assert_array_equal(tags(tmp_path / "written.tif")["ColorMap"], table)
    _, _, notes = again(path, "float32")
    assert "left out" in notes[0]
    assert tags(tmp_path / "written.tif")["PhotometricInterpretation"] == 1


def test_unknown_axes_may_repeat(tmp_path):
    path = tmp_path / "in.tif"
    tifffile.imwrite(path, noise(2, 3, 20, 30), photometric="minisblack")
    picture, _, _ = again(path)
    assert (picture.axes, picture.filter_axes) == ("QQYX", "..YX")


@pytest.mark.parametrize("codec", ["jpeg", "jpeg2000", "webp"])
def test_lossy_becomes_lossless(tmp_path, codec):
    path = tmp_path / "in.tif"
    tifffile.imwrite(path, noise(64, 64, 3), photometric="rgb", compression=codec, metadata=None)
    picture, _, notes = again(path)
    np.testing.assert_array_equal(picture.data, tifffile.imread(path))
    assert "replaced by lossless deflate" in notes[0]
    assert tags(tmp_path / "written.tif")["Compression"] == 8


def test_vendor_format_becomes_plain(tmp_path):
    path = tmp_path / "in.svs"
    text = "Aperio Image Library v1\n64x64 [0,0 64x64] (16x16) |AppMag = 20"
    options = {"photometric": "rgb", "tile": (16, 16), "description": text, "metadata": None}
    tifffile.imwrite(path, noise(64, 64, 3), **options)
    with tifffile.TiffFile(path) as tif:
        assert tif.series[0].kind == "svs"
    picture, _, _ = again(path)
    assert picture.kind == "plain"
    assert "svs format" in picture.notes[0]


def test_records_add_up(tmp_path):
    """A file denoised twice tells both runs, oldest first."""
    tifffile.imwrite(tmp_path / "a.tif", noise(2, 20, 30), imagej=True)
    tifffile.imwrite(tmp_path / "b.tif", noise(2, 20, 30), ome=True, photometric="minisblack")
    tifffile.imwrite(tmp_path / "c.tif", noise(2, 20, 30), photometric="minisblack")
    for name in "abc":
        again(tmp_path / f"{name}.tif")
        os.replace(tmp_path / "written.tif", tmp_path / "once.tif")
        _, result, _ = again(tmp_path / "once.tif")
        assert result.history == (RECORD.as_dict(), RECORD.as_dict())


def test_without_record(tmp_path):
    path = tmp_path / "in.tif"
    tifffile.imwrite(path, noise(20, 30))
    again(path, record=None)
    assert tags(tmp_path / "written.tif")["Software"] == "tifffile.py"


# --- what is refused ------------------------------------------------------------------------------


def refused(path: Path, error: type[Exception] = FileError) -> str:
    with pytest.raises(error) as caught:
        formats.read(path)
    text = str(caught.value)
    assert str(path) in text
    assert "\n" not in text
    assert text.endswith(".")
    return text


def test_unreadable(tmp_path):
    assert "No such file" in refused(tmp_path / "none.tif")
    assert "is a folder" in refused(tmp_path)
    (tmp_path / "empty.tif").touch()
    assert "is empty" in refused(tmp_path / "empty.tif")
    (tmp_path / "text.tif").write_text("Dear microscope,")
    assert "not a TIFF" in refused(tmp_path / "text.tif")
    (tmp_path / "head.tif").write_bytes(b"II*\0")
    assert "cut short" in refused(tmp_path / "head.tif")
    with pytest.warns(UserWarning, match="zero-size"):
        tifffile.imwrite(tmp_path / "nothing.tif", np.empty((0, 5), np.uint8))
    assert "no pixels" in refused(tmp_path / "nothing.tif", ImageError)


LAYOUTS = {
    "shaped": {},
    "shaped zlib": {"compression": "zlib"},
    "plain": {"metadata": None},
    "plain lzw": {"metadata": None, "compression": "lzw"},
    "plain packbits": {"metadata": None, "compression": "packbits"},
    "plain strips": {"metadata": None, "rowsperstrip": 7},
    "plain tiles": {"metadata": None, "tile": (16, 16)},
    "imagej": {"imagej": True, "metadata": {"axes": "TYX"}},
    "imagej zlib": {"imagej": True, "metadata": {"axes": "TYX"}, "compression": "zlib"},
    "imagej one page": {"imagej": True, "metadata": {"axes": "TYX"}, "truncate": True},
    "ome": {"ome": True, "metadata": {"axes": "TYX"}},
    "ome zstd tiles": {"ome": True, "compression": "zstd", "tile": (16, 16)},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_cut_short(tmp_path, layout):
    """At whatever byte a file is cut, it is refused unless all of its pixels are there."""
    whole, path = tmp_path / "whole.tif", tmp_path / "cut.tif"
    stored = noise(6, 40, 48, dtype="uint16")
    tifffile.imwrite(whole, stored, photometric="minisblack", **LAYOUTS[layout])
    raw = whole.read_bytes()
    refusals = 0
    for size in np.linspace(1, len(raw) - 1, 60).astype(int):
        path.write_bytes(raw[:size])
        try:
            np.testing.assert_array_equal(formats.read(path).data, stored)
        except FileError as error:
            assert str(path) in str(error)
            refusals += 1
    assert refusals > 50


def test_cut_short_where_the_log_is_muted(tmp_path):
    """A program may mute the log of tifffile, which alone tells of a broken chain of pages."""
    whole, path = tmp_path / "whole.tif", tmp_path / "cut.tif"
    tifffile.imwrite(whole, noise(6, 40, 48), photometric="minisblack", metadata=None)
    path.write_bytes(whole.read_bytes()[:9000])
    logger = logging.getLogger("tifffile")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        refused(path)
        assert logger.level == logging.CRITICAL
    finally:
        logger.setLevel(level)


def test_cut_short_where_the_decoder_does_not_mind(tmp_path):
    """A JPEG decoder fills what is missing with grey."""
    path = tmp_path / "in.tif"
    options = {"photometric": "minisblack", "compression": "jpeg", "metadata": None}
    tifffile.imwrite(path, noise(64, 64), **options)
    raw = path.read_bytes()
    for missing in (1, 50, 500):
        path.write_bytes(raw[:-missing])
        refused(path)


def test_missing_codec(tmp_path, monkeypatch):
    path = tmp_path / "in.tif"
    tifffile.imwrite(path, noise(20, 30), compression="lzw")

    def without(self, *args, **kwargs):
        raise ValueError("<COMPRESSION.LZW: 5> requires the 'imagecodecs' package")

    monkeypatch.setattr(tifffile.TiffPageSeries, "asarray", without)
    assert "pip install imagecodecs" in refused(path)


def test_unknown_codec(tmp_path):
    path = tmp_path / "in.tif"
    tifffile.imwrite(path, noise(20, 30), compression="lzw")
    raw = bytearray(path.read_bytes())
    with tifffile.TiffFile(path) as tif:
        offset = tif.pages[0].tags["Compression"].valueoffset
    raw[offset : offset + 2] = (34661).to_bytes(2, "little")  # JBIG
    path.write_bytes(raw)
    refused(path)


def test_too_large_for_memory(tmp_path, monkeypatch):
    path = tmp_path / "in.tif"
    tifffile.imwrite(path, noise(20, 30))

    def fail(self, *args, **kwargs):
        raise MemoryError

    monkeypatch.setattr(tifffile.TiffPageSeries, "asarray", fail)
    assert "memory" in refused(path)


def test_reading_changes_nothing(tmp_path, caplog):
    path = tmp_path / "in.tif"
    tifffile.imwrite(path, noise(20, 30))
    raw, handlers = path.read_bytes(), list(logging.getLogger("tifffile").handlers)
    formats.read(path)
    assert path.read_bytes() == raw
    assert logging.getLogger("tifffile").handlers == handlers
    assert caplog.records == []


def test_is_tiff(tmp_path):
    for name, options in {"a": {}, "b": {"byteorder": ">"}, "c": {"bigtiff": True}}.items():
        tifffile.imwrite(tmp_path / name, noise(2, 2), **options)
        assert formats.is_image(tmp_path / name)
    (tmp_path / "d").write_bytes(b"\x89PNG")
    assert not formats.is_image(tmp_path / "d")
    assert not formats.is_image(tmp_path / "none")


# --- writing never destroys -----------------------------------------------------------------------


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "in.tif"
    tifffile.imwrite(path, noise(20, 30))
    return formats.read(path)


def test_input_is_never_replaced(tmp_path, picture):
    raw = picture.path.read_bytes()
    (tmp_path / "sub").mkdir()
    names = [picture.path, tmp_path / "sub" / ".." / "in.tif", tmp_path / "soft", tmp_path / "hard"]
    names[2].symlink_to(picture.path)
    names[3].hardlink_to(picture.path)
    for name in names:
        with pytest.raises(OutputError, match="never replaced"):
            tiff.write(name, picture.data, picture, RECORD, overwrite=True)
    assert picture.path.read_bytes() == raw
    assert sorted(p.name for p in tmp_path.iterdir()) == ["hard", "in.tif", "soft", "sub"]


def test_no_file_of_a_set_is_replaced(tmp_path):
    picture = formats.read(handmade(tmp_path))
    with pytest.raises(OutputError, match="never replaced"):
        tiff.write(tmp_path / "1.ome.tif", picture.data, picture, overwrite=True)


def test_existing_output(tmp_path, picture):
    target = tmp_path / "out.tif"
    target.write_text("precious")
    with pytest.raises(OutputError, match=r"exists.*overwrite=True"):
        tiff.write(target, picture.data, picture)
    assert target.read_text() == "precious"
    (tmp_path / "backup.tif").hardlink_to(target)
    tiff.write(target, picture.data, picture, overwrite=True)
    np.testing.assert_array_equal(formats.read(target).data, picture.data)
    # The old file was not written into: the new one took its name.
    assert (tmp_path / "backup.tif").read_text() == "precious"


def test_link_to_the_output_is_followed(tmp_path, picture):
    (tmp_path / "real").mkdir()
    link = tmp_path / "out.tif"
    link.symlink_to(tmp_path / "real" / "out.tif")
    tiff.write(link, picture.data, picture)
    assert link.is_symlink()
    assert [p.name for p in (tmp_path / "real").iterdir()] == ["out.tif"]


def test_impossible_output(tmp_path, picture):
    with pytest.raises(OutputError, match="is a folder"):
        tiff.write(tmp_path, picture.data, picture)
    with pytest.raises(OutputError, match="does not exist"):
        tiff.write(tmp_path / "none" / "out.tif", picture.data, picture)
    with pytest.raises(OutputError, match="shape"):
        tiff.write(tmp_path / "out.tif", picture.data[1:], picture)
    with pytest.raises(OutputError, match="cannot be written"):
        tiff.write(tmp_path / ("x" * 300 + ".tif"), picture.data, picture)
    assert [p.name for p in tmp_path.iterdir()] == ["in.tif"]


@pytest.mark.parametrize(
    "failure, raised",
    [
        (OSError(errno.ENOSPC, "No space left on device"), OutputError),
        (ValueError("no such layout"), OutputError),
        (MemoryError(), MemoryError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
@pytest.mark.parametrize("exists", [False, True])
def test_failure_in_the_middle_of_a_write(tmp_path, picture, monkeypatch, failure, raised, exists):
    target = tmp_path / "out.tif"
    if exists:
        target.write_text("precious")

    def half(self, data, **options):
        self.filehandle.write(b"half of the pixels")
        raise failure

    monkeypatch.setattr(tifffile.TiffWriter, "write", half)
    with pytest.raises(raised) as caught:
        tiff.write(target, picture.data, picture, RECORD, overwrite=True)
    if raised is OutputError:
        assert re.search("No space left|no such layout", str(caught.value))
    names = {"in.tif", "out.tif"} if exists else {"in.tif"}
    assert {p.name for p in tmp_path.iterdir()} == names
    if exists:
        assert target.read_text() == "precious"


def test_file_that_appears_while_we_write(tmp_path):
    target = tmp_path / "out.tif"
    with pytest.raises(OutputError, match="exists"), new_file(target) as file:
        file.write(b"ours")
        target.write_text("theirs")
    assert target.read_text() == "theirs"
    assert [p.name for p in tmp_path.iterdir()] == ["out.tif"]


def test_nothing_under_the_name_until_complete(tmp_path):
    target = tmp_path / "out.tif"
    with new_file(target) as file:
        file.write(b"bytes")
        assert not target.exists()
    assert target.read_bytes() == b"bytes"
