"""OME-Zarr that lies: names and links that lead elsewhere, pipes instead of files."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import shutil

import google_crc32c
import numpy as np
import pytest
import zarr
from numcodecs import registry

import napari_gpu_denoise as gd
from files.test_hostile_files import needs_pipes, odd
from napari_gpu_denoise.cli import main
from napari_gpu_denoise.errors import FileError, OutputError
from napari_gpu_denoise.files import formats
from napari_gpu_denoise.files.zarr import metadata
from napari_gpu_denoise.files.zarr.places import Address, as_path
from scenes import noisy, small
from zarr_stores import FORMATS, describe, write_plate, write_store

IMAGE, SETTINGS = noisy(20, 30, dtype="uint16"), small(gd.NLMeans)


@pytest.fixture(params=["folder", "address"])
def place(request, tmp_path):
    """A folder, and one at an address."""
    if request.param == "folder":
        return tmp_path
    request.getfixturevalue("memory")
    return Address("memory://lab")


# From the folder of a well or an image: to "secret" beside the plate, and what could be.
OUTSIDE = ["../../../secret", "A/../../../../secret", "..", ".", "", "A//1", "/secret", "A/1/"]
OUTSIDE += [
    "..\\..\\..\\secret",
    "C:",
    "C:\\secret",
    "0::file:///secret",
    ".zattrs",
    "A/" * 40 + "A",
]


@pytest.mark.parametrize("name", [*OUTSIDE, None])
@pytest.mark.parametrize("part", ["well", "image"])
def test_plates_with_names_of_places_elsewhere_are_refused_before_they_are_read(place, part, name):
    plate = place / "data" / "plate.zarr"
    describe(plate, plate={"wells": [{"path": name if part == "well" else "A/1"}]})
    describe(plate / "A" / "1", well={"images": [{"path": name}]})
    # What is read of it raises another error.
    describe(place / "secret", well="read")
    with pytest.raises(FileError, match="which is no name of a folder in it"):
        formats.find_files(str(plate))


@pytest.mark.parametrize("name", OUTSIDE)
def test_levels_elsewhere_are_neither_read_nor_written(place, name):
    path = as_path(write_store(place / "data" / "a" / "in.zarr", IMAGE, "YX"))
    secret = write_store(place / "secret", IMAGE, "YX") / "0"
    told = zarr.open_group(str(path), mode="a").attrs["ome"]
    told["multiscales"][0]["datasets"][0]["path"] = name
    describe(path, **told)
    with pytest.raises(FileError, match="which is no name of a folder in it"):
        gd.read(path)
    out = place / "made" / "a" / "out.zarr"
    (file,) = gd.run_batch(path, SETTINGS, 8, output=out).files
    assert isinstance(file.error, FileError) and not out.exists()
    np.testing.assert_array_equal(zarr.open_array(str(secret), mode="r")[...], IMAGE)


def linked(link, target):
    try:
        link.symlink_to(target)
    except OSError:
        pytest.skip("links need a right that is not given here")


def plate_of_two(place):
    return write_plate(place, {"A/1/0": IMAGE, "A/1/1": IMAGE})


@pytest.mark.parametrize("part", ["A", "A/1", "A/1/0"])
def test_plates_do_not_lead_out_by_links(tmp_path, part):
    """Neither what is read nor what is written; inside they may."""
    plate, out = plate_of_two(tmp_path / "plate.zarr"), tmp_path / "out.zarr"
    (out / part).parent.mkdir(parents=True)
    (tmp_path / "other").mkdir()
    linked(out / part, tmp_path / "other")
    with pytest.raises(OutputError, match=r"link to a place outside of .*out\.zarr"):
        gd.run_batch(plate, SETTINGS, 8, output=out, overwrite=True)
    assert not [*(tmp_path / "other").iterdir()]
    moved = (plate / part).rename((plate / part).with_name("moved"))
    linked(plate / part, moved)
    assert len(formats.find_files(plate)) == 2
    (plate / part).unlink()
    linked(plate / part, moved.rename(tmp_path / "away"))
    with pytest.raises(FileError, match="is a link to a place outside of"):
        formats.find_files(plate)


@needs_pipes
@pytest.mark.parametrize("name", ["zarr.json", ".zgroup", "A/zarr.json", "A/1/.zattrs"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_metadata_of_plates_are_not_written_elsewhere(tmp_path, name, kind):
    plate, head = plate_of_two(tmp_path / "plate.zarr"), tmp_path / "out.zarr" / name
    head.parent.mkdir(parents=True)
    if kind == "link":
        (tmp_path / "other").write_text("{}")
        linked(head, tmp_path / "other")
    else:
        odd(head, kind)
    with pytest.raises(OutputError, match=r"outside of .*out\.zarr|is no file of metadata"):
        gd.run_batch(plate, SETTINGS, 8, output=tmp_path / "out.zarr", overwrite=True)
    assert kind == "pipe" or (tmp_path / "other").read_text() == "{}"


class Runs:
    """What a pickle calls that is opened: it leaves a file."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def retold(path, level="0", **changed):
    """Change what the metadata of a level say; return them."""
    file = next(f for f in (path / level / "zarr.json", path / level / ".zarray") if f.is_file())
    told = {**json.loads(file.read_text()), **changed}
    file.write_text(json.dumps(told))
    return told


