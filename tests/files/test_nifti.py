"""NIfTI in and out: voxels replaced, header and extensions as they were, damage named."""

from __future__ import annotations

import gzip
import io
import struct
from collections.abc import Callable
from pathlib import Path

import nibabel
import numpy as np
import pytest

import napari_gpu_denoise as gd
from files.contract import SETTINGS, FormatContract, SameWriter, apart, error_of, run
from napari_gpu_denoise.files import nifti
from napari_gpu_denoise.files.nifti import type_of_levels
from scenes import noisy

KINDS = {1: nibabel.Nifti1Image, 2: nibabel.Nifti2Image}
AFFINE = np.array([[-2, 0, 0, 90], [0, 1.25, 0.5, -126], [0, -0.5, 3, -72], [0, 0, 0, 1.0]])
HEADER = {
    "qform_code": 2, "sform_code": 3, "intent_code": 5, "intent_p1": 3.5, "intent_name": b"corr",
    "descrip": b"a scan", "aux_file": b"aux.nii", "cal_min": 3.0, "cal_max": 400.0,
    "slice_code": 3, "slice_start": 1, "slice_end": 2, "slice_duration": 0.5, "toffset": 7.0,
    "dim_info": 57, "quatern_b": 0.1, "qoffset_x": -90.0, "srow_x": [1, 2, 3, 4],
}  # fmt: skip


def voxels(*shape: int, dtype: str = "int16") -> np.ndarray:
    """Return an image, given by its shape as NumPy has it, in the order of a NIfTI file."""
    return noisy(*shape).astype(dtype).T


def saved(path: Path, image: np.ndarray, *, version: int = 1, order: str = "<", scaling=None):
    """Write a NIfTI file with all that a header may say; return the path."""
    header = KINDS[version].header_class(endianness=order)
    header.set_data_dtype(image.dtype)
    made = KINDS[version](image, AFFINE, header)
    made.header.set_xyzt_units("mm", "sec")
    for field, value in HEADER.items():
        made.header[field] = value
    if image.ndim > 3:
        made.header["pixdim"][4] = 1.5
    for code, text in ((6, b"by hand"), (4, b"<afni/>"), (44, b"private")):
        made.header.extensions.append(nibabel.nifti1.Nifti1Extension(code, text))
    nibabel.save(made, path)
    if scaling is not None:
        data = bytearray(path.read_bytes())
        at, letter = (112, "ff") if version == 1 else (176, "dd")
        struct.pack_into(order + letter, data, at, *scaling)
        path.write_bytes(data)
    return path


def stored(path: Path) -> np.ndarray:
    """Return what a file stores, in the order of NumPy."""
    return np.asarray(nibabel.load(path).dataobj.get_unscaled()).T


def scaling_of(path: Path) -> tuple[float, float]:
    """Return slope and intercept of a file."""
    held = nibabel.load(path).dataobj
    return held.slope, held.inter


@pytest.fixture
def without_index(monkeypatch):
    """Read compressed files as without indexed_gzip, whether it is installed or not."""
    monkeypatch.setattr(nifti, "_unpacked", lambda file: gzip.GzipFile(fileobj=file))


def lie(at: int, letters: str, *values) -> Callable[[Path], object]:
    """Return what changes the header of a file."""

    def change(path: Path) -> Path:
        data = bytearray(path.read_bytes())
        struct.pack_into("<" + letters, data, at, *values)
        path.write_bytes(data)
        return path

    return change


def lie_packed(path: Path) -> None:
    data = bytearray(gzip.decompress(path.read_bytes()))
    struct.pack_into(">4q", data, 16, 3, 900, 900, 900)
    path.write_bytes(gzip.compress(data))


