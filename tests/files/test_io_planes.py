"""Images plane by plane: the same pixels and the same files as in memory, and no more is read."""

from __future__ import annotations

import os
import tempfile
import uuid
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import tifffile

from files import tiffs
from files.tiffs import GREY, PLAIN, RECORD, noise, written
from napari_gpu_denoise.errors import FileError
from napari_gpu_denoise.files import formats, tiff
from napari_gpu_denoise.files.image_file import ImageFile
from napari_gpu_denoise.files.resuming import FileArray
from napari_gpu_denoise.files.tiff import writing
from scenes import Stored


@pytest.fixture
def pages(monkeypatch):
    """Offsets of what is read from a file, one a page or part of it."""
    read = []
    by_page, by_array = tifffile.TiffPage.asarray, tifffile.FileHandle.read_array

    def page(self, **options):
        read.append(self.dataoffsets[0])
        return by_page(self, **options)

    def array(self, dtype, count=-1, offset=0, **options):
        if offset:
            read.append(offset)
        return by_array(self, dtype, count, offset, **options)

    monkeypatch.setattr(tifffile.TiffPage, "asarray", page)
    monkeypatch.setattr(tifffile.FileHandle, "read_array", array)
    return read


# --- reading --------------------------------------------------------------------------------------


def same(a: ImageFile, b: ImageFile) -> None:
    """Compare all but the pixels."""
    assert (a.axes, a.kind, a.path, a.files) == (b.axes, b.kind, b.path, b.files)
    assert (a.notes, a.history) == (b.notes, b.history)
    np.testing.assert_equal(a.metadata, b.metadata)


def tifffile_says(path: Path, picture: ImageFile) -> np.ndarray:
    data = tifffile.imread(path).reshape(picture.data.shape)
    return (data.astype(int) - 32768) if picture.metadata["signed16"] else data


INDICES = [
    (),
    0,
    -1,
    np.int16(2),
    slice(1, 4, 2),
    slice(None, None, -1),
    slice(4, 1),
    ...,
    (..., 3),
    (1, ..., slice(2, 9)),
    (slice(0, 2), 1, slice(None, None, -3), 4),
    (slice(-2, None), slice(1, 2)),
    (2, 1, 4, 5),
    (0, slice(None), 3),
    (..., slice(None), slice(None)),
    (slice(None), slice(None), 0, ...),
]


@pytest.mark.parametrize(
    "index", [5, -6, (0, 0, 0, 0, 0), (..., ...), [0, 1], None, True, np.array([0, 1]), 1.5, "a"]
)
def test_indexing_that_is_refused(tmp_path, index):
    tifffile.imwrite(tmp_path / "a.tif", noise(5, 3, 12, 14), **GREY)
    with formats.open_stack(tmp_path / "a.tif") as picture, pytest.raises(IndexError):
        picture.data[index]


# What is indexed, one after the other, and how many pages have then been read.
OF_A_STACK = [(np.s_[3, 4, 5], 1), (np.s_[3, 2:4], 1), (np.s_[1:3], 3), (4, 4)]
OF_CHANNELS = [(np.s_[1, :, 1], 1), (np.s_[1, ..., 1], 1)]
READS = {
    kind: OF_A_STACK for kind in ("plain", "LZW, predictor", "tiles", "tifffile's single page")
}
OF_HYPERSTACKS = ("ImageJ", "ImageJ, one page", "ImageJ, deflate", "OME")
READS |= {kind: [(np.s_[:, 1], 2)] for kind in OF_HYPERSTACKS}
READS |= {kind: OF_CHANNELS for kind in ("channels last", "Y and X apart")}
# A page serves all of its channels.
READS["colour tiles"] = [(np.s_[0, ..., k], 1) for k in range(3)]
READS["colours, planar, deflate"] = [(np.s_[0, k], 1) for k in range(3)]


@pytest.mark.parametrize("kind", READS)
def test_only_pages_that_are_needed_are_read(tmp_path, pages, kind):
    image = written(tmp_path / "in.tif", kind)
    with formats.open_stack(tmp_path / "in.tif") as picture:
        assert pages == []
        for index, count in READS[kind]:
            np.testing.assert_array_equal(picture.data[index], image[index])
            assert len(pages) == len(set(pages)) == count


EDGES = [slice(None, None, -1), slice(1, None, -1), slice(-10, None), slice(None, 1, -1)]
EDGES += [slice(9, None), slice(-1, 9)]