def chunks_of(path, level="0"):
    heads = ("zarr.json", ".zarray", ".zattrs")
    files = sorted((path / level).rglob("*"))
    return [each for each in files if each.is_file() and each.name not in heads]


# Codecs of numcodecs that are read; all others that it has, or will have, are refused.
READ = {"blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd"}
READ |= {"adler32", "astype", "bitround", "crc32", "crc32c", "delta", "fixedscaleoffset"}
READ |= {"fletcher32", "jenkins_lookup3", "packbits", "quantize", "shuffle"}
OPTIONS = {
    "astype": {"encode_dtype": "<u4", "decode_dtype": "<u2"},
    "bitround": {"keepbits": 7},
    "delta": {"dtype": "<u2"},
    "fixedscaleoffset": {"dtype": "<u2", "scale": 1, "offset": 0},
    "quantize": {"dtype": "<f4", "digits": 1},
    "shuffle": {"elementsize": 2},
}


def codecs():
    names = {*registry.codec_registry, *registry.entries}
    return sorted(each for each in names if "napari" not in each)


@pytest.mark.parametrize("place", ["compressor", "filter"])
@pytest.mark.parametrize("name", codecs())
def test_only_listed_codecs_are_opened(tmp_path, name, place):
    path = write_store(tmp_path / "in.zarr", IMAGE, "YX", "0.4", levels=1, compressors=None)
    for chunk in chunks_of(path):
        chunk.write_bytes(pickle.dumps(Runs(tmp_path / "run")))
    codec = {"id": name, **OPTIONS.get(name, {})}
    retold(path, **({"compressor": codec} if place == "compressor" else {"filters": [codec]}))
    with pytest.raises(FileError) as caught:
        gd.read(path)
    assert ("which is not one of those" in str(caught.value)) == (name not in READ)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("version", FORMATS)
@pytest.mark.parametrize("level", ["0", "1"])
def test_codecs_that_run_code_are_refused_at_all_levels(tmp_path, version, level):
    path = write_store(tmp_path / "in.zarr", IMAGE, "YX", version)
    if version == "0.4":
        told = {"dtype": "|O", "filters": [{"id": "vlen-bytes"}], "compressor": {"id": "pickle"}}
    else:
        inner = {"chunk_shape": [10, 15], "codecs": [{"name": "numcodecs.pickle"}]}
        told = {"codecs": [{"name": "sharding_indexed", "configuration": inner}]}
    retold(path, level, **told)
    with pytest.raises(FileError, match=r"real numbers|which is not one of those"):
        gd.read(path)
    # Of labels nothing is opened.
    labels = path / "labels"
    labels.mkdir()
    (path / level).rename(labels / level)
    write_store(path, IMAGE, "YX", version)
    labels.mkdir()
    (labels / ".zgroup").write_text("damaged")
    assert "labels" in gd.read(path).notes[0]


@pytest.mark.parametrize("dtype", ["|O", "<U4", "|V8", "<c8", "<M8[s]", "<f16", [["a", "<u2"]], 7])
@pytest.mark.parametrize("version", FORMATS)
def test_only_numbers_are_opened(tmp_path, version, dtype):
    path = write_store(tmp_path / "in.zarr", IMAGE, "YX", version, levels=1)
    retold(path, **({"dtype": dtype} if version == "0.4" else {"data_type": dtype}))
    with pytest.raises(FileError, match="which are no real numbers"):
        gd.read(path)


