"""OME-Zarr in and out: metadata, chunks and pyramid kept, part by part, never half written."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import tifffile

import napari_gpu_denoise as gd
from napari_gpu_denoise.cli import main
from napari_gpu_denoise.errors import FileError, ImageError, OutputError
from napari_gpu_denoise.files import formats, input_checks, output, resuming
from napari_gpu_denoise.files.zarr import Address, places, writing
from napari_gpu_denoise.files.zarr.writing import block_means
from napari_gpu_denoise.run import part as parts_of_images
from scenes import small
from zarr_stores import write_store

zarr = pytest.importorskip("zarr", reason="zarr is not installed")

VERSIONS = ("0.4", "0.5")
SETTINGS = small(gd.NLMeans)


def noise(*shape, dtype=np.uint16):
    return np.random.default_rng(5).normal(100, 8, shape).astype(dtype)


IMAGES = {
    "TCZYX": noise(2, 2, 3, 40, 50),
    "ZYX": noise(3, 40, 50),
    "CYX": noise(2, 40, 50),
    "YX": noise(40, 50),
}


def names(folder):
    return sorted(each.name for each in folder.iterdir())


def attributes(path):
    return dict(zarr.open_group(str(path), mode="r").attrs)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("axes", IMAGES)
def test_read(tmp_path, axes, version):
    path = write_store(tmp_path / "in.ome.zarr", IMAGES[axes], axes, version)
    picture = gd.read(path)
    np.testing.assert_array_equal(picture.data, IMAGES[axes])
    assert (picture.axes, picture.kind, picture.notes) == (axes, "zarr", ())
    assert picture.pixel_metadata.steps["X"] == (0.2, "micrometer")
    assert picture.pixel_metadata.steps.get("T") == ((2.0, "second") if "T" in axes else None)
    assert (picture.voxel == (1.5, 0.25, 0.2)) == ("Z" in axes)
    assert picture.voxel_unit == ("µm" if "Z" in axes else "")
    if "C" in axes:
        first, second = picture.pixel_metadata.channels
        assert (first.name, first.colour, first.limits) == ("dye 0", "#0000ff", (10.0, 240.0))
        assert (second.name, second.colour) == ("dye 1", "#00ff00")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("axes", IMAGES)
def test_results_part_by_part_are_those_in_memory(tmp_path, monkeypatch, axes, version):
    monkeypatch.setattr(parts_of_images, "PART_BYTES", 1)
    image = IMAGES[axes]
    options = {"chunks": (*(1,) * (image.ndim - 2), 16, 16)}
    if version == "0.5":
        options["shards"] = (*(1,) * (image.ndim - 2), 32, 64)
    path = write_store(tmp_path / "in.ome.zarr", image, axes, version, **options)
    out = tmp_path / "out.ome.zarr"
    seen = []
    report = gd.run_batch(path, SETTINGS, 8, output=out, progress=lambda p: seen.append(p.total))
    assert not report.failed, report.failed[0].error
    assert max(seen) >= 2  # parts
    expected = gd.denoise(image, SETTINGS, 8, axes=axes)
    found = gd.read(out)
    np.testing.assert_array_equal(found.data, expected.image)
    assert found.history[-1]["settings"] == SETTINGS.as_dict()
    assert found.pixel_metadata == gd.read(path).pixel_metadata
    for level in ("0", "1"):
        before, after = (zarr.open_group(str(p), mode="r")[level] for p in (path, out))
        assert (after.shape, after.shards) == (before.shape, before.shards)
        assert after.chunks == before.chunks
        assert after.metadata.zarr_format == before.metadata.zarr_format
    finer, coarser = (zarr.open_group(str(out), mode="r")[level][...] for level in ("0", "1"))
    np.testing.assert_array_equal(
        coarser, block_means(finer, [2 if a in "YX" else 1 for a in axes])
    )
    assert names(tmp_path) == ["in.ome.zarr", "out.ome.zarr"]


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_not_ours_is_kept(tmp_path, version):
    path = write_store(tmp_path / "in.ome.zarr", IMAGES["TCZYX"], "TCZYX", version)
    out = tmp_path / "out.ome.zarr"
    gd.run_batch(path, SETTINGS, 8, output=out, dtype="float32")
    before, after = attributes(path), attributes(out)
    ome = before["ome"] if version == "0.5" else before
    made = after["ome"] if version == "0.5" else after
    assert made["omero"] == ome["omero"]
    assert made["multiscales"][0]["axes"] == ome["multiscales"][0]["axes"]
    scales = [each["coordinateTransformations"][0] for each in ome["multiscales"][0]["datasets"]]
    placed = [each["coordinateTransformations"] for each in made["multiscales"][0]["datasets"]]
    assert [each[0] for each in placed] == scales
    # Means lie between the pixels that they are of.
    assert placed[1][1] == {"type": "translation", "translation": [0.0, 0.0, 0.0, 0.125, 0.1]}
    for name in ("_creator", "lab"):
        assert after.get(name) == before.get(name)
    assert gd.read(out).data.dtype == np.float32


def test_a_second_run_adds_its_record(tmp_path):
    path = write_store(tmp_path / "in.ome.zarr", IMAGES["YX"], "YX")
    one, two = tmp_path / "one.ome.zarr", tmp_path / "two.ome.zarr"
    gd.run_batch(path, SETTINGS, 8, output=one)
    gd.run_batch(one, SETTINGS, 3, output=two)
    assert [each["sigma"] for each in gd.read(two).history] == [[8.0], [3.0]]


def test_gd_write(tmp_path):
    path = write_store(tmp_path / "in.ome.zarr", IMAGES["TCZYX"], "TCZYX", chunks=(1, 1, 2, 16, 16))
    picture = gd.read(path)
    result = gd.denoise(picture.data, SETTINGS, 8, axes=picture.axes)
    assert gd.write(tmp_path / "out.ome.zarr", result.image, picture, result.record) == ()
    np.testing.assert_array_equal(gd.read(tmp_path / "out.ome.zarr").data, result.image)
    with pytest.raises(OutputError, match=r"end it with \.ome\.zarr"):
        gd.write(tmp_path / "out.tif", result.image, picture)
    with pytest.raises(OutputError, match="cannot take the metadata"):
        gd.write(tmp_path / "other.zarr", result.image[0], picture)
    assert names(tmp_path) == ["in.ome.zarr", "out.ome.zarr"]


def test_the_command_line(tmp_path, capsys):
    for name in "ab":
        write_store(tmp_path / "raw" / f"{name}.ome.zarr", IMAGES["ZYX"], "ZYX")
    words = ["nl-means", str(tmp_path / "raw"), "-o", str(tmp_path / "made"), "--sigma", "8"]
    assert main([*words, "--window", "5"]) == 0
    assert names(tmp_path / "made") == ["a.ome.zarr", "b.ome.zarr"]
    assert "2 denoised, 0 failed, 0 skipped" in capsys.readouterr().out
    assert main([*words, "--window", "5", "--resume"]) == 0
    assert "is complete and was kept" in capsys.readouterr().err
    one = str(tmp_path / "raw" / "a.ome.zarr")
    assert main(["estimate", one]) == 0
    assert "ZYX, 3 x 40 x 50, uint16" in capsys.readouterr().out
    assert main(["nl-means", one, "-o", str(tmp_path / "made" / "a.ome.zarr")]) == 5
    assert "exists" in capsys.readouterr().err


class Stop(Exception):
    """Raised in the middle of a run."""


def test_half_a_result_never_has_the_name(tmp_path, monkeypatch):
    path = write_store(tmp_path / "in.ome.zarr", IMAGES["TCZYX"], "TCZYX", chunks=(1, 1, 1, 40, 50))
    monkeypatch.setattr(parts_of_images, "PART_BYTES", 1)
    monkeypatch.setattr(resuming, "_SECONDS", 600)  # of shorter runs nothing is kept
    out = tmp_path / "out.ome.zarr"
    seen = []

    def stop(progress):
        seen.append(names(tmp_path))
        if progress.done == 3:
            raise Stop

    with pytest.raises(Stop):
        gd.run_batch(path, SETTINGS, 8, output=out, progress=stop)
    assert all("out.ome.zarr" not in each for each in seen)
    assert names(tmp_path) == ["in.ome.zarr"]

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writing, "fill", fail)
    report = gd.run_batch(path, SETTINGS, 8, output=out)
    assert "No space left on device" in str(report.failed[0].error)
    assert isinstance(report.failed[0].error, OutputError)
    assert names(tmp_path) == ["in.ome.zarr"]


def test_an_old_result_stays_until_the_new_one_is_complete(tmp_path, monkeypatch):
    path = write_store(tmp_path / "in.ome.zarr", IMAGES["YX"], "YX")
    out = tmp_path / "out.ome.zarr"
    gd.run_batch(path, SETTINGS, 8, output=out)
    before = gd.read(out).data
    (report,) = gd.run_batch(path, SETTINGS, 3, output=out).skipped
    assert "exists and was kept" in report.skipped
    with monkeypatch.context() as context:
        context.setattr(writing, "fill", lambda *_: (_ for _ in ()).throw(OSError(5, "broken")))
        gd.run_batch(path, SETTINGS, 3, output=out, overwrite=True)
    np.testing.assert_array_equal(gd.read(out).data, before)
    assert not gd.run_batch(path, SETTINGS, 3, output=out, overwrite=True).failed
    assert (gd.read(out).data != before).any()
    assert names(tmp_path) == ["in.ome.zarr", "out.ome.zarr"]


def test_folders_of_others_are_never_replaced(tmp_path):
    path = write_store(tmp_path / "in.ome.zarr", IMAGES["YX"], "YX")
    mine = tmp_path / "mine.zarr"
    mine.mkdir()
    (mine / "thesis.txt").write_text("mine")
    report = gd.run_batch(path, SETTINGS, 8, output=mine, overwrite=True)
    assert "is a folder but not zarr" in str(report.failed[0].error)
    assert (mine / "thesis.txt").read_text() == "mine"
    for target in (path, path / "out.ome.zarr"):
        report = gd.run_batch(path, SETTINGS, 8, output=target, overwrite=True)
        assert isinstance(report.failed[0].error, OutputError)
    np.testing.assert_array_equal(gd.read(path).data, IMAGES["YX"])


def broken(path, change):
    """Change the metadata of a store of version 0.5."""
    file = path / "zarr.json"
    held = json.loads(file.read_text())
    change(held["attributes"])
    file.write_text(json.dumps(held))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a: a.pop("ome"), "not an image of OME-Zarr"),
        (lambda a: a["ome"].update(version="0.7"), "is OME-Zarr 0.7"),
        (lambda a: a["ome"]["multiscales"][0].pop("axes"), "are damaged"),
        (lambda a: a["ome"]["multiscales"][0]["axes"].pop(), "are damaged"),
        (lambda a: a["ome"].update(multiscales=[]), "are damaged"),
        (lambda a: a["ome"].update(multiscales="no"), "are damaged"),
        (lambda a: a["ome"]["multiscales"][0]["datasets"][0].update(path="9"), "is damaged"),
        (lambda a: a["ome"].update(plate={}) or a["ome"].pop("multiscales"), "is a plate"),
        (lambda a: a["ome"].update(well={}) or a["ome"].pop("multiscales"), "is a well"),
        (
            lambda a: a["ome"]["multiscales"][0]["axes"][2].update(name="w", type="other"),
            "without y and x",
        ),
    ],
)
def test_wrong_metadata_are_one_sentence(tmp_path, change, words):
    path = write_store(tmp_path / "in.ome.zarr", IMAGES["ZYX"], "ZYX")
    broken(path, change)
    with pytest.raises(FileError, match=words):
        gd.read(path)


def test_missing_and_damaged_chunks(tmp_path):
    path = write_store(tmp_path / "in.ome.zarr", IMAGES["ZYX"], "ZYX", chunks=(1, 40, 50))
    chunk = path / "0" / "c" / "1" / "0" / "0"
    chunk.write_bytes(chunk.read_bytes()[:20])
    with pytest.raises(FileError, match="is damaged"):
        gd.read(path)
    report = gd.run_batch(path, SETTINGS, 8, output=tmp_path / "out.ome.zarr")
    assert isinstance(report.failed[0].error, FileError)
    chunk.unlink()
    picture = gd.read(path)
    assert picture.notes == ("1 of 3 chunks are not in the folder and were read as 0.",)
    assert not picture.data[1].any()
    assert names(tmp_path) == ["in.ome.zarr"]


def test_what_is_no_image(tmp_path):
    path = tmp_path / "array.zarr"
    zarr.create_array(str(path), shape=(8, 8), dtype="u1")
    with pytest.raises(FileError, match="single array of zarr"):
        gd.read(path)
    empty = write_store(tmp_path / "empty.zarr", noise(0, 8, 8), "ZYX", chunks=(1, 8, 8), levels=1)
    with pytest.raises(ImageError, match="has no pixels"):
        gd.read(empty)


def test_series_of_bioformats2raw(tmp_path):
    path = tmp_path / "in.zarr"
    zarr.open_group(str(path), mode="w", zarr_format=2).attrs.update({"bioformats2raw.layout": 3})
    for name in "01":
        write_store(path / name, IMAGES["YX"], "YX", "0.4")
    picture = gd.read(path)
    np.testing.assert_array_equal(picture.data, IMAGES["YX"])
    assert picture.notes == ("The folder holds 2 images: the first was used.",)
    assert not gd.run_batch(path, SETTINGS, 8, output=tmp_path / "out.zarr").failed
    assert gd.read(tmp_path / "out.zarr").notes == ()


@pytest.mark.parametrize("dtype", [">u2", "int16", "float32", "float64"])
def test_types_and_byte_orders(tmp_path, dtype):
    image = noise(40, 50, dtype=dtype)
    path = write_store(tmp_path / "in.ome.zarr", image, "YX", "0.4")
    found = gd.read(path).data
    assert found.dtype == np.dtype(dtype).newbyteorder("=")
    out = tmp_path / "out.ome.zarr"
    report = gd.run_batch(path, SETTINGS, 8, output=out, dtype="same")
    assert not report.failed
    expected = gd.denoise(found, SETTINGS, 8, dtype="same").image
    np.testing.assert_array_equal(gd.read(out).data, expected)


@pytest.mark.parametrize("separator", [".", "/"])
def test_names_of_chunks_are_kept(tmp_path, separator):
    kept = {"chunk_key_encoding": {"name": "v2", "separator": separator}}
    path = write_store(
        tmp_path / "in.zarr", IMAGES["ZYX"], "ZYX", "0.4", chunks=(1, 40, 50), **kept
    )
    gd.run_batch(path, SETTINGS, 8, output=tmp_path / "out.zarr", dtype="same")
    first = "0/0/0" if separator == "/" else "0.0.0"
    assert (tmp_path / "out.zarr" / "0" / first).is_file()


def test_without_zarr_an_error_says_what_to_install(tmp_path, monkeypatch):
    path = write_store(tmp_path / "in.ome.zarr", IMAGES["YX"], "YX")
    monkeypatch.setitem(__import__("sys").modules, "zarr", None)
    with pytest.raises(FileError, match=r"pip install 'napari-gpu-denoise\[zarr\]'"):
        gd.read(path)
    with pytest.raises(FileError, match="zarr"):
        places.zarr_package()


def test_folders_and_patterns_find_stores(tmp_path):
    path = write_store(tmp_path / "a.ome.zarr", IMAGES["YX"], "YX")
    unnamed = shutil.copytree(path, tmp_path / "b")
    assert formats.find_files(tmp_path) == [path]
    assert formats.find_files(str(tmp_path / "*")) == [path, unnamed]
    assert formats.is_image(unnamed) and not formats.is_image(tmp_path)
    (target,) = formats.pair([unnamed], tmp_path / "out")
    assert target == (unnamed, tmp_path / "out" / "b.ome.zarr")


def write_plate(folder, version):
    plate = folder / "screen.ome.zarr"
    told = {
        plate: {"plate": {"wells": [{"path": "A/1"}, {"path": "B/2"}]}},
        plate / "A" / "1": {"well": {"images": [{"path": "0"}, {"path": "1"}]}},
        plate / "B" / "2": {"well": {"images": [{"path": "0"}]}},
    }
    for path, ome in told.items():
        group = zarr.open_group(str(path), mode="w", zarr_format=3 if version == "0.5" else 2)
        group.attrs.update({"ome": {"version": version, **ome}} if version == "0.5" else ome)
    for name in ("A/1/0", "A/1/1", "B/2/0"):
        write_store(plate / name, IMAGES["YX"], "YX", version, levels=1)
    return plate


@pytest.mark.parametrize("version", VERSIONS)
def test_a_plate_is_a_batch(tmp_path, version):
    plate = write_plate(tmp_path, version)
    report = gd.run_batch(plate, SETTINGS, 8, output=tmp_path / "out")
    assert not report.failed and len(report.done) == 3
    made = ["screen_A_1_0.ome.zarr", "screen_A_1_1.ome.zarr", "screen_B_2_0.ome.zarr"]
    assert names(tmp_path / "out") == made
    assert formats.find_files(plate / "A" / "1") == [plate / "A/1/0", plate / "A/1/1"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_plate_gives_a_plate(tmp_path, version):
    plate = write_plate(tmp_path, version)
    (plate / "tables").mkdir()
    out = tmp_path / "out.ome.zarr"
    # As long as an image is missing it is none.
    (plate / "B" / "2" / "0" / "0").rename(tmp_path / "away")
    assert len(gd.run_batch(plate, SETTINGS, 8, output=out).failed) == 1
    assert not places.is_zarr(out)
    (tmp_path / "away").rename(plate / "B" / "2" / "0" / "0")
    report = gd.run_batch(plate, SETTINGS, 8, output=out, resume=True)
    assert (len(report.done), len(report.skipped)) == (1, 2)
    assert "the wells are kept; tables beside them are not" in report.notes[0]
    for place in ("", "A/1", "B/2"):
        groups = [zarr.open_group(str(each / place), mode="r") for each in (plate, out)]
        assert dict(groups[0].attrs) == dict(groups[1].attrs)
    found = [path.relative_to(out) for path in formats.find_files(out)]
    assert found == [path.relative_to(plate) for path in formats.find_files(plate)]
    expected = gd.denoise(IMAGES["YX"], SETTINGS, 8, axes="YX").image
    np.testing.assert_array_equal(gd.read(out / "B/2/0").data, expected)
    assert names(out) == sorted(
        ["A", "B", *(["zarr.json"] if version == "0.5" else [".zattrs", ".zgroup"])]
    )
    # Some images of a plate are none.
    with pytest.raises(OutputError, match="a single file, but there are 2 inputs"):
        formats.pair(formats.find_files(plate / "A" / "1"), tmp_path / "well.ome.zarr")


def test_the_image_of_a_plate_with_one_is_a_result_like_others(tmp_path):
    plate = tmp_path / "plate.zarr"
    write_store(plate / "A/1/0", IMAGES["YX"], "YX")
    zarr.open_group(str(plate), mode="a").attrs["ome"] = {
        "version": "0.5",
        "plate": {"wells": [{"path": "A/1"}]},
    }
    zarr.open_group(str(plate / "A/1"), mode="a").attrs["ome"] = {
        "version": "0.5",
        "well": {"images": [{"path": "0"}]},
    }
    report = gd.run_batch(plate, SETTINGS, 8, output=tmp_path / "out.ome.zarr")
    assert len(report.done) == 1
    expected = gd.denoise(IMAGES["YX"], SETTINGS, 8, axes="YX").image
    np.testing.assert_array_equal(gd.read(tmp_path / "out.ome.zarr").data, expected)


def test_plates_name_only_what_is_in_them(tmp_path):
    plate = tmp_path / "plate.zarr"
    group = zarr.open_group(str(plate), mode="w")
    for wells in ([{"path": "../other"}], "no", [], [{"path": "A/9"}]):
        group.attrs.update({"ome": {"version": "0.5", "plate": {"wells": wells}}})
        with pytest.raises(FileError, match=r"plate\.zarr"):
            formats.find_files(plate)


def test_shapes_that_lie_fill_no_memory(tmp_path):
    path = write_store(tmp_path / "in.zarr", IMAGES["ZYX"], "ZYX", levels=1, chunks=(1, 40, 50))
    file = path / "0" / "zarr.json"
    held = json.loads(file.read_text())
    held["shape"] = [2**40, 40, 50]
    file.write_text(json.dumps(held))
    with pytest.raises(FileError, match="of pixels but holds"):
        gd.read(path)
    report = gd.run_batch(path, SETTINGS, 8, output=tmp_path / "out.zarr")
    assert "of pixels but holds" in str(report.failed[0].error)
    held["shape"] = [3, 2**28, 2**28]
    held["chunk_grid"]["configuration"]["chunk_shape"] = [1, 2**28, 2**28]
    file.write_text(json.dumps(held))
    report = gd.run_batch(path, SETTINGS, 8, output=tmp_path / "out.zarr")
    assert "of memory" in str(report.failed[0].error)
    assert names(tmp_path) == ["in.zarr"]


def test_what_a_killed_run_left_is_removed_by_the_next(tmp_path):
    import subprocess
    import sys

    path = write_store(tmp_path / "in.zarr", IMAGES["YX"], "YX")
    code = (
        "import os, sys; from napari_gpu_denoise.files.output import new_folder\n"
        "with new_folder(sys.argv[1]) as f: (f / 'half').write_text('x'); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path / "out.zarr")]).returncode == 9
    assert len(names(tmp_path)) == 2
    output.remove_abandoned.cache_clear()
    gd.run_batch(path, SETTINGS, 8, output=tmp_path / "out.zarr")
    assert names(tmp_path) == ["in.zarr", "out.zarr"]


@pytest.fixture
def bucket():
    """An empty place in memory, as a bucket is one of a server."""
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")
    yield "memory://bucket"
    if system.exists("/bucket"):
        system.rm("/bucket", recursive=True)


def test_other_places_than_folders(bucket, tmp_path, monkeypatch):
    monkeypatch.setattr(parts_of_images, "PART_BYTES", 1)
    image = IMAGES["TCZYX"]
    url = f"{bucket}/in.ome.zarr"
    write_store(url, image, "TCZYX", chunks=(1, 1, 1, 40, 50))
    np.testing.assert_array_equal(gd.read(url).data, image)
    expected = gd.denoise(image, SETTINGS, 8, axes="TCZYX").image
    for target in (tmp_path / "out.ome.zarr", f"{bucket}/out.ome.zarr"):
        (file,) = gd.run_batch(url, SETTINGS, 8, output=target).files
        assert file.error is None and str(file.output) == str(target)
        found = gd.read(target)
        np.testing.assert_array_equal(found.data, expected)
        assert found.pixel_metadata == gd.read(url).pixel_metadata
    (file,) = gd.run_batch(url, SETTINGS, 8, output=f"{bucket}/out.ome.zarr").files
    assert "exists and was kept" in file.skipped
    (file,) = gd.run_batch(url, SETTINGS, 8, output=f"{bucket}/made").files
    assert str(file.output) == f"{bucket}/made/in.ome.zarr"
    report = gd.run_batch(url, SETTINGS, 8, output=url, overwrite=True)
    assert "an input" in str(report.failed[0].error)
    np.testing.assert_array_equal(gd.read(url).data, image)


@pytest.mark.parametrize("name", ["in put.ome.zarr", "in put.tif"])
def test_addresses_of_local_files_are_their_paths(tmp_path, name):
    path, out = tmp_path / name, tmp_path / "out"
    if name.endswith(".zarr"):
        write_store(path, IMAGES["YX"], "YX")
    else:
        tifffile.imwrite(path, IMAGES["YX"])
    url = path.as_uri()  # in which the space is "%20"
    np.testing.assert_array_equal(gd.read(url).data, IMAGES["YX"])
    assert formats.is_image(url) and formats.find_files([url, path]) == [path]
    for place in (tmp_path.as_uri(), f"{tmp_path.as_uri()}/*"):
        assert formats.find_files(place) == [path]
    (file,) = gd.run_batch(url, SETTINGS, 8, output=f"{out.as_uri()}/").files
    assert file.error is None and file.output == out / name
    picture = gd.read(file.output)
    gd.write(url, picture.data, picture, overwrite=True)
    np.testing.assert_array_equal(gd.read(path).data, picture.data)


def test_other_places_hold_no_half_result(bucket, monkeypatch):
    url, out = f"{bucket}/in.ome.zarr", f"{bucket}/out.ome.zarr"
    write_store(url, IMAGES["ZYX"], "ZYX", chunks=(1, 40, 50))
    seen = []

    def fail(*_):
        with pytest.raises(FileError, match="holds no zarr"):
            gd.read(out)
        seen.append(True)
        raise OSError(5, "the network is gone")

    monkeypatch.setattr(writing, "fill", fail)
    report = gd.run_batch(url, SETTINGS, 8, output=out)
    assert "the network is gone" in str(report.failed[0].error) and seen
    assert not places.is_zarr(out)


def test_places_that_are_not_there(bucket):
    with pytest.raises(FileError):
        gd.read(f"{bucket}/none.ome.zarr")
    with pytest.raises(FileError, match="cannot be opened"):
        gd.read("nosuch://bucket/in.ome.zarr")
    report = gd.run_batch(f"{bucket}/none.zarr", SETTINGS, 8, output=f"{bucket}/out.zarr")
    assert "holds no zarr" in str(report.failed[0].error)


def test_a_network_that_drops_is_one_sentence(bucket, monkeypatch):
    from fsspec.implementations.memory import MemoryFileSystem

    def gone(*_, **__):
        raise ConnectionError("the network is gone")

    monkeypatch.setattr(places, "_PAUSES", (0, 0, 0))
    url = f"{bucket}/in.ome.zarr"
    write_store(url, IMAGES["YX"], "YX", levels=1)
    with monkeypatch.context() as context:
        context.setattr(MemoryFileSystem, "exists", gone)
        with pytest.raises(FileError, match=r"in\.ome\.zarr.* cannot be reached: the network"):
            gd.read(url)
    monkeypatch.setattr(MemoryFileSystem, "cat_file", gone)
    with pytest.raises(FileError, match="the network is gone"):
        gd.read(url)


@pytest.mark.parametrize(
    "address",
    [
        "s3://KEY:sEcReT@lab/a.ome.zarr",
        "s3://KEY:sEc/ReT@lab/a.ome.zarr",
        "simplecache::s3://KEY:sEcReT@lab/a.ome.zarr",
        "https://somebody:sEcReT@example.org:80/a.tif",
        "https://example.org/a.ome.zarr?version=1&sig=sEcReT",
        "https://example.org/a.ome.zarr?X-Amz-Signature=sEcReT",
    ],
)
def test_secrets_in_addresses_are_refused_and_not_repeated(address, tmp_path, capsys):
    store = write_store(tmp_path / "in.ome.zarr", IMAGES["YX"], "YX")
    for call in (
        lambda: gd.read(address),
        lambda: gd.write(address, IMAGES["YX"], gd.read(store)),
        lambda: gd.run_batch(address, gd.NLMeans(), output=tmp_path),
        lambda: gd.run_batch(store, gd.NLMeans(), output=address),
    ):
        with pytest.raises(FileError, match="password or key") as failed:
            call()
        assert "***" in str(failed.value) and "ReT" not in str(failed.value)
    for arguments in (
        ["nl-means", address, "-o", "x.tif"],
        ["nl-means", address, address],
        [address],
    ):
        assert main(arguments) == 4
        assert "ReT" not in "".join(capsys.readouterr())
    with pytest.raises(FileError) as failed, input_checks.reading(store):
        raise ValueError(f"cannot reach {address}")  # such as a proxy or server of the environment
    assert "ReT" not in str(failed.value)


@pytest.mark.parametrize(
    "address",
    [
        "s3://lab/12:30@room.zarr",
        "http://localhost:80/a@b.zarr",
        "abfs://box@lab.example.org/a.zarr",
    ],
)
def test_addresses_without_secrets_are_left_as_they_are(address):
    assert str(Address(address)) == input_checks.without_secrets(address) == address


def test_scales_of_three_levels(tmp_path):
    path = write_store(tmp_path / "in.ome.zarr", IMAGES["YX"], "YX", levels=3)
    gd.run_batch(path, SETTINGS, 8, output=tmp_path / "out.ome.zarr")
    scales, expected = (
        [
            each["coordinateTransformations"][0]["scale"]
            for each in one["multiscales"][0]["datasets"]
        ]
        for one in (attributes(tmp_path / f"{name}.ome.zarr")["ome"] for name in ("out", "in"))
    )
    assert len(expected) == 3
    np.testing.assert_allclose(scales, expected)


def test_means_of_blocks():
    image = np.arange(35, dtype=np.uint8).reshape(5, 7)
    found = block_means(image, (2, 3))
    expected = [
        [np.rint(np.mean(image[y : y + 2, x : x + 3])) for x in range(0, 7, 3)]
        for y in range(0, 5, 2)
    ]
    np.testing.assert_array_equal(found, np.array(expected, np.uint8))
    assert block_means(image.astype(np.float32), (5, 1)).shape == (1, 7)


@pytest.fixture
def drops(monkeypatch):
    """Return a function that lets so many readings of pixels fail, after those before."""
    from fsspec.implementations.memory import MemoryFileSystem

    monkeypatch.setattr(places, "_PAUSES", (0, 0, 0))
    plain, failing = MemoryFileSystem.cat_file, []

    def cat(self, path, *given, **options):
        if "/c/" in path and failing and not failing.pop(0):
            raise ConnectionError("the network is gone")
        return plain(self, path, *given, **options)

    monkeypatch.setattr(MemoryFileSystem, "cat_file", cat)

    def let(before, count):
        failing[:] = [True] * before + [False] * count

    return let


def test_a_network_that_comes_back_costs_nothing(bucket, drops, tmp_path, monkeypatch):
    monkeypatch.setattr(parts_of_images, "PART_BYTES", 1)
    url = f"{bucket}/in.ome.zarr"
    write_store(url, IMAGES["ZYX"], "ZYX", levels=1, chunks=(1, 40, 50))
    drops(before=1, count=3)
    (file,) = gd.run_batch(url, SETTINGS, 8, output=tmp_path / "out.ome.zarr").files
    assert file.error is None
    expected = gd.denoise(IMAGES["ZYX"], SETTINGS, 8, axes="ZYX").image
    np.testing.assert_array_equal(gd.read(file.output).data, expected)


def test_a_network_that_stays_away_leaves_what_is_done(bucket, drops, tmp_path, monkeypatch):
    monkeypatch.setattr(parts_of_images, "PART_BYTES", 1)
    monkeypatch.setattr(resuming, "_SECONDS", 0)
    url, out = f"{bucket}/in.ome.zarr", tmp_path / "out.ome.zarr"
    write_store(url, IMAGES["ZYX"], "ZYX", levels=1, chunks=(1, 40, 50))
    samples, parts = 16, 2
    drops(before=samples + parts, count=9)
    (file,) = gd.run_batch(url, SETTINGS, 8, output=out).files
    assert "cannot be reached: the network is gone" in str(file.error)
    assert "repeat the run with resume" in file.notes[0] and not out.exists()
    drops(before=0, count=0)
    written = []
    plain = resuming.ResumeLedger.wrote
    monkeypatch.setattr(
        resuming.ResumeLedger, "wrote", lambda *given: (written.append(given[1]), plain(*given))
    )
    (file,) = gd.run_batch(url, SETTINGS, 8, output=out, resume=True).files
    assert file.error is None and 0 < len(written) < 3
    expected = gd.denoise(IMAGES["ZYX"], SETTINGS, 8, axes="ZYX").image
    np.testing.assert_array_equal(gd.read(out).data, expected)
