"""Planes of a TIFF that are too large for memory: read and written by tiles, strips or rows."""

from __future__ import annotations

import imagecodecs
import numpy as np
import pytest
import tifffile

import napari_gpu_denoise as gd
from files.contract import SETTINGS, run
from napari_gpu_denoise.errors import FileError, HostMemoryError
from napari_gpu_denoise.files import formats
from napari_gpu_denoise.files.image_file import ImageFile
from napari_gpu_denoise.files.tiff import LargePlanes, reading
from napari_gpu_denoise.noise import sampling
from napari_gpu_denoise.noise.sampling import PlaneReader
from scenes import noisy, small


@pytest.fixture(autouse=True)
def large(monkeypatch, limits):
    """Take every plane for a large one, and every part for a small one."""
    monkeypatch.setattr(reading, "LARGE_PLANE", 1)
    limits(streamed_bytes=0, part_bytes=1 << 12)
    monkeypatch.setattr(ImageFile, "loaded", None)  # nothing is read whole


TILES = {"tile": (32, 16)}
KINDS = {
    "tiles": ("YX", "uint16", TILES, (32, 16)),
    "packed tiles": ("YX", "uint8", {**TILES, "compression": "zlib", "predictor": True}, (32, 16)),
    "strips": ("YX", "uint16", {"rowsperstrip": 7}, (75, 91)),
    "packed strips": ("YX", "uint8", {"rowsperstrip": 7, "compression": "zlib"}, (7, 91)),
    "one strip": ("YX", "float32", {}, (75, 91)),
    "big-endian": ("YX", "uint16", {"byteorder": ">", "compression": "zlib"}, (75, 91)),
    "big-endian rows": ("YX", "uint16", {"byteorder": ">"}, (75, 91)),
    "colours": ("YXS", "uint8", {**TILES, "photometric": "rgb"}, (32, 16, 3)),
    "colours in strips": ("YXS", "uint8", {"rowsperstrip": 9, "photometric": "rgb"}, (75, 91, 3)),
    "stack": ("ZYX", "uint16", {**TILES, "ome": True}, (1, 32, 16)),
    "frames": ("TYX", "uint16", {"imagej": True}, (1, 75, 91)),
}


def image_of(axes, dtype):
    return noisy(*({"Z": 2, "T": 3, "Y": 75, "X": 91, "S": 3}[a] for a in axes), dtype=dtype)


def written(folder, kind):
    axes, dtype, options, _ = KINDS[kind]
    image = image_of(axes, dtype)
    metadata = {} if axes.endswith("S") else {"axes": axes}
    tifffile.imwrite(folder / "in.tif", image, metadata=metadata, **options)
    return folder / "in.tif", image


def layout(path):
    with tifffile.TiffFile(path) as tif:
        page = tif.pages[0]
        tile = (page.tilelength, page.tilewidth) if page.is_tiled else page.rowsperstrip
        return tile, page.predictor, tif.byteorder, page.compression == 1, len(page.dataoffsets)


@pytest.mark.parametrize("kind", KINDS)
def test_results_are_those_in_memory(tmp_path, kind):
    path, image = written(tmp_path, kind)
    axes = KINDS[kind][0]
    out = run(path, tmp_path / "out.tif", axes=axes, dtype="same").output
    expected = gd.denoise(image, SETTINGS, 20.0, axes=axes, dtype="same").image
    np.testing.assert_array_equal(tifffile.imread(out), expected)
    assert layout(out) == layout(path)


@pytest.mark.parametrize("kind", KINDS)
def test_regions(tmp_path, kind):
    path, image = written(tmp_path, kind)
    with formats.open_stack(path) as picture:
        data = picture.data
        assert isinstance(data, LargePlanes) and data.chunks == KINDS[kind][3]
        np.testing.assert_array_equal(np.asarray(data), image)
        y, x = (picture.axes.index(axis) for axis in "YX")
        for rows, columns in (
            (slice(10, 40), slice(15, 17)),
            (slice(5, 70, 3), slice(80, 2, -7)),
            (31, slice(None)),
            (slice(None), -1),
            (slice(9, 9), slice(3)),
        ):
            index = [slice(None)] * data.ndim
            index[y], index[x] = rows, columns
            np.testing.assert_array_equal(data[tuple(index)], image[tuple(index)])


def test_tables_that_tiles_of_jpeg_share(tmp_path):
    """As libtiff writes them: once for all tiles."""
    image, path, tiles = noisy(64, 48, dtype="uint8"), tmp_path / "in.tif", []
    for y, x in np.ndindex(2, 3):
        coded = imagecodecs.jpeg8_encode(image[32 * y :, 16 * x :][:32, :16].copy())
        tables = rest = coded[:2]
        while coded[(at := len(tables) + len(rest) - 2) + 1] != 0xDA:  # what comes before the scan
            part = coded[at : at + 2 + int.from_bytes(coded[at + 2 : at + 4], "big")]
            if part[1] in b"\xdb\xc4":
                tables += part
            else:
                rest += part
        tiles.append(rest + coded[at:])
    options = {"shape": image.shape, "dtype": "uint8", "jpegtables": tables + b"\xff\xd9"}
    tifffile.imwrite(path, iter(tiles), compression="jpeg", **options, **TILES)
    with formats.open_stack(path) as picture:
        found = picture.data[20:60, 5:40]
    np.testing.assert_array_equal(found, tifffile.imread(path)[20:60, 5:40])


def test_a_video_is_filtered_frame_by_frame(tmp_path, streamed):
    path, image = written(tmp_path, "frames")
    settings = small(gd.VBM3D, frames_before=1, frames_after=1)
    file = run(path, tmp_path / "out.tif", settings)
    expected = gd.denoise(image, settings, 20.0, axes="TYX").image
    assert streamed
    np.testing.assert_array_equal(tifffile.imread(file.output), expected)


@pytest.mark.parametrize("kind", ["tiles", "packed strips", "one strip"])
def test_a_file_that_is_cut_short_is_refused(tmp_path, kind):
    path, _ = written(tmp_path, kind)
    with pytest.raises(FileError, match="cut short"), formats.open_stack(path) as picture:
        path.write_bytes(path.read_bytes()[:-3000])
        np.asarray(picture.data[...])


def test_noise_of_a_large_plane_is_measured_in_windows(monkeypatch):
    monkeypatch.setattr(sampling, "LARGEST_PLANE", 1 << 12)
    image = np.random.default_rng(1).normal(100, 10, (2, 2300, 70)).astype(np.float32)
    planes = list(PlaneReader(image).sampled())
    assert [plane.shape for plane in planes] == [(2048, 70)] * 2
    assert len(np.unique(planes[0])) > 0.98 * planes[0].size  # no pixel is read twice
    turned = PlaneReader(image.swapaxes(1, 2), "ZXY").sampled()
    np.testing.assert_array_equal(turned[0], planes[0])
    assert abs(gd.estimate_noise(image).models[0].sigma - 10) < 0.5


def test_a_limit_to_memory_is_kept_by_what_is_read_whole(tmp_path, monkeypatch):
    monkeypatch.undo()
    path, _ = written(tmp_path, "tiles")
    with pytest.raises(HostMemoryError, match="allow at least memory_limit_host="):
        run(path, tmp_path / "out.tif", memory_limit_host="300M")