@pytest.mark.parametrize("kind", ["alpha of a page", "alpha", "alpha, deflate", "alpha, planar"])
def test_pixels_without_alpha(tmp_path, kind):
    written(tmp_path / "in.tif", kind)
    with formats.open_stack(tmp_path / "in.tif") as picture:
        whole = picture.loaded()
        expected = whole.data[picture.colours]
        np.testing.assert_array_equal(whole.pixels, expected)
        assert np.shares_memory(whole.pixels, whole.data)
        assert expected.shape[picture.axes.index("S")] == 3
        pixels = picture.pixels
        for name in ("shape", "dtype", "ndim", "size"):
            assert getattr(pixels, name) == getattr(expected, name)
        edges = [(slice(None),) * k + (edge,) for k, edge in product((1, 3), EDGES)]
        for index in (*edges, (..., -1), (..., 2), *INDICES):
            try:
                wanted = expected[index]
            except IndexError:
                with pytest.raises(IndexError):
                    pixels[index]
            else:
                np.testing.assert_array_equal(pixels[index], wanted)
        with pytest.raises(IndexError):
            pixels[tuple(3 if a == "S" else 0 for a in picture.axes)]


def test_set_of_files(tmp_path, pages):
    path = tiffs.handmade(tmp_path)
    whole = formats.read(path)
    pages.clear()
    with formats.open_stack(path) as picture:
        same(picture, whole)
        for t in (3, 0, 2):
            np.testing.assert_array_equal(picture.data[t], whole.data[t])
        assert len(pages) == 3
        files = {page.parent.filehandle for page in picture.data._series}
        (other,) = (file for file in files if file.name == "1.ome.tif")
        assert other.closed  # a set may be of more files than may be open
    (tmp_path / "1.ome.tif").unlink()
    with formats.open_stack(path) as picture:
        assert any("2 of 4 planes" in note for note in picture.notes)
        np.testing.assert_array_equal(picture.data[1], noise(2, 20, 30)[1])
        assert not picture.data[2:].any()
        assert picture.data[3].dtype == np.uint8


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_image_that_is_scaled_is_read_as_a_whole(tmp_path, dtype):
    """As tifffile does for MD Gel files."""
    path = tmp_path / "in.tif"
    tifffile.imwrite(path, noise(3, 20, 30), **PLAIN)
    factor = np.dtype(dtype).type(3)
    with tifffile.TiffFile(path) as tif:
        series = tif.series[0]
        series.transform = lambda pixels: pixels * factor
        series.dtype = np.dtype(dtype)
        planes = tiff.Planes(series, path, signed16=False)
        np.testing.assert_array_equal(planes[1], noise(3, 20, 30)[1] * factor)
        assert planes.dtype == planes[1].dtype == dtype


# --- what is refused ------------------------------------------------------------------------------


def test_plane_that_cannot_be_decoded(tmp_path):
    """It is found when it is read, and the others can be."""
    path = tmp_path / "in.tif"
    tifffile.imwrite(path, noise(3, 40, 48), compression="zlib", **PLAIN)
    with tifffile.TiffFile(path) as tif:
        offset = tif.pages[1].dataoffsets[0]
    raw = bytearray(path.read_bytes())
    raw[offset : offset + 40] = bytes(40)
    path.write_bytes(raw)
    with formats.open_stack(path) as picture:
        np.testing.assert_array_equal(picture.data[0], noise(3, 40, 48)[0])
        with pytest.raises(FileError, match=r"in\.tif is cut short or damaged \(.*\.$"):
            picture.data[1]
        np.testing.assert_array_equal(picture.data[2], noise(3, 40, 48)[2])
        with pytest.raises(FileError, match="damaged"):
            np.asarray(picture.data)


# --- writing --------------------------------------------------------------------------------------


def check_same_file(path: Path) -> tuple[str, ...]:
    """Write a file from memory, a store and a stack, each page at once; return the notes."""
    folder, files, told = path.parent, set(), []
    with formats.open_stack(path) as picture:
        data = formats.read(path).data
        with tempfile.TemporaryFile() as file:
            store = FileArray(file, data.shape, data.dtype)
            store[...] = data
            for source in (data, store, picture.data):
                told += [formats.write(folder / "out.tif", source, picture, RECORD, overwrite=True)]
                files.add((folder / "out.tif").read_bytes())
        np.testing.assert_array_equal(formats.read(folder / "out.tif").data, data)
    assert len(files) == len({*told}) == 1
    assert set(os.listdir(folder)) == {path.name, "out.tif"}
    return told[0]


@pytest.fixture
def one_uuid(monkeypatch):
    """Give every OME-TIFF the same identifier."""
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(tiffs.ONE))


SAME = "PhotometricInterpretation", "SamplesPerPixel", "ExtraSamples", "PlanarConfiguration"


