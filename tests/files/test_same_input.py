"""Results that ``resume`` takes as done: those of the same input and request, in every format."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import tifffile

import napari_gpu_denoise as gd
from files import test_dicom, test_microscopes
from files.tiffs import handmade
from napari_gpu_denoise.files import one_file
from scenes import noisy, small
from zarr_stores import write_plate, write_store

SMALL = small(gd.NLMeans)
IMAGE = noisy(3, 24, 32).clip(0, 255).astype(np.uint8)


def tiff(path: Path) -> Path:
    tifffile.imwrite(path, IMAGE, metadata={"axes": "TYX"})
    return path


def ome_tiff_set(path: Path) -> Path:
    path.mkdir()
    return handmade(path)


#: Inputs of several files: how they are written, the file that is changed, and the result.
SETS = {
    "set": (ome_tiff_set, "1.ome.tif", "a.ome.tif"),
    "p.zarr": (lambda path: write_plate(path, {"A/1/0": IMAGE[0]}), "A/1/0/0/c/0/0", "b.zarr"),
    "head": (lambda path: test_dicom.series(path, IMAGE.astype("u2")), "IM7", "b.nii"),
}


def outcome(path, output, settings=SMALL, sigma=20.0, **options) -> str:
    """Run a batch of one file; return why it was skipped or failed, or ''."""
    options = {"output": output, "resume": True, **options}
    (file,) = gd.run_batch(path, settings, sigma, **options).files
    return str(file.error or "") or file.skipped


def change(path: Path) -> None:
    """Change one byte, but neither size nor time."""
    before, content = path.stat(), bytearray(path.read_bytes())
    content[-1 if path.suffix != ".gz" else 4] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("name", SETS)
def test_every_file_of_an_input_counts(tmp_path, name):
    """Digests only are kept: nothing of a patient, and no path."""
    write, member, result = SETS[name]
    path, output = write(tmp_path / name), tmp_path / result
    assert outcome(path, output, resume=False) == ""
    assert "is complete and was kept" in outcome(path, output)
    change(tmp_path / name / member)
    assert "was made with a different input: choose another name" in outcome(path, output)
    made = gd.read(output).history[-1]["made_from"]
    assert all(len(each) == 32 and int(each, 16) >= 0 for each in made.values())


def test_scenes_of_one_file_are_told_apart(tmp_path):
    path = test_microscopes.write_lif(tmp_path / "a.lif")
    output = tmp_path / "b.ome.tif"
    assert outcome(f"{path}#1", output) == ""
    assert "a different input" in outcome(f"{path}#2", output)
    assert "was kept" in outcome(f"{path}#1", output)


def test_of_large_files_samples_sizes_and_times_count(tmp_path, monkeypatch):
    monkeypatch.setattr(one_file, "_WHOLE", 0)
    path, output = tiff(tmp_path / "a.tif"), tmp_path / "b.tif"
    assert outcome(path, output) == "" and "was kept" in outcome(path, output)
    change(path)
    assert "a different input" in outcome(path, output)
    change(path)
    assert "was kept" in outcome(path, output)
    os.utime(path, ns=(1, 1))
    assert "a different input" in outcome(path, output)


def test_of_large_images_at_addresses_pixels_count_up_to_the_last(tmp_path, memory, monkeypatch):
    zarr = pytest.importorskip("zarr", reason="zarr is not installed")
    monkeypatch.setattr(one_file, "_WHOLE", 0)
    monkeypatch.setattr(one_file, "_SIDE", 8)
    address, output = "memory://lab/a.zarr", tmp_path / "b.zarr"
    write_store(address, IMAGE, "TYX", levels=1)
    assert outcome(address, output) == "" and "was kept" in outcome(address, output)
    zarr.open_array(f"{address}/0")[-1, -1, -1] ^= 1
    assert "a different input" in outcome(address, output)


MAPS = [np.where(np.arange(24)[:, None] < rows, np.full(32, 10.0), 30.0) for rows in (5, 20)]
PHOTONS = {"sigma": None, "noise": gd.PoissonGaussian(1.0, 20.0)}
#: What differs, and two requests, of which neither is a result of the other.
REQUESTS = [
    ("filter or setting", {}, {"settings": small(gd.NLMeans, strength=0.3)}),
    ("order of axes", {}, {"axes": "ZYX"}),
    ("type of the result", {}, {"dtype": "float32"}),
    ("handling of NaN", {}, {"nonfinite": "keep"}),
    ("correction", {"correct": "rows"}, {"correct": "columns"}),
    ("correction", {}, {"correct": "rows"}),
    ("sigma", {}, {"sigma_factor": 1.5}),
    ("sigma", {}, {"sigma": 21.0}),
    ("sigma", {}, {"sigma": None}),
    ("sigma", {"sigma": MAPS[0]}, {"sigma": MAPS[1]}),  # of equal extremes
    ("sigma and noise", {}, PHOTONS),
    ("noise", PHOTONS, {"sigma": None, "noise": gd.PoissonGaussian(1.0, 20.0, 1.0)}),
]


@pytest.mark.parametrize("number", range(len(REQUESTS)))
def test_a_result_is_that_of_one_request(tmp_path, number):
    path, output = tiff(tmp_path / "a.tif"), tmp_path / "b.tif"
    said, first, second = REQUESTS[number]
    for one, other in ((first, second), (second, first)):
        assert outcome(path, output, **one, resume=False, overwrite=True) == ""
        assert "is complete and was kept" in outcome(path, output, **one)
        assert f"was made with a different {said}: " in outcome(path, output, **other)


def test_equal_requests_are_equal(tmp_path):
    path, output = tiff(tmp_path / "a.tif"), tmp_path / "b.tif"
    assert outcome(path, output) == ""
    for same in ({"sigma": [20]}, {"sigma": None, "noise": 20}, {"axes": "tyx"}):
        assert "was kept" in outcome(path, output, **same)
    assert outcome(path, output, sigma=None, resume=False, overwrite=True) == ""
    assert "was kept" in outcome(path, output, sigma=None, noise="auto")


def test_a_result_of_another_version_is_refused(tmp_path, monkeypatch):
    path, output = tiff(tmp_path / "a.tif"), tmp_path / "b.tif"
    assert outcome(path, output) == ""
    monkeypatch.setattr(one_file, "package_version", lambda: "0.0.1")
    assert "a different version of this package" in outcome(path, output)


@pytest.mark.parametrize("made_from", [None, 5, "x", [], {}, {"input": ["a"]}, {"input": "0"}])
def test_a_record_that_a_stranger_has_changed_is_of_no_such_result(tmp_path, made_from):
    path, output = tiff(tmp_path / "a.tif"), tmp_path / "b.tif"
    assert outcome(path, output) == ""
    read = gd.read(output)
    record = {**read.history[-1], "made_from": made_from}
    gd.write(output, read.data, gd.read(path), [record], overwrite=True)
    said = outcome(path, output)
    assert "different input" in said if isinstance(made_from, dict) else "is no result" in said


@pytest.mark.parametrize(
    ("place", "name"), [(one_file, "fingerprint"), (one_file.ImageFile, "loaded")]
)
def test_a_file_that_grows_once_it_is_open_is_refused(tmp_path, monkeypatch, place, name):
    path, plain = tiff(tmp_path / "a.tif"), getattr(place, name)

    def growing(*given, **options):
        os.utime(path, ns=(1, 1))
        return plain(*given, **options)

    monkeypatch.setattr(place, name, growing)
    assert "was changed during the run" in outcome(path, tmp_path / "b.tif")
