"""DICOM in and out: frames of files and series replaced, what they tell of patients kept.

pydicom reads and writes the files; it is imported when one is. What it says of a file may hold what
the file says of a patient, and is neither logged nor repeated in messages.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import DenoiseError, FileError, ImageError, OutputError
from napari_gpu_denoise.files.image_file import (
    Blocks,
    Format,
    ImageFile,
    PixelMetadata,
    Records,
    Steps,
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

SUFFIXES = (".dcm", ".dicom", ".ima")
_GROUP, _CREATOR, _RECORDS = 0x2115, "napari-gpu-denoise", 0x01  # of the private block
_DEFERRED = 1 << 16  # bytes from which on elements stay in the file until they are copied
_MOST_BYTES = 2**32 - 2  # that uncompressed pixels of a file may have
_SECONDS_OF_ARC = 1e-4  # by which directions of slices may differ
_UNEVEN = 0.02  # of the distance of slices, or of frames in time, by which it may differ
_CENTIMETRES = 3  # code of a unit of ultrasound regions
# What frames without positions are: slices, or tiles of a slide; of all others, times.
_AXES = dict.fromkeys(("CT", "MR", "PT", "NM", "OPT", "RTDOSE"), "Z") | {"SM": "Q"}
_COLOURS = ("PALETTE COLOR", "RGB", "YBR_FULL", "YBR_FULL_422", "YBR_RCT", "YBR_ICT")
# Codecs of imagecodecs for transfer syntaxes.
_JPEG = "1.2.840.10008.1.2.4."
_CODECS = {f"{_JPEG}{end}": "jpeg" for end in (50, 51, 57, 70)}
_CODECS |= {f"{_JPEG}{end}": "jpegls" for end in (80, 81)}
_CODECS |= {f"{_JPEG}{end}": "jpeg2k" for end in (90, 91, 201, 202, 203)}
# Direction and strength of diffusion, as files of Siemens tell it.
_DIFFUSION = ((0x0018, 0x9089), (0x0019, 0x100C), (0x0019, 0x100E))
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
    return list(filter(starts_like_dicom, named))


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
    order: tuple[float, ...]
    other: tuple[str, ...]


@dataclass(frozen=True)
class _Head:
    """What a file tells of its pixels.

    All files of a series have one `kind`: shape of a plane, stored type, bits, and photometric
    interpretation. `directions` are unit vectors along x, y and from slice to slice.
    """

    series: str
    kind: tuple[tuple[int, ...], np.dtype, int, str]
    directions: tuple[float, ...] | None
    frames: tuple[_Frame, ...]
    modality: str
    steps: Steps
    records: tuple[dict, ...]
    notes: tuple[str, ...]


def _head(path: Path) -> _Head:
    """Read what a file tells of its pixels."""
    with reading(path), _quietly(cut_short(path)), open_image(path) as file:
        import pydicom.pixels

        try:
            held = pydicom.dcmread(file, stop_before_pixels=True)
        except pydicom.errors.InvalidDicomError:
            raise FileError(
                f"{path} is not a DICOM file, or has no preamble: convert it, for example with "
                "pydicom's dcmread(force=True)."
            ) from None
        _check_pixels(held, path, os.fstat(file.fileno()).st_size)
        dtype = pydicom.pixels.utils.pixel_dtype(held).newbyteorder("=")
        bits = min(int(held.get("BitsStored", held.BitsAllocated)), held.BitsAllocated)
        photometric = held.PhotometricInterpretation
        if photometric == _COLOURS[0]:
            dtype, bits = np.dtype(np.uint8), 8
        plane = (held.Rows, held.Columns, *([3] if photometric in _COLOURS else []))
        directions = _told(held, 0, "PlaneOrientationSequence", "ImageOrientationPatient")
        if directions is not None:
            x, y = np.array(directions, float).reshape(2, 3)
            directions = (*x, *y, *np.cross(x, y))
        notes = list(_remarks(held))
        return _Head(
            str(held.get("SeriesInstanceUID", "")),
            (plane, dtype, bits, photometric),
            directions,
            tuple(_frames(held, path, directions)),
            str(held.get("Modality", "")),
            _steps(held, notes),
            tuple(_records(held)),
            tuple(notes),
        )


def _check_pixels(held: Any, path: Path, size: int) -> None:
    """Refuse a file without pixels that can be decoded, or with more than it may hold."""
    from pydicom.pixels.utils import get_expected_length, get_nr_frames

    if "Rows" not in held or "BitsAllocated" not in held:
        raise ImageError(f"{path} holds no image, such as a report or plan: choose another.")
    if held.BitsAllocated not in (8, 16, 32):
        raise ImageError(
            f"{path} has pixels of {held.BitsAllocated} bits, which is no grey level: not filtered."
        )
    nbytes, count = get_expected_length(held), get_nr_frames(held, warn=False)
    if nbytes <= 0:
        raise ImageError(f"{path} has no pixels: nothing to filter.")
    samples, photometric = held.SamplesPerPixel, held.PhotometricInterpretation
    if samples not in (1, 3) or (samples == 1) == (photometric in _COLOURS[1:]):
        raise ImageError(
            f"{path} has {samples} samples a pixel of the kind {photometric[:16]}, which is not "
            "filtered: convert it to grey levels or RGB."
        )
    syntax = held.file_meta.TransferSyntaxUID
    if not _has_decoder(syntax):
        install = "pip install --upgrade imagecodecs, or " * (syntax in _CODECS)
        raise FileError(
            f"{path} is compressed as {syntax.name}, for which there is no decoder here: "
            f"{install}decompress it, for example with gdcmconv --raw."
        )
    if syntax.is_compressed:
        check_declared(nbytes, size, path, "pydicom")
    if count > size or (nbytes > size and not syntax.is_compressed):
        raise cut_short(path)


def _has_decoder(syntax: Any) -> bool:
    """Return whether pixels of a transfer syntax can be decoded, at least by imagecodecs."""
    from pydicom.pixels import get_decoder

    if syntax.is_deflated or not syntax.is_compressed:
        return not syntax.is_deflated
    try:
        decoder = get_decoder(syntax)
    except NotImplementedError:
        return False
    if is_available(syntax) and _CREATOR not in decoder.available_plugins:
        decoder.add_plugin(_CREATOR, (__name__, "decode_frame"))
    return decoder.is_available


def is_available(syntax: str) -> bool:
    """Return whether `decode_frame` decodes a transfer syntax, as pydicom asks."""
    with contextlib.suppress(ImportError, KeyError):
        import imagecodecs

        return getattr(imagecodecs, _CODECS[syntax].upper()).available
    return False


def decode_frame(frame: bytes, runner: Any) -> bytes:
    """Decode a frame by imagecodecs, for what no package of pydicom decodes."""
    import imagecodecs

    decode = getattr(imagecodecs, f"{_CODECS[runner.transfer_syntax]}_decode")
    shape = (runner.rows, runner.columns, runner.samples_per_pixel)
    shape = shape[: 2 + (shape[2] > 1)]
    # Whose shape is checked: a damaged frame may declare so much that it fills the memory.
    try:
        pixels = decode(frame, out=np.empty(shape, np.uint8))
    except ValueError:  # more than eight bits
        pixels = decode(frame, out=np.empty(shape, np.uint16))
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


def _remarks(held: Any) -> Iterator[str]:
    """Yield what is unusual about the pixels of a file."""
    if "MOSAIC" in (held.get("ImageType") or ()):
        yield (
            "The slices lie side by side in a plane (mosaic), which is filtered as it is: convert "
            "the series to NIfTI, for example with dcm2niix, to filter volumes."
        )
    if held.PhotometricInterpretation == "MONOCHROME1":
        yield "Low grey levels are meant to be shown bright (MONOCHROME1): kept as stored."
    if "ModalityLUTSequence" in held:
        yield "Grey levels are the stored values: a table of the file is not applied."
    bits_of_overlays = (held.get((group, 0x0102)) for group in range(0x6000, 0x6020, 2))
    if any(each.value for each in bits_of_overlays if each is not None):
        yield "Overlays in unused bits of the pixels are not kept."


def _frames(held: Any, path: Path, directions: tuple[float, ...] | None) -> Iterator[_Frame]:
    values, content = "PixelValueTransformationSequence", "FrameContentSequence"
    below = list(held.get("GridFrameOffsetVector") or ()) if directions else []
    for k in range(int(held.get("NumberOfFrames") or 1)):
        slope, inter = (_told(held, k, values, f"Rescale{n}") for n in ("Slope", "Intercept"))
        slope, inter = 1.0 if slope is None else float(slope), float(inter or 0)
        if slope == 0 or not math.isfinite(slope) or not math.isfinite(inter):
            raise ImageError(f"{path} has no valid slope and intercept: nothing to filter.")
        position = _told(held, k, "PlanePositionSequence", "ImagePositionPatient")
        position = tuple(map(float, position)) if position and len(position) == 3 else None
        if position and k < len(below):
            position = tuple(position + (below[k] - below[0]) * np.array(directions[6:]))
        order = (
            _told(held, k, content, "TemporalPositionIndex")
            or held.get("TemporalPositionIdentifier"),
            _told(held, k, content, "FrameReferenceDateTime") or held.get("AcquisitionTime"),
            *map(held.get, ("TriggerTime", "AcquisitionNumber", "InstanceNumber")),
        )
        other = (
            _told(held, k, "MREchoSequence", "EffectiveEchoTime") or held.get("EchoTime"),
            _told(held, k, "MRDiffusionSequence", "DiffusionBValue"),
            *(held[tag].value for tag in _DIFFUSION if tag in held),
            tuple(held.get("ImageType") or ())[2:],
        )
        yield _Frame(
            path, k, (slope, inter), position, tuple(map(number, order)), tuple(map(str, other))
        )


def _steps(held: Any, notes: list[str]) -> Steps:
    """Return the steps along y, x, z and t that a file tells; z is that between its slices."""
    measures = "PixelMeasuresSequence"
    spacing = _told(held, 0, measures, "PixelSpacing") or held.get("ImagerPixelSpacing")
    spacing = spacing or _ultrasound_spacing(held, notes)
    apart = _told(held, 0, measures, "SpacingBetweenSlices")
    found = {"Z": (apart or _told(held, 0, measures, "SliceThickness"), "mm")}
    if spacing is not None and len(spacing) == 2:
        found |= {"Y": (spacing[0], "mm"), "X": (spacing[1], "mm")}
    rate = number(held.get("CineRate")) or number(held.get("RecommendedDisplayFrameRate"))
    times = [number(each) for each in held.get("FrameTimeVector") or ()][1:]
    if times and max(times) - min(times) > _UNEVEN * max(times):
        notes.append("The times between frames differ, and are taken for equal.")
    mean = sum(times) / len(times) if times else rate and 1000 / rate
    return kept_steps(found | {"T": (held.get("FrameTime") or mean, "ms")})


def _ultrasound_spacing(held: Any, notes: list[str]) -> tuple[float, float] | None:
    """Return the size of pixels, in mm, of the regions of an ultrasound image in centimetres."""
    sizes = {
        (10 * number(each.get("PhysicalDeltaY")), 10 * number(each.get("PhysicalDeltaX")))
        for each in held.get("SequenceOfUltrasoundRegions") or ()
        if {each.get(f"PhysicalUnits{axis}Direction") for axis in "XY"} == {_CENTIMETRES}
    }
    if len(sizes) > 1:
        notes.append("Regions of the image have pixels of different sizes: none is taken.")
    return sizes.pop() if len(sizes) == 1 else None


def _records(held: Any) -> Iterator[dict]:
    with contextlib.suppress(KeyError):
        text = held.private_block(_GROUP, _CREATOR)[_RECORDS].value
        yield from records_in(text.decode("ascii", "replace") if isinstance(text, bytes) else text)


@contextlib.contextmanager
def open_stack(path: Path, *, companions_anywhere: bool = False) -> Iterator[ImageFile]:
    """Open a file, or the series in a folder, to read its frames on demand."""
    with reading(path), _quietly(cut_short(path)):
        picture = _picture(path)
    with contextlib.closing(picture.data):
        yield picture


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
    plane, stored, bits, photometric = first.kind
    dtype = stored
    if photometric not in _COLOURS:
        scalings = {None if f.scaling == (1.0, 0.0) else f.scaling for f in frames}
        dtype = np.result_type(*(type_of_levels(stored, each) for each in scalings))
    data = Frames(frames, (*outer, *plane), dtype, path, photometric)
    affine = _affine(first, frames, outer[-1] if axes.endswith("Z") else 1, steps)
    metadata = {"frames": frames, "bits": (stored, bits), "affine": affine}
    axes += "YX" + "S" * (len(plane) - 2)
    kept = (path, tuple(files), tuple(dict.fromkeys(notes)), first.records, *voxel_of(steps))
    return ImageFile(data, axes, "dicom", metadata, *kept, PixelMetadata(steps))


def _check_one_series(path: Path, heads: list[_Head]) -> None:
    """Refuse what is no series: of several, or of slices that do not fit each other."""
    if not heads:
        raise FileError(f"{path} holds no DICOM files: choose another folder.")
    several = len({head.series for head in heads})
    directions = [head.directions for head in heads]
    apart = None in directions or np.ptp(directions, axis=0).max() > _SECONDS_OF_ARC
    alone, own = "give the files, to filter each by itself", "in a folder of their own"
    for wrong, said in (
        (
            several > 1,
            f"{path} holds {several} series of DICOM: put each in a folder of its own, or {alone}.",
        ),
        (
            len({head.kind for head in heads}) > 1,
            f"The slices in {path} differ in size or type of pixels: put those of one kind {own}.",
        ),
        (
            len(heads) > 1 and any(not f.position for head in heads for f in head.frames),
            f"Not all files in {path} tell the position of their slice: {alone}.",
        ),
        (
            len(heads) > 1 and apart,
            f"The slices in {path} differ in orientation, as those of a localizer do: put those of "
            f"one orientation {own}. The first is {heads[0].frames[0].path.name}.",
        ),
    ):
        if wrong:
            raise FileError(said)


def _in_order(
    path: Path, first: _Head, frames: list[_Frame], steps: Steps, notes: list[str]
) -> tuple[str, tuple[int, ...], list[_Frame]]:
    """Return the axes before those of a plane, their lengths, and the frames in this order."""
    if len(frames) == 1:
        return "", (), frames
    known = first.directions is not None and all(frame.position for frame in frames)
    known = known and "MOSAIC" not in frames[0].other[-1]  # whose positions are of whole volumes
    along = [np.dot(first.directions[6:], frame.position) if known else 0 for frame in frames]
    places = [round(float(z), 3) for z in along]  # micrometres
    counts = Counter(places)
    if len(counts) == 1 and frames[0].path == frames[-1].path:
        axis = _AXES.get(first.modality, "T")
        steps |= {axis: first.steps[axis]} if axis in first.steps else {}
        return axis, (len(frames),), frames
    nz, nt = len(counts), max(counts.values())
    if few := sum(n < nt for n in counts.values()):
        raise FileError(
            f"{few} of {nz} positions in {path} have fewer images than others: slices are missing; "
            "copy the series again, or give the files, to filter each by itself."
        )
    ranked = sorted(
        range(len(frames)), key=lambda k: (places[k], *frames[k].order, frames[k].index)
    )
    by_place = np.array(ranked).reshape(nz, nt)
    axes, outer = "", ()
    if nt > 1:
        axes, outer = "T", (nt,)
        if len({frames[k].other for k in by_place[0]}) > 1:
            axes = "Q"
            notes.append(
                f"Each slice is there {nt} times, which differ in echo, diffusion or part: they "
                "are filtered each by itself (axis Q)."
            )
        steps |= {a: step for a, step in first.steps.items() if a == axes}
    if nz > 1:
        axes, outer = f"{axes}Z", (*outer, nz)
        _measure_slices(sorted(counts), steps, notes)
    return axes, outer, [frames[k] for k in by_place.T.ravel()]


def _measure_slices(places: list[float], steps: Steps, notes: list[str]) -> None:
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


def _affine(head: _Head, frames: list[_Frame], nz: int, steps: Steps) -> np.ndarray | None:
    """Return what makes pixels (x, y, z) positions in mm, to the right, front and top (RAS)."""
    position = frames[0].position
    if head.directions is None or position is None or not {"Y", "X"} <= steps.keys():
        return None
    x, y, z = np.reshape(head.directions, (3, 3))
    z = z * (steps.get("Z") or head.steps.get("Z") or (1.0, ""))[0]
    if frames[nz - 1].position != position:
        z = np.subtract(frames[nz - 1].position, position) / (nz - 1)
    affine = np.eye(4)
    affine[:3] = np.stack([x * steps["X"][0], y * steps["Y"][0], z, position], axis=1)
    affine[:2] *= -1
    return affine


class Frames(Blocks):
    """The frames of DICOM files as grey levels or colours (RGB), each decoded when it is needed."""

    def __init__(
        self, frames: list[_Frame], shape: tuple[int, ...], dtype: np.dtype, path: Path, kind: str
    ) -> None:
        super().__init__(shape, dtype, len(shape) - 2 - (kind in _COLOURS))
        self._frames, self._path, self._kind = frames, path, kind

    def close(self) -> None:
        """End reading."""
        self._frames = None

    def _block(self, number: int) -> np.ndarray:
        if self._frames is None:
            raise closed(self._path)
        frame = self._frames[number]
        with reading(frame.path), _quietly(cut_short(frame.path)):
            import pydicom.pixels

            stored = pydicom.pixels.pixel_array(frame.path, index=frame.index)
            if self._kind == _COLOURS[0]:
                table = pydicom.dcmread(frame.path, stop_before_pixels=True)
                stored = pydicom.pixels.apply_color_lut(stored, table)
                return (stored >> 8 if stored.dtype.itemsize > 1 else stored).astype(self.dtype)
            if self._kind in _COLOURS or frame.scaling == (1.0, 0.0):
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
    path: Path, data: Any, like: ImageFile, record: Records = None, *, overwrite: bool = False
) -> tuple[str, ...]:
    """Write new pixels with the metadata of DICOM files, as `formats.write` does.

    The result of a folder is a folder. Series and images get new identifiers (UIDs), and refer to
    those they were made from; pixels are stored in the type of the input, uncompressed.
    """
    import pydicom

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
            for source, places in numbers.items():
                with open(folder / source.name, "xb") as file:
                    made.write(file, source, places)
        else:
            file = opened.enter_context(new_file(path, overwrite=overwrite, keep=keep))
            made.write(file, *next(iter(numbers.items())))
    notes = []
    if made.unpacked:
        notes.append(f"The {made.unpacked} of the input is replaced by uncompressed pixels.")
    if made.clipped:
        notes.append(
            f"{made.clipped} values are beyond what the {like.metadata['bits'][1]} bits of the "
            "input hold, and became the nearest that they do."
        )
    return tuple(notes)


@dataclass
class _NewSeries:
    """A series of results, written file by file."""

    data: Any
    like: ImageFile
    records: list[dict]
    series: str
    clipped: int = 0
    unpacked: str = ""

    def write(self, file: Any, source: Path, numbers: list[tuple[int, int]]) -> None:
        """Write the frames of a file, given by their numbers there and in the data."""
        import pydicom

        with reading(source), _quietly(cut_short(source)):
            held = pydicom.dcmread(source, defer_size=_DEFERRED)
        syntax = held.file_meta.TransferSyntaxUID
        if syntax.is_compressed:
            self.unpacked = f"{syntax.name} compression"
            syntax = held.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
        failed = OutputError(
            f"The result of {source} cannot be written as DICOM, as its elements are not valid: "
            "end its name with .ome.tif."
        )
        frames, order = self.like.metadata["frames"], "<" if syntax.is_little_endian else ">"
        outer = self.data.shape[: -3 if self.like.axes.endswith("S") else -2]
        with tempfile.TemporaryFile(dir=os.path.dirname(file.name)) as kept, _quietly(failed):
            pixels = getattr(kept, "file", kept)  # of Windows
            for _, k in sorted(numbers):
                place = np.unravel_index(k, outer) if outer else ()
                stored = self._stored(np.asarray(self.data[place]), frames[k])
                pixels.write(stored.astype(stored.dtype.newbyteorder(order)).tobytes())
            pixels.write(b"\0" * (pixels.tell() % 2))
            pixels.seek(0)
            self._revise(held)
            wide = held.BitsAllocated > 8 or syntax.is_implicit_VR
            held.add_new("PixelData", "OW" if wide else "OB", pixels)
            held.save_as(file, enforce_file_format=True)

    def _stored(self, levels: np.ndarray, frame: _Frame) -> np.ndarray:
        """Return grey levels as the values that slope and intercept of the file make them of."""
        dtype, bits = self.like.metadata["bits"]
        slope, inter = (1.0, 0.0) if self.like.axes.endswith("S") else frame.scaling
        whole = np.rint((np.nan_to_num(levels.astype(np.float64)) - inter) / slope)
        low = -(2 ** (bits - 1)) if dtype.kind == "i" else 0
        high = low + 2**bits - 1
        self.clipped += int(np.count_nonzero((whole < low) | (whole > high)))
        return np.clip(whole, low, high).astype(dtype)

    def _revise(self, held: Any) -> None:
        """Change what tells of the pixels, and nothing that tells of the patient."""
        import pydicom

        if "SOPClassUID" in held and "SOPInstanceUID" in held:
            source = pydicom.Dataset()
            source.ReferencedSOPClassUID = held.SOPClassUID
            source.ReferencedSOPInstanceUID = held.SOPInstanceUID
            held.SourceImageSequence = [source]
        held.SeriesInstanceUID = self.series
        held.SOPInstanceUID = pydicom.uid.generate_uid(prefix=None)
        held.file_meta.MediaStorageSOPInstanceUID = held.SOPInstanceUID
        held.ImageType = ["DERIVED", *list(held.get("ImageType") or ["", "PRIMARY"])[1:]]
        named = ", ".join(str(each.get("filter", "")) for each in self.records)
        held.DerivationDescription = f"Denoised: {named}"[:1024]
        gone = held.dir("SmallestImagePixelValue", "LargestImagePixelValue")
        if self.like.axes.endswith("S"):
            held.SamplesPerPixel, held.PlanarConfiguration = 3, 0
            held.PhotometricInterpretation = "RGB"
            dtype, held.BitsStored = self.like.metadata["bits"]
            held.BitsAllocated, held.HighBit = 8 * dtype.itemsize, held.BitsStored - 1
            gone += held.dir("PaletteColorLookupTable")
        for name in ("PixelData", *gone):
            held.pop(name, None)
        block = held.private_block(_GROUP, _CREATOR, create=True)
        if _RECORDS in block:
            del block[_RECORDS]
        if lines := [record_line(each) for each in (*self.like.history, *self.records)]:
            block.add_new(_RECORDS, "UT", "\n".join(lines))


def result_name(path: Path) -> str:
    """Return a name for the result of a file, whose dots may be those of an identifier."""
    return (path.stem if path.suffix.lower() in SUFFIXES else path.name) + ".dcm"


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
