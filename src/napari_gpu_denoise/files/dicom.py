"""DICOM in and out: frames of files and series replaced, what they tell of patients kept.

pydicom reads and writes the files; it is imported when one is. What it says of a file may hold what
the file says of a patient, and is neither logged nor repeated in messages.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import struct
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from napari_gpu_denoise.errors import DenoiseError, FileError, ImageError, OutputError
from napari_gpu_denoise.files import image_file, input_checks
from napari_gpu_denoise.files.image_file import FileBlocks, Format, ImageFile, PixelMetadata, Steps
from napari_gpu_denoise.files.nifti import type_of_levels

SUFFIXES = (".dcm", ".dicom", ".ima")
_GROUP, _CREATOR, _RECORDS = 0x2115, "napari-gpu-denoise", 0x01  # of the private block
_DEFERRED = 1 << 16  # bytes from which on elements stay in the file until they are copied
_MOST_BYTES = 2**32 - 2  # that uncompressed pixels of a file may have
_SECONDS_OF_ARC = 1e-4  # by which directions of slices may differ
_FARTHEST = 1e6  # mm of a position
_UNEVEN = 0.02  # of the distance of slices, or of frames in time, by which it may differ
_CENTIMETRES = 3  # code of a unit of ultrasound regions
# What frames without positions are: slices, or tiles of a slide; of all others, times.
_AXES = dict.fromkeys(("CT", "MR", "PT", "NM", "OPT", "RTDOSE"), "Z") | {"SM": "Q"}
_GREY, _OF_JPEG2000 = ("MONOCHROME1", "MONOCHROME2"), ("YBR_RCT", "YBR_ICT")
_COLOURS = ("PALETTE COLOR", "RGB", "YBR_FULL", "YBR_FULL_422", *_OF_JPEG2000)
# Codecs of imagecodecs for transfer syntaxes. What pydicom decodes by depends on what is installed.
_JPEG = "1.2.840.10008.1.2.4."
_CODECS = {"1.2.840.10008.1.2.5": "dicomrle"}
_CODECS |= {f"{_JPEG}{end}": "jpeg" for end in (50, 51, 57, 70)}
_CODECS |= {f"{_JPEG}{end}": "jpegls" for end in (80, 81)}
_CODECS |= {f"{_JPEG}{end}": "jpeg2k" for end in (90, 91, 201, 202, 203)}
_CODESTREAM = b"\xff\x4f\xff\x51"  # starts JPEG 2000
_PIXELS = {8: "FloatPixelData", 9: "DoubleFloatPixelData", 16: "PixelData"}  # in group 7FE0
# Direction and strength of diffusion, as files of Siemens tell it.
_DIFFUSION = ((0x0018, 0x9089), (0x0019, 0x100C), (0x0019, 0x100E))
_quiet = threading.RLock()


def is_dicom(path: str | os.PathLike) -> bool:
    """Return whether a file starts like DICOM, or a folder holds a series; False if neither opens.

    Files of a folder that tell no position of a slice, as of ultrasound, are images of their own.
    """
    if os.path.isdir(path):
        files, links = _files_of(path)
        if not files:  # is opened only where they may lead out
            return any(each.suffix.lower() in SUFFIXES for each in links)
        with contextlib.suppress(FileError):  # what is wrong is said when it is opened
            return any(map(_has_position, files))
        return True
    return input_checks.starts_like_dicom(path)


def _has_position(path: Path) -> bool:
    with contextlib.suppress(ImageError):
        return bool(_head(path).frames[0].position)
    return False


def _files_of(folder: str | os.PathLike, anywhere: bool = False) -> tuple[list[Path], list[Path]]:
    """Return the files of a folder that start like DICOM, and links out of it, not opened.

    Their names end as those of DICOM do, with a number, or have no dot. The index (DICOMDIR) is
    left out. Links may lead `anywhere` if that is allowed.
    """
    found = (path for path in sorted(Path(folder).iterdir()) if path.name.upper() != "DICOMDIR")
    named = [p for p in found if p.suffix.lower() in ("", *SUFFIXES) or p.suffix[1:].isdigit()]
    links = [] if anywhere else filter(Path.is_symlink, named)
    out = [p for p in links if input_checks.leads_out(folder, p)]
    return [p for p in named if p not in out and input_checks.starts_like_dicom(p)], out


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


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn what is raised while a file is read into a `FileError`, without what pydicom says."""
    with input_checks.reading(path), _quietly(input_checks.cut_short(path)):
        yield


