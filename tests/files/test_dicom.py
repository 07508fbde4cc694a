"""DICOM in and out: files of scanners and series in folders; what is told of patients stays."""

from __future__ import annotations

import logging
import os
import struct
import subprocess
import sys
import warnings
import zlib
from collections import Counter
from pathlib import Path

import imagecodecs
import nibabel
import nibabel.nicom.dicomwrappers
import numpy as np
import pydicom
import pytest

import napari_gpu_denoise as gd
from files.contract import SETTINGS, FormatContract, apart, run
from files.tiffs import RECORD
from napari_gpu_denoise import cli
from napari_gpu_denoise.errors import FileError, ImageError, OutputError
from napari_gpu_denoise.files import dicom, formats
from scenes import noisy

SHIPPED = Path(pydicom.__file__).parent / "data" / "test_files"
MR, CT = "1.2.840.10008.5.1.4.1.1.4", "1.2.840.10008.5.1.4.1.1.2"
ULTRASOUND = "1.2.840.10008.5.1.4.1.1.3.1"
PATIENT = "Unheard^Of"
ROUNDED = "Fractions, if any, are rounded to {}, as the input holds."
# Elements that differ in a result; all others are as they were.
CHANGED = {
    *("SeriesInstanceUID", "SOPInstanceUID", "SourceImageSequence", "ImageType", "PixelData"),
    *("DerivationDescription", "SmallestImagePixelValue", "LargestImagePixelValue"),
}
COLOURS = {"PhotometricInterpretation", "PlanarConfiguration", "SamplesPerPixel"}


def saved(path: Path, pixels: np.ndarray, kind: str = MR, **elements) -> Path:
    """Write a DICOM file; frames are along the first axis of three."""
    held = pydicom.Dataset()
    held.file_meta = pydicom.dataset.FileMetaDataset()
    held.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    held.SOPClassUID, held.SOPInstanceUID = kind, pydicom.uid.generate_uid()
    held.SeriesInstanceUID = "1.2.3"
    held.PatientName, held.PatientID, held.StudyDate = PATIENT, "ZQ-0815", "20200229"
    held.Modality = {MR: "MR", CT: "CT", ULTRASOUND: "US"}[kind]
    held.ImageType = ["ORIGINAL", "PRIMARY", "AXIAL"]
    if pixels.ndim > 2:
        held.NumberOfFrames = len(pixels)
    held.Rows, held.Columns = pixels.shape[-2:]
    held.SamplesPerPixel, held.PhotometricInterpretation = 1, "MONOCHROME2"
    held.BitsAllocated = held.BitsStored = 8 * pixels.itemsize
    held.HighBit, held.PixelRepresentation = held.BitsStored - 1, int(pixels.dtype.kind == "i")
    held.add_new("PixelData", "OB" if pixels.itemsize == 1 else "OW", pixels.tobytes())
    for name, value in elements.items():
        setattr(held, name, value)
    held.save_as(path, enforce_file_format=True)
    return path


def series(folder: Path, image: np.ndarray, *, apart=2.5, lean=0.0, **elements) -> Path:
    """Write slices of a tilted volume as files whose names are in another order.

    Of a gantry that leans, each slice lies so many mm farther along y than the one before.
    """
    folder.mkdir()
    tilted = [1, 0, 0, 0, 0.8, 0.6]
    for z, pixels in enumerate(image):
        place = np.array([-100.0, 50.0, 10.0]) + z * apart * np.cross(tilted[:3], tilted[3:])
        place += z * lean * np.array(tilted[3:])
        own = {"ImagePositionPatient": place.tolist(), "ImageOrientationPatient": tilted}
        own |= {"PixelSpacing": [0.5, 0.25], "SliceThickness": 2, "InstanceNumber": z + 1}
        saved(folder / f"IM{(7 * z) % 10}", pixels, **{**own, **elements})
    return folder


def differing(before: Path, after: Path) -> set[str]:
    """Return the names of elements that differ between two files, but for ours."""
    one, two = pydicom.dcmread(before), pydicom.dcmread(after)
    tags = {each.tag for each in (*one, *two) if each.tag.group != 0x2115}
    return {pydicom.datadict.keyword_for_tag(tag) for tag in tags if one.get(tag) != two.get(tag)}


def changed(path: Path, **elements) -> None:
    held = pydicom.dcmread(path)
    for name, value in elements.items():
        setattr(held, name, value)
    held.save_as(path)


def lie(**elements):
    """Return what changes elements of a file, or of one of a series."""
    return lambda path: changed(path / "IM4" if path.is_dir() else path, **elements)