@pytest.mark.parametrize("version", FORMATS)
@pytest.mark.parametrize("name", ["blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd"])
def test_chunks_are_read_up_to_the_size_that_is_declared(tmp_path, version, name):
    path = write_store(tmp_path / "in.zarr", IMAGE, "YX", version, levels=1, compressors=None)
    (chunk,) = chunks_of(path)
    packed = registry.get_codec({"id": name})
    chunk.write_bytes(packed.encode(IMAGE))
    if version == "0.4":
        retold(path, compressor={"id": name})
    else:
        bytes_ = {"name": "bytes", "configuration": {"endian": "little"}}
        own = name in ("blosc", "gzip", "zstd")  # which zarr has without numcodecs
        codec = {"name": name if own else f"numcodecs.{name}", "configuration": {}}
        try:
            zarr.registry.get_codec_class(codec["name"])
        except KeyError:
            pytest.skip("this zarr does not know the codec in version 3")
        retold(path, codecs=[bytes_, codec])
    np.testing.assert_array_equal(gd.read(path).data, IMAGE)
    cut = chunk.read_bytes()[: chunk.stat().st_size // 2]
    for content in (cut, packed.encode(np.zeros(1 << 22, np.uint8))):
        chunk.write_bytes(content)
        with pytest.raises(FileError, match="is damaged"):
            gd.read(path)


@pytest.mark.parametrize("filled", [True, False])
def test_stored_chunks_are_counted_however_many_there_are(tmp_path, filled):
    path = write_store(tmp_path / "in.zarr", np.ones((8, 8), np.uint8), "YX", levels=1)
    retold(path, shape=[2400, 2400])
    (chunk,) = chunks_of(path)
    for y, x in itertools.product(range(8), repeat=2) if filled else ():
        (chunk.parents[1] / str(y)).mkdir(exist_ok=True)
        (chunk.parents[1] / str(y) / str(x)).write_bytes(chunk.read_bytes())
    (chunk.parent / "300").write_bytes(b"none of the image")
    (note,) = opened(path).notes
    assert note.startswith(f"{90_000 - (64 if filled else 1)} of 90000 chunks are not in")


def opened(path):
    with formats.open_stack(path) as picture:
        return picture


def test_many_chunks_at_an_address_are_said_not_to_be_counted(memory):
    url = write_store("memory://lab/in.zarr", np.ones((8, 8), np.uint8), "YX", levels=1)
    told = json.loads(memory.cat_file("/lab/in.zarr/0/zarr.json"))
    for side, note in ((24, "8 of 9 chunks are not"), (2400, "Of 90000 chunks those that are")):
        told["shape"] = [side, side]
        memory.pipe_file("/lab/in.zarr/0/zarr.json", json.dumps(told).encode())
        assert opened(url).notes[0].startswith(note)


def sharded(path, place="end", checked=True, outer=(), codecs=None, packed=None):
    """Write an image of 3 x 4 chunks in four shards of 2 x 2, the last two partly outside of it."""
    index = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]
    serializer = zarr.codecs.ShardingCodec(
        chunk_shape=(4, 4),
        index_location=place,
        index_codecs=index[: 1 + checked],
        codecs=codecs or [zarr.codecs.BytesCodec(), zarr.codecs.ZstdCodec()],
    )
    path = write_store(path, np.ones((12, 16), np.uint8), "YX", levels=1, chunks=(8, 8))
    array = zarr.create_array(
        f"{path}/0", shape=(12, 16), chunks=(8, 8), dtype="u1", serializer=serializer,
        filters=outer, compressors=packed, overwrite=True,
    )  # fmt: skip
    array[...] = IMAGE_OF_SHARDS
    return path


IMAGE_OF_SHARDS = np.arange(1, 193, dtype=np.uint8).reshape(12, 16)


