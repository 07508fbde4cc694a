"""Series of measurements in files: along which axis they lie, and what is kept."""

from __future__ import annotations

import json

import nibabel
import numpy as np
import pytest
import tifffile

import napari_gpu_denoise as gd
from measurements.test_subspace import noisy, scene
from napari_gpu_denoise import cli
from napari_gpu_denoise.files.one_file import Options, denoise_file
from scenes import SMALL_PARTS
from zarr_stores import write_store

SHAPE = (6, 24, 28)  # z, y, x


@pytest.fixture
def series(tmp_path):
    """A diffusion series of 10 volumes as NIfTI, int16, with its tables."""
    image = noisy(scene(10, SHAPE)).astype(np.int16)
    made = nibabel.Nifti1Image(image.T, np.diag([2, 2, 2.5, 1]))
    made.header["descrip"], made.header["pixdim"][4] = b"a scan", 3.5
    nibabel.save(made, tmp_path / "dwi.nii.gz")
    (tmp_path / "dwi.bval").write_bytes(b"0 0" + b" 1000" * 8 + b"\r\n")
    (tmp_path / "dwi.bvec").write_bytes(b"\n".join([b" ".join([b"0.577"] * 10)] * 3))
    return tmp_path / "dwi.nii.gz"


def command(*words) -> int:
    return cli.main(list(map(str, words)))


@pytest.mark.parametrize("linked", [False, True])
def test_nifti_keeps_header_and_tables(series, linked):
    tables = [series.with_name("dwi" + end) for end in (".bval", ".bvec")]
    if linked:  # from a folder without the tables
        link = series.parent / "links" / series.name
        link.parent.mkdir()
        link.symlink_to(series)
        series = link
    picture = gd.read(series)
    assert picture.axes == picture.filter_axes == "DZYX"
    target = series.with_name("clean.nii.gz")
    options = "--sigma", 20, "--profile", "fast", "--dtype", "same"
    assert command("subspace", series, "-o", target, *options) == 0
    before, after = map(nibabel.load, (series, target))
    assert before.header["descrip"] == after.header["descrip"]
    fields = set(before.header.keys()) - {"vox_offset"}
    assert all(before.header[name].tobytes() == after.header[name].tobytes() for name in fields)
    for table in tables:
        assert series.with_name("clean" + table.suffix).read_bytes() == table.read_bytes()
    wanted = gd.subspace(picture.pixels, 20, axes="DZYX", profile="fast", dtype="same")
    np.testing.assert_array_equal(np.asarray(after.dataobj).T, wanted)


def test_tables_that_are_links_to_elsewhere_are_not_copied(series, tmp_path_factory, capsys):
    table, secret = series.with_name("dwi.bvec"), tmp_path_factory.mktemp("other") / "secret"
    table.rename(secret)
    table.symlink_to(secret)
    options = "subspace", series, "-o", series.with_name("clean.nii"), "--sigma", 20
    assert command(*options, "--profile", "fast") == 4
    assert f"{table} is a link to {secret}" in capsys.readouterr().err
    assert not series.with_name("clean.bvec").exists()
    assert command(*options, "--profile", "fast", "--companions-anywhere") == 0
    assert series.with_name("clean.bvec").read_bytes() == secret.read_bytes()


def test_tables_that_are_there_are_not_replaced(series, capsys):
    table, target = series.with_name("clean.bval"), series.with_name("clean.nii")
    table.write_text("mine")
    options = "subspace", series, "-o", target, "--sigma", 20, "--profile", "fast"
    assert command(*options) == 5
    assert "clean.bval exists" in capsys.readouterr().err
    assert table.read_text() == "mine" and not target.exists()
    assert command(*options, "--overwrite") == 0
    assert table.read_bytes() == series.with_name("dwi.bval").read_bytes()


def test_a_series_without_table_is_time_until_it_is_named(series, capsys):
    series.with_name("dwi.bval").unlink()
    target = series.with_name("clean.nii")
    assert command("subspace", series, "-o", target, "--sigma", 20) == 2
    assert "--axes DZYX" in capsys.readouterr().err
    options = "--sigma", 20, "--axes", "DZYX", "--profile", "fast"
    assert command("subspace", series, "-o", target, *options) == 0


@pytest.mark.parametrize("ending", [".ome.tif", ".ome.zarr"])
def test_channels_of_other_files_are_measurements(tmp_path, ending):
    image = (noisy(scene(8, (24, 28))) + 200).astype(np.uint16)
    path, target = tmp_path / f"in{ending}", tmp_path / f"out{ending}"
    if ending == ".ome.tif":
        tifffile.imwrite(path, image, metadata={"axes": "CYX"}, photometric="minisblack")
    else:
        write_store(path, image, "CYX", "0.4", levels=1, chunks=(1, 24, 28))
    options = "--sigma", 20, "--profile", "fast", "--dtype", "same"
    assert command("subspace", path, "-o", target, *options) == 0
    wanted = gd.subspace(image, 20, axes="CYX", profile="fast", dtype="same")
    np.testing.assert_array_equal(np.asarray(gd.read(target).pixels), wanted)
    assert gd.read(target).history[-1]["filter"] == "subspace"


def test_large_files_are_filtered_by_slabs(series):
    run = gd.Run(gd.Subspace(filter_profile="fast"), 20.0, dtype=np.float32, limits=SMALL_PARTS)
    target = series.with_name("clean.nii")
    denoise_file(series, target, run, Options())
    wanted = gd.subspace(gd.read(series).pixels, 20, axes="DZYX", profile="fast", dtype=np.float32)
    np.testing.assert_allclose(gd.read(target).pixels, wanted, atol=0.02)


def test_a_large_series_over_time(tmp_path):
    image = (noisy(scene(16, (24, 28))) + 200).astype(np.uint16).reshape(2, 8, 24, 28)
    path, target = tmp_path / "in.tif", tmp_path / "out.tif"
    tifffile.imwrite(path, image, metadata={"axes": "TCYX"})
    run = gd.Run(gd.Subspace(filter_profile="fast"), 20.0, dtype=np.float32, limits=SMALL_PARTS)
    denoise_file(path, target, run, Options())
    wanted = gd.subspace(image, 20, axes="TCYX", profile="fast", dtype=np.float32)
    np.testing.assert_allclose(gd.read(target).pixels, wanted, atol=0.02)


def test_series_are_recommended_subspace(series, capsys):
    assert command("recommend", series, "--json") == 0
    (advice,) = json.loads(capsys.readouterr().out)
    assert advice["filter"] == "subspace" and "gpu-denoise subspace" in advice["command"]
    target = series.with_name("clean.nii")
    (file,) = gd.run_batch(series, gd.Recommended(), output=target).files
    assert file.error is None and gd.read(target).history[-1]["filter"] == "subspace"
    assert gd.recommend(noisy(scene(8)), "TYX").filter.name != "subspace"
