"""TIFF in and out: everything but the pixels survives, and no file is ever half written."""

from __future__ import annotations

import json
import logging
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import MappingProxyType
from xml.etree import ElementTree

import imagecodecs
import numpy as np
import pytest
import tifffile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from files import tiffs
from files.contract import (
    LENGTHS,
    FormatContract,
    SameWriter,
    apart,
    check_named,
    error_of,
    files_of,
)
from files.damage import damage_tags
from files.tiffs import GREY, PLAIN, RECORD, noise, written
from napari_gpu_denoise.errors import ImageError, OutputError
from napari_gpu_denoise.files import FORMAT_NAMES, formats
from napari_gpu_denoise.files.output import new_file
from napari_gpu_denoise.files.tiff import ome_xml
from napari_gpu_denoise.run.record import Record


def again(path: Path, dtype: str | None = None, record: Record | None = RECORD):
    """Read a file, write other pixels like it, and read that; return input, output and notes."""
    picture = formats.read(path)
    data = picture.data[..., ::-1, :] if picture.axes.endswith("YX") else picture.data
    data = np.ascontiguousarray(data if dtype is None else data.astype(dtype))
    target = path.with_name("written.tif")
    notes = formats.write(target, data, picture, record, overwrite=True)
    result = formats.read(target)
    np.testing.assert_array_equal(result.data, data)
    assert result.data.dtype == data.dtype
    assert (result.axes, result.kind) == (picture.axes, picture.kind)
    assert result.history == picture.history + (() if record is None else (record.as_dict(),))
    return picture, result, notes


def tags(path: Path) -> dict[str, object]:
    with tifffile.TiffFile(path) as tif:
        return {tag.name: tag.value for tag in tif.pages[0].tags}


def lie(value: int, *names: str, **options) -> Callable[[Path], object]:
    """Return what changes tags of the first page of a file."""

    def change(path: Path) -> None:
        for name in names:
            tiffs.retagged(path, name, value, **options)

    return change


LENGTH = ("ImageWidth", "ImageLength")
# Of a negative size the series of tifffile did not end.
LIES = ("damaged", lie(-1, "ImageLength", dtype=9)), ("damaged", lie(34661, "Compression"))  # JBIG


class TestOME(FormatContract):
    ending, results = ".ome.tif", (".ome.tif", ".tif")
    axes = ("YX", "ZYX", "CYX", "TYXS", "TCZYX")
    types = ("uint16", *sorted(ome_xml.HELD - {"uint16"}))
    channels = ("DAPI", "GFP")
    modules = ()
    options = MappingProxyType({"ome": True, "compression": "zlib", "byteorder": ">"})
    lies = (("damaged", lie(1 << 15, *LENGTH, "RowsPerStrip")), ("damaged", lie(1 << 15, *LENGTH)))
    lies += LIES

    def metadata(self, axes):
        sizes = {f"PhysicalSize{a}": self.steps[a][0] for a in "XYZ" if a in axes}
        told = {"axes": axes, "TimeIncrement": 2.0, **sizes} if "T" in axes else {"axes": axes}
        count = np.prod([LENGTHS[a] for a in axes if a not in "YXS"], dtype=int)
        told["Plane"] = {"DeltaT": [0.1 * k for k in range(count)]}
        channels = {"Name": [*self.channels], "Color": [255, -1]}
        return told | sizes | ({"Channel": channels} if "C" in axes else {})

    def write(self, path, image, axes):
        colours = tiffs.RGB if axes.endswith("S") else GREY
        tifffile.imwrite(path, image, metadata=self.metadata(axes), **colours, **self.options)

    def check_kept(self, before, after):
        before, after = ome(before), ome(after)
        for name in ("Image", "Channel", "Plane"):
            assert attributes(before, name) == attributes(after, name)
        assert after.get("UUID") != before.get("UUID")
        (old,), (new,) = attributes(before, "Pixels"), attributes(after, "Pixels")
        assert new.pop("BigEndian") == old.pop("BigEndian", "true") and old == new
        (data,) = attributes(after, "TiffData")
        assert data == {"IFD": "0", "PlaneCount": str(len(attributes(before, "Plane")))}


class TestImageJ(SameWriter, TestOME):
    ending, results = ".tif", (".tif", ".ome.tif")
    axes = ("YX", "ZYX", "TYX", "TZCYX")
    types = ("uint16", "uint8", "float32")
    channels = ()
    options = MappingProxyType({"imagej": True, "resolution": (5.0, 4.0)})

    def metadata(self, axes):
        told = {"axes": axes, "unit": "um"} | ({"spacing": 1.5} if "Z" in axes else {})
        return told | ({"finterval": 2.0} if "T" in axes else {})

    def check_kept(self, before, after):
        assert tags(before)["ImageDescription"] == tags(after)["ImageDescription"]