class TestDicom(FormatContract):
    """Frames of ultrasound, or grey levels of a scanner."""

    ending, results = ".dcm", (".dcm",)
    others = (".nii", ".nii.gz", ".ome.tif", ".ome.zarr")
    axes = ("YX", "YXS", "TYXS", "TYX")
    types = ("uint16", "uint8", "int16", "int32", "uint32", "int8")
    steps = apart("millimeter", T=0.04, Y=0.5, X=0.25)
    modules, rounding = ("pydicom", "pydicom.pixels"), 0.5
    lies = (
        ("holds less than the 3 frames", lie(Rows=60_000, Columns=60_000)),
        ("no valid slope", lie(RescaleSlope=0, RescaleIntercept=1)),
    )

    def write(self, path, image, axes):
        told = {"FrameTime": 40} if "T" in axes else {}
        if axes.endswith("S"):
            told |= {"SamplesPerPixel": 3, "PhotometricInterpretation": "RGB"}
            told |= {"PlanarConfiguration": 0, "PixelData": image.tobytes()}
            image = image[..., 0]
        saved(path, image, ULTRASOUND, PixelSpacing=[0.5, 0.25], **told)

    def check_kept(self, before, after):
        if before.is_dir():
            assert sorted(os.listdir(before)) == sorted(os.listdir(after))
        uids = set()
        for path in [before] if before.is_file() else before.iterdir():
            made = after if before.is_file() else after / path.name
            assert differing(path, made) <= CHANGED
            held, made = pydicom.dcmread(path), pydicom.dcmread(made)
            uids |= {made.SeriesInstanceUID, made.SOPInstanceUID, held.SOPInstanceUID}
            uids.add(held.SeriesInstanceUID)
            assert made.SOPInstanceUID == made.file_meta.MediaStorageSOPInstanceUID
            assert made.SourceImageSequence[0].ReferencedSOPInstanceUID == held.SOPInstanceUID
            assert made.ImageType[0] == "DERIVED"
        assert len(uids) == 2 + 2 * (len(os.listdir(before)) if before.is_dir() else 1)


class TestSeries(TestDicom):
    """The slices of a volume in a folder."""

    axes, types, damaged = ("ZYX",), ("uint16",), 3
    lies = (
        ("holds less than the 1 frames", lie(Rows=60_000, Columns=60_000)),
        ("without a valid position", lie(ImagePositionPatient=["nan"] * 3)),
        ("without a valid position", lie(ImagePositionPatient=["1e9", 0, 0])),
        ("without a valid position", lie(ImagePositionPatient=[1, 2])),
        ("without a valid position", lie(ImagePositionPatient=None)),
        ("without a valid position or orientation", lie(ImageOrientationPatient=[0] * 6)),
        ("differ in orientation", lie(ImageOrientationPatient=[0, 1, 0, 0, 0, 1])),
        ("differ in size", lie(PixelSpacing=[0.5, 0.5])),
        ("differ in size", lie(Rows=32, Columns=24)),
        ("declares 12 as HighBit", lie(HighBit=12)),
        ("holds 2 series of DICOM", lie(SeriesInstanceUID="1.2.4")),
    )
    misses_files = False  # the first or last slice, which nothing counts
    steps = apart("millimeter", Z=2.5, Y=0.5, X=0.25)

    def write(self, path, image, axes):
        series(path, image)


def test_all_files_of_pydicom_are_read_and_written_or_refused(tmp_path):
    """Those that it makes pixels of are grey levels or colours, others are named errors."""
    read = Counter()
    for path in sorted(each for each in SHIPPED.rglob("*") if dicom.is_dicom(each)):
        if path.is_dir():
            continue
        try:
            image = formats.read(path)
        except (FileError, ImageError) as error:
            said = str(error)
            assert said.endswith(".") and "\n" not in said
            if "1 as BitsAllocated" not in said and "Deflated" not in said:
                with (
                    pytest.raises((AttributeError, RuntimeError, ValueError)),
                    warnings.catch_warnings(),
                ):
                    warnings.simplefilter("ignore")
                    pydicom.pixels.pixel_array(path)
            continue
        held, stored = pydicom.dcmread(path), pydicom.pixels.pixel_array(path)
        if held.PhotometricInterpretation == "PALETTE COLOR":
            stored = pydicom.pixels.apply_color_lut(stored, held) >> 8
        elif "RescaleSlope" in held:
            stored = stored * float(held.RescaleSlope) + float(held.RescaleIntercept)
        expected = stored.astype(image.data.dtype)
        np.testing.assert_array_equal(image.data, expected, err_msg=path.name)
        read[image.axes] += 1
        if image.data.nbytes > 1 << 20:
            continue
        formats.write(tmp_path / "out.dcm", image.data, image, RECORD, overwrite=True)
        again = formats.read(tmp_path / "out.dcm")
        np.testing.assert_array_equal(again.data, image.data)
        assert again.history == (RECORD.as_dict(),)
        found = {n for n in differing(path, tmp_path / "out.dcm") if "PaletteColorLookup" not in n}
        # Lengths of groups, which are retired, have no name.
        assert found - CHANGED - {""} <= (COLOURS if image.axes.endswith("S") else set())
    assert {"YX", "YXS", "ZYX"} <= {*read}


