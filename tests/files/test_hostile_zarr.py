"""OME-Zarr that lies: names and links that lead elsewhere, pipes instead of files."""

from __future__ import annotations

import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.errors import FileError, OutputError
from napari_gpu_denoise.files import inputs
from napari_gpu_denoise.files.zarr import Address, located
from scenes import noisy, small
from zarr_stores import write_store

zarr = pytest.importorskip("zarr", reason="zarr is not installed")

IMAGE, SETTINGS = noisy(20, 30, dtype="uint16"), small(gd.NLMeans)


@pytest.fixture(params=["folder", "address"])
def place(request, tmp_path):
    """A folder, and one at an address."""
    if request.param == "folder":
        yield tmp_path
        return
    fsspec = pytest.importorskip("fsspec")
    yield Address("memory://lab")
    fsspec.filesystem("memory").rm("/lab", recursive=True)


def group(place, **ome):
    """Make a group that says this of itself."""
    made = zarr.open_group(str(place), mode="a")
    made.attrs.update({"ome": {"version": "0.5", **ome}})
    return place


# From the folder of a well or an image: to "secret" beside the plate, and what could be.
OUTSIDE = ["../../../secret", "A/../../../../secret", "..", ".", "", "A//1", "/secret", "A/1/"]
OUTSIDE += ["..\\..\\..\\secret", "C:", "C:\\secret", "0::file:///secret", ".zattrs", None]


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("part", ["well", "image"])
def test_plates_with_names_of_places_elsewhere_are_refused_before_they_are_read(place, part, name):
    plate, told = place / "data" / "plate.zarr", {"well": {"images": [{"path": "0"}]}}
    wells = [{"path": name if part == "well" else "A/1"}]
    group(plate, plate={"wells": wells})
    group(plate / "A" / "1", well={"images": [{"path": name}]})
    # What is read of it raises another error.
    secret = group(place / "secret", **told)
    zarr.open_group(str(secret), mode="a").attrs.put({"ome": {"well": "read"}})
    with pytest.raises(FileError, match="which is no name of a folder in it"):
        inputs.find_files(str(plate))


@pytest.mark.parametrize("name", [each for each in OUTSIDE if each is not None])
def test_levels_elsewhere_are_neither_read_nor_written(place, name):
    path = located(write_store(place / "data" / "a" / "in.zarr", IMAGE, "YX"))
    secret = write_store(place / "secret", IMAGE, "YX") / "0"
    held = zarr.open_group(str(path), mode="a")
    ome = held.attrs["ome"]
    ome["multiscales"][0]["datasets"][0]["path"] = name
    held.attrs["ome"] = ome
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


def plate_of_one(place):
    group(place, plate={"wells": [{"path": "A/1"}]})
    group(place / "A" / "1", well={"images": [{"path": "0"}, {"path": "1"}]})
    for name in "01":
        write_store(place / "A" / "1" / name, IMAGE, "YX", levels=1)
    return place


@pytest.mark.parametrize("part", ["A", "A/1", "A/1/0"])
def test_plates_do_not_lead_out_by_links(tmp_path, part):
    """Neither what is read nor what is written; inside they may."""
    plate, out = plate_of_one(tmp_path / "plate.zarr"), tmp_path / "out.zarr"
    (out / part).parent.mkdir(parents=True)
    (tmp_path / "other").mkdir()
    linked(out / part, tmp_path / "other")
    with pytest.raises(OutputError, match=r"link to a place outside of .*out\.zarr"):
        gd.run_batch(plate, SETTINGS, 8, output=out, overwrite=True)
    assert not [*(tmp_path / "other").iterdir()]
    moved = (plate / part).rename((plate / part).with_name("moved"))
    linked(plate / part, moved)
    assert len(inputs.find_files(plate)) == 2
    (plate / part).unlink()
    linked(plate / part, moved.rename(tmp_path / "away"))
    with pytest.raises(FileError, match="is a link to a place outside of"):
        inputs.find_files(plate)