@dataclass(frozen=True)
class _Frame:
    """A frame of a file: where it is, and what makes stored values grey levels.

    `position` is that of its first pixel, in mm; `order` and `other` tell frames of one position
    apart, in time or by what they show. `pixels`: start in the file, options of pydicom's decoder,
    elements with a table of colours.
    """

    path: Path
    index: int
    pixels: tuple[int, dict, Any]
    scaling: tuple[float, float]
    position: tuple[float, ...]
    order: tuple[float, ...]
    other: tuple[str, ...]


@dataclass(frozen=True)
class _Head:
    """What a file tells of its pixels.

    All files of a series have one `kind`: shape of a plane, stored type, bits, photometric
    interpretation, pixel size. `directions` are unit vectors along x, y and from slice to slice.
    """

    series: str
    image: str
    kind: tuple[tuple[int, ...], np.dtype, int, str, str]
    directions: tuple[float, ...] | None
    frames: tuple[_Frame, ...]
    modality: str
    steps: Steps
    records: tuple[dict, ...]
    notes: tuple[str, ...]


def _head(path: Path) -> _Head:
    """Read what a file tells of its pixels."""
    with _reading(path), input_checks.open_image(path) as file:
        from pydicom import dcmread, errors, filereader
        from pydicom.pixels.utils import pixel_dtype

        try:
            meta = filereader.read_file_meta_info(path)
            syntax = meta.get("TransferSyntaxUID")
            if not syntax or _decoder(syntax) is None:  # before anything is inflated
                install = "pip install --upgrade imagecodecs, or " * (syntax in _CODECS)
                raise FileError(
                    f"{path} is stored as {syntax.name[:64] if syntax else 'no known syntax'}, not "
                    f"decoded here: {install}convert it, for example with gdcmconv --raw."
                )
            held = dcmread(file, stop_before_pixels=True)
        except errors.InvalidDicomError:
            raise FileError(
                f"{path} is not a DICOM file, or has no preamble: convert it, for example with "
                "pydicom's dcmread(force=True)."
            ) from None
        except MemoryError:  # of an element that declares more than the file has
            raise input_checks.cut_short(path) from None
        pixels = _find_pixels(held, path, file)
        dtype = pixel_dtype(held).newbyteorder("=")
        bits, photometric = held.BitsStored, held.PhotometricInterpretation
        if photometric == _COLOURS[0]:
            dtype, bits = np.dtype(np.uint8), 8
        plane = (held.Rows, held.Columns, *([3] if photometric in _COLOURS else []))
        directions, notes = _directions(held, 0), list(_remarks(held))
        steps = _steps(held, notes)
        size = " ".join(f"{steps[axis][0]:.4g}" for axis in "YX" if axis in steps)
        return _Head(
            str(held.get("SeriesInstanceUID", "")),
            str(held.get("SOPInstanceUID", "")),
            (plane, dtype, bits, photometric, size),
            directions,
            tuple(_frames(held, path, pixels, directions)),
            str(held.get("Modality", "")),
            steps,
            tuple(_records(held)),
            tuple(notes),
        )


