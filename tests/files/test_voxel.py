"""Voxel size of files, and how it comes into settings that ask for it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import nibabel
import numpy as np
import pytest
import tifffile

import napari_gpu_denoise as gd
from files.tiffs import GREY, noise, retagged
from napari_gpu_denoise.files import one_file
from napari_gpu_denoise.files.image_file import PixelMetadata
from napari_gpu_denoise.files.one_file import with_voxel
from napari_gpu_denoise.protocol.settings import setting

STACK = noise(4, 20, 24)
MICRONS = (1.5, 0.25, 0.2)


@dataclass(frozen=True)
class Volumes(gd.NLMeans):
    """A filter that asks for the size of voxels."""

    voxel: str = setting("", "voxel size z,y,x")


def ome(folder, **sizes):
    named = {f"PhysicalSize{name}": value for name, value in sizes.items()}
    path = folder / "in.ome.tif"
    tifffile.imwrite(path, STACK, ome=True, metadata={"axes": "ZYX", **named}, **GREY)
    return path


def imagej(folder, **told):
    path = folder / "in.tif"
    tifffile.imwrite(
        path, STACK, imagej=True, resolution=(5.0, 4.0), metadata={"axes": "ZYX", **told}, **GREY
    )
    return path


PIXELS = {"XUnit": "pixel", "YUnit": "pixel"}


@pytest.mark.parametrize(
    ("write", "told", "voxel"),
    [
        (ome, {"X": 0.2, "Y": 0.25, "Z": 1500, "ZUnit": "nm"}, MICRONS),
        (ome, {"X": 1, "Y": 1, "Z": 1500, **PIXELS, "ZUnit": "nm"}, None),
        (ome, {"X": 0.2, "Y": 0.25}, None),
        (ome, {"X": "wide", "Y": 0.25, "Z": 1.5}, None),
        *((imagej, {"spacing": 1.5, "unit": unit}, MICRONS) for unit in ("micron", "\\u00B5m")),
        (imagej, {"unit": "um"}, None),
    ],
)
def test_of_tiff(tmp_path, write, told, voxel):
    picture = gd.read(write(tmp_path, **told))
    assert picture.voxel == (None if voxel is None else pytest.approx(voxel))
    assert picture.voxel_unit == ("" if voxel is None else "µm")


def test_of_other_tiff_and_planes(tmp_path):
    path = imagej(tmp_path, spacing=2, unit="um")
    retagged(path, "XResolution", (0, 0))
    assert gd.read(path).voxel is None
    tifffile.imwrite(path, STACK, resolution=(300, 300), **GREY)
    assert gd.read(path).voxel is None
    nibabel.save(nibabel.Nifti1Image(STACK[0].T, np.eye(4)), tmp_path / "in.nii")
    assert gd.read(tmp_path / "in.nii").voxel is None


@pytest.mark.parametrize(
    ("steps", "code", "voxel", "unit"),
    [
        ((0.9, 0.9, 1.2), 2, (1.2, 0.9, 0.9), "mm"),
        ((0.9, -0.9, 1.2), 3, (1.2, 0.9, 0.9), "µm"),
        ((1, 1, 1), 0, (1, 1, 1), ""),
        ((1, 1, 0), 2, None, ""),
        ((1, np.nan, 1), 2, None, ""),
    ],
)
def test_of_nifti(tmp_path, steps, code, voxel, unit):
    path = tmp_path / "in.nii"
    nibabel.save(nibabel.Nifti1Image(STACK.T, np.eye(4)), path)
    data = bytearray(path.read_bytes())
    data[80:92], data[123] = np.array(steps, "<f4").tobytes(), code
    path.write_bytes(data)
    picture = gd.read(path)
    assert (picture.voxel, picture.voxel_unit) == (voxel, unit)


def test_an_empty_setting_is_filled_from_the_file(tmp_path, monkeypatch):
    path, seen = ome(tmp_path, X=0.2, Y=0.25, Z=1.5), []
    picture = gd.read(path)
    given = Volumes(voxel="1,1,1")
    assert with_voxel(given, picture) is given
    assert with_voxel(gd.NLMeans(), picture) == gd.NLMeans()
    unknown = replace(picture, pixel_metadata=PixelMetadata({}))
    assert with_voxel(Volumes(), unknown) == Volumes()

    def steps(image, run, **_):
        seen.append(run.filter)
        raise RuntimeError("far enough")

    monkeypatch.setattr(one_file, "denoise_image", steps)
    gd.run_batch(path, Volumes(patch=5), 5, output=tmp_path / "out.ome.tif")
    assert seen == [Volumes(patch=5, voxel="1.5,0.25,0.2")]


def test_results_of_a_filled_setting_are_resumed(tmp_path):
    path, target = ome(tmp_path, X=0.2, Y=0.25, Z=1.5), tmp_path / "out.ome.tif"
    same = Volumes(voxel="1.5,0.25,0.2")
    assert not gd.run_batch(path, Volumes(), 5, output=target).failed

    def resumed(filter):
        (file,) = gd.run_batch(path, filter, 5, output=target, resume=True).files
        return file

    assert "was kept" in resumed(Volumes()).skipped and "was kept" in resumed(same).skipped
    for other in (Volumes(voxel="1,1,1"), Volumes(patch=5)):
        assert "different filter or setting" in str(resumed(other).error)
