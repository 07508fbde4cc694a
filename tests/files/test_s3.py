"""OME-Zarr on a server of S3: read, written, refused in words; nothing is left half written."""

from __future__ import annotations

import numpy as np
import pytest

import napari_gpu_denoise as gd
from files.contract import run
from files.interrupted import PLAIN, Place, check_killed
from napari_gpu_denoise.cli import main
from napari_gpu_denoise.errors import FileError, OutputError
from napari_gpu_denoise.files import formats
from scenes import noisy
from zarr_stores import write_plate, write_store

zarr = pytest.importorskip("zarr", reason="zarr is not installed")
s3fs = pytest.importorskip("s3fs", reason="s3fs is not installed")
server = pytest.importorskip("moto.server", reason="moto is not installed")

IMAGE = noisy(6, 50, 44, dtype="uint16")
IN, OUT = "s3://lab/in.ome.zarr", "s3://lab/out.ome.zarr"


@pytest.fixture(scope="module")
def address():
    """Return where a server answers."""
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    running.start()
    yield "http://{}:{}".format(*running.get_host_and_port())
    running.stop()


@pytest.fixture
def bucket(address, monkeypatch, limits, tmp_path):
    """Return a file system with a bucket, which holds an image; credentials are in variables."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")  # where it would wait for an answer
    limits(part_bytes=1)
    s3fs.S3FileSystem.clear_instance_cache()
    system = s3fs.S3FileSystem()
    if system.exists("lab"):
        system.rm("lab", recursive=True)
    else:
        system.mkdir("lab")
    local = write_store(tmp_path / "in.ome.zarr", IMAGE, "TYX", chunks=(1, 50, 44))
    system.put(str(local), "lab/in.ome.zarr", recursive=True)
    return system


def check(target):
    expected = gd.denoise(IMAGE, PLAIN, 20.0, axes="TYX").image
    np.testing.assert_array_equal(gd.read(target).data, expected)


def names(system, place="lab"):
    system.invalidate_cache()
    return sorted(name.rpartition("/")[2] for name in system.ls(place))


def test_from_a_server_to_a_server(bucket, tmp_path):
    here, there = tmp_path / "here.ome.zarr", "s3://lab/there.ome.zarr"
    for source, target in ((IN, OUT), (IN, here), (tmp_path / "in.ome.zarr", there)):
        run(source, target)
        check(target)
    picture = gd.read(OUT)
    assert picture.history[-1]["filter"] == "nl_means"
    assert picture.pixel_metadata.steps["X"] == (0.2, "micrometer")
    # A pattern, and a folder.
    assert main(["nl-means", "s3://lab/*t.ome.zarr", "-o", "s3://lab/new/", "--sigma", "20"]) == 0
    assert names(bucket, "lab/new") == ["out.ome.zarr"]
    found = formats.find_files("s3://lab")
    assert [each.name for each in found] == ["in.ome.zarr", "out.ome.zarr", "there.ome.zarr"]
    # An image of a plate.
    local = write_plate(tmp_path / "plate.ome.zarr", {"A/1/0": IMAGE[0]})
    bucket.put(str(local), "lab/plate.ome.zarr", recursive=True)
    run("s3://lab/plate.ome.zarr", "s3://lab/done/")
    assert names(bucket, "lab/done") == ["plate_A_1_0.ome.zarr"]


def test_what_a_killed_run_leaves_is_named_and_overwritten(bucket):
    place = Place("s3://lab", "address")
    check_killed(IN, OUT)
    assert names(bucket, "lab/out.ome.zarr") == [".gpu-denoise-unfinished", "0"]
    assert "exists and was kept" in place.run()[0].skipped[0].skipped
    assert "is no result" in str(place.failure(resume=True).error)
    run(IN, OUT, overwrite=True)
    check(OUT)
    assert names(bucket, "lab/out.ome.zarr") == ["0", "1", "zarr.json"]


def test_what_is_missing_is_said(bucket, monkeypatch):
    for source, target, kind, said in (
        ("s3://lab/no.ome.zarr", OUT, FileError, "is not there"),
        ("s3://nowhere/in.ome.zarr", OUT, FileError, "is not there"),
        ("s3://lab/x*.ome.zarr", "s3://lab/out/", FileError, "No OME-Zarr matches"),
        (IN, "s3://nowhere/out.ome.zarr", OutputError, "bucket does not exist"),
    ):
        with pytest.raises(kind, match=said):
            run(source, target)
    bucket.rm("lab/in.ome.zarr/0/c/3", recursive=True)
    assert "1 of 6 chunks" in run(IN, "s3://lab/o.ome.zarr").notes[0]
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(FileError, match="cannot be reached: Unable to locate credentials"):
        run(IN, OUT)
