"""OME-Zarr in and out: metadata, chunks and pyramid kept, part by part, never half written."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import imagecodecs
import numcodecs
import numpy as np
import pytest
import zarr

import napari_gpu_denoise as gd
from files.contract import FormatContract, SameWriter
from napari_gpu_denoise.cli import main
from napari_gpu_denoise.cli.failures import complain
from napari_gpu_denoise.errors import ClusterError, FileError, ImageError, OutputError
from napari_gpu_denoise.files import formats, input_checks, resuming
from napari_gpu_denoise.files.cluster import connected
from napari_gpu_denoise.files.image_file import BOOLEAN
from napari_gpu_denoise.files.zarr import places, writing
from napari_gpu_denoise.files.zarr.places import as_path
from napari_gpu_denoise.files.zarr.writing import block_means, coarser_shape
from scenes import small
from zarr_stores import FORMATS, describe, write_plate, write_store

SETTINGS = small(gd.NLMeans)
IMAGES = {
    axes: np.random.default_rng(5).normal(100, 8, shape).astype(np.uint16)
    for axes, shape in {
        "TCZYX": (2, 2, 3, 40, 50),
        "ZYX": (3, 40, 50),
        "CYX": (2, 40, 50),
        "YX": (40, 50),
    }.items()
}
PLANES = {"chunks": (1, 40, 50)}


def lie(change: Callable[[dict], object], within: str = "") -> Callable[[Path], object]:
    """Return what changes the metadata of an image, or of an array in it."""

    def spoil(path: Path) -> None:
        heads = (path / within / name for name in ("zarr.json", ".zarray"))
        head = next(each for each in heads if each.exists())
        told = json.loads(head.read_text())
        change(told if within else told["attributes"])
        head.write_text(json.dumps(told))

    return spoil


def lie_in_image(**changed) -> Callable[[Path], object]:
    """Do the same for the description of the image."""
    return lie(lambda told: told["ome"]["multiscales"][0].update(changed))


HUGE = "declares .* but", lie(lambda told: told.update(shape=[3, 2, 4, 40_000, 50_000]), "0")
FINITE, INFINITE = (
    {"coordinateTransformations": [{"type": "scale", "scale": [1.0, 1.0, 1.0, y, 1.0]}]}
    for y in (1.0, float("inf"))
)


class TestZarr(FormatContract):
    """Of the newer version, with shards."""

    ending, results = ".ome.zarr", (".ome.zarr", ".zarr")
    version = "0.5"
    axes = ("YX", "CYX", "ZYX", "TCZYX")
    types = ("uint16", *sorted(writing.HELD - {"uint16"}))
    channels = ("dye 0", "dye 1")
    modules = ("zarr",)
    chunks, at_once, streams_always = (12, 16), True, True
    lies = (
        HUGE,
        ("not an image of OME-Zarr", lie(lambda told: told.pop("ome"))),
        ("is OME-Zarr 0.7", lie(lambda told: told["ome"].update(version="0.7"))),
        ("are damaged", lie(lambda told: told["ome"]["multiscales"][0].pop("axes"))),
        ("are damaged", lie(lambda told: told["ome"]["multiscales"][0]["axes"].pop())),
        ("are damaged", lie(lambda told: told["ome"].update(multiscales=[]))),
        ("are damaged", lie(lambda told: told["ome"].update(multiscales="no"))),
        ("is damaged", lie_in_image(datasets=[{"path": "9", **FINITE}])),
        ("damaged", lie_in_image(datasets=[{"path": "0", **INFINITE}])),
        ("without y and x", lie_in_image(axes=[{"name": a, "type": "other"} for a in "abcde"])),
    )

    def write(self, path, image, axes):
        outer = (1,) * (len(axes) - 2)
        shards = {"shards": (*outer, 24, 32)} if self.version == "0.5" else {}
        write_store(
            path, image, axes, self.version, levels=3, chunks=(*outer, *self.chunks), **shards
        )

    def check_kept(self, before, after):
        told = [ome_of(each) for each in (before, after)]
        assert told[1].get("omero") == told[0].get("omero")
        before, after = opened(before), opened(after)
        for name in ("_creator", "lab"):
            assert after.attrs[name] == before.attrs[name]
        outer, finer = (1,) * (before["0"].ndim - 2), None
        for level in ("0", "1", "2"):
            for name in ("shape", "chunks", "shards", "dtype"):
                assert getattr(after[level], name) == getattr(before[level], name)
            assert after[level].metadata.zarr_format == before[level].metadata.zarr_format
            if finer is not None:
                np.testing.assert_array_equal(after[level], block_means(finer, (*outer, 2, 2)))
            finer = after[level][...]
        before, after = (each["multiscales"][0] for each in told)
        assert after["axes"] == before["axes"]
        scales, placed = (
            [each["coordinateTransformations"] for each in each["datasets"]]
            for each in (before, after)
        )
        assert [each[0] for each in placed] == [each[0] for each in scales]
        # Means lie between the pixels that they are of.
        shift = [0.0] * len(outer) + [0.125, 0.1]
        assert placed[1][1] == {"type": "translation", "translation": shift}


class TestZarr04(SameWriter, TestZarr):
    """Of the older version, with chunks of whole planes."""

    version, chunks = "0.4", (24, 32)
    lies = (HUGE,)


def names(folder):
    return sorted(each.name for each in folder.iterdir())


def opened(path):
    return zarr.open_group(str(path), mode="r")


def ome_of(path):
    told = dict(opened(path).attrs)
    return told.get("ome", told)


def denoised(axes, sigma=8, **options):
    return gd.denoise(IMAGES[axes], SETTINGS, sigma, axes=axes, **options).image


def test_folders_of_others_are_never_replaced(tmp_path):
    path = write_store(tmp_path / "in.ome.zarr", IMAGES["YX"], "YX")
    mine = tmp_path / "mine.zarr"
    mine.mkdir()
    (mine / "thesis.txt").write_text("mine")
    for target, said in (
        (mine, "is a folder but neither zarr"),
        (path, ""),
        (path / "o.ome.zarr", ""),
    ):
        (failed,) = gd.run_batch(path, SETTINGS, 8, output=target, overwrite=True).failed
        assert isinstance(failed.error, OutputError) and said in str(failed.error)
    assert (mine / "thesis.txt").read_text() == "mine"
    np.testing.assert_array_equal(gd.read(path).data, IMAGES["YX"])


@pytest.mark.parametrize("kind", ["plate", "well"])
def test_a_plate_is_no_image(tmp_path, kind):
    described = describe(tmp_path / "in.ome.zarr", **{kind: {}})
    with pytest.raises(FileError, match=f"is a {kind}"):
        gd.read(described)


def test_what_is_no_image(tmp_path):
    path = tmp_path / "array.zarr"
    zarr.create_array(str(path), shape=(8, 8), dtype="u1")
    with pytest.raises(FileError, match="single array of zarr"):
        gd.read(path)
    none = np.zeros((0, 8, 8), np.uint8)
    empty = write_store(tmp_path / "empty.zarr", none, "ZYX", chunks=(1, 8, 8), levels=1)
    with pytest.raises(ImageError, match="has no pixels"):
        gd.read(empty)


@pytest.mark.parametrize("separator", [".", "/"])
def test_byte_order_and_names_of_chunks(tmp_path, separator):
    kept = {"chunk_key_encoding": {"name": "v2", "separator": separator}}
    image, out = IMAGES["ZYX"].astype(">u2"), tmp_path / "out.ome.zarr"
    path = write_store(tmp_path / "in.ome.zarr", image, "ZYX", "0.4", **PLANES, **kept)
    picture = gd.read(path)
    np.testing.assert_array_equal(picture.data, image)
    assert picture.data.dtype.isnative
    assert not gd.run_batch(path, SETTINGS, 8, output=out, dtype="same").failed
    np.testing.assert_array_equal(gd.read(out).data, denoised("ZYX", dtype="same"))
    assert (out / "0" / separator.join("000")).is_file()


@pytest.mark.parametrize("compressor", [None, numcodecs.Blosc()])
def test_filters_of_zarr_2(tmp_path, compressor):
    """What is not compressed has a filter in place of the compressor."""
    codecs, image = [numcodecs.Delta("u2"), numcodecs.Shuffle(2)], IMAGES["ZYX"][0]
    options = {"filters": codecs, "compressors": compressor, "chunks": (10, 10)}
    path = write_store(tmp_path / "in.ome.zarr", image, "YX", "0.4", **options)
    picture = gd.read(path)
    np.testing.assert_array_equal(picture.data, image)
    gd.write(tmp_path / "out.ome.zarr", image[::-1], picture)
    np.testing.assert_array_equal(gd.read(tmp_path / "out.ome.zarr").data, image[::-1])
    assert [*zarr.open_array(tmp_path / "out.ome.zarr" / "0").filters] == codecs


def test_transformations_of_an_image_and_of_its_levels_are_joined(tmp_path):
    path = write_store(tmp_path / "in.ome.zarr", IMAGES["ZYX"], "ZYX")
    own, whole = {"type": "scale", "scale": [2, 3, 4]}, {"type": "scale", "scale": [10, 1, 1]}
    moved = [{"type": "translation", "translation": each} for each in ([1, 0, 0], [0, 5, 0])]
    datasets = [{"path": "0", "coordinateTransformations": [{"type": "identity"}, own, moved[0]]}]
    lie_in_image(datasets=datasets, coordinateTransformations=[whole, moved[1]])(path)
    lie_in_image(axes=[{"name": a, "type": "space"} for a in "zyx"])(path)  # without units
    assert (gd.read(path).voxel, gd.read(path).voxel_unit) == ((20, 3, 4), "")
    out = tmp_path / "out.ome.zarr"
    assert not gd.run_batch(path, SETTINGS, 8, output=out).failed
    (level,) = ome_of(out)["multiscales"][0]["datasets"]
    assert level["coordinateTransformations"] == [
        {"type": "scale", "scale": [20, 3, 4]},
        {"type": "translation", "translation": [10, 5, 0]},
    ]


@pytest.mark.parametrize("version", FORMATS)
def test_boolean_images_are_0_and_1_as_layers_are(tmp_path, version):
    image = np.random.default_rng(0).random((3, 33, 37)) < 0.6
    path = write_store(tmp_path / "in.ome.zarr", image, "TYX", version, chunks=(1, 16, 16))
    report = gd.run_batch(path, small(gd.NLMeans), 0.4, output=tmp_path / "out.ome.zarr")
    expected = gd.denoise(image.astype(np.uint8), small(gd.NLMeans), 0.4, axes="TYX")
    assert not report.failed
    assert BOOLEAN in report.done[0].notes
    np.testing.assert_array_equal(gd.read(report.done[0].output).data, expected.image)


def test_missing_codecs_are_no_damage(tmp_path, monkeypatch):
    path = write_store(tmp_path / "in.ome.zarr", IMAGES["YX"], "YX")
    arrays = importlib.import_module("napari_gpu_denoise.files.zarr.arrays")

    def lacking(*args, **kwargs):
        raise imagecodecs.DelayedImportError("zstd_decode")

    for name in arrays._UNPACK:
        monkeypatch.setitem(arrays._UNPACK, name, lacking)
    with pytest.raises(FileError, match=r"missing .*zstd_decode.*: pip install --upgrade imagec"):
        gd.read(path)
    monkeypatch.delitem(sys.modules, arrays.__name__)
    monkeypatch.setitem(sys.modules, "imagecodecs", None)
    with pytest.raises(FileError, match=r"missing .*: pip install --upgrade imagecodecs\.$"):
        gd.read(path)


def test_folders_and_patterns_find_stores(tmp_path):
    path = write_store(tmp_path / "a.ome.zarr", IMAGES["YX"], "YX")
    unnamed = shutil.copytree(path, tmp_path / "b")
    assert formats.find_files(tmp_path) == [path]
    assert formats.find_files(str(tmp_path / "*")) == [path, unnamed]
    assert formats.is_image(unnamed) and not formats.is_image(tmp_path)
    (target,) = formats.pair([unnamed], tmp_path / "out")
    assert target == (unnamed, tmp_path / "out" / "b.ome.zarr")


SCREEN = {name: IMAGES["YX"] for name in ("A/1/0", "A/1/1", "B/2/0")}


@pytest.mark.parametrize("version", FORMATS)
def test_a_plate_gives_a_plate(tmp_path, version):
    plate = write_plate(tmp_path / "screen.ome.zarr", SCREEN, version=version)
    (plate / "tables").mkdir()
    (plate / "A" / "1" / "notes.csv").touch()
    out, level = tmp_path / "out.ome.zarr", plate / "B" / "2" / "0" / "0"
    # As long as an image is missing it is none.
    level.rename(tmp_path / "away")
    assert len(gd.run_batch(plate, SETTINGS, 8, output=out).failed) == 1
    assert not places.is_zarr(out)
    (tmp_path / "away").rename(level)
    report = gd.run_batch(plate, SETTINGS, 8, output=out, resume=True)
    assert (len(report.done), len(report.skipped)) == (1, 2)
    assert report.notes[0].endswith(
        f"what lies beside the image in {plate}: 'A/1/notes.csv', 'tables'."
    )
    for place in ("", "A/1", "B/2"):
        assert dict(opened(plate / place).attrs) == dict(opened(out / place).attrs)
    found = [path.relative_to(out).as_posix() for path in formats.find_files(out)]
    assert found == [path.relative_to(plate).as_posix() for path in formats.find_files(plate)]
    assert found == [*SCREEN]
    np.testing.assert_array_equal(gd.read(out / "B/2/0").data, denoised("YX"))
    heads = ["zarr.json"] if version == "0.5" else [".zattrs", ".zgroup"]
    assert names(out) == sorted(["A", "B", *heads])
    # In a folder they are images like others, and some of them are no plate.
    report = gd.run_batch(plate, SETTINGS, 8, output=tmp_path / "images")
    assert not report.failed
    assert names(tmp_path / "images") == [
        f"screen_{name.replace('/', '_')}.ome.zarr" for name in SCREEN
    ]
    well = formats.find_files(plate / "A" / "1")
    assert well == [plate / "A/1/0", plate / "A/1/1"]
    with pytest.raises(OutputError, match="a single file, but there are 2 inputs"):
        formats.pair(well, tmp_path / "well.ome.zarr")


def test_the_image_of_a_plate_with_one_is_a_result_like_others(tmp_path):
    plate = write_plate(tmp_path / "plate.zarr", {"A/1/0": IMAGES["YX"]})
    (done,) = gd.run_batch(plate, SETTINGS, 8, output=tmp_path / "out.ome.zarr").done
    assert done.output == tmp_path / "out.ome.zarr"
    np.testing.assert_array_equal(gd.read(done.output).data, denoised("YX"))
    for wells in ([{"path": "../other"}], "no", [], [{"path": "A/9"}]):
        describe(plate, plate={"wells": wells})
        with pytest.raises(FileError, match=r"plate\.zarr"):
            formats.find_files(plate)


def test_places_that_are_not_there(memory):
    with pytest.raises(FileError):
        gd.read("memory://lab/none.ome.zarr")
    with pytest.raises(FileError, match="cannot be reached"):
        gd.read("nosuch://bucket/in.ome.zarr")
    report = gd.run_batch("memory://lab/none.zarr", SETTINGS, 8, output="memory://lab/out.zarr")
    assert "holds no zarr" in str(report.failed[0].error)


SECRETS = [
    "s3://KEY:sEcReT@lab/a.ome.zarr",
    "s3://KEY:sEc/ReT@lab/a.ome.zarr",
    "simplecache::s3://KEY:sEcReT@lab/a.ome.zarr",
    "zip://a.zarr::https://sEcReT@example.org/a.zip",
    "https://somebody:sEcReT@example.org:80/a.tif",
    "https://sEcReT@example.org/a.ome.zarr",
    "https://some body:sEc'ReT@example.org/a.ome.zarr",
    "https:/sEcReT@example.org/a.ome.zarr",  # a path that was made of an address
    "tls://somebody:sEc?#ReT@login1:8786",
    "https://example.org/a.ome.zarr?version=1&sig=sEcReT",
    "https://example.org/a.ome.zarr?access_key=sEcReT&api_key=sEcReT",
    "https://example.org/a.ome.zarr?sEcReT",
    "HTTPS://example.org/a.ome.zarr#sEcReT",
    "abfs://box:sEcReT@lab.example.org/a.zarr",
]


@pytest.mark.parametrize("address", SECRETS)
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
    several = [["nl-means", address, "-o", "x.tif"], ["nl-means", address, address], [address]]
    several += [["nl-means", address, "-o", "x.tif", option] for option in ("-q", "--resume")]
    several += [[name, address] for name in ("estimate", "assess", "quality", "isoline")]
    several += [["bm3d", "a.tif", f"--{option}={address}"] for option in ("scheduler", "noise")]
    assert main(several[SECRETS.index(address) % len(several)]) == 4  # each in turn
    assert "ReT" not in "".join(capsys.readouterr())
    with pytest.raises(ClusterError) as refused, connected(address.rpartition("://")[2] + "@"):
        pass
    # Such as a proxy, a server, or where one leads to.
    with pytest.raises(FileError) as failed, input_checks.reading(store):
        raise ValueError(f"cannot reach {address.replace(chr(32), '%20')}")
    for error in (refused.value, failed.value):
        assert "ReT" not in "".join(traceback.format_exception(error))


def test_tracebacks_hold_no_secrets(capsys):
    try:
        raise RuntimeError(f"cannot reach {SECRETS[1]}") from KeyError(SECRETS[-2])
    except RuntimeError as error:
        complain(error)
    told = capsys.readouterr().err
    assert "RuntimeError" in told and "report it" in told and "ReT" not in told


@pytest.mark.parametrize(
    "address",
    [
        "s3://lab/12:30@room.zarr",
        "http://localhost:80/a@b.zarr",
        "abfs://box@lab.example.org/a.zarr",
        "C:/Users/a@b/c#1.lif",
    ],
)
def test_addresses_without_secrets_are_left_as_they_are(address):
    assert str(as_path(address)) == input_checks.printable(address) == address


@pytest.mark.parametrize(
    ("wanted", "shape"), [(None, (3, 4)), ((2, 3), (2, 3)), ((3, 5), (3, 4)), ((1, 3), (3, 4))]
)
def test_coarser_levels_may_leave_out_what_fills_no_block(wanted, shape):
    assert coarser_shape((5, 7), (2, 2), wanted) == shape


@pytest.fixture
def drops(monkeypatch, limits):
    """Return a function that lets so many readings of pixels fail, after those before."""
    from fsspec.implementations.memory import MemoryFileSystem

    limits(part_bytes=1)
    plain, failing = MemoryFileSystem.cat_file, []

    def cat(self, path, *given, **options):
        if "/c/" in path and failing and not failing.pop(0):
            raise ConnectionError("the network is gone")
        return plain(self, path, *given, **options)

    monkeypatch.setattr(MemoryFileSystem, "cat_file", cat)

    def let(before, count):
        failing[:] = [True] * before + [False] * count

    return let


def test_a_network_that_drops_is_one_sentence(memory, drops, monkeypatch):
    from fsspec.implementations.memory import MemoryFileSystem

    def gone(*_, **__):
        raise ConnectionError("the network is gone")

    url = write_store("memory://lab/in.ome.zarr", IMAGES["YX"], "YX", levels=1)
    for method, said in (("exists", r"in\.ome\.zarr.* cannot be reached: "), ("cat_file", "")):
        with monkeypatch.context() as context:
            context.setattr(MemoryFileSystem, method, gone)
            with pytest.raises(FileError, match=f"{said}the network is gone"):
                gd.read(url)


def test_a_network_that_stays_away_leaves_what_is_done(
    memory, drops, tmp_path, monkeypatch, limits
):
    limits(brief_seconds=0)
    url, out = "memory://lab/in.ome.zarr", tmp_path / "out.ome.zarr"
    write_store(url, IMAGES["ZYX"], "ZYX", levels=1, **PLANES)
    compared, parts = 3, 2
    drops(before=compared + parts, count=9)
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
    np.testing.assert_array_equal(gd.read(out).data, denoised("ZYX"))