class TestNifti1(FormatContract):
    ending, results = ".nii", (".nii", ".nii.gz")
    version, order = 1, "<"
    axes = ("YX", "ZYX", "TZYX")
    types = ("int16", *sorted(nifti.FORMAT.held["nifti"][1] - {"int16"}))
    steps = apart("millimeter", T=1.5, Z=3.041381, Y=1.346291, X=2.0)
    modules = ("nibabel", "nibabel.nifti1")
    lies = (
        ("cut short or damaged", lie(40, "8h", 3, 30000, 30000, 30000, 1, 1, 1, 1)),
        ("cut short or damaged", lie(42, "h", -7)),
        ("no pixels", lie(42, "h", 0)),
        ("has a single axis", lie(40, "2h", 1, 7)),
        ("pixels of type 1536", lie(70, "h", 1536)),
        ("holds colours", lie(70, "h", 128)),
        ("holds complex numbers", lie(70, "h", 32)),
        ("damaged", lie(108, "f", float("nan"))),
        ("damaged", lie(108, "f", -5.0)),
        ("cut short or damaged", lie(108, "f", 1e9)),
        ("invalid intercept", lie(112, "ff", 2.0, float("inf"))),
        ("a pair of files", lie(344, "4s", b"ni1")),
        ("not a NIfTI file", lie(344, "4s", b"none")),
    )

    def write(self, path, image, axes):
        saved(path, image.T, version=self.version, order=self.order)

    def check_kept(self, before, after):
        before, after = nibabel.load(before), nibabel.load(after)
        assert type(after) is KINDS[self.version] and after.header.endianness == self.order
        for field in before.header:
            if field != "vox_offset":
                np.testing.assert_array_equal(after.header[field], before.header[field], field)
        assert after.header["vox_offset"] % 16 == 0
        held = [(each.code, each.content) for each in after.header.extensions]
        assert held[:3] == [(each.code, each.content) for each in before.header.extensions]
        assert held[3][0] == 6


class TestNifti2(SameWriter, TestNifti1):
    """Of the other version, the other byte order, and compressed."""

    ending, results = ".nii.gz", (".nii.gz", ".nii")
    version, order, by_plane = 2, ">", False
    lies = ((r"declares \S+ GB of pixels but holds", lie_packed),)

    @pytest.fixture(autouse=True)
    def _without_index(self, without_index):
        """As without indexed_gzip."""


# --- what must survive ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "intent", "axes"),
    [
        ((6, 7), 0, "YX"),
        ((5, 6, 7), 0, "ZYX"),
        ((2, 1, 6, 7), 0, "TZYX"),
        ((3, 1, 5, 6, 7), 1007, "CTZYX"),
        ((3, 2, 5, 6, 7), 0, "QTZYX"),
        ((2, 1, 2, 5, 6, 7), 0, "VQTZYX"),
    ],
)
def test_axes_come_from_the_last_to_the_first(tmp_path, shape, intent, axes):
    image = voxels(*shape, dtype="uint8")
    made = nibabel.Nifti1Image(image, np.eye(4))
    made.header["intent_code"] = intent
    nibabel.save(made, tmp_path / "in.nii")
    picture = gd.read(tmp_path / "in.nii")
    assert picture.axes == axes
    np.testing.assert_array_equal(picture.data, image.T)
    assert gd.denoise(picture.data, SETTINGS, 0, axes=picture.filter_axes).image.shape == shape


def test_the_same_call_writes_the_same_bytes(tmp_path):
    picture = gd.read(saved(tmp_path / "in.nii", voxels(5, 6, 7)))
    for name in "ab":
        gd.write(tmp_path / f"{name}.nii.gz", picture.data, picture)
    assert (tmp_path / "a.nii.gz").read_bytes() == (tmp_path / "b.nii.gz").read_bytes()


# --- slope and intercept --------------------------------------------------------------------------