def _decoder(syntax: Any) -> Any:
    """Return pydicom's decoder of a transfer syntax, by imagecodecs if compressed; None if none."""
    from pydicom.pixels.decoders.base import get_decoder

    with contextlib.suppress(NotImplementedError):
        decoder = get_decoder(syntax)
        if not decoder.is_encapsulated:  # what is deflated may fill the memory
            return None if decoder.UID.is_deflated else decoder
        if is_available(syntax):
            if _CREATOR not in decoder.available_plugins:
                decoder.add_plugin(_CREATOR, (__name__, "decode_frame"))
            return decoder
    return None


def is_available(syntax: str) -> bool:
    """Return whether `decode_frame` decodes a transfer syntax, as pydicom asks."""
    with contextlib.suppress(ImportError, KeyError):
        import imagecodecs

        return getattr(imagecodecs, _CODECS[syntax].upper()).available
    return False


def decode_frame(frame: bytes, runner: Any) -> bytes:
    """Decode a frame by imagecodecs, into no more than what the file declares.

    A damaged frame may declare so much that it fills the memory.
    """
    import imagecodecs

    codec, bits = _CODECS[runner.transfer_syntax], runner.bits_allocated
    decode = getattr(imagecodecs, f"{codec}_decode")
    shape = (runner.rows, runner.columns, runner.samples_per_pixel)
    runner.set_option("planar_configuration", int(codec == "dicomrle"))
    if codec == "dicomrle":
        return decode(frame, np.dtype(f"<u{bits // 8}"), out=math.prod(shape) * bits // 8)
    types = [_type_in_jpeg2000(frame, shape)] if codec == "jpeg2k" else ["u1", "u2"]
    rgb = codec != "jpeg" or shape[2] == 1  # else pydicom makes it of YBR, if it is that
    options = {} if rgb else dict.fromkeys(("colorspace", "outcolorspace"), "YCBCR")
    for each in types:
        out = np.empty(shape[: 2 + (shape[2] > 1)], each)
        with contextlib.suppress(*[ValueError] * (each != types[-1])):  # of this type
            decode(frame, out=out, **options)
            break
    if 8 * out.itemsize > bits:
        raise ValueError("the frame has more bits than are allocated")
    runner.set_option("bits_allocated", 8 * out.itemsize)
    if runner.photometric_interpretation in _OF_JPEG2000:
        runner.set_option("photometric_interpretation", "RGB")
    return out.tobytes()


def _type_in_jpeg2000(frame: bytes, shape: tuple[int, ...]) -> str:
    """Return the type of samples in JPEG 2000, whose codec decodes before it compares shapes."""
    at = 0
    while not frame.startswith(_CODESTREAM, at):  # boxes of JP2
        (length,) = struct.unpack_from(">I", frame, at)
        at += 8 if frame[at + 4 : at + 8] == b"jp2c" else max(length, 8)
    right, bottom, left, top = struct.unpack_from(">4I", frame, at + 8)
    samples, depth = struct.unpack_from(">HB", frame, at + 40)
    if (bottom - top, right - left, samples) != shape:
        raise ValueError("the frame is of another size than the file declares")
    return f"{'ui'[depth // 128]}{next(n for n in (1, 2, 4, 8) if depth % 128 < 8 * n)}"


def _find_pixels(held: Any, path: Path, file: Any) -> tuple[int, dict, Any]:
    """Return `pixels` of a file that is open where they start, as its elements declare them."""
    from pydicom.pixels.utils import as_pixel_options, get_expected_length

    implicit, little = held.original_encoding
    order, head = "><"[little], file.read(12).ljust(12, b"\0")
    group, element = struct.unpack_from(f"{order}HH", head)
    keyword = _PIXELS.get(element) if group == 0x7FE0 and "Rows" in held else ""
    if keyword != "PixelData":
        found = f"{keyword} (floating-point numbers), which is not read: save it as NIfTI or TIFF"
        found = found if keyword else "no image, such as a report or plan: choose another"
        raise ImageError(f"{path} holds {found}.")
    _check_elements(held, path)
    (length,) = struct.unpack_from(f"{order}I", head, 4 if implicit else 8)
    start = file.seek(-4 if implicit else 0, os.SEEK_CUR)
    count, nbytes = int(held.get("NumberOfFrames") or 1), get_expected_length(held)
    size, kind = os.fstat(file.fileno()).st_size, held.PhotometricInterpretation
    syntax = held.file_meta.TransferSyntaxUID
    if not implicit and head[4:6] not in (b"OB", b"OW"):  # whose length pydicom reads otherwise
        raise input_checks.cut_short(path)
    if syntax.is_encapsulated:
        input_checks.check_declared(nbytes, size, path, "pydicom")
        more = _count_frames(held, path, file, count) - count
    elif start + length > size:
        raise input_checks.cut_short(path)
    else:
        each, excess = nbytes // count, length - nbytes - nbytes % 2
        # Or of colours that are declared to be subsampled, but are not.
        more = min(length - nbytes, 0) or excess >= each or (kind[8:] == "_422" and excess > 0)
    if more:
        raise FileError(
            f"{path} holds {'more' if more > 0 else 'less'} than the {count} frames that it "
            "declares: copy it again from its source, or correct NumberOfFrames."
        )
    options = {"pixel_keyword": keyword, "pixel_vr": "OW" if implicit else head[4:6].decode()}
    options = as_pixel_options(held, transfer_syntax_uid=syntax, **options)
    return start, options, held if kind == _COLOURS[0] else None


def _check_elements(held: Any, path: Path) -> None:
    """Refuse elements of pixels that mean nothing, or not the same to all programs."""
    syntax, one = held.file_meta.TransferSyntaxUID, held.get("SamplesPerPixel") == 1
    bits, stored = (held.get(name) or 0 for name in ("BitsAllocated", "BitsStored"))
    grey = _GREY + _COLOURS[:1] * syntax.is_little_endian
    colours = _COLOURS[1 : 4 if bits == stored == 8 else 2]
    colours += _OF_JPEG2000 * (_CODECS.get(syntax) == "jpeg2k")
    allowed = {
        **dict.fromkeys(("Rows", "Columns"), range(1, 1 << 16)),
        **{"BitsAllocated": (8, 16, 32), "BitsStored": range(1, bits + 1)},
        **{"HighBit": (stored - 1, None), "SamplesPerPixel": (1, 3), "PixelRepresentation": (0, 1)},
        "PlanarConfiguration": (0, 1, None)[: 2 + syntax.is_encapsulated] if not one else None,
        "NumberOfFrames": range(1 << 31) if held.get("NumberOfFrames") else (0, None, ""),
        "PhotometricInterpretation": grey if one else colours,
    }
    for name, values in allowed.items():
        value = held.get(name)  # others than numbers are compared with each of a range
        known = isinstance(value, int) or not isinstance(values, range)
        if values and (not known or value not in values or isinstance(value, float)):
            found = str(value)[:16] if isinstance(value, int) or values is colours else "no such"
            raise ImageError(
                f"{path} declares {found} as {name}, which is not read, for {stored} of {bits} "
                "bits: correct it, or convert it to grey levels or RGB of 8, 16 or 32 bits."
            )


def _count_frames(held: Any, path: Path, file: Any, count: int) -> int:
    """Return how many of `count` compressed frames are stored, or a higher number."""
    from pydicom import encaps

    size, listed = os.fstat(file.fileno()).st_size, len(encaps.parse_basic_offsets(file))
    found, places = encaps.parse_fragments(file)
    starts = 0
    for place in places:
        file.seek(place + 4)
        length, first = struct.unpack("<I4s", file.read(8))
        if place + 8 + length > size:
            raise input_checks.cut_short(path)
        starts += first.startswith((b"\xff\xd8\xff", _CODESTREAM))
    listed = max(listed, len(held.get("ExtendedOffsetTable", b"")) // 8)
    return min(found, max(listed, starts, count))


def _told(held: Any, index: int, sequence: str, name: str) -> Any:
    """Return a value of a frame: of its functional groups, of those all share, or of the file."""
    of_frame = (held.get("PerFrameFunctionalGroupsSequence") or [])[index : index + 1]
    for group in (*of_frame, *(held.get("SharedFunctionalGroupsSequence") or [])):
        items = group.get(sequence)
        if items and items[0].get(name) is not None:
            return items[0].get(name)
    value = held.get(name)
    return None if value == "" else value


def _values(told: Any) -> list:
    """Return the values of an element, which may have none, one, or several."""
    several = isinstance(told, (list, tuple)) or hasattr(told, "insert")  # of pydicom
    return list(told) if several else [] if told in (None, "") else [told]


def _directions(held: Any, index: int) -> tuple[float, ...] | None:
    """Return unit vectors along x, y and across of a frame; None if there are no such."""
    told = _values(_told(held, index, "PlaneOrientationSequence", "ImageOrientationPatient"))
    if len(told) != 6:
        return None
    x, y = pair = np.array(told, float).reshape(2, 3)
    return (*x, *y, *np.cross(x, y)) if np.allclose(pair @ pair.T, np.eye(2), atol=0.01) else None


def _remarks(held: Any) -> Iterator[str]:
    """Yield what is unusual about the pixels of a file."""
    if "MOSAIC" in _values(held.get("ImageType")):
        yield (
            "The slices lie side by side in a plane (mosaic), which is filtered as it is: convert "
            "the series to NIfTI, for example with dcm2niix, to filter volumes."
        )
    if held.PhotometricInterpretation == "MONOCHROME1":
        yield "Low grey levels are meant to be shown bright (MONOCHROME1): kept as stored."
    if held.get("ModalityLUTSequence"):
        yield "Grey levels are the stored values: a table of the file is not applied."
    bits_of_overlays = (held.get((group, 0x0102)) for group in range(0x6000, 0x6020, 2))
    if any(each.value for each in bits_of_overlays if each is not None):
        yield "Overlays in unused bits of the pixels are not kept."


def _frames(held: Any, path: Path, pixels: tuple, directions: Any) -> Iterator[_Frame]:
    values, content = "PixelValueTransformationSequence", "FrameContentSequence"
    below = _values(held.get("GridFrameOffsetVector")) if directions else []
    spacing = _told(held, 0, "PixelMeasuresSequence", "PixelSpacing")
    for k in range(pixels[1]["number_of_frames"]):
        told = [_values(_told(held, k, values, f"Rescale{n}")) for n in ("Slope", "Intercept")]
        told = [[], []] if held.get("ModalityLUTSequence") else told
        told = (each or [1.0 - n] for n, each in enumerate(told))
        slope, inter = (float(each[0]) if len(each) == 1 else math.nan for each in told)
        if slope == 0 or not math.isfinite(slope) or not math.isfinite(inter):
            raise ImageError(f"{path} has no valid slope or intercept (RescaleSlope): correct it.")
        own = _told(held, k, "PixelMeasuresSequence", "PixelSpacing"), _directions(held, k)
        if k and (own[0] != spacing or not _alike(own[1], directions)):
            raise ImageError(
                f"The frames of {path} differ in orientation or size of pixels: split the file."
            )
        position = _values(_told(held, k, "PlanePositionSequence", "ImagePositionPatient"))
        position = tuple(map(float, position)) if directions and len(position) == 3 else ()
        position = position if all(abs(v) < _FARTHEST for v in position) else ()
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
            _values(held.get("ImageType"))[2:],
        )
        order, other = tuple(map(image_file.step_of, order)), tuple(map(str, other))
        yield _Frame(path, k, pixels, (slope, inter), position, order, other)


def _alike(one: Any, other: Any) -> bool:
    """Return whether directions are those of one orientation."""
    return one == other or (one and other and np.ptp([one, other], axis=0).max() <= _SECONDS_OF_ARC)


def _steps(held: Any, notes: list[str]) -> Steps:
    """Return the steps along y, x, z and t in a file; z is that between its slices."""
    measures = "PixelMeasuresSequence"
    spacing = _values(_told(held, 0, measures, "PixelSpacing") or held.get("ImagerPixelSpacing"))
    spacing = spacing or _ultrasound_spacing(held, notes)
    apart = _told(held, 0, measures, "SpacingBetweenSlices")
    found = {"Z": (apart or _told(held, 0, measures, "SliceThickness"), "mm")}
    if spacing is not None and len(spacing) == 2:
        found |= {"Y": (spacing[0], "mm"), "X": (spacing[1], "mm")}
    rates = map(held.get, ("CineRate", "RecommendedDisplayFrameRate"))
    rate = next(filter(None, map(image_file.step_of, rates)), 0)
    times = [image_file.step_of(each) for each in _values(held.get("FrameTimeVector"))][1:]
    if times and max(times) - min(times) > _UNEVEN * max(times):
        notes.append("The times between frames differ, and are taken for equal.")
    mean = sum(times) / len(times) if times else rate and 1000 / rate
    return image_file.kept_steps(found | {"T": (held.get("FrameTime") or mean, "ms")})


def _ultrasound_spacing(held: Any, notes: list[str]) -> tuple[float, ...] | None:
    """Return the size of pixels, in mm, of the regions of an ultrasound image in centimetres."""
    sizes = {
        tuple(10 * image_file.step_of(each.get(f"PhysicalDelta{axis}")) for axis in "YX")
        for each in held.get("SequenceOfUltrasoundRegions") or ()
        if {each.get(f"PhysicalUnits{axis}Direction") for axis in "XY"} == {_CENTIMETRES}
    }
    if len(sizes) > 1:
        notes.append("Regions of the image have pixels of different sizes: none is taken.")
    return sizes.pop() if len(sizes) == 1 else None


def _records(held: Any) -> Iterator[dict]:
    with contextlib.suppress(KeyError):
        text = held.private_block(_GROUP, _CREATOR)[_RECORDS].value
        text = text.decode("ascii", "replace") if isinstance(text, bytes) else text
        yield from image_file.records_in(text)


def open_image(
    path: Path, held: contextlib.ExitStack, companions_anywhere: bool = False
) -> ImageFile:
    """Open a file, or the series in a folder, to read its frames on demand."""
    with _reading(path):
        return _picture(path, companions_anywhere)


def _picture(path: Path, anywhere: bool) -> ImageFile:
    files, links = _files_of(path, anywhere) if path.is_dir() else ([path], [])
    if links:
        raise input_checks.link_outside(links[0], os.path.realpath(links[0]), path)
    heads = [_head(each) for each in files]
    _check_one_series(path, heads)
    first, notes = heads[0], [note for head in heads for note in head.notes]
    if path.is_dir() and (others := sum(1 for each in path.iterdir() if each not in files)):
        notes.append(f"{others} other files or folders beside the series are not read.")
    frames = [frame for head in heads for frame in head.frames]
    steps = {letter: step for letter, step in first.steps.items() if letter in "YX"}
    axes, outer, frames = _in_order(path, first, frames, steps, notes)
    plane, stored, bits, photometric, _ = first.kind
    dtype = stored
    if photometric not in _COLOURS:
        scalings = {None if f.scaling == (1.0, 0.0) else f.scaling for f in frames}
        dtype = np.result_type(*(type_of_levels(stored, each) for each in scalings))
    read = partial(_decoded, frames, photometric in _COLOURS, plane, dtype)
    data = FileBlocks(path, (*outer, *plane), dtype, len(outer), read)
    affine = _affine(first, frames, outer[-1] if axes.endswith("Z") else 1, steps)
    metadata = {"frames": frames, "bits": (stored, bits), "affine": affine}
    axes += "YX" + "S" * (len(plane) - 2)
    kept = (path, tuple(files), tuple(dict.fromkeys(notes)), first.records)
    return ImageFile(data, axes, "dicom", metadata, *kept, PixelMetadata(steps))


def _check_one_series(path: Path, heads: list[_Head]) -> None:
    """Refuse what is no series: of several, or of slices that do not fit each other."""
    if not heads:
        raise FileError(f"{path} holds no DICOM files: choose another folder.")
    several = len({head.series for head in heads})
    images = Counter(head.image for head in heads if head.image)
    copies = [head.frames[0].path.name for head in heads if images[head.image] > 1]
    places = [frame.position for head in heads for frame in head.frames]
    alone, own = "give the files, to filter each by itself", "in a folder of their own"
    for wrong, said in (
        (several > 1, f"{several} series of DICOM: put each in a folder of its own, or {alone}"),
        (
            len({head.kind for head in heads}) > 1,
            f"slices that differ in size or type of pixels: put those of one kind {own}",
        ),
        (
            not all(places) and (len(heads) > 1 or any(places)),
            f"slices without a valid position or orientation: {alone}",
        ),
        (
            len(heads) > 1 and not all(_alike(h.directions, heads[0].directions) for h in heads),
            "slices that differ in orientation, as those of a localizer do: put those of one "
            f"orientation {own}. The first is {heads[0].frames[0].path.name}",
        ),
        (copies, f"the same image twice (by SOPInstanceUID): remove {' or '.join(copies[:2])}"),
    ):
        if wrong:
            raise FileError(f"{path} holds {said}.")


def _in_order(
    path: Path, first: _Head, frames: list[_Frame], steps: Steps, notes: list[str]
) -> tuple[str, tuple[int, ...], list[_Frame]]:
    """Return the axes before those of a plane, their lengths, and the frames in this order."""
    if len(frames) == 1:
        return "", (), frames
    normal = (first.directions or ())[6:]
    known = bool(normal) and all(frame.position for frame in frames)
    known = known and "MOSAIC" not in frames[0].other[-1]  # whose positions are of whole volumes
    along = [np.dot(normal, frame.position) if known else 0 for frame in frames]
    places = [round(float(z), 3) for z in along]  # micrometres
    counts = Counter(places)
    if len(counts) == 1 and frames[0].path == frames[-1].path:
        axis = _AXES.get(first.modality, "T")
        steps |= {axis: first.steps[axis]} if axis in first.steps else {}
        return axis, (len(frames),), frames
    nz, times = len(counts), Counter(counts.values())
    nt = max(times, key=lambda n: (times[n], n))
    if odd := [place for place, n in counts.items() if n != nt]:
        names = [f.path.name for f, z in zip(frames, places, strict=True) if counts[z] > nt]
        copies = f"more images than others: remove copies, such as {' or '.join(names[:2])}"
        raise FileError(
            f"{len(odd)} of {nz} positions in {path} have "
            f"{copies if names else 'fewer images than others: slices are missing'}; or copy the "
            "series again, or give the files, to filter each by itself."
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
    if head.directions is None or not position or not {"Y", "X"} <= steps.keys():
        return None
    x, y, z = np.reshape(head.directions, (3, 3))
    z = z * (steps.get("Z") or head.steps.get("Z") or (1.0, ""))[0]
    if frames[nz - 1].position != position:
        z = np.subtract(frames[nz - 1].position, position) / (nz - 1)
    affine = np.eye(4)
    affine[:3] = np.stack([x * steps["X"][0], y * steps["Y"][0], z, position], axis=1)
    affine[:2] *= -1
    return affine


def _decoded(
    frames: list[_Frame], coloured: bool, shape: tuple[int, ...], dtype: np.dtype, number: int
) -> np.ndarray:
    """Return one of the frames of a shape as grey levels of a type, or colours (RGB)."""
    frame = frames[number]
    with _reading(frame.path):
        from pydicom.pixels.processing import apply_color_lut

        start, options, table = frame.pixels
        decoder = _decoder(options["transfer_syntax_uid"])
        own = {"index": frame.index, "decoding_plugin": _CREATOR * decoder.is_encapsulated}
        with input_checks.open_image(frame.path) as file:
            file.seek(start)
            stored, _ = decoder.as_array(file, **own, **options)
        if table is not None:
            stored = apply_color_lut(stored, table)
            stored = stored >> 8 * (table.RedPaletteColorLookupTableDescriptor[2] > 8)
        if coloured or frame.scaling == (1.0, 0.0):
            return stored.reshape(shape).astype(dtype, copy=False)
        slope, inter = frame.scaling
        return (stored.astype(np.float64) * slope + inter).astype(dtype)


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
    target: BinaryIO | Path, path: Path, data: Any, like: ImageFile, records: Sequence[dict]
) -> tuple[str, ...]:
    """Write new pixels with the metadata of DICOM files, as `formats.write` does.

    The result of a folder is a folder. Series and images get new identifiers (UIDs), and refer to
    those they were made from; pixels are stored in the type of the input, uncompressed.
    """
    import pydicom.uid

    check_writable(like, data.dtype)
    numbers: dict[Path, list[tuple[int, int]]] = {}
    for k, frame in enumerate(like.metadata["frames"]):
        numbers.setdefault(frame.path, []).append((frame.index, k))
    made = _NewSeries(data, like, list(records), pydicom.uid.generate_uid(prefix=None))
    for source, places in numbers.items():
        if isinstance(target, Path):
            with open(target / source.name, "xb") as file:
                made.write(file, source, places)
        else:
            made.write(target, source, places)
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
        import pydicom.uid

        with _reading(source):
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
        low = -(2 ** (bits - 1)) if dtype.kind == "i" else 0
        values = (levels.astype(np.float64) - inter) / slope
        stored, clipped = image_file.rounded(values, dtype, low, low + 2**bits - 1)
        self.clipped += clipped
        return stored

    def _revise(self, held: Any) -> None:
        """Change the elements that describe pixels, and none of the patient."""
        import pydicom.uid

        if "SOPClassUID" in held and "SOPInstanceUID" in held:
            source = pydicom.Dataset()
            source.ReferencedSOPClassUID = held.SOPClassUID
            source.ReferencedSOPInstanceUID = held.SOPInstanceUID
            held.SourceImageSequence = [source]
        held.SeriesInstanceUID = self.series
        held.SOPInstanceUID = pydicom.uid.generate_uid(prefix=None)
        held.file_meta.MediaStorageSOPInstanceUID = held.SOPInstanceUID
        held.ImageType = ["DERIVED", *(_values(held.get("ImageType"))[1:] or ["PRIMARY"])]
        named = ", ".join(str(each.get("filter", "")) for each in self.records)
        earlier = [held.get("DerivationDescription")] * ("DerivationDescription" in held)
        held.DerivationDescription = "; ".join([*map(str, earlier), f"Denoised: {named}"])[:1024]
        # Of the pixels as they were, or as they were compressed.
        gone = held.dir("SmallestImagePixel", "LargestImagePixel", "SmallestPixel", "LargestPixel")
        gone += held.dir("ExtendedOffsetTable", "EncapsulatedPixelData")
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
        if lines := [image_file.record_line(each) for each in (*self.like.history, *self.records)]:
            block.add_new(_RECORDS, "UT", "\n".join(lines))


def result_name(path: Path) -> str:
    """Return a name for the result of a file, whose dots may be those of an identifier."""
    return (path.stem if path.suffix.lower() in SUFFIXES else path.name) + ".dcm"


FORMAT = Format(
    name="DICOM",
    suffixes=SUFFIXES,
    kinds=("dicom",),
    is_format=is_dicom,
    open_image=open_image,
    check_writable=check_writable,
    write=write,
    becomes=("NIfTI", "TIFF", "OME-Zarr"),
    result_name=result_name,
)