@pytest.mark.parametrize("place", ["start", "end"])
@pytest.mark.parametrize("checked", [True, False])
def test_chunks_that_shards_lack_are_counted(tmp_path, place, checked):
    path = sharded(tmp_path / "in.zarr", place, checked)
    shard = path / "0" / "c" / "0" / "0"
    whole, size = shard.read_bytes(), 64 + 4 * checked
    first = 0 if place == "start" else len(whole) - size
    index = np.frombuffer(whole[first : first + 64], "<u8").reshape(4, 2)
    picture = gd.read(path)
    assert picture.notes == ()
    np.testing.assert_array_equal(picture.data, IMAGE_OF_SHARDS)
    gone = np.full(2, 2**64 - 1, np.uint64)

    def changed(entries):
        packed = np.asarray(entries, "<u8").tobytes()
        packed += google_crc32c.value(packed).to_bytes(4, "little") if checked else b""
        return whole[:first] + packed + whole[first + size :]

    shard.write_bytes(changed([gone, index[1], gone, index[3]]))
    assert opened(path).notes == ("2 chunks inside of shards are missing and were read as 0.",)
    far, long = [index[0] + [1 << 40, 0], *index[1:]], [[0, 1 << 62], *index[1:]]
    damaged = [changed(np.roll(index, 1, 1)), changed(far), changed(long), whole[:40], b""]
    damaged += [changed([index[0]] * 4), changed([[*index[0][:1], 0], *index[1:]])]
    damaged += [changed([[gone[0], 5], *index[1:]])]
    damaged += [changed(index)[:-2] + b"ab"] if checked and place == "end" else []
    for content in damaged:
        shard.write_bytes(content)
        with pytest.raises(FileError, match="is damaged"):
            opened(path)


@pytest.mark.parametrize("way", ["transposed", "packed", "nested", "address"])
def test_shards_that_cannot_be_counted_are_said(tmp_path, memory, way):
    inner = zarr.codecs.ShardingCodec(chunk_shape=(2, 2)).to_dict()
    options = {"transposed": {"outer": [zarr.codecs.TransposeCodec(order=(1, 0))]}}
    options |= {"packed": {"packed": zarr.codecs.GzipCodec()}, "nested": {"codecs": [inner]}}
    path = sharded(tmp_path / "in.zarr", **options.get(way, {}))
    if way == "address":
        memory.put(str(path), "/lab/shards.zarr", recursive=True)
        path = "memory://lab/shards.zarr"
    picture = gd.read(path)
    assert any("inside of shards, if any, are read" in note for note in picture.notes)
    np.testing.assert_array_equal(picture.data, IMAGE_OF_SHARDS)


def test_a_huge_image_of_which_nearly_nothing_is_stored_is_refused(tmp_path):
    path = write_store(tmp_path / "in.zarr", np.ones((8, 8), np.uint8), "YX", levels=1)
    told = retold(path, shape=[40_000, 50_000])
    told["chunk_grid"]["configuration"]["chunk_shape"] = [4000, 5000]
    retold(path, chunk_grid=told["chunk_grid"])
    with pytest.raises(FileError, match=r"declares 2 GB of pixels but holds \d+ bytes"):
        opened(path)
    told["chunk_grid"]["configuration"]["chunk_shape"] = [2**28, 2**28]
    retold(path, shape=[2**28, 2**28], chunk_grid=told["chunk_grid"])
    (file,) = gd.run_batch(path, SETTINGS, 8, output=tmp_path / "out.zarr").files
    assert "of memory" in str(file.error) and not (tmp_path / "out.zarr").exists()
    # To fill that many chunks takes a quarter of an hour.
    told["chunk_grid"]["configuration"]["chunk_shape"] = [8, 8]
    retold(path, shape=[16_000, 16_000], chunk_grid=told["chunk_grid"])
    with pytest.raises(FileError, match="declares 4000000 chunks but holds 1:"):
        opened(path)


@pytest.mark.parametrize("shape", [[2**63, 64, 64], [2**40] * 3, [-1, 4, 4], [1.5, 4, 4], "no", 7])
@pytest.mark.parametrize("version", FORMATS)
def test_shapes_that_no_image_has_are_refused(tmp_path, shape, version):
    path = write_store(tmp_path / "in.zarr", IMAGE[None], "ZYX", version, levels=1)
    retold(path, shape=shape)
    (file,) = gd.run_batch(path, SETTINGS, 8, output=tmp_path / "out.zarr").files
    assert isinstance(file.error, FileError) and "which no image has" in str(file.error)


@pytest.mark.parametrize("part", ["levels", "images", "codecs", "text"])
def test_more_than_any_image_has_is_refused_before_it_is_opened(tmp_path, monkeypatch, part):
    path = write_store(tmp_path / "in.zarr", IMAGE, "YX", levels=1)
    told = zarr.open_group(str(path), mode="a").attrs["ome"]
    several = told["multiscales"]
    if part == "codecs":
        retold(path, codecs=[{"name": "crc32c"}] * 2000)
    elif part == "levels":
        several[0]["datasets"] *= 2000
    elif part == "images":
        several *= 2000
    else:
        monkeypatch.setattr(metadata, "_LARGEST", 100)
    describe(path, **told)
    with pytest.raises(FileError, match=r"name\w? 2000|is longer than"):
        gd.read(path)