@pytest.mark.parametrize("version", KINDS)
def test_slope_and_intercept_are_applied(tmp_path, version):
    image = voxels(4, 20, 24)
    path = saved(tmp_path / "in.nii", image, version=version, scaling=(0.5, 100.0))
    levels = image.T * np.float32(0.5) + np.float32(100)
    picture = gd.read(path)
    assert picture.data.dtype == np.float32
    np.testing.assert_array_equal(picture.data, levels)
    expected = gd.denoise(levels, SETTINGS, 8, axes="ZYX").image

    options = {"output": tmp_path / "out.nii", "sigma": 8, "overwrite": True}
    file = run(path, **options)
    target = file.output
    assert scaling_of(target) == (1, 0)
    assert file.record.output_dtype == "float32" == stored(target).dtype
    np.testing.assert_array_equal(stored(target), expected)

    file = run(path, **options, dtype="same")  # as the grey levels
    assert scaling_of(target) == (1, 0) and file.record.output_dtype == "float32"
    np.testing.assert_array_equal(stored(target), expected)

    run(path, **options, dtype="int32")
    assert scaling_of(target) == (1, 0)
    np.testing.assert_array_equal(stored(target), np.rint(expected))


@pytest.mark.parametrize(
    ("dtype", "scaling", "levels"),
    [
        (">i2", None, "int16"),
        ("i2", (0.1, 0), "float32"),
        ("u1", (1, -0.5), "float32"),
        ("i2", (1e-3, 1e6), "float64"),
        ("i4", (0.5, 0), "float64"),
        ("f4", (3.0, 0), "float32"),
        ("f4", (3.0, 1), "float64"),
        ("f8", (3.0, 1), "float64"),
        ("i2", (1e36, 0), "float64"),
    ],
)
def test_type_of_scaled_values(dtype, scaling, levels):
    assert type_of_levels(np.dtype(dtype), scaling) == np.dtype(levels)


def test_no_scaling(tmp_path):
    for slope in (0.0, np.nan, 1.0):
        path = saved(tmp_path / "in.nii", voxels(3, 6, 7), scaling=(slope, 0.0))
        picture = gd.read(path)
        assert picture.data.dtype == np.int16
        gd.write(tmp_path / "out.nii", picture.data, picture, overwrite=True)
        after = nibabel.Nifti1Header((tmp_path / "out.nii").read_bytes()[:348])
        np.testing.assert_array_equal(after["scl_slope"], slope)


# --- time series ----------------------------------------------------------------------------------


def test_a_compressed_series_is_read_whole_unless_it_can_be_entered(
    tmp_path, streamed, without_index, monkeypatch
):
    image = voxels(5, 3, 20, 24)
    path = saved(tmp_path / "in.nii.gz", image)
    first = run(path, tmp_path / "first.nii").output
    assert not streamed

    def indexed(file):
        """Return what indexed_gzip gives: a file that can be entered anywhere."""
        unpacked = io.BytesIO(gzip.decompress(path.read_bytes()))
        unpacked.fobj = unpacked
        return unpacked

    monkeypatch.setattr(nifti, "_unpacked", indexed)
    second = run(path, tmp_path / "second.nii").output
    assert len(streamed) == 1
    np.testing.assert_array_equal(stored(second), stored(first))


def test_neighbours_are_noted(tmp_path):
    path, names = (
        saved(tmp_path / "in.nii.gz", voxels(6, 7)),
        ("json", "tsv", "mat"),
    )
    for name in names:
        (tmp_path / f"in.{name}").touch()
    assert all(f"in.{name}" in gd.read(path).notes[0] for name in names)


# --- damaged and foreign files --------------------------------------------------------------------


def test_a_wrong_checksum_is_damage(tmp_path):
    path = saved(tmp_path / "in.nii.gz", voxels(4, 9, 10))
    data = path.read_bytes()
    path.write_bytes(data[:-6] + bytes([data[-6] ^ 1]) + data[-5:])
    assert "is cut short or damaged" in error_of(path, lambda: gd.read(path))


def test_damaged_extensions_are_noted(tmp_path):
    path = lie(352, "i", 1 << 30)(saved(tmp_path / "in.nii", voxels(4, 9, 10)))
    picture = gd.read(path)
    assert any("extensions" in note for note in picture.notes)
    np.testing.assert_array_equal(picture.data, voxels(4, 9, 10).T)