# Elements of pixels that are sound or not, by what is chosen for each file.
CHOICES = {
    "BitsAllocated": [8, 16, 32],
    "PixelRepresentation": [0, 1],
    "SamplesPerPixel": [1, 1, 3],
    "NumberOfFrames": [None, 0, 1, 3],
    "syntax": ["1.2.840.10008.1.2", *["1.2.840.10008.1.2.1"] * 3, "1.2.840.10008.1.2.2"],
    "RescaleSlope": [None, None, 1, 0.5, -2],
    "RescaleIntercept": [None, 0, -1024],
    "ImageType": ["ORIGINAL", ["ORIGINAL", "PRIMARY"], [], None],
    "PixelSpacing": [[0.5, 0.25], [0.5], None, []],
    "WindowCenter": [40, [40, 50], None],
    "PixelPaddingValue": [None, 0],
    "SmallestImagePixelValue": [None, 0],
    "ImagePositionPatient": [[1, 2, 3], [1, 2], ["nan", 0, 0], None, []],
    "ImageOrientationPatient": [[1, 0, 0, 0, 1, 0], [0] * 6, [1, 0], None],
    "FrameTimeVector": [None, [0, 40, 40], 40],
}
# What makes a sound file another that no two programs read alike, and is refused for this reason.
SPOILT = {
    "HighBit": lambda held: held.HighBit + 1,
    "BitsStored": lambda held: held.BitsAllocated + 1,
    "BitsAllocated": lambda held: 64,
    "PixelRepresentation": lambda held: 2,
    "SamplesPerPixel": lambda held: 2,
    "PhotometricInterpretation": lambda held: "HSV",
    "Rows": lambda held: [held.Rows, held.Rows],
    "NumberOfFrames": lambda held: int(held.get("NumberOfFrames") or 1) + 1,
    "frames": lambda held: held.PixelData * 2,
    "FloatPixelData": lambda held: np.zeros((held.Rows, held.Columns), "f4").tobytes(),
    "RescaleSlope": lambda held: [1, 2],
}


def file_of_choices(path: Path, seed: int) -> tuple[pydicom.Dataset, np.random.Generator]:
    """Write a file of random sound elements; return them, too."""
    rng = np.random.default_rng(seed)
    chosen = {name: each[rng.integers(len(each))] for name, each in CHOICES.items()}
    bits, signed = chosen["BitsAllocated"], chosen["PixelRepresentation"]
    stored = int(rng.integers(1 + signed, bits + 1)) if chosen["SamplesPerPixel"] == 1 else bits
    colours = chosen["SamplesPerPixel"] == 3
    shape = (max(chosen["NumberOfFrames"] or 1, 1), *rng.integers(2, 8, 2), *[3] * colours)
    low = -(2 ** (stored - 1)) if signed else 0
    pixels = rng.integers(low, low + 2**stored, shape).astype(f"{'ui'[signed]}{bits // 8}")
    held = pydicom.dcmread(saved(path, pixels[0, ..., 0] if colours else pixels[0]))
    for name in ("BitsAllocated", "PixelRepresentation", "SamplesPerPixel"):
        setattr(held, name, chosen[name])
    held.BitsStored, held.HighBit = stored, stored - 1
    held.PhotometricInterpretation = f"MONOCHROME{rng.integers(1, 3)}"
    if colours:
        held.PlanarConfiguration = int(rng.integers(2))
        kinds = ["RGB", "YBR_FULL"] if bits == 8 and not signed else ["RGB"]
        held.PhotometricInterpretation = kinds[rng.integers(len(kinds))]
        pixels = np.moveaxis(pixels, -1, 1) if held.PlanarConfiguration else pixels
    held.file_meta.TransferSyntaxUID = pydicom.uid.UID(chosen["syntax"])
    little = held.file_meta.TransferSyntaxUID.is_little_endian
    content = pixels.astype(pixels.dtype.newbyteorder("<" if little else ">")).tobytes()
    held.PixelData = content + b"\0" * (len(content) % 2)
    held["PixelData"].VR = "OB" if bits == 8 else "OW"
    for name in ["NumberOfFrames", *list(CHOICES)[5:]]:
        if chosen[name] is not None:
            setattr(held, name, chosen[name])
        if name.endswith("Value") and name in held:
            held[name].VR = "SS" if signed else "US"
    return held, rng


def save_as(held: pydicom.Dataset, path: Path) -> None:
    syntax = held.file_meta.TransferSyntaxUID
    implicit, little = syntax.is_implicit_VR, syntax.is_little_endian
    pydicom.dcmwrite(path, held, implicit_vr=implicit, little_endian=little, overwrite=True)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.filterwarnings("ignore")
