"""Metadata of every kind that readers know are in the result, or are named in a note."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import tifffile
import zarr

import napari_gpu_denoise as gd
from napari_gpu_denoise.files import formats
from zarr_stores import FORMATS, describe, write_store

IMAGE = np.random.default_rng(5).normal(100, 8, (3, 24, 32)).astype(np.uint16)
OME = (
    '<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06"><Image ID="Image:0">'
    '<Pixels ID="Pixels:0" DimensionOrder="XYCZT" Type="uint16" SizeX="32" SizeY="24" SizeZ="1" '
    'SizeC="1" SizeT="3"><Channel ID="Channel:0:0" SamplesPerPixel="1"/>'
    '<TiffData IFD="0" PlaneCount="3"/></Pixels></Image></OME>'
)
DESCRIPTIONS = {"plain": "cells", "ome": OME, "imagej": "ImageJ=1.54\nimages=3\nframes=3\n"}
TEXT, NUMBERS = ("s", 0, "words of a lab"), ("I", 3, (1, 2, 3))
# By code: type, count and value.
KEPT = {
    269: TEXT, 271: TEXT, 272: TEXT, 274: ("H", 1, 6), 285: TEXT, 286: ("2I", 1, (3, 2)),
    287: ("2I", 1, (5, 2)), 305: TEXT, 306: ("s", 0, "2026:11:28 10:00:00"), 315: TEXT, 316: TEXT,
    333: TEXT, 700: ("B", 9, b"<x:xmp/>\0"), 33432: TEXT, 33550: ("d", 3, (1.0, 2.0, 0.0)),
    33922: ("d", 6, (0.0, 0, 0, 4, 5, 0)), 34675: ("B", 4, b"icc!"), 34735: ("H", 4, (1, 1, 0, 0)),
    34736: ("d", 2, (1.5, 2.5)), 34737: TEXT, 42112: TEXT, 42113: ("s", 0, "255"),
}  # fmt: skip
# EXIF, GPS, IPTC, Photoshop, makers of microscopes, calibrations, tags of nobody.
NAMED = {
    280: ("H", 1, 3), 301: ("H", 3, (1, 2, 3)), 318: ("2I", 2, (1, 3, 1, 3)), 
    33450: TEXT, 33560: NUMBERS,  33723: ("B", 4, b"iptc"), 34118: TEXT,
    34361: NUMBERS, 34377: ("B", 4, b"8BIM"),  34680: TEXT,
    34682: TEXT, 37706: NUMBERS, 40001: ("B", 4, b"mmap"), 43314: NUMBERS, 50288: TEXT, 51123: TEXT,
    65000: ("I", 1, 7), 65100: TEXT, 65426: TEXT,
}  # fmt: skip


def write_tiff(path, kind="plain", tags=(), every=False, **options):
    """Write planes with tags, of the first or of every plane, in which `n` is its number."""
    with tifffile.TiffWriter(path, ome=False) as file:
        for n, plane in enumerate(IMAGE):
            extra = [
                (code, *told[:2], f"{told[2]} {n}" if every and told is TEXT else told[2], False)
                for code, told in (tags if every or n == 0 else ())
            ]
            description = DESCRIPTIONS[kind] if n == 0 else None
            file.write(
                plane, description=description, metadata=None, contiguous=False,
                extratags=extra, software=False, **options,
            )  # fmt: skip
    return path


def rewritten(path, name=None):
    """Write an image again; return the new one and all notes."""
    out, picture = path.parent / (name or f"out_{path.name}"), gd.read(path)
    return out, " ".join([*picture.notes, *gd.write(out, picture.data, picture)])


@pytest.mark.parametrize("kind", DESCRIPTIONS)
def test_tags_of_tiff(tmp_path, kind):
    path = write_tiff(tmp_path / "in.tif", kind, KEPT.items())
    with formats.open_stack(path) as picture:
        (note,) = picture.notes
        assert picture.kind == kind and note.startswith("GDAL_NODATA is not looked at")
        formats.write(tmp_path / "out.tif", IMAGE, picture)
    with tifffile.TiffFile(path) as before, tifffile.TiffFile(tmp_path / "out.tif") as after:
        for code in KEPT:
            one, other = (tif.pages.first.tags.valueof(code) for tif in (before, after))
            assert np.array_equal(one, other), code
    for each in NAMED.items():  # one by one: some are those of a format
        with formats.open_stack(write_tiff(path, kind, [each])) as picture:
            assert picture.kind == kind and f"({each[0]})" in " ".join(picture.notes)


@pytest.mark.parametrize("code", [270, 285, 306, 51123, 65000])
def test_tags_of_each_plane_of_tiff(tmp_path, code):
    told = TEXT if code != 65000 else ("I", 1, 7)
    planes = 2 if code in KEPT or code == 270 else 3  # that have not what is kept: the first one's
    with formats.open_stack(write_tiff(tmp_path / "in.tif", "plain", [(code, told)], True)) as it:
        assert f"({code}, of {planes + (code == 270)} planes)" in it.notes[0] or code == 270
        assert f"({code}, of " in it.notes[0]
    same = write_tiff(tmp_path / "same.tif", "plain", [(305, ("s", 0, "a camera"))], True)
    assert gd.read(same).notes == ()


@pytest.mark.parametrize("name", "ab")
def test_tags_of_files_of_a_set(tmp_path, name):
    """Those of the file that is opened are kept."""
    one = '<TiffData FirstT="{}" IFD="0"><UUID FileName="{}.tif">urn:uuid:{}</UUID></TiffData>'
    data = "".join(one.format(n, each, each) for n, each in enumerate("ab"))
    xml = OME.replace('SizeT="3"', 'SizeT="2"').replace('<TiffData IFD="0" PlaneCount="3"/>', data)
    for each, plane in zip("ab", IMAGE, strict=False):
        with tifffile.TiffWriter(tmp_path / f"{each}.tif", ome=False) as file:
            text = xml.replace("<OME ", f'<OME UUID="urn:uuid:{each}" ')
            tags = [(315, "s", 0, f"artist of {each}, not of the other", True)]
            tags.append((65000, "d", 3, (1.0, 2.0, 3.0), True))
            file.write(plane, description=text, metadata=None, extratags=tags)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        picture = gd.read(tmp_path / f"{name}.tif")
    assert picture.data.shape == (2, 24, 32)
    note = next(each for each in picture.notes if "not kept" in each)
    assert "Artist (315), tag (65000, of 2 planes)." in note and "270" not in note
    gd.write(tmp_path / "out.tif", picture.data, picture)
    with tifffile.TiffFile(tmp_path / "out.tif") as file:
        assert file.pages.first.tags.valueof(315) == f"artist of {name}, not of the other"


def test_texts_of_micro_manager(tmp_path):
    """Its files hold a text of OME, one of ImageJ, and blocks of both."""
    tags = [("ImageDescription", (2, 0, DESCRIPTIONS["imagej"])), (50839, ("B", 5, b"IJIJ\0"))]
    path = write_tiff(tmp_path / "in.tif", "ome", [*tags, (51123, TEXT)])
    note = next(each for each in gd.read(path).notes if "not kept" in each)
    for words in ("(270)", "(51123)", "(50839)"):
        assert words in note


@pytest.mark.parametrize("kind", [1, 4])
@pytest.mark.parametrize("inside", [False, True])
def test_reduced_images_and_masks_are_not_taken_for_the_image(tmp_path, kind, inside):
    path, small_one = tmp_path / "in.tif", IMAGE[0, ::4, ::4]
    with tifffile.TiffWriter(path) as file:
        file.write(small_one, subfiletype=1, metadata=None, subifds=int(inside))
        file.write(IMAGE[0], metadata=None)
    with tifffile.TiffFile(path, mode="r+") as file:
        file.pages.first.tags[254].overwrite(kind)
    picture = gd.read(path)
    np.testing.assert_array_equal(picture.data, IMAGE[0])
    assert "first that is no reduced one" in " ".join(picture.notes)


@pytest.mark.parametrize("version", FORMATS)
def test_attributes_and_neighbours_of_ome_zarr(tmp_path, version):
    path = write_store(tmp_path / "in.ome.zarr", IMAGE, "ZYX", version)
    group = zarr.open_group(path)
    for name in ("labels", "tables/rois", "masks"):
        group.create_group(name)
    group.create_array("extra", shape=(2,), dtype="u1")
    (path / "readme.txt").touch()
    group.attrs["rois"] = group["0"].attrs["lab"] = group["1"].attrs["lab"] = {"a": [1, 2]}
    told = dict(group.attrs)
    ome = told if version == "0.4" else told["ome"]
    ome["omero"] = {"id": 5, "rdefs": {"model": "color"}}
    ome["multiscales"][0] |= {"metadata": {"by": "hand"}, "note": "kept"}
    ome["multiscales"][0]["datasets"][1]["own"] = 7
    ome["multiscales"].append({**ome["multiscales"][0], "name": "another"})
    group.attrs.put(told)
    out, notes = rewritten(path)
    made, told = zarr.open_group(out, mode="r"), dict(group.attrs)
    for number in "01":
        assert dict(made[number].attrs) == {"lab": {"a": [1, 2]}}
        names = (made[number].metadata.to_dict().get("dimension_names") for made in (group, made))
        assert len({*map(str, names)}) == 1
    kept, ome = dict(made.attrs), told if version == "0.4" else told["ome"]
    first = (kept if version == "0.4" else kept["ome"])["multiscales"].pop()
    theirs = ome.pop("multiscales")[0]
    (kept if version == "0.4" else kept["ome"]).pop("multiscales")
    assert kept == told
    assert first["datasets"][1]["own"] == 7 and first | {"type": 0, "datasets": 0} == theirs | {
        "type": 0,
        "datasets": 0,
    }
    for words in ("labels", "tables", "masks", "extra", "readme.txt", "describe 2 images"):
        assert words in notes


@pytest.mark.parametrize("count", [1, 2])
def test_what_bioformats2raw_writes_beside_images(tmp_path, count):
    path = tmp_path / "in.zarr"
    describe(path, "0.4", **{"bioformats2raw.layout": 3, "lab": "ours"})
    for name in map(str, range(count)):
        write_store(path / name, IMAGE, "ZYX", "0.4")
    (path / "OME").mkdir()
    (path / "OME" / "METADATA.ome.xml").write_text(OME)
    out, notes = rewritten(path, "out.zarr")
    np.testing.assert_array_equal(gd.read(out).data, IMAGE)
    assert f"beside the image in {path}: 'OME'." in notes and "not part of the result: lab" in notes
    assert ("The folder holds 2 images" in notes) == ("The folder holds" in notes) == (count == 2)
