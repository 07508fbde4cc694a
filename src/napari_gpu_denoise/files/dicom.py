"""DICOM in and out: frames of files and series replaced, what they tell of patients kept.

pydicom reads and writes the files; it is imported when one is. What it says of a file may hold what
the file says of a patient, and is neither logged nor repeated in messages.
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import os
import re
import struct
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import DenoiseError, FileError, ImageError, OutputError
from napari_gpu_denoise.files.image_file import (
    Blocks,
    Format,
    ImageFile,
    PixelMetadata,
    kept_steps,
    number,
    record_line,
    records_in,
    records_of,
    voxel_of,
)
from napari_gpu_denoise.files.input_checks import (
    check_declared,
    closed,
    cut_short,
    open_image,
    reading,
    starts_like_dicom,
)
from napari_gpu_denoise.files.nifti import type_of_levels
from napari_gpu_denoise.files.output import new_file, new_folder, writing
from napari_gpu_denoise.run.record import Record

SUFFIXES = (".dcm", ".dicom", ".ima")
_GROUP, _CREATOR, _RECORDS = 0x2115, "napari-gpu-denoise", 0x01  # of the private block
_DEFERRED = 1 << 16  # bytes from which on elements stay in the file until they are copied
_MOST_BYTES = 2**32 - 2  # that uncompressed pixels of a file may have
_SECONDS_OF_ARC = 1e-4  # by which directions of slices may differ
_UNEVEN = 0.02  # of the distance of slices, or of frames in time, by which it may differ
_CENTIMETRES = 3  # code of a unit of ultrasound regions
# Frames without positions are slices of these, and follow each other in time of all others.
_SLICED = {"CT", "MR", "PT", "NM", "OPT", "RTDOSE"}
_COLOURS = ("PALETTE COLOR", "RGB", "YBR_FULL", "YBR_FULL_422", "YBR_RCT", "YBR_ICT")
# Codecs of imagecodecs by the ends of identifiers of transfer syntaxes.
_CODECS = dict.fromkeys(("50", "51", "57", "70"), "jpeg") | {"80": "jpegls", "81": "jpegls"}
_CODECS |= {"90": "jpeg2k", "91": "jpeg2k"}
_TABLE = {*range(0x1101, 0x1105), 0x1199, *range(0x1201, 0x1205), *range(0x1221, 0x1224)}
# The first of the segments that tell the size of a JPEG frame, and its height and width.
_FRAME_HEAD = re.compile(
    rb"\xff[\xc0-\xc3\xc5-\xc7\xc9-\xcb\xcd-\xcf\xf7]\0[\x0b\x0e\x11].(.{4})", re.S
)
_quiet = threading.RLock()


def is_dicom(path: str | os.PathLike) -> bool:
    """Return whether a file starts like DICOM, or a folder holds a series; False if neither opens.

    Files of a folder that tell no position of a slice, as of ultrasound, are images of their own.
    """
    if os.path.isdir(path):
        files = files_of(path)
        with contextlib.suppress(FileError):  # what is wrong is said when it is opened
            return any(map(_has_position, files))
        return True
    return starts_like_dicom(path)


def _has_position(path: Path) -> bool:
    with contextlib.suppress(ImageError):
        return _head(path).frames[0].position is not None
    return False


def files_of(folder: str | os.PathLike) -> list[Path]:
    """Return the files of a folder that start like DICOM, but for its index (DICOMDIR).

    Their names end as those of DICOM do, with a number, or have no dot.
    """
    found = (path for path in sorted(Path(folder).iterdir()) if path.name.upper() != "DICOMDIR")
    named = (p for p in found if p.suffix.lower() in ("", *SUFFIXES) or p.suffix[1:].isdigit())
    return [path for path in named if path.is_file() and is_dicom(path)]


def pydicom_package() -> ModuleType:
    """Return the package pydicom."""
    import pydicom.pixels

    return pydicom


@contextlib.contextmanager
def _quietly(failed: DenoiseError) -> Iterator[None]:
    """Let pydicom say nothing while the block runs; what it raises becomes `failed`."""
    logger = logging.getLogger("pydicom")
    with _quiet, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        disabled, logger.disabled = logger.disabled, True
        try:
            yield
        except (DenoiseError, ImportError, MemoryError):
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.strerror:
                raise
            raise failed from None
        finally:
            logger.disabled = disabled


@dataclass(frozen=True)
class _Frame:
    """A frame of a file: where it is, and what makes stored values grey levels.

    `position` is that of its first pixel, in mm; `order` and `other` tell frames of one position
    apart, in time or by what they show.
    """

    path: Path
    index: int
    scaling: tuple[float, float]
    position: tuple[float, ...] | None
    order: tuple[Any, ...]
    other: tuple[Any, ...]


@dataclass(frozen=True)
class _Head:
    """What a file tells of its pixels; `plane` is what all files of a series have in common."""

    series: str
    plane: tuple[Any, ...]
    directions: tuple[float, ...] | None
    frames: tuple[_Frame, ...]
    stored: np.dtype
    bits: int
    photometric: str
    modality: str
    steps: dict[str, tuple[float, str]]
    records: tuple[dict, ...]
    notes: tuple[str, ...]


def _head(path: Path) -> _Head:
    """Read what a file tells of its pixels."""
    with reading(path), _quietly(cut_short(path)), open_image(path) as file:
        pydicom = pydicom_package()
        try:
            held = pydicom.dcmread(file, stop_before_pixels=True)
        except pydicom.errors.InvalidDicomError:
            raise FileError(
                f"{path} is not a DICOM file, or has no preamble: convert it, for example with "
                "pydicom's dcmread(force=True)."
            ) from None
        size = os.fstat(file.fileno()).st_size
        if "Rows" not in held or "BitsAllocated" not in held:
            raise ImageError(f"{path} holds no image, such as a report or plan: choose another.")
        return _described(held, path, size)


def _described(held: Any, path: Path, size: int) -> _Head:
    bits, signed = int(held.BitsAllocated), int(held.get("PixelRepresentation", 0))
    if bits not in (8, 16, 32):
        raise ImageError(f"{path} has pixels of {bits} bits, which is no grey level: not filtered.")
    stored = np.dtype(f"{'i' if signed else 'u'}{bits // 8}")
    count, samples = int(held.get("NumberOfFrames") or 1), int(held.get("SamplesPerPixel", 1))
    rows, columns = int(held.Rows), int(held.Columns)
    photometric = str(held.get("PhotometricInterpretation", "MONOCHROME2"))
    nbytes = rows * columns * samples * count * stored.itemsize
    if nbytes <= 0:
        raise ImageError(f"{path} has no pixels: nothing to filter.")
    if samples not in (1, 3) or (samples == 1) == (photometric in _COLOURS[1:]):
        raise ImageError(
            f"{path} has {samples} samples a pixel of the kind {photometric[:16]}, which is not "
            "filtered: convert it to grey levels or RGB."
        )
    if samples == 3 and photometric == "YBR_FULL_422":
        nbytes = nbytes // 3 * 2
    syntax = held.file_meta.TransferSyntaxUID
    if not _has_decoder(syntax):
        install = "pip install --upgrade imagecodecs, or " * (_codec_of(syntax) is not None)
        raise FileError(
            f"{path} is compressed as {syntax.name}, for which there is no decoder here: "
            f"{install}decompress it, for example with gdcmconv --raw."
        )
    if syntax.is_compressed:
        check_declared(nbytes, size, path, "pydicom")
    if count > size or (nbytes > size and not syntax.is_compressed):
        raise cut_short(path)
    frames = tuple(_frames(held, path, count))
    directions = _told(held, 0, "PlaneOrientationSequence", "ImageOrientationPatient")
    notes = []
    if photometric == "MONOCHROME1":
        notes.append("Low grey levels are meant to be shown bright (MONOCHROME1): kept as stored.")
    if "ModalityLUTSequence" in held:
        notes.append("Grey levels are the stored values: a table of the file is not applied.")
    bits_of_overlays = (held.get((group, 0x0102)) for group in range(0x6000, 0x6020, 2))
    if any(each.value for each in bits_of_overlays if each is not None):
        notes.append("Overlays in unused bits of the pixels are not kept.")
    return _Head(
        series=str(held.get("SeriesInstanceUID", "")),
        plane=(rows, columns, *([3] if photometric in _COLOURS else [])),
        directions=None if directions is None else tuple(map(float, directions)),
        frames=frames,
        stored=np.dtype("u1") if photometric == _COLOURS[0] else stored,
        bits=8 if photometric == _COLOURS[0] else min(int(held.get("BitsStored", bits)), bits),
        photometric=photometric,
        modality=str(held.get("Modality", "")),
        steps=_steps(held, notes),
        records=tuple(_records(held)),
        notes=tuple(notes),
    )


def _has_decoder(syntax: Any) -> bool:
    """Return whether pixels of a transfer syntax can be decoded, at least by imagecodecs."""
    if syntax.is_deflated or not syntax.is_compressed:
        return not syntax.is_deflated
    try:
        decoder = pydicom_package().pixels.get_decoder(syntax)
    except NotImplementedError:
        return False
    if is_available(syntax) and _CREATOR not in decoder.available_plugins:
        decoder.add_plugin(_CREATOR, (__name__, "decode_frame"))
    return decoder.is_available


def is_available(syntax: str) -> bool:
    """Return whether `decode_frame` decodes a transfer syntax, as pydicom asks."""
    with contextlib.suppress(ImportError):
        import imagecodecs

        codec = _codec_of(syntax)
        return codec is not None and getattr(imagecodecs, codec.upper()).available
    return False


def _codec_of(syntax: str) -> str | None:
    """Return the codec of imagecodecs for a transfer syntax."""
    return _CODECS.get(str(syntax).removeprefix("1.2.840.10008.1.2.4."))


def decode_frame(frame: bytes, runner: Any) -> bytes:
    """Decode a frame by imagecodecs, for what no package of pydicom decodes."""
    import imagecodecs

    codec = _codec_of(runner.transfer_syntax)
    # A damaged header may declare so much that its pixels fill the memory.
    head = _FRAME_HEAD.search(frame) if codec != "jpeg2k" else None
    if head and struct.unpack(">HH", head[1]) != (runner.rows, runner.columns):
        raise ValueError("the size of the frame is another")
    pixels = getattr(imagecodecs, f"{codec}_decode")(frame)
    runner.set_option("bits_allocated", 8 * pixels.dtype.itemsize)
    if pixels.ndim == 3:
        runner.set_option("photometric_interpretation", "RGB")
        runner.set_option("planar_configuration", 0)
    return pixels.tobytes()


def _told(held: Any, index: int, sequence: str, name: str) -> Any:
    """Return a value of a frame: of its functional groups, of those all share, or of the file."""
    of_frame = (held.get("PerFrameFunctionalGroupsSequence") or [])[index : index + 1]
    for group in (*of_frame, *(held.get("SharedFunctionalGroupsSequence") or [])):
        items = group.get(sequence)
        if items and items[0].get(name) is not None:
            return items[0].get(name)
    value = held.get(name)
    return None if value == "" else value


def _frames(held: Any, path: Path, count: int) -> Iterator[_Frame]:
    values = "PixelValueTransformationSequence"
    for k in range(count):
        told = _told(held, k, values, "RescaleSlope"), _told(held, k, values, "RescaleIntercept")
        slope, inter = (1.0 if told[0] is None else float(told[0]), float(told[1] or 0))
        if slope == 0 or not math.isfinite(slope) or not math.isfinite(inter):
            raise ImageError(f"{path} has no valid slope and intercept: nothing to filter.")
        position = _told(held, k, "PlanePositionSequence", "ImagePositionPatient")
        content = "FrameContentSequence"
        order = (
            _told(held, k, content, "TemporalPositionIndex")
            or held.get("TemporalPositionIdentifier"),
            _told(held, k, content, "FrameReferenceDateTime") or held.get("AcquisitionTime"),
            held.get("TriggerTime"),
            held.get("AcquisitionNumber"),
            held.get("InstanceNumber"),
        )
        other = (
            _told(held, k, "MREchoSequence", "EffectiveEchoTime") or held.get("EchoTime"),
            _told(held, k, "MRDiffusionSequence", "DiffusionBValue"),
            tuple(held.get("ImageType", ()))[2:],
        )
        yield _Frame(
            path,
            k,
            (slope, inter),
            None if position is None or len(position) != 3 else tuple(map(float, position)),
            tuple(map(number, order)),
            tuple(map(str, other)),
        )


def _steps(held: Any, notes: list[str]) -> dict[str, tuple[float, str]]:
    """Return the steps along y, x, z and t that a file tells; z is that between its slices."""
    measures = "PixelMeasuresSequence"
    spacing = _told(held, 0, measures, "PixelSpacing") or held.get("ImagerPixelSpacing")
    if spacing is None:
        spacing = _ultrasound_spacing(held, notes)
    found: dict[str, tuple[Any, str]] = {}
    if spacing is not None and len(spacing) == 2:
        found |= {"Y": (spacing[0], "mm"), "X": (spacing[1], "mm")}
    apart = _told(held, 0, measures, "SpacingBetweenSlices")
    found["Z"] = (apart or _told(held, 0, measures, "SliceThickness"), "mm")
    rate = number(held.get("CineRate")) or number(held.get("RecommendedDisplayFrameRate"))
    times = [number(each) for each in held.get("FrameTimeVector") or ()][1:]
    if times and max(times) - min(times) > _UNEVEN * max(times):
        notes.append("The times between frames differ, and are taken for equal.")
    found["T"] = (
        held.get("FrameTime") or (sum(times) / len(times) if times else rate and 1000 / rate),
        "ms",
    )
    return kept_steps(found)


def _ultrasound_spacing(held: Any, notes: list[str]) -> tuple[float, float] | None:
    """Return the size of pixels, in mm, of the regions of an ultrasound image in centimetres."""
    sizes = {
        (10 * number(each.get("PhysicalDeltaY")), 10 * number(each.get("PhysicalDeltaX")))
        for each in held.get("SequenceOfUltrasoundRegions") or ()
        if each.get("PhysicalUnitsXDirection")
        == each.get("PhysicalUnitsYDirection")
        == _CENTIMETRES
    }
    if len(sizes) > 1:
        notes.append("Regions of the image have pixels of different sizes: none is taken.")
    return sizes.pop() if len(sizes) == 1 else None


def _records(held: Any) -> Iterator[dict]:
    with contextlib.suppress(KeyError):
        text = held.private_block(_GROUP, _CREATOR)[_RECORDS].value
        yield from records_in(text.decode("ascii", "replace") if isinstance(text, bytes) else text)


@contextlib.contextmanager
def open_stack(
    path: str | os.PathLike, *, companions_anywhere: bool = False
) -> Iterator[ImageFile]:
    """Open a file, or the series in a folder, to read its frames on demand."""
    path = Path(path)
    with reading(path), _quietly(cut_short(path)):
        picture = _picture(path)
    try:
        yield picture
    finally:
        picture.data.close()


def _picture(path: Path) -> ImageFile:
    files = files_of(path) if path.is_dir() else [path]
    heads = [_head(each) for each in files]
    _check_one_series(path, heads)
    first, notes = heads[0], [note for head in heads for note in head.notes]
    if path.is_dir() and (others := sum(1 for each in path.iterdir() if each not in files)):
        notes.append(f"{others} other files or folders beside the series are not read.")
    frames = [frame for head in heads for frame in head.frames]
    steps = {letter: step for letter, step in first.steps.items() if letter in "YX"}
    axes, outer, frames = _in_order(path, first, frames, steps, notes)
    dtype = first.stored
    if first.photometric not in _COLOURS:
        scalings = {None if f.scaling == (1.0, 0.0) else f.scaling for f in frames}
        dtype = np.result_type(*(type_of_levels(first.stored, each) for each in scalings))
    data = Frames(frames, (*outer, *first.plane), dtype, path, first.photometric)
    metadata = {"frames": frames, "bits": (first.stored, first.bits)}
    metadata["affine"] = _affine(first, frames, outer, axes, steps)
    told = PixelMetadata(steps)
    axes += "YX" + "S" * (len(first.plane) - 2)
    kept = (path, tuple(files), tuple(dict.fromkeys(notes)), first.records, *voxel_of(steps), told)
    return ImageFile(data, axes, "dicom", metadata, *kept)


def _check_one_series(path: Path, heads: list[_Head]) -> None:
    """Refuse what is no series: of several, or of slices that do not fit each other."""
    if not heads:
        raise FileError(f"{path} holds no DICOM files: choose another folder.")
    if (several := len({head.series for head in heads})) > 1:
        raise FileError(
            f"{path} holds {several} series of DICOM: put each in a folder of its own, or give the "
            "files, to filter each by itself."
        )
    first = heads[0]
    if len({(h.plane, h.stored, h.bits, h.photometric) for h in heads}) > 1:
        raise FileError(
            f"The slices in {path} differ in size or type of pixels: put those of one kind in a "
            "folder of their own."
        )
    if len(heads) > 1 and any(not f.position for h in heads for f in h.frames):
        raise FileError(
            f"Not all files in {path} tell the position of their slice: give the files, to filter "
            "each by itself."
        )
    directions = [head.directions for head in heads]
    if len(heads) > 1 and (
        None in directions or np.ptp(np.array(directions), axis=0).max() > _SECONDS_OF_ARC
    ):
        raise FileError(
            f"The slices in {path} differ in orientation, as those of a localizer do: put those of "
            f"one orientation in a folder of their own. The first is {first.frames[0].path.name}."
        )


def _in_order(
    path: Path,
    first: _Head,
    frames: list[_Frame],
    steps: dict[str, tuple[float, str]],
    notes: list[str],
) -> tuple[str, tuple[int, ...], list[_Frame]]:
    """Return the axes before those of a plane, their lengths, and the frames in this order."""
    count = len(frames)
    if count == 1:
        return "", (), frames
    known = first.directions is not None and all(frame.position for frame in frames)
    normal = np.cross(first.directions[:3], first.directions[3:]) if known else None
    along = [normal @ frame.position if known else 0 for frame in frames]
    places = [round(float(z), 3) for z in along]  # micrometres
    counts = Counter(places)
    if len(counts) == 1 and frames[0].path == frames[-1].path:
        axis = "Z" if first.modality in _SLICED else "T"
        steps |= {axis: first.steps[axis]} if axis in first.steps else {}
        return axis, (count,), frames
    nz, nt = len(counts), count // len(counts)
    if set(counts.values()) != {nt}:
        few = sum(n < max(counts.values()) for n in counts.values())
        raise FileError(
            f"{few} of {nz} positions in {path} have fewer images than others: slices are missing; "
            "copy the series again, or give the files, to filter each by itself."
        )
    ranked = sorted(range(count), key=lambda k: (places[k], *frames[k].order, frames[k].index))
    by_place = np.array(ranked).reshape(nz, nt)
    if nz > 1:
        _measure_slices(sorted(counts), steps, notes)
    axes, outer = ("Z", (nz,)) if nz > 1 else ("", ())
    if nt > 1:
        same = len({frames[k].other for k in by_place[0]}) == 1
        if not same:
            notes.append(
                f"Each slice is there {nt} times, which differ in echo, diffusion or part: they "
                "are filtered each by itself (axis Q)."
            )
        letter = "T" if same else "Q"
        axes, outer = letter + axes, (nt, *outer)
        if same and "T" in first.steps:
            steps["T"] = first.steps["T"]
    return axes, outer, [frames[k] for k in by_place.T.ravel()]


def _measure_slices(
    places: list[float], steps: dict[str, tuple[float, str]], notes: list[str]
) -> None:
    """Tell the distance of slices, and where it is another."""
    apart = np.diff(places)
    usual = float(np.median(apart))
    steps["Z"] = (float(f"{usual:.4g}"), "millimeter")
    uneven = np.flatnonzero(np.abs(apart - usual) > max(_UNEVEN * usual, 0.0015))
    if uneven.size:
        k = int(uneven[0])
        notes.append(
            f"Slices {k + 1} and {k + 2} are {apart[k]:.4g} mm apart, most others {usual:.4g} mm: "
            f"slices are missing, or their distance varies ({uneven.size} such places)."
        )


def _affine(
    head: _Head,
    frames: list[_Frame],
    outer: tuple[int, ...],
    axes: str,
    steps: dict[str, tuple[float, str]],
) -> np.ndarray | None:
    """Return what makes pixels (x, y, z) positions in mm, to the right, front and top (RAS)."""
    position = frames[0].position
    if head.directions is None or position is None or not {"Y", "X"} <= steps.keys():
        return None
    x, y = np.array(head.directions[:3]), np.array(head.directions[3:])
    nz = outer[-1] if axes.endswith("Z") else 1
    z = np.cross(x, y) * steps.get("Z", head.steps.get("Z", (1.0, "")))[0]
    if nz > 1:
        z = (np.array(frames[nz - 1].position) - np.array(position)) / (nz - 1)
    affine = np.eye(4)
    affine[:3] = np.stack([x * steps["X"][0], y * steps["Y"][0], z, np.array(position)], axis=1)
    affine[:2] *= -1
    return affine


class Frames(Blocks):
    """The frames of DICOM files as grey levels or colours (RGB), each decoded when it is needed."""

    def __init__(
        self,
        frames: list[_Frame],
        shape: tuple[int, ...],
        dtype: np.dtype,
        path: Path,
        photometric: str,
    ) -> None:
        colours = photometric in _COLOURS
        super().__init__(shape, dtype, len(shape) - 2 - colours)
        self._frames: list[_Frame] | None = frames
        self._path, self._colours, self._table = path, colours, photometric == _COLOURS[0]

    def close(self) -> None:
        """End reading."""
        self._frames = None

    def _block(self, number: int) -> np.ndarray:
        pydicom = pydicom_package()
        if self._frames is None:
            raise closed(self._path)
        frame = self._frames[number]
        with reading(frame.path), _quietly(cut_short(frame.path)):
            stored = pydicom.pixels.pixel_array(frame.path, index=frame.index)
            if self._table:
                table = pydicom.dcmread(frame.path, stop_before_pixels=True)
                stored = pydicom.pixels.apply_color_lut(stored, table)
                return (stored >> 8 if stored.dtype.itemsize > 1 else stored).astype(self.dtype)
            if self._colours or frame.scaling == (1.0, 0.0):
                return stored.astype(self.dtype, copy=False)
            slope, inter = frame.scaling
            return (stored.astype(np.float64) * slope + inter).astype(self.dtype)


def check_writable(like: ImageFile, dtype: np.dtype) -> None:
    """Refuse nothing but what is too long: results are stored in the type of their input."""
    stored, _ = like.metadata["bits"]
    most = max(Counter(frame.path for frame in like.metadata["frames"]).values())
    plane = math.prod(like.data.shape) // len(like.metadata["frames"])
    if plane * most * stored.itemsize > _MOST_BYTES:
        raise OutputError(
            f"The result of {like.path} has more than 4 GiB of pixels in a file, which DICOM "
            "cannot hold: end its name with .ome.tif or .ome.zarr."
        )


def write(
    path: str | os.PathLike,
    data: Any,
    like: ImageFile,
    record: Record | Sequence[dict] | None = None,
    *,
    overwrite: bool = False,
) -> tuple[str, ...]:
    """Write new pixels with the metadata of DICOM files, as `formats.write` does.

    The result of a folder is a folder. Series and images get new identifiers (UIDs), and refer to
    those they were made from; pixels are stored in the type of the input, uncompressed.
    """
    pydicom, path = pydicom_package(), Path(path)
    check_writable(like, data.dtype)
    numbers: dict[Path, list[tuple[int, int]]] = {}
    for k, frame in enumerate(like.metadata["frames"]):
        numbers.setdefault(frame.path, []).append((frame.index, k))
    made = _NewSeries(data, like, records_of(record), pydicom.uid.generate_uid(prefix=None))
    keep = (like.path, *like.files)
    with contextlib.ExitStack() as opened:
        opened.enter_context(writing(path))
        if like.path.is_dir():
            folder = opened.enter_context(new_folder(path, overwrite=overwrite, keep=keep))
            for source, held in numbers.items():
                with open(folder / source.name, "xb") as file:
                    made.write(file, source, held)
        else:
            file = opened.enter_context(new_file(path, overwrite=overwrite, keep=keep))
            made.write(file, *next(iter(numbers.items())))
    return made.notes()


class _NewSeries:
    """A series of results, written file by file."""

    def __init__(self, data: Any, like: ImageFile, records: list[dict], series: str) -> None:
        self._data, self._like, self._series = data, like, series
        self._lines = [record_line(each) for each in (*like.history, *records)]
        self._named = ", ".join(str(each.get("filter", "")) for each in records)
        self._outer = data.shape[: -3 if like.axes.endswith("S") else -2]
        self._clipped, self._unpacked = 0, ""

    def notes(self) -> tuple[str, ...]:
        """Return what could not be preserved."""
        notes = []
        if self._unpacked:
            notes.append(f"The {self._unpacked} of the input is replaced by uncompressed pixels.")
        if self._clipped:
            notes.append(
                f"{self._clipped} values are beyond what the {self._like.metadata['bits'][1]} bits "
                "of the input hold, and became the nearest that they do."
            )
        return tuple(notes)

    def write(self, file: Any, source: Path, numbers: list[tuple[int, int]]) -> None:
        """Write the frames of a file, given by their numbers there and in the data."""
        pydicom, uid = pydicom_package(), pydicom_package().uid
        with reading(source), _quietly(cut_short(source)):
            held = pydicom.dcmread(source, defer_size=_DEFERRED)
        syntax = held.file_meta.TransferSyntaxUID
        if syntax.is_compressed:
            self._unpacked = f"{syntax.name} compression"
            held.file_meta.TransferSyntaxUID = uid.ExplicitVRLittleEndian
        failed = OutputError(
            f"The result of {source} cannot be written as DICOM, as its elements are not valid: "
            "end its name with .ome.tif."
        )
        big = not held.file_meta.TransferSyntaxUID.is_little_endian
        where = {"dir": os.path.dirname(file.name)} if len(numbers) > 1 else {}
        pixels = (tempfile.TemporaryFile if where else io.BytesIO)(**where)
        with pixels, _quietly(failed):
            for _, k in sorted(numbers):
                place = np.unravel_index(k, self._outer) if self._outer else ()
                stored = self._stored(
                    np.asarray(self._data[place]), self._like.metadata["frames"][k]
                )
                pixels.write(
                    stored.astype(stored.dtype.newbyteorder(">" if big else "<")).tobytes()
                )
            pixels.write(b"\0" * (pixels.tell() % 2))
            pixels.seek(0)
            self._revise(held)
            del held.PixelData
            wide = held.BitsAllocated > 8 or held.file_meta.TransferSyntaxUID.is_implicit_VR
            held.add_new("PixelData", "OW" if wide else "OB", pixels)
            held.save_as(file, enforce_file_format=True)

    def _stored(self, levels: np.ndarray, frame: _Frame) -> np.ndarray:
        """Return grey levels as the values that slope and intercept of the file make them of."""
        dtype, bits = self._like.metadata["bits"]
        slope, inter = (1.0, 0.0) if self._like.axes.endswith("S") else frame.scaling
        whole = np.rint((np.nan_to_num(levels.astype(np.float64)) - inter) / slope)
        signed = dtype.kind == "i"
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        self._clipped += int(np.count_nonzero((whole < low) | (whole > high)))
        return np.clip(whole, low, high).astype(dtype)

    def _revise(self, held: Any) -> None:
        """Change what tells of the pixels, and nothing that tells of the patient."""
        pydicom, source = pydicom_package(), pydicom_package().Dataset()
        source.ReferencedSOPClassUID = held.SOPClassUID
        source.ReferencedSOPInstanceUID = held.SOPInstanceUID
        held.SourceImageSequence = [source]
        held.SeriesInstanceUID = self._series
        held.SOPInstanceUID = pydicom.uid.generate_uid(prefix=None)
        held.file_meta.MediaStorageSOPInstanceUID = held.SOPInstanceUID
        held.ImageType = ["DERIVED", *list(held.get("ImageType", ["", "PRIMARY"]))[1:]]
        held.DerivationDescription = f"Denoised: {self._named}"[:1024]
        for name in ("SmallestImagePixelValue", "LargestImagePixelValue"):
            if name in held:
                delattr(held, name)
        if self._like.axes.endswith("S"):
            held.SamplesPerPixel, held.PlanarConfiguration = 3, 0
            held.PhotometricInterpretation = "RGB"
            # Descriptors, identifier and contents of a table of colours.
            for element in _TABLE:
                held.pop((0x0028, element), None)
            dtype, held.BitsStored = self._like.metadata["bits"]
            held.BitsAllocated, held.HighBit = 8 * dtype.itemsize, held.BitsStored - 1
        block = held.private_block(_GROUP, _CREATOR, create=True)
        if _RECORDS in block:
            del block[_RECORDS]
        if self._lines:
            block.add_new(_RECORDS, "UT", "\n".join(self._lines))


def result_name(path: Path) -> str:
    """Return a name for the result of a file, whose dots may be those of an identifier."""
    stem = path.name
    known = next((each for each in SUFFIXES if stem.lower().endswith(each)), "")
    return (stem[: -len(known)] if known else stem) + ".dcm"


FORMAT = Format(
    name="DICOM",
    suffixes=SUFFIXES,
    kinds=("dicom",),
    new_suffix=".dcm",
    is_format=is_dicom,
    open_stack=open_stack,
    check_writable=check_writable,
    write=write,
    becomes=("NIfTI", "TIFF", "OME-Zarr"),
    result_name=result_name,
)