def test_pixels_are_those_of_pydicom(tmp_path, seed):
    """Whatever the elements; and what a result keeps of them is the same."""
    path, target = tmp_path / "a.dcm", tmp_path / "b.dcm"
    for number in range(20):
        held, rng = file_of_choices(path, 100 * seed + number)
        save_as(held, path)
        expected = pydicom.dcmread(path).pixel_array
        if held.SamplesPerPixel == 1:
            slope, inter = held.get("RescaleSlope", 1), held.get("RescaleIntercept", 0)
            expected = expected * float(slope) + float(inter)
        image = formats.read(path)
        np.testing.assert_allclose(image.data, expected, rtol=1e-6, err_msg=str(held))
        formats.write(target, image.data, image, overwrite=True)
        np.testing.assert_array_equal(formats.read(target).data, image.data)
        free = COLOURS if image.axes[-1] == "S" else set()
        if "nan" in str(held.get("ImagePositionPatient")):
            free = free | {"ImagePositionPatient"}
        assert differing(path, target) <= CHANGED | free
        assert pydicom.dcmread(target).ImageType[:2] == ["DERIVED", "PRIMARY"]
        spoilt = list(SPOILT)[rng.integers(len(SPOILT))]
        value = SPOILT[spoilt](held)
        setattr(held, {"frames": "PixelData"}.get(spoilt, spoilt), value)
        save_as(held, path)
        if spoilt == "RescaleSlope" and held.SamplesPerPixel == 3:
            continue
        with pytest.raises((FileError, ImageError), match=spoilt) as refused:
            formats.read(path)
        assert "damaged" not in str(refused.value)


def test_a_series_becomes_a_series(tmp_path):
    image = noisy(5, 24, 20).astype("int16")
    folder = series(tmp_path / "1.2.840.7", image, RescaleSlope=0.5, RescaleIntercept=-10)
    read = formats.read(folder)
    np.testing.assert_array_equal(read.data, image * np.float32(0.5) - 10)
    (file,) = gd.run_batch(folder, SETTINGS, 20, output=tmp_path / "out").files
    assert file.output == tmp_path / "out" / "1.2.840.7.dcm"
    made = gd.denoise(read.data, SETTINGS, 20).image
    # Half a step of the slope.
    np.testing.assert_allclose(formats.read(file.output).data, made, atol=0.251)
    # A pattern finds it too, and its files only as part of it.
    (tmp_path / "empty").mkdir()
    assert formats.find_files(tmp_path / "1*") == [folder]
    both = gd.run_batch([tmp_path / "1*", folder / "*"], SETTINGS, 20, output=tmp_path / "both")
    assert (len(both.done), len(both.skipped)) == (1, 5)
    # Again, in its place, and a folder of anything else is kept.
    gd.run_batch(folder, SETTINGS, 20, output=file.output, overwrite=True)
    (file.output / "notes.txt").write_text("mine")
    kept = gd.run_batch(folder, SETTINGS, 20, output=file.output, overwrite=True).failed
    assert "series of DICOM, and is kept" in str(kept[0].error)


@pytest.mark.parametrize("lean", [0.0, 0.7])
def test_a_series_as_nifti_lies_where_it_was(tmp_path, lean):
    image = noisy(4, 24, 20).astype("uint16")
    folder = series(tmp_path / "head", image, lean=lean)
    file = run(folder, tmp_path / "head.nii.gz", dtype="same")
    made = nibabel.load(file.output)
    assert made.shape == (20, 24, 4)
    first = min(folder.iterdir(), key=lambda each: pydicom.dcmread(each).InstanceNumber)
    # nibabel's own reader of DICOM: of (row, column), with positions to the left and back (LPS).
    lps = nibabel.nicom.dicomwrappers.wrapper_from_file(first).affine
    turned = np.diag([-1, -1, 1, 1]) @ lps[:, [1, 0, 2, 3]]
    np.testing.assert_allclose(made.affine[:, [0, 1, 3]], turned[:, [0, 1, 3]], atol=1e-5)
    # Of one slice nibabel cannot know which side the next is on.
    last = max(folder.iterdir(), key=lambda each: pydicom.dcmread(each).InstanceNumber)
    there = np.array([*pydicom.dcmread(last).ImagePositionPatient, 1]) * [-1, -1, 1, 1]
    np.testing.assert_allclose(made.affine @ [0, 0, 3, 1], there, atol=1e-5)
    assert made.header.get_zooms() == pytest.approx((0.25, 0.5, np.hypot(2.5, lean)))
    assert formats.read(file.output).history[-1] == file.record.as_dict()