class Counted(Stored):
    """An array that knows which of its planes were asked for, and how many at once."""

    def __init__(self, array: np.ndarray) -> None:
        super().__init__(array)
        self.asked = []

    def __getitem__(self, index):
        self.asked.append(index)
        return super().__getitem__(index)


@pytest.mark.parametrize("kind", tiffs.FILES)
def test_every_kind_is_read_and_written_by_planes_as_it_is_whole(tmp_path, one_uuid, kind):
    path, out = tmp_path / "in.tif", tmp_path / "out.tif"
    written(path, kind)
    picture = formats.read(path)
    with formats.open_stack(path) as opened:
        same(opened, picture)
        planes = opened.data
        assert isinstance(planes, tiff.Planes)
        np.testing.assert_array_equal(planes, picture.data)
        np.testing.assert_array_equal(planes, tifffile_says(path, picture))
        for index in np.ndindex(planes.shape[:-2]):
            np.testing.assert_array_equal(planes[index], picture.data[index])
            assert planes[index].dtype == picture.data.dtype and planes[index].dtype.isnative
    assert (picture.axes, check_same_file(path)) == (tiffs.FILES[kind][3], ())
    again = formats.read(out)
    assert (again.axes, again.kind) == (picture.axes, picture.kind)
    assert again.history == (RECORD.as_dict(),)
    with tifffile.TiffFile(path) as before, tifffile.TiffFile(out) as after:
        for name in (*SAME, *["ImageDescription"] * (picture.kind != "ome")):
            one, other = (tif.pages.first.tags.get(name) for tif in (before, after))
            assert (one and one.value) == (other and other.value)
    source = Counted(picture.data)
    formats.write(path.with_name("counted.tif"), source, picture)
    # Pages are asked for one by one.
    size = np.prod(picture.metadata["stored"])
    assert len(source.asked) == len(set(map(str, source.asked))) == picture.data.size // size
    assert all(picture.data[index].size == size for index in source.asked)
    # Cut, it is refused, unless all of its pixels are there.
    whole, refusals = path.read_bytes(), 0
    for share in (0.01, 0.2, 0.4, 0.6, 0.8, 0.999):
        path.write_bytes(whole[: int(share * len(whole))])
        try:
            np.testing.assert_array_equal(formats.read(path).data.ravel(), picture.data.ravel())
        except FileError as error:
            assert str(path) in str(error)
            refusals += 1
    assert refusals >= 5


@pytest.mark.parametrize("kind", ["ImageJ", "ImageJ, deflate", "plain", "OME, deflate", "tiles"])
def test_same_file_of_large_stacks(tmp_path, one_uuid, monkeypatch, kind):
    """Above 4 GB ImageJ writes one page with all pixels behind it; it opens no BigTIFF."""
    image = written(tmp_path / "in.tif", kind)
    monkeypatch.setattr(writing, "CLASSIC_LIMIT", 1000)
    notes = check_same_file(tmp_path / "in.tif")
    assert ["without tiles and compression" in note for note in notes] == (
        [True] * (kind == "ImageJ, deflate")
    )
    with tifffile.TiffFile(tmp_path / "out.tif") as tif:
        assert tif.is_bigtiff != kind.startswith("ImageJ")
        assert len(tif.pages) == (1 if kind.startswith("ImageJ") else np.prod(image.shape[:-2]))
    again = formats.read(tmp_path / "out.tif")
    formats.write(tmp_path / "again.tif", again.data, again)
    np.testing.assert_array_equal(formats.read(tmp_path / "again.tif").data, image)


def test_same_file_where_threads_encode(tmp_path, one_uuid, monkeypatch):
    """Many strips, of which some are encoded at once."""
    monkeypatch.setattr(writing, "_ENCODED_AT_ONCE", 2**18)
    path = tmp_path / "in.tif"
    tifffile.imwrite(path, noise(8, 300, 512, dtype="uint16"), compression="zlib", **PLAIN)
    check_same_file(path)


def test_pages_that_no_axis_ends(tmp_path):
    """An image of another shape than its pages put together is written from memory."""
    path = tmp_path / "in.tif"
    tifffile.imwrite(path, noise(6, 20, 7), **PLAIN)
    picture = formats.read(path)
    like = replace(picture, data=picture.data.reshape(7, 20, 6))
    with tempfile.TemporaryFile() as file:
        store = FileArray(file, (7, 20, 6), "u1")
        store[...] = like.data
        formats.write(tmp_path / "out.tif", store, like)
    np.testing.assert_array_equal(tifffile.imread(tmp_path / "out.tif"), picture.data)