class TestPlainTiff(SameWriter, TestOME):
    """A BigTIFF of tiles with a predictor, big-endian, and axes in JSON."""

    ending, results = ".btf", (".btf", ".tif")
    axes = ("YX", "ZYX", "TYXS", "TCZYX")
    types = ("uint16", "int64", "uint64", "float16", "float64", "int8")
    channels, steps = (), apart()
    lies = (("declares", lie(1 << 15, *LENGTH, "TileWidth", "TileLength")), *LIES)
    options = MappingProxyType(
        tiffs.TILE | {"bigtiff": True, "byteorder": ">", "compression": "lzw"}
    )

    def metadata(self, axes):
        return {"axes": axes}

    def check_kept(self, before, after):
        assert tags(before)["ImageDescription"] == tags(after)["ImageDescription"]


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
        byteorder=byteorder,
        bigtiff=bigtiff,
        compression=compression,
        predictor=predictor,
        tile=tile,
        **(GREY if shaped else PLAIN),
    )
    picture, _, notes = again(path)
    np.testing.assert_array_equal(picture.data, stored.reshape(picture.data.shape))
    assert picture.data.dtype == np.dtype(dtype)
    assert notes == ()
    with tifffile.TiffFile(path) as a, tifffile.TiffFile(tmp_path / "written.tif") as b:
        assert (a.byteorder, a.is_bigtiff) == (b.byteorder, b.is_bigtiff)
        assert a.series[0].shape == b.series[0].shape
        for name in ("compression", "predictor", "tile", "is_tiled", "sampleformat"):
            assert getattr(a.pages[0], name) == getattr(b.pages[0], name)


def test_axes_that_are_unknown_are_dots_for_filters(tmp_path):
    for kind, axes in (("unknown axes", "..YX"), ("OME, other axes", "T.YX")):
        written(tmp_path / "in.tif", kind)
        assert formats.read(tmp_path / "in.tif").filter_axes == axes


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


@pytest.mark.parametrize(
    ("axes", "more"),
    [
        ("ZYX", "slices=6\nunit=\\u00B5m\nspacing=0.5\nloop=false\nxorigin=3.5"),
        ("CZYX", "channels=2\nslices=3\nhyperstack=true\norder=zct"),
    ],
)
def test_imagej_description_is_kept_to_the_byte(tmp_path, axes, more):
    """ImageJ escapes the micro sign itself, and knows keys that no library does."""
    path, text = tmp_path / "in.tif", f"ImageJ=1.54f\nimages=6\n{more}\n".encode()
    tifffile.imwrite(path, noise(6, 9, 9), metadata=None, description=text, software=False)
    picture, _, _ = again(path)
    assert picture.axes == axes
    assert tags(tmp_path / "written.tif")["ImageDescription"].encode() == text.rstrip(b"\n")
    assert "Software" not in tags(tmp_path / "written.tif")


def test_imagej_blocks_that_cannot_be_kept_are_noted(tmp_path):
    path, head = tmp_path / "in.tif", b"JIJI" + b"yarx" + (2).to_bytes(4, "little")
    data, lengths = head + b"one" + b"three", (len(head), 3, 5)
    options = {"description": b"ImageJ=1.54f\n", "metadata": None, "byteorder": "<"}
    for count, said in ((3, "unknown kinds are not kept"), (2, "damaged and not kept")):
        tags = [(50839, 1, len(data), data, True), (50838, 4, count, lengths[:count], True)]
        tifffile.imwrite(path, noise(9, 9), extratags=tags, **options)
        picture, _, _ = again(path)
        assert any(said in note for note in picture.notes)


@pytest.mark.parametrize(("offset", "factor"), [(-32768.0, 1.0), (-32768.0, 2.0), (1.5, 2.0)])
def test_imagej_calibration(tmp_path, offset, factor):
    """Signed 16-bit values are stored with an offset: read as shown, written as stored."""
    path, stored = tmp_path / "in.tif", noise(3, 10, 12, dtype="uint16")
    metadata = {"cf": 0, "c0": offset, "c1": factor, "vunit": "OD", "axes": "ZYX"}
    tifffile.imwrite(path, stored, imagej=True, metadata=metadata)
    shown = stored.astype(int) - 32768 if factor == 1 else stored
    np.testing.assert_array_equal(formats.read(path).data, shown)
    again(path)
    np.testing.assert_array_equal(tifffile.imread(tmp_path / "written.tif"), stored[:, ::-1])
    assert f"c0={offset}" in tags(tmp_path / "written.tif")["ImageDescription"]
    _, _, notes = again(path, "float32")
    assert "c0=" not in tags(tmp_path / "written.tif")["ImageDescription"]
    assert ["calibration" in note for note in notes] == [True] * (factor != 1)