def test_ultrasound_clip(tmp_path):
    region = pydicom.Dataset()
    region.PhysicalUnitsXDirection = region.PhysicalUnitsYDirection = 3
    region.PhysicalDeltaX, region.PhysicalDeltaY = 0.02, 0.03
    elements = {"SequenceOfUltrasoundRegions": [region], "FrameTime": 40}
    image = noisy(6, 24, 20).astype("uint8")
    path = saved(tmp_path / "clip.dcm", image, ULTRASOUND, **elements)
    with formats.open_stack(path) as read:
        assert read.axes == "TYX"
        np.testing.assert_array_equal(read.data[3], image[3])
        steps = read.pixel_metadata.steps
    assert steps["T"] == (40, "millisecond")
    assert (steps["Y"][0], steps["X"][0]) == (pytest.approx(0.3), pytest.approx(0.2))
    target = run(path, tmp_path / "out.dcm").output
    assert differing(path, target) <= CHANGED
    # Weak noise, for which other formats hold fractions.
    weak = run(path, tmp_path / "weak.dcm", sigma=1.0).record
    assert weak.output_dtype == "uint8" and not any("float32" in note for note in weak.notes)
    assert run(path, tmp_path / "weak.nii", sigma=1.0).record.output_dtype == "float32"
    (note,) = gd.write(tmp_path / "fractions.dcm", image + 0.25, formats.read(path))
    assert note == ROUNDED.format("uint8")
    for name in ("weak.dcm", "weak.nii", "fractions.dcm"):
        (tmp_path / name).unlink()
    # A folder of clips holds images of their own.
    saved(tmp_path / "other.dcm", image, ULTRASOUND)
    target.unlink()
    assert [each.name for each in formats.find_files(tmp_path)] == ["clip.dcm", "other.dcm"]


def test_tables_of_colours_give_eight_bits(tmp_path):
    table = np.linspace(0, 255, 128).astype(np.uint8)
    names = {each: table.tobytes() for each in ("Red", "Green", "Blue")}
    elements = {f"{n}PaletteColorLookupTableData": each for n, each in names.items()}
    elements |= {f"{n}PaletteColorLookupTableDescriptor": [128, 0, 8] for n in names}
    elements |= {"PhotometricInterpretation": "PALETTE COLOR", "BitsStored": 7, "HighBit": 6}
    image = np.clip(noisy(24, 20), 0, 127).astype(np.uint8)
    path = saved(tmp_path / "a.dcm", image, ULTRASOUND, **elements)
    read = formats.read(path)
    np.testing.assert_array_equal(read.data, np.repeat(table[image][..., None], 3, axis=-1))
    assert formats.write(tmp_path / "b.dcm", read.data, read) == ()
    made = pydicom.dcmread(tmp_path / "b.dcm")
    np.testing.assert_array_equal(made.pixel_array, read.data)
    assert (made.BitsStored, made.PhotometricInterpretation) == (8, "RGB")


def test_enhanced_files_tell_of_each_frame(tmp_path):
    frames = []
    for z in (3, 0, 6):  # in mm
        frame, place, scale = (pydicom.Dataset() for _ in range(3))
        place.ImagePositionPatient = [0, 0, z]
        scale.RescaleSlope, scale.RescaleIntercept = 1 + z, 0
        frame.PlanePositionSequence, frame.PixelValueTransformationSequence = [place], [scale]
        frames.append(frame)
    shared, measures, turned = (pydicom.Dataset() for _ in range(3))
    measures.PixelSpacing, turned.ImageOrientationPatient = [0.5, 0.5], [1, 0, 0, 0, 1, 0]
    shared.PixelMeasuresSequence, shared.PlaneOrientationSequence = [measures], [turned]
    groups = {"SharedFunctionalGroupsSequence": [shared]}
    groups["PerFrameFunctionalGroupsSequence"] = frames
    image = noisy(3, 24, 20).astype("uint16")
    path = saved(tmp_path / "enhanced.dcm", image, **groups)
    read = formats.read(path)
    assert (read.axes, read.voxel) == ("ZYX", (3, 0.5, 0.5))
    expected = image[[1, 0, 2]] * np.array([1, 4, 7], "f4")[:, None, None]
    np.testing.assert_array_equal(read.data, expected)
    formats.write(tmp_path / "out.dcm", read.data, read)
    assert pydicom.dcmread(tmp_path / "out.dcm").PixelData == image.tobytes()


