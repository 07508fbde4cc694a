"""Results at addresses that fsspec opens: complete, or named; of two runs one at most goes on.

A server of S3 is asked in test_s3.py.
"""

from __future__ import annotations

import threading

import numpy as np
import pytest

import napari_gpu_denoise as gd
from files.interrupted import PLAIN, Place
from napari_gpu_denoise.errors import FileError

pytest.importorskip("zarr", reason="zarr is not installed")
MemoryFileSystem = pytest.importorskip("fsspec.implementations.memory").MemoryFileSystem

pytestmark = pytest.mark.usefixtures("in_parts")
OUT = "/lab/out.ome.zarr"
CLAIM = f"{OUT}/.gpu-denoise-unfinished"


@pytest.fixture
def lab(memory):
    """Return a place in memory with an image of six parts."""
    place = Place("memory://lab", "address").write()
    place.system = memory
    return place


def heads(place):
    """Return the files directly in the result."""
    names = [each.removeprefix(f"{OUT}/") for each in place.system.find(OUT)]
    return [name for name in names if "/" not in name]


def check_whole(place):
    expected = gd.denoise(gd.read(place.input).data, PLAIN, 20.0, axes="ZYX").image
    np.testing.assert_array_equal(gd.read(place.output).data, expected)


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_no_program_opens_half_a_result(lab, monkeypatch, version):
    lab.write(version=version)

    def look(step):
        if step.done == 3:
            assert heads(lab) == [".gpu-denoise-unfinished"]
            with pytest.raises(FileError, match="holds no zarr"):
                gd.read(lab.output)

    assert lab.run(progress=look)[0].done
    assert heads(lab) == (["zarr.json"] if version == "0.5" else [".zattrs", ".zgroup"])
    assert gd.read(lab.output).pixel_metadata == gd.read(lab.input).pixel_metadata
    check_whole(lab)


def test_a_run_that_is_stopped_or_fails_leaves_nothing(lab):
    report, _ = lab.run(stop_at=3)
    assert report.cancelled and not report.notes and not lab.system.exists(OUT)
    file = lab.failure(progress=lambda step: lab.write() if step.done == 2 else None)
    assert "was changed during the run" in str(file.error) and not lab.system.exists(OUT)


def test_what_is_there_is_kept_or_overwritten(lab, monkeypatch):
    lab.run()
    assert "exists and was kept" in lab.run()[0].skipped[0].skipped
    assert "is complete" in lab.run(resume=True)[0].skipped[0].skipped
    assert "with a different sigma" in str(lab.failure(sigma=21.0, resume=True).error)
    assert lab.run(overwrite=True)[0].done
    lab.system.pipe_file("/lab/other.zarr/data", b"1")
    file = lab.failure(output="memory://lab/other.zarr", overwrite=True)
    assert "is not zarr: it is kept" in str(file.error)
    assert lab.system.exists("/lab/other.zarr/data")


@pytest.mark.parametrize("done", [2, 6])
def test_a_run_whose_place_another_takes_stops(lab, done):
    """Before it writes any more, and nothing of the other is removed."""
    file = lab.failure(
        progress=lambda step: lab.system.pipe_file(CLAIM, b"x") if step.done == done else None
    )
    assert "is written by another run: this one has stopped" in str(file.error) and not file.notes
    assert lab.system.cat_file(CLAIM) == b"x" and lab.system.exists(f"{OUT}/0/zarr.json")
    assert heads(lab) == [".gpu-denoise-unfinished"]


def test_of_two_runs_that_overwrite_the_later_goes_on(lab):
    """Its pixels are its own: the earlier one stops at its next part."""
    seen = []

    def again(step):
        if step.done == 3 and not seen:
            seen.append(lab.run(sigma=30.0, overwrite=True))

    file = lab.failure(progress=again)
    assert "this one has stopped" in str(file.error) and seen[0][0].done
    expected = gd.denoise(gd.read(lab.input).data, PLAIN, 30.0, axes="ZYX").image
    np.testing.assert_array_equal(gd.read(lab.output).data, expected)


def test_a_result_that_is_removed_during_the_run_is_no_success(lab):
    file = lab.failure(
        progress=lambda step: lab.system.rm(OUT, recursive=True) if step.done == 3 else None
    )
    assert "was removed or moved during the run" in str(file.error)


def test_a_network_that_stays_away_is_named(lab, monkeypatch):
    away, plain = threading.Event(), MemoryFileSystem.pipe_file

    def pipe(self, path, *given, **options):
        if away.is_set():
            raise ConnectionError("the network is gone")
        return plain(self, path, *given, **options)

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", pipe)
    file = lab.failure(progress=lambda step: away.set() if step.done == 3 else None)
    assert "the network is gone" in str(file.error)