def test_imagej_types(tmp_path):
    path = tmp_path / "in.tif"
    tifffile.imwrite(path, noise(3, 10, 12), imagej=True, metadata={"axes": "TYX", "unit": "nm"})
    _, _, notes = again(path, "float64")
    assert notes == ("ImageJ opens float64 as 32-bit numbers.",)
    assert "unit=nm" in tags(tmp_path / "written.tif")["ImageDescription"]
    written(path, "ImageJ, colours")
    _, _, notes = again(path, "float32")
    assert "8 bits a channel" in notes[0]


def ome(path: Path) -> ElementTree.Element:
    with tifffile.TiffFile(path) as tif:
        return ElementTree.fromstring(tif.ome_metadata)


def attributes(root: ElementTree.Element, name: str) -> list[dict[str, str]]:
    return [dict(element.attrib) for element in root.iter() if element.tag.endswith("}" + name)]


def test_ome_other_type(tmp_path):
    path, told = tmp_path / "in.ome.tif", {"axes": "TCYX", "SignificantBits": 8}
    tifffile.imwrite(path, noise(3, 2, 20, 30), ome=True, **GREY | {"metadata": told})
    again(path, "float32")
    (pixels,) = attributes(ome(tmp_path / "written.tif"), "Pixels")
    assert pixels["Type"] == "float"
    assert "SignificantBits" not in pixels


def test_ome_of_several_images_keeps_the_first(tmp_path):
    path = tmp_path / "in.ome.tif"
    with tifffile.TiffWriter(path, ome=True) as tif:
        for name, count in (("first", 4), ("second", 2)):
            tif.write(noise(count, 20, 30), **GREY, metadata={"axes": "TYX", "Name": name})
    picture, _, _ = again(path)
    assert "holds 2 images: the first" in picture.notes[0]
    assert [i["Name"] for i in attributes(ome(tmp_path / "written.tif"), "Image")] == ["first"]


@pytest.mark.parametrize("name", ["some name", ""])
def test_ome_pyramid_keeps_the_finest_level(tmp_path, name):
    image = tiffs.pyramid(tmp_path / "in.ome.tif", name)
    picture, _, _ = again(tmp_path / "in.ome.tif")
    assert "pyramid" in picture.notes[0]
    np.testing.assert_array_equal(picture.data, image)


@pytest.mark.parametrize("linked", [False, True])
def test_ome_set_of_files_becomes_one(tmp_path, linked):
    path = tiffs.handmade(tmp_path)
    if linked:  # from a folder that lacks the other file
        path, real = tmp_path / "links" / path.name, path
        path.parent.mkdir()
        path.symlink_to(real)
    picture, result, _ = again(path)
    np.testing.assert_array_equal(picture.data[:2], noise(2, 20, 30, seed=0))
    np.testing.assert_array_equal(picture.data[2:], noise(2, 20, 30, seed=1))
    assert {file.name for file in picture.files} == {"0.ome.tif", "1.ome.tif"}
    assert "spans 2 files" in picture.notes[0]
    with pytest.raises(OutputError, match="never replaced"):
        formats.write(tmp_path / "1.ome.tif", picture.data, picture, overwrite=True)
    assert [file.name for file in result.files] == ["written.tif"]
    root = ome(path.with_name("written.tif"))
    assert attributes(root, "ImageRef") == []  # the image it meant is not in the file
    assert attributes(root, "Plane")[0]["DeltaT"] == "0.5"


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
    again(tiffs.handmade(tmp_path, year, refs, annotations))
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
        f'MetadataFile="set.companion.ome" UUID="urn:uuid:{tiffs.ONE}"/></OME>'
    )
    tifffile.imwrite(path, noise(2, 20, 30), description=xml.encode(), **PLAIN)
    picture, _, _ = again(path)
    assert picture.kind == "plain"
    assert "does not describe" in picture.notes[0]
    assert "ImageDescription" not in tags(tmp_path / "written.tif")


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


def test_colours_whose_signs_are_lost_are_refused_and_no_data_is_told(tmp_path):
    path, lab = tmp_path / "in.tif", {"photometric": "cielab", "metadata": None}
    tifffile.imwrite(path, noise(20, 30, 3).astype("uint8"), **lab)
    with pytest.raises(ImageError, match="CIELAB colours"):
        formats.read(path)
    tifffile.imwrite(path, noise(20, 30, 3).astype("float32"), **lab)
    assert formats.read(path).axes == "YXS"
    image = noise(20, 30).astype("float32")
    tifffile.imwrite(path, image, extratags=[(42113, 2, 6, "-9999", True)])
    (note,) = formats.read(path).notes
    assert "GDAL_NODATA" in note and "nonfinite='keep'" in note


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


# --- what is refused ------------------------------------------------------------------------------


def refused(path: Path) -> str:
    return error_of(path, lambda: formats.read(path))