def test_times_and_echoes(tmp_path):
    folder = tmp_path / "fmri"
    image = noisy(6, 24, 20).astype("uint16").reshape(3, 2, 24, 20)
    shared = {"EchoTime": 5, "FrameTime": 40}
    for t in range(3):
        series(tmp_path / f"{t}", image[t], TemporalPositionIdentifier=3 - t, **shared)
    folder.mkdir()
    for each in tmp_path.glob("?/*"):
        each.rename(folder / f"{each.parent.name}{each.name}")
    read = formats.read(folder)
    assert (read.axes, read.notes) == ("TZYX", ())
    assert read.pixel_metadata.steps["T"] == (40, "millisecond")
    np.testing.assert_array_equal(read.data, image[::-1])
    changed(folder / "0IM0", EchoTime=7)
    read = formats.read(folder)
    assert read.axes == "QZYX" and "differ in echo" in read.notes[0]
    assert "T" not in read.pixel_metadata.steps
    (folder / "0IM0").unlink()
    with pytest.raises(FileError, match=r"1 of 2 positions in .* slices are missing"):
        formats.read(folder)


def test_mosaics_and_directions_of_diffusion_are_no_slices(tmp_path):
    image = noisy(2, 24, 20).astype("uint16")
    kind = ["ORIGINAL", "PRIMARY", "DIFFUSION", "MOSAIC"]
    folder = series(tmp_path / "mosaics", image, ImageType=kind)
    read = formats.read(folder)
    assert read.axes == "TYX" and "side by side in a plane (mosaic)" in read.notes[0]
    changed(folder / "IM0", DiffusionGradientOrientation=[0, 0, 1])
    assert formats.read(folder).axes == "QYX"
    # Nor are tiles of a slide.
    tiles = saved(tmp_path / "a.dcm", image.astype("uint8"), Modality="SM")
    read = formats.read(tiles)
    gd.write(tmp_path / "a.tif", read.data, read)
    assert read.axes == formats.read(tmp_path / "a.tif").axes == "QYX"


def test_grids_of_dose_become_nifti(tmp_path):
    apart = {"GridFrameOffsetVector": [0, 5, 10], "Modality": "RTDOSE", "PixelSpacing": [2, 2]}
    apart |= {"ImagePositionPatient": [1, 2, 3], "ImageOrientationPatient": [1, 0, 0, 0, 1, 0]}
    path = saved(tmp_path / "a.dcm", noisy(3, 24, 20).astype("uint16"), **apart)
    assert formats.read(path).voxel == (5, 2, 2)
    held = pydicom.dcmread(path)
    del held.GridFrameOffsetVector  # all frames at one place
    held.save_as(path)
    made = nibabel.load(run(path, tmp_path / "a.nii").output)
    np.testing.assert_array_equal(made.affine @ [0, 0, 1, 1], [-1, -2, 4, 1])
    assert (made.header["sform_code"], made.header["qform_code"]) == (1, 1)
    del held.ImagePositionPatient  # where the image lay is not known
    held.save_as(path)
    made = nibabel.load(run(path, tmp_path / "b.nii").output)
    assert (made.header["sform_code"], made.header["qform_code"]) == (0, 0)
    assert made.header.get_zooms()[:2] == (2, 2)


def encoded(path: Path, syntax: str, frames: list[bytes], pixels: np.ndarray, **elements) -> None:
    """Write a DICOM file of compressed frames."""
    held = pydicom.dcmread(saved(path, pixels, **elements))
    held.file_meta.TransferSyntaxUID = pydicom.uid.UID(f"1.2.840.10008.1.2.{syntax}")
    held.PixelData = pydicom.encaps.encapsulate(frames)
    held["PixelData"].VR = "OB"
    held.save_as(path)


