"""OME-Zarr on a server of S3: read, written, refused in words; nothing is left half written."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.cli import main
from napari_gpu_denoise.errors import FileError, OutputError
from napari_gpu_denoise.files import formats, resuming
from napari_gpu_denoise.files.resuming import RemoteCheckpoint, notes_on
from napari_gpu_denoise.files.zarr import Address
from napari_gpu_denoise.run import part as parts_of_images
from scenes import noisy, small
from zarr_stores import write_store

zarr = pytest.importorskip("zarr", reason="zarr is not installed")
s3fs = pytest.importorskip("s3fs", reason="s3fs is not installed")
server = pytest.importorskip("moto.server", reason="moto is not installed")

SETTINGS, IMAGE = small(gd.NLMeans), noisy(6, 50, 44, dtype="uint16")


@pytest.fixture(scope="module")
def address():
    """Return where a server answers."""
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    running.start()
    yield "http://{}:{}".format(*running.get_host_and_port())
    running.stop()


@pytest.fixture
def bucket(address, monkeypatch, tmp_path):
    """Return a file system with a bucket, which holds an image; credentials are in variables."""
    keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION")
    for name in keys:
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    monkeypatch.setattr(parts_of_images, "PART_BYTES", 1)
    s3fs.S3FileSystem.clear_instance_cache()
    system = s3fs.S3FileSystem()
    if system.exists("lab"):
        system.rm("lab", recursive=True)
    else:
        system.mkdir("lab")
    local = write_store(tmp_path / "in.ome.zarr", IMAGE, "TYX", chunks=(1, 50, 44))
    system.put(str(local), "lab/in.ome.zarr", recursive=True)
    return system


def done(source, target, **options):
    report = gd.run_batch(source, SETTINGS, 20.0, output=target, **options)
    for file in report.failed:
        raise file.error
    return report


def names(system, place="lab"):
    system.invalidate_cache()
    return sorted(name.rpartition("/")[2] for name in system.ls(place))


def test_from_a_server_to_a_server(bucket, tmp_path):
    expected = gd.denoise(IMAGE, SETTINGS, 20.0, axes="TYX").image
    done("s3://lab/in.ome.zarr", "s3://lab/out.ome.zarr")
    picture = gd.read("s3://lab/out.ome.zarr")
    np.testing.assert_array_equal(picture.data, expected)
    assert picture.history[-1]["filter"] == "nl_means"
    assert picture.pixel_metadata.steps["X"] == (0.2, "micrometer")
    for source, target in (
        ("s3://lab/in.ome.zarr", tmp_path / "here.ome.zarr"),
        (tmp_path / "in.ome.zarr", "s3://lab/there.ome.zarr"),
    ):
        done(source, target)
        np.testing.assert_array_equal(gd.read(target).data, expected)
    # A pattern, and a folder.
    assert main(["nl-means", "s3://lab/*t.ome.zarr", "-o", "s3://lab/new/", "--sigma", "20"]) == 0
    assert names(bucket, "lab/new") == ["out.ome.zarr"]
    found = formats.find_files("s3://lab")
    assert [each.name for each in found] == ["in.ome.zarr", "out.ome.zarr", "there.ome.zarr"]


def test_results_that_exist_and_inputs_are_kept(bucket):
    place = "s3://lab/in.ome.zarr"
    with pytest.raises(OutputError, match="is, or holds, an input"):
        done(place, place, overwrite=True)
    done(place, "s3://lab/out.ome.zarr")
    before = bucket.checksum("lab/out.ome.zarr/zarr.json")
    assert "was kept" in done(place, "s3://lab/out.ome.zarr").skipped[0].skipped
    assert "complete" in done(place, "s3://lab/out.ome.zarr", resume=True).skipped[0].skipped
    assert bucket.checksum("lab/out.ome.zarr/zarr.json") == before


def test_a_run_that_is_stopped_leaves_nothing(bucket, monkeypatch):
    monkeypatch.setattr(resuming, "_SECONDS", 600)  # of shorter runs nothing is kept
    cancel = threading.Event()

    def stop(state):
        if state.done == 2:
            assert "out.ome.zarr" in names(bucket)
            cancel.set()

    report = done("s3://lab/in.ome.zarr", "s3://lab/out.ome.zarr", progress=stop, cancel=cancel)
    assert report.cancelled
    assert names(bucket) == ["in.ome.zarr"]


@pytest.mark.skipif(os.name == "nt", reason="no SIGKILL")
def test_a_killed_run_is_resumed(bucket):
    script = (
        "import os, signal\n"
        "import napari_gpu_denoise as gd\n"
        "from napari_gpu_denoise.files import resuming\n"
        "from napari_gpu_denoise.run import part as parts_of_images\n"
        "from scenes import small\n"
        "parts_of_images.PART_BYTES, resuming._SHARE_OF_REPLACING = 1, float('inf')\n"
        "def progress(step):\n"
        "    if step.done == 4:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "gd.run_batch('s3://lab/in.ome.zarr', small(gd.NLMeans), 20.0,\n"
        "             output='s3://lab/out.ome.zarr', progress=progress)"
    )
    known = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ended = subprocess.run([sys.executable, "-c", script], env=known, check=False)
    assert ended.returncode == -9
    assert names(bucket, "lab/out.ome.zarr") == [".gpu-denoise-unfinished", "0"]
    (file,) = gd.run_batch(
        "s3://lab/in.ome.zarr", SETTINGS, 21.0, output="s3://lab/out.ome.zarr", resume=True
    ).failed
    assert "started with a different sigma" in str(file.error)
    begun = []
    done("s3://lab/in.ome.zarr", "s3://lab/out.ome.zarr", resume=True, progress=begun.append)
    assert min(each.done for each in begun if each.unit == "part") >= 3
    expected = gd.denoise(IMAGE, SETTINGS, 20.0, axes="TYX").image
    np.testing.assert_array_equal(gd.read("s3://lab/out.ome.zarr").data, expected)
    assert names(bucket, "lab/out.ome.zarr") == ["0", "1", "zarr.json"]


def test_a_server_lets_one_of_two_runs_write_the_lock(bucket, monkeypatch):
    """Though both found none: no wait is needed, and nothing is overwritten."""
    first, second = (notes_on(Address("s3://lab/out.ome.zarr")) for _ in range(2))
    monkeypatch.setattr(RemoteCheckpoint, "replace", lambda *_: pytest.fail("was overwritten"))
    assert first.acquire() and not second._take(None)
    assert first.holds() and not second.holds()
    first.close()
    assert names(bucket) == ["in.ome.zarr"]


def test_what_is_missing_is_said(bucket, monkeypatch):
    for place in ("s3://lab/no.ome.zarr", "s3://nowhere/in.ome.zarr"):
        with pytest.raises(FileError, match="is not there"):
            done(place, "s3://lab/out.ome.zarr")
    with pytest.raises(FileError, match="No OME-Zarr matches"):
        done("s3://lab/x*.ome.zarr", "s3://lab/out/")
    with pytest.raises(OutputError, match="bucket does not exist"):
        done("s3://lab/in.ome.zarr", "s3://nowhere/out.ome.zarr")
    bucket.rm("lab/in.ome.zarr/0/c/3", recursive=True)
    assert "1 of 6 chunks" in done("s3://lab/in.ome.zarr", "s3://lab/o.ome.zarr").files[0].notes[0]
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(FileError, match="cannot be reached: Unable to locate credentials"):
        done("s3://lab/in.ome.zarr", "s3://lab/out.ome.zarr")


def test_an_image_of_a_plate(bucket, tmp_path):
    plate = zarr.open_group(str(tmp_path / "plate.ome.zarr"), mode="w", zarr_format=3)
    plate.attrs["ome"] = {"version": "0.5", "plate": {"wells": [{"path": "A/1"}]}}
    well = plate.create_group("A/1")
    well.attrs["ome"] = {"version": "0.5", "well": {"images": [{"path": "0"}]}}
    write_store(tmp_path / "plate.ome.zarr" / "A" / "1" / "0", IMAGE[0], "YX", levels=1)
    bucket.put(str(tmp_path / "plate.ome.zarr"), "lab/plate.ome.zarr", recursive=True)
    done("s3://lab/plate.ome.zarr", "s3://lab/done/")
    assert names(bucket, "lab/done") == ["plate_A_1_0.ome.zarr"]
