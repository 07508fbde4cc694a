"""Voxel size of files, and how it comes into settings that ask for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace

import nibabel
import numpy as np
import pytest
import tifffile

import napari_gpu_denoise as gd
from files.tiffs import noise
from napari_gpu_denoise.errors import OutputError
from napari_gpu_denoise.files import formats, one_file
from napari_gpu_denoise.files.one_file import check_result, with_voxel
from napari_gpu_denoise.protocol.settings import setting

STACK = noise(4, 20, 24)
MICRONS = (1.5, 0.25, 0.2)


@dataclass(frozen=True)
class Anisotropic:
    """Stands in for the settings of a filter of volumes."""

    strength: float = 1.0
    voxel: str = ""
    name = "anisotropic"

    def as_dict(self):
        return {"strength": self.strength, "voxel": self.voxel}


@dataclass(frozen=True)
class Flat:
    """Stands in for the settings of a filter of planes."""

    strength: float = 1.0


def written(path, **options):
    tifffile.imwrite(path, STACK, photometric="minisblack", **options)
    return path


def ome(path, **sizes):
    named = {f"PhysicalSize{name}": value for name, value in sizes.items()}
    return written(path, ome=True, metadata={"axes": "ZYX", **named})


def imagej(path, resolution=(5.0, 4.0), **metadata):
    return written(path, imagej=True, resolution=resolution, metadata={"axes": "ZYX", **metadata})


def test_of_ome(tmp_path):
    path = ome(tmp_path / "in.ome.tif", X=0.2, Y=0.25, Z=1.5)
    assert (gd.read(path).voxel, gd.read(path).voxel_unit) == (MICRONS, "µm")
    units = {"XUnit": "µm", "YUnit": "µm", "ZUnit": "nm"}
    path = ome(tmp_path / "in.ome.tif", X=0.2, Y=0.25, Z=1500, **units)
    assert gd.read(path).voxel == pytest.approx(MICRONS)
    units = {"XUnit": "pixel", "YUnit": "pixel", "ZUnit": "nm"}
    assert gd.read(ome(tmp_path / "in.ome.tif", X=1, Y=1, Z=1500, **units)).voxel is None
    assert gd.read(ome(tmp_path / "in.ome.tif", X=0.2, Y=0.25)).voxel is None
    path = ome(tmp_path / "in.ome.tif", X="wide", Y=0.25, Z=1.5)
    assert gd.read(path).voxel is None


@pytest.mark.parametrize("unit", ["um", "micron", "\\u00B5m"])
def test_of_imagej(tmp_path, unit):
    path = imagej(tmp_path / "in.tif", spacing=1.5, unit=unit)
    assert gd.read(path).voxel == pytest.approx(MICRONS)
    assert gd.read(path).voxel_unit == "µm"


def test_imagej_without_all_three(tmp_path):
    assert gd.read(imagej(tmp_path / "in.tif", unit="um")).voxel is None
    path = imagej(tmp_path / "in.tif", spacing=2, unit="um")
    with tifffile.TiffFile(path, mode="r+") as tif:
        tif.pages.first.tags["XResolution"].overwrite((0, 0))
    assert gd.read(path).voxel is None


def test_of_plain_tiff_and_planes(tmp_path):
    assert gd.read(written(tmp_path / "in.tif", resolution=(300, 300))).voxel is None
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
    data[80:92] = np.array(steps, "<f4").tobytes()
    data[123] = code
    path.write_bytes(data)
    picture = gd.read(path)
    assert (picture.voxel, picture.voxel_unit) == (voxel, unit)


def test_an_empty_setting_is_filled_from_the_file(tmp_path):
    with formats.open_stack(ome(tmp_path / "in.ome.tif", X=0.2, Y=0.25, Z=1.5)) as picture:
        assert with_voxel(Anisotropic(2.0), picture) == Anisotropic(2.0, "1.5,0.25,0.2")
        given = Anisotropic(voxel="1,1,1")
        assert with_voxel(given, picture) is given
        assert with_voxel(Flat(), picture) == Flat()
        assert with_voxel(Anisotropic(), replace(picture, voxel=None)) == Anisotropic()


def test_a_run_gets_the_filled_setting(tmp_path, monkeypatch):
    path = ome(tmp_path / "in.ome.tif", X=0.2, Y=0.25, Z=1.5)
    seen = []

    @dataclass(frozen=True)
    class Volumes(gd.NLMeans):
        voxel: str = setting("", "voxel size z,y,x")

    def steps(image, run, **_):
        seen.append(run.filter)
        raise RuntimeError("far enough")

    monkeypatch.setattr(one_file, "denoise_steps", steps)
    gd.run_batch(path, Volumes(), 5, output=tmp_path / "out.ome.tif")
    assert seen == [Volumes(voxel="1.5,0.25,0.2")]


def test_results_of_a_filled_setting_are_resumed(tmp_path):
    path = ome(tmp_path / "in.ome.tif", X=0.2, Y=0.25, Z=1.5)
    picture, target = gd.read(path), tmp_path / "out.ome.tif"

    class Made:
        def as_dict(self):
            settings = Anisotropic(voxel="1.5,0.25,0.2").as_dict()
            return {"filter": "anisotropic", "settings": settings}

    gd.write(target, picture.data, picture, Made())
    asked = {"sigma": None, "noise": None, "correct": None, "sigma_factor": 1.0}
    check_result(target, SimpleNamespace(filter=Anisotropic(), **asked))
    same = Anisotropic(voxel="1.5,0.25,0.2")
    check_result(target, SimpleNamespace(filter=same, **asked))
    for other in (Anisotropic(voxel="1,1,1"), Anisotropic(2.0)):
        with pytest.raises(OutputError, match="is not a result"):
            check_result(target, SimpleNamespace(filter=other, **asked))