@pytest.mark.parametrize("part", ["wells", "images"])
def test_more_than_any_plate_has_is_refused_before_it_is_opened(tmp_path, part):
    describe(tmp_path, plate={"wells": [{"path": "A/1"}] * (20_000 if part == "wells" else 1)})
    describe(tmp_path / "A" / "1", well={"images": [{"path": "0"}] * 20_000})
    with pytest.raises(FileError, match="name 20000 levels, images or wells"):
        formats.find_files(tmp_path)


PARTS = {
    "0.4": [".zattrs", ".zgroup", "0", "0/.zarray", "0/0", "0/0/0", "1"],
    "0.5": ["zarr.json", "0", "0/zarr.json", "0/c", "0/c/0/0", "1"],
}
EACH = [(version, part) for version, parts in PARTS.items() for part in parts]


def image_04_or_05(path, version):
    encoding = {"chunk_key_encoding": {"name": "v2", "separator": "/"}} if version == "0.4" else {}
    return write_store(path, IMAGE, "YX", version, **encoding)


@pytest.mark.parametrize(("version", "part"), EACH)
def test_links_are_followed_within_an_image_only(tmp_path, version, part):
    path = image_04_or_05(tmp_path / "in.zarr", version)
    moved = (path / part).rename((path / part).with_name("moved"))
    linked(path / part, moved)
    np.testing.assert_array_equal(gd.read(path).data, IMAGE)
    (path / part).unlink()
    linked(path / part, moved.rename(tmp_path / "away"))
    with pytest.raises(FileError, match=r"is a link to .*away.*, outside of"):
        gd.read(path)
    out = tmp_path / "out.zarr"
    assert gd.run_batch(path, SETTINGS, 8, output=out).failed
    assert main(["nl-means", str(path), "-o", str(out), "--companions-anywhere"]) == 0
    picture = gd.read(path, companions_anywhere=True)
    np.testing.assert_array_equal(picture.data, IMAGE)
    # What is asked for may be a link.
    linked(tmp_path / "link.zarr", out)
    assert gd.read(tmp_path / "link.zarr").data.shape == IMAGE.shape


@needs_pipes
@pytest.mark.parametrize("kind", ["pipe", "device", "circle"])
@pytest.mark.parametrize(("version", "part"), [one for one in EACH if one[1] not in ("0/0", "0/c")])
def test_what_is_no_file_in_an_image_is_refused_at_once(tmp_path, version, part, kind):
    path = image_04_or_05(tmp_path / "in.zarr", version)
    if (path / part).is_dir():
        shutil.rmtree(path / part)
    else:
        (path / part).unlink()
    odd(path / part, kind)
    for anywhere in (False, True):
        with pytest.raises(FileError, match=r"in\.zarr"):
            gd.read(path, companions_anywhere=anywhere)
    with pytest.raises(FileError, match=r"in\.zarr"):
        for file in gd.run_batch(path, SETTINGS, 8, output=tmp_path / "out.zarr").failed:
            raise file.error


def test_chunks_behind_a_link_within_the_image_are_not_missing(tmp_path):
    """Nor are links that lead in circles followed for ever."""
    path = write_store(tmp_path / "in.zarr", IMAGE, "YX")
    linked(path / "0" / "c", (path / "0" / "c").rename(path / "moved"))
    linked(path / "0" / "circle", path / "0")
    linked(path / "moved" / "circle", path)
    picture = gd.read(path)
    np.testing.assert_array_equal(picture.data, IMAGE)
    assert picture.notes == (
        f"Not in the result is what lies beside the image in {path}: 'moved'.",
    )


@needs_pipes
@pytest.mark.parametrize("part", ["", "A/1"])
def test_metadata_of_plates_are_read_from_their_own_files_only(tmp_path, part):
    plate = plate_of_two(tmp_path / "plate.zarr")
    (plate / ".zattrs").touch()  # a folder of zarr all the same
    head = plate / part / "zarr.json"
    linked(head, head.rename(tmp_path / "away"))
    with pytest.raises(FileError, match="outside of"):
        gd.read(formats.find_files(plate)[0])
    head.unlink()
    odd(head, "pipe")
    with pytest.raises(FileError, match="it is a pipe or a device"):
        formats.find_files(plate)