LARGE = """
import sys, pathlib
from napari_gpu_denoise.files import dicom, formats
import imagecodecs, pydicom.pixels
def peak():
    return int(pathlib.Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) >> 10
formats.read(sys.argv[1])
before = peak()
for path in map(pathlib.Path, sys.argv[2:]):
    try:
        dicom.is_dicom(path.parent), formats.find_files(path.parent), formats.read(path)
        print("read")
    except formats.FileError:
        pass
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="peak of memory is read from /proc")
def test_no_more_is_decoded_than_is_declared(tmp_path):
    """Whatever a frame declares, and whatever a file inflates to."""
    large, image = np.zeros((7000, 7000), np.uint8), noisy(24, 20).astype("uint8")
    boxed = imagecodecs.jpeg2k_encode(large, codecformat="jp2", reversible=True)
    syntaxes = {"4.91": boxed, "4.90": boxed.partition(b"jp2c")[2]}
    syntaxes["4.50"] = imagecodecs.jpeg8_encode(large)
    syntaxes["4.70"] = imagecodecs.jpeg8_encode(large, lossless=True)
    syntaxes["4.80"] = imagecodecs.jpegls_encode(large)
    syntaxes["5"] = struct.pack("<16L", 1, 64, *[0] * 14) + b"\x81\0" * 1_000_000
    del large
    paths = []
    for syntax, frame in syntaxes.items():
        (tmp_path / syntax).mkdir()
        paths.append(tmp_path / syntax / "a.dcm")
        encoded(paths[-1], syntax, [frame], image)
    path = saved(tmp_path / "whole.dcm", image)
    (tmp_path / "deflated").mkdir()
    paths.append(tmp_path / "deflated" / "a.dcm")
    held = pydicom.dcmread(path)
    held.file_meta.TransferSyntaxUID = pydicom.uid.DeflatedExplicitVRLittleEndian
    held.save_as(paths[-1])
    content, packer = paths[-1].read_bytes(), zlib.compressobj(1, zlib.DEFLATED, -15)
    zeros = [packer.compress(bytes(1 << 24)) for _ in range(4)]
    head = 144 + int.from_bytes(content[140:144], "little")
    paths[-1].write_bytes(content[:head] + b"".join([*zeros, packer.flush()]))
    command = [sys.executable, "-c", LARGE, str(path), *map(str, paths)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert "read" not in said and int(said[-1]) < 40  # MiB
    with pytest.raises(
        FileError, match="stored as Deflated Explicit VR Little Endian, not decoded"
    ):
        formats.read(paths[-1])


@pytest.mark.parametrize(("syntax", "codec"), [("201", "htj2k"), ("57", "ljpeg")])
def test_other_codecs_of_jpeg(tmp_path, syntax, codec):
    image, options = noisy(24, 20).astype("uint16"), {"reversible": True} if codec[0] == "h" else {}
    if not getattr(getattr(imagecodecs, codec.upper(), None), "available", False):
        pytest.skip(f"this imagecodecs has no {codec}")
    frame = getattr(imagecodecs, f"{codec}_encode")(image, **options)
    encoded(tmp_path / "a.dcm", f"4.{syntax}", [frame], image)
    np.testing.assert_array_equal(formats.read(tmp_path / "a.dcm").data, image)


def rle_frame(path: Path) -> bytes:
    held = pydicom.dcmread(path)
    held.compress(pydicom.uid.RLELossless)
    return pydicom.encaps.get_frame(held.PixelData, 0, number_of_frames=1)


@pytest.mark.parametrize("kind", ["RGB", "YBR_FULL"])
@pytest.mark.parametrize("syntax", ["5", "4.50", "4.70", "4.80", "4.90"])
def test_compressed_colours_are_those_of_pydicom(tmp_path, syntax, kind):
    """Also if it lacks a decoder, as of the same pixels that are not compressed."""
    image = np.clip(noisy(24, 20, 3), 0, 255).astype("uint8")
    elements = {"SamplesPerPixel": 3, "PhotometricInterpretation": kind, "PlanarConfiguration": 0}
    whole = {**elements, "PixelData": image.tobytes()}
    plain = saved(tmp_path / "a.dcm", image[..., 0], **whole)
    space = dict.fromkeys(("colorspace", "outcolorspace"), "RGB" if kind == "RGB" else "YCBCR")
    encode = {
        "5": lambda: rle_frame(plain),
        "4.50": lambda: imagecodecs.jpeg8_encode(image, 100, subsampling="444", **space),
        "4.70": lambda: imagecodecs.jpeg8_encode(image, lossless=True, **space),
        "4.80": lambda: imagecodecs.jpegls_encode(image),
        "4.90": lambda: imagecodecs.jpeg2k_encode(
            image, codecformat="j2k", reversible=True, mct=False
        ),
    }[syntax]()
    encoded(tmp_path / "b.dcm", syntax, [encode], image[..., 0], **elements)
    expected = pydicom.dcmread(plain).pixel_array.astype(int)
    found = formats.read(tmp_path / "b.dcm").data.astype(int)
    assert np.abs(found - expected).max() <= (8 if syntax == "4.50" else 0)


def test_links_out_of_a_series_are_not_followed(tmp_path):
    image = noisy(4, 24, 20).astype("uint16")
    folder, other = series(tmp_path / "head", image), tmp_path / "other"
    other.mkdir()
    (folder / "IM1").rename(other / "secret")
    (folder / "IM1").symlink_to(other / "secret")
    with pytest.raises(FileError, match="outside of") as refused:
        formats.read(folder)
    assert refused.value.code == "link-outside"
    with formats.open_stack(folder, companions_anywhere=True) as read:
        np.testing.assert_array_equal(read.data, image)
    # A folder of nothing but links, as data sets under version control have.
    links = tmp_path / "links.dcm"
    links.mkdir()
    for number, each in enumerate(folder.iterdir()):
        (links / f"{number}.dcm").symlink_to(each)
    assert formats.find_files(links) == [links]
    with pytest.raises(FileError, match="outside of"):
        formats.read(links)
    # An existing result is replaced only if all in it is its own.
    with pytest.raises(OutputError, match="is kept"):
        formats.write(links, read.data, formats.read(series(tmp_path / "x", image)), overwrite=True)


def test_slices_that_are_there_twice(tmp_path):
    folder = series(tmp_path / "head", noisy(4, 24, 20).astype("uint16"))
    (folder / "copy").write_bytes((folder / "IM4").read_bytes())
    with pytest.raises(FileError, match=r"the same image twice .* remove IM4 or copy"):
        formats.read(folder)
    changed(folder / "copy", SOPInstanceUID="1.2.3.4")
    with pytest.raises(FileError, match=r"1 of 4 positions .* more images .* such as IM4 or copy"):
        formats.read(folder)


def test_frames_of_several_orientations_are_refused(tmp_path):
    groups = [pydicom.Dataset() for _ in range(3)]
    for k, group in enumerate(groups):
        plane, turned = pydicom.Dataset(), pydicom.Dataset()
        plane.ImagePositionPatient = [0, 0, k]
        turned.ImageOrientationPatient = [1, 0, 0, 0, 1, 0] if k < 2 else [0, 1, 0, 0, 0, 1]
        group.PlanePositionSequence, group.PlaneOrientationSequence = [plane], [turned]
    image = noisy(3, 24, 20).astype("uint16")
    path = saved(tmp_path / "a.dcm", image, PerFrameFunctionalGroupsSequence=groups)
    with pytest.raises(ImageError, match="differ in orientation"):
        formats.read(path)
    del groups[2].PlaneOrientationSequence[0].ImageOrientationPatient
    groups[2].PlanePositionSequence[0].ImagePositionPatient = ["nan", 0, 0]
    groups[2].PlaneOrientationSequence = groups[0].PlaneOrientationSequence
    saved(path, image, PerFrameFunctionalGroupsSequence=groups)
    with pytest.raises(FileError, match="without a valid position"):
        formats.read(path)


def test_gaps_and_values_beyond_are_told(tmp_path):
    folder = series(tmp_path / "head", noisy(5, 24, 20).astype("uint16"), BitsStored=12, HighBit=11)
    (folder / "IM1").unlink()  # the fourth
    held = pydicom.dcmread(folder / "IM4")
    held.add_new((0x6002, 0x0102), "US", 12)  # the bit of an overlay
    held.save_as(folder / "IM4")
    read = formats.read(folder)
    assert "Slices 3 and 4 are 5 mm apart, most others 2.5 mm" in " ".join(read.notes)
    assert "Overlays in unused bits of the pixels are not kept." in read.notes
    notes = formats.write(tmp_path / "out.dcm", read.data + np.float32(5000), read)
    assert notes == (
        f"{4 * 24 * 20} values are beyond what the 12 bits of the input hold, and became the "
        "nearest that they do.",
        ROUNDED.format("uint16"),
    )
    assert formats.read(tmp_path / "out.dcm").data.max() == 4095


def test_files_without_a_decoder_or_a_preamble(tmp_path):
    path = saved(tmp_path / "a.dcm", noisy(64, 64).astype("uint16"))
    held = pydicom.dcmread(path)
    held.file_meta.TransferSyntaxUID = pydicom.uid.UID("1.2.840.10008.1.2.4.103")  # HEVC
    held.PixelData = pydicom.encaps.encapsulate([b"\0" * 8])
    held["PixelData"].VR = "OB"
    held.save_as(path)
    with pytest.raises(FileError, match=r"stored as MPEG-4.*not decoded here"):
        formats.read(path)
    path.write_bytes(b"no preamble" * 50)
    with pytest.raises(FileError, match="not a DICOM file"):
        formats.read(path)


def test_nothing_is_told_of_the_patient(tmp_path, caplog, capfd, monkeypatch):
    caplog.set_level(logging.DEBUG)
    # Then pydicom logs all that it reads.
    caplog.set_level(logging.DEBUG, "pydicom")
    monkeypatch.setattr(pydicom.config, "debugging", True)
    folder = series(tmp_path / "head", noisy(2, 24, 20).astype("uint16"))
    held = pydicom.dcmread(folder / "IM0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # What pydicom warns of, with the value.
        held.add_new("PatientBirthDate", "DA", f"{PATIENT}?")
        held.add_new("PatientAge", "AS", PATIENT)
        held.add_new("CineRate", "IS", PATIENT[:0])
        held.save_as(folder / "IM0")
    caplog.clear()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert cli.main(["nl-means", str(folder), "-o", str(tmp_path / "o.dcm")]) == 0
        file = run(folder, tmp_path / "o.nii")
    said = [caplog.text, *capfd.readouterr(), *map(str, warned), str(file.as_dict())]
    made = pydicom.dcmread(tmp_path / "o.dcm" / "IM0")
    said += [made.private_block(0x2115, "napari-gpu-denoise")[1].value]
    said += [file.output.read_bytes().decode("latin-1")]
    # No digest holds a Q.
    assert not [text for text in said if "Unheard" in text or "ZQ-" in text]
    assert made.PatientName == PATIENT and made.PatientID == "ZQ-0815"