def test_unreadable(tmp_path):
    (tmp_path / "head.tif").write_bytes(b"II*\0")
    assert "cut short" in refused(tmp_path / "head.tif") and "is a folder" in refused(tmp_path)
    with pytest.warns(UserWarning, match="zero-size"):
        tifffile.imwrite(tmp_path / "nothing.tif", np.empty((0, 5), np.uint8))
    assert "no pixels" in refused(tmp_path / "nothing.tif")


def test_cut_short_where_the_log_is_muted(tmp_path):
    """A program may mute the log of tifffile, which alone tells of a broken chain of pages."""
    path, logger = tmp_path / "cut.tif", logging.getLogger("tifffile")
    tifffile.imwrite(path, noise(6, 40, 48), **PLAIN)
    path.write_bytes(path.read_bytes()[:9000])
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
    tifffile.imwrite(path, noise(64, 64), compression="jpeg", **PLAIN)
    raw = path.read_bytes()
    for missing in (1, 50, 500):
        path.write_bytes(raw[:-missing])
        refused(path)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "memory"),
        (
            ValueError("<COMPRESSION.LZW: 5> requires the 'imagecodecs' package"),
            "pip install --upgrade imagecodecs",
        ),
        (imagecodecs.DelayedImportError("lzw_decode"), "pip install --upgrade imagecodecs"),
        # tifffile's stand-in for imagecodecs, before Python 3.14.
        (ModuleNotFoundError("No zstd", name="compression"), "pip install --upgrade imagecodecs"),
    ],
)
def test_what_reading_raises_is_told(tmp_path, monkeypatch, error, said):
    written(tmp_path / "in.tif", "LZW, predictor")

    def fail(self, *args, **kwargs):
        raise error

    monkeypatch.setattr(tifffile.TiffPageSeries, "asarray", fail)
    assert said in refused(tmp_path / "in.tif")


def test_damaged_files_of_every_kind_give_results_or_named_errors(tmp_path):
    """And sets of files, whose XML says where the others are."""
    for number, kind in enumerate([*tiffs.FILES, *["set"] * 9]):
        folder = tmp_path / f"{number}" / "data"
        folder.mkdir(parents=True)
        path = tiffs.handmade(folder) if kind == "set" else folder / "in.tif"
        if kind != "set":
            written(path, kind)
        damage_tags(Random(number), path)
        check_named(path, folder.parent / "out.tif", number)


# --- writing never destroys -----------------------------------------------------------------------


@pytest.mark.parametrize("exists", [False, True])
def test_a_library_that_fails_in_the_middle_of_a_write_is_named(tmp_path, monkeypatch, exists):
    path, out = tmp_path / "in.tif", tmp_path / "out.tif"
    tifffile.imwrite(path, noise(20, 30))
    if exists:
        out.write_text("precious")

    def half(self, data, **options):
        self.filehandle.write(b"half of the pixels")
        raise ValueError("no such layout")

    monkeypatch.setattr(tifffile.TiffWriter, "write", half)
    picture, before = formats.read(path), files_of(tmp_path)
    with pytest.raises(OutputError, match="cannot be written as TIFF: no such layout"):
        formats.write(out, picture.data, picture, RECORD, overwrite=True)
    assert files_of(tmp_path) == before


def test_file_that_appears_while_we_write(tmp_path):
    target = tmp_path / "out.tif"
    with pytest.raises(OutputError, match="exists"), new_file(target) as file:
        file.write(b"ours")
        assert not target.exists()
        target.write_text("theirs")
    assert target.read_text() == "theirs"
    assert [p.name for p in tmp_path.iterdir()] == ["out.tif"]


def test_messages_name_every_format():
    *names, last = (each.name for each in formats.FORMATS)
    assert f"{', '.join(names)} or {last}" == FORMAT_NAMES


def test_pages_in_a_circle_do_not_hang(tmp_path):
    """The last of four pages is followed by an earlier one, or by itself."""
    path, names = tmp_path / "circle.tif", []
    with tifffile.TiffWriter(path) as file:
        for k in range(4):
            file.write(np.full((16, 20 + 2 * (k % 2)), k, np.uint8), metadata=None)
    with tifffile.TiffFile(path) as file:
        offsets = [page.offset for page in file.pages]
        order = file.byteorder
    data = bytearray(path.read_bytes())
    (tags,) = struct.unpack_from(f"{order}H", data, offsets[3])
    for back in range(3):
        struct.pack_into(f"{order}I", data, offsets[3] + 2 + 12 * tags, offsets[3 - back])
        names.append(str(tmp_path / f"{back}.tif"))
        Path(names[-1]).write_bytes(data)
    script = "import sys; from napari_gpu_denoise.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", script, "estimate", *names]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert "Traceback" not in ended.stderr and ended.returncode in (0, 4)
