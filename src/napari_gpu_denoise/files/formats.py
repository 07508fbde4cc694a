"""The formats of image files, which files a batch reads, and where each result goes."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import FileError, OutputError, SettingsError
from napari_gpu_denoise.files import (
    FORMAT_NAMES,
    dicom,
    input_checks,
    microscopes,
    nifti,
    output,
    tiff,
    video,
    zarr,
)
from napari_gpu_denoise.files.image_file import Blocks, Format, ImageFile
from napari_gpu_denoise.run.record import Record
from napari_gpu_denoise.run.request import check_flags

#: In the order in which they are tried; the first reads, or refuses, what none recognises.
FORMATS = (
    *(tiff.FORMAT, nifti.FORMAT, zarr.FORMAT),
    *(dicom.FORMAT, video.FORMAT, microscopes.FORMAT),
)
SUFFIXES = tuple(suffix for each in FORMATS for suffix in each.suffixes)


def has_suffix(path: str | os.PathLike) -> bool:
    """Return whether a name ends like that of a file that can be read."""
    return os.fspath(path).lower().rstrip("/\\").endswith(SUFFIXES)


def is_image(path: str | os.PathLike) -> bool:
    """Return whether a file starts like one that can be read; False also if it cannot be opened."""
    path = zarr.places.as_path(path)
    return any(each.is_format(path) for each in FORMATS)


def read(path: str | os.PathLike[str], *, companions_anywhere: bool = False) -> ImageFile:
    """Read a NIfTI or DICOM file, a video, an OME-Zarr folder, or the first image of a TIFF file.

    Parameters
    ----------
    path : path-like
        A TIFF, BigTIFF, ImageJ or OME-TIFF file; the folder of an OME-Zarr image, of version 0.4 or
        0.5; or a NIfTI file, of version 1 or 2, compressed by gzip or not. The axes of a NIfTI file
        are in reverse order, as in (t, z, y, x), and slope and intercept of its header are applied.
        A DICOM file, or a folder that holds the slices of one series: grey levels with slope and
        intercept, colours as RGB. A video (MKV, AVI, MP4, MOV, WMV, MPEG): grey levels if its
        frames have no colours, else RGB. An ND2, CZI or LIF file: its first image; ``cells.lif#2``
        names the second.
    companions_anywhere : bool, default False
        Read the other files of an OME-TIFF set wherever its XML says they are, and what links in an
        OME-Zarr or a DICOM series lead to. By default only those in the folder of `path`, or below.

    Returns
    -------
    ImageFile

    Raises
    ------
    FileError
        If the file is missing, of another format, cut short, or needs a codec that is not
        installed; if it declares far more pixels than it holds, or more than fit into memory.
    ImageError
        If it has no pixels, or a NIfTI file contains colours or complex numbers.
    """
    check_flags(companions_anywhere=companions_anywhere)
    with open_stack(path, companions_anywhere=companions_anywhere) as picture:
        return picture.loaded()


@contextlib.contextmanager
def open_stack(
    path: str | os.PathLike, *, companions_anywhere: bool = False
) -> Iterator[ImageFile]:
    """Open a file as `read` does, to read it on demand.

    Its context is what `read` returns, but with ``data`` in the file until the context ends.
    """
    path = zarr.places.as_path(path)
    with contextlib.ExitStack() as held:
        # Errors that the caller raises in its block are not about reading this file.
        with input_checks.reading(path):
            picture = format_of(path).open_image(path, held, companions_anywhere)
        data: Any = picture.data  # in the file, which is open
        held.callback(data.close)
        yield picture


def format_of(path: Any) -> Format:
    """Return the format of a file: as it starts, else as its name says."""
    if isinstance(path, zarr.places.Address):
        return zarr.FORMAT
    by_content = (each for each in FORMATS if each.is_format(path))
    by_name = (each for each in FORMATS if os.path.isfile(path) and each.is_path(path))
    return next(by_content, None) or next(by_name, FORMATS[0])


def write(
    path: str | os.PathLike[str],
    data: np.ndarray | Blocks,
    like: ImageFile,
    record: Record | Sequence[dict[str, object]] | None = None,
    *,
    overwrite: bool = False,
) -> tuple[str, ...]:
    """Write new pixels with the metadata of another image, in its format.

    Of DICOM the name may also be that of a NIfTI, TIFF or OME-Zarr, with axes and voxel size,
    of a video that of a TIFF or OME-Zarr, and of ND2, CZI and LIF it is always that of these; RGB
    becomes no OME-Zarr.

    The file is either complete or absent: it is written under a temporary name in the same folder,
    flushed to disk and renamed.

    Parameters
    ----------
    path : path-like
        The new file. The name of a NIfTI image ends with ``.nii``, or with ``.nii.gz`` to
        compress it, the name of an OME-Zarr with ``.zarr``.
    data : ndarray, or array that is read in blocks
        Pixels of the shape of ``like.data``, of any real type. If they are not in memory, they are
        read page by page.
    like : ImageFile
        Source of the metadata. Of a TIFF file: axes, voxel size, units, time interval, channel
        names, byte order, tiles and compression; lossy compression becomes deflate. Of a NIfTI
        file: the header, with affine and units, its extensions, and byte order; slope and intercept
        become 1 and 0, because pixels are grey levels. Of an OME-Zarr: all attributes, chunks,
        shards and compression; the levels of its pyramid are computed again, as means of blocks.
        Of DICOM: all elements but those of pixels, with new identifiers of series and image; pixels
        become the stored type, uncompressed. The result of a series in a folder is a folder. Of a
        video: times and type of its frames, as lossless video.
    record : Record or sequence of dict, optional
        How the pixels were made; several as `Record.as_dict` returns them. It is stored as JSON:
        in the Info of an ImageJ file, as an annotation of an OME image, as a comment among the
        extensions of a NIfTI header, in a private block of DICOM, otherwise as a line of the
        Software tag; `read` finds it.
    overwrite : bool, default False
        Replace an existing file. The input itself is never replaced.

    Returns
    -------
    tuple of str
        What could not be preserved, one sentence each.

    Raises
    ------
    OutputError
        If the file exists, is the input, or cannot be written, its name is that of another format,
        or the kind of file cannot hold this type of pixels; nothing is left behind.
    """
    path = zarr.places.as_path(path)
    check_flags(overwrite=overwrite)
    records = [record.as_dict()] if isinstance(record, Record) else () if record is None else record
    if not isinstance(like, ImageFile):
        raise SettingsError(f"like={like!r:.60} is no image of a file: give what read() returns.")
    if not isinstance(records, Sequence) or not all(isinstance(one, dict) for one in records):
        raise SettingsError(f"record={record!r:.60} is none: give that of a Result, or None.")
    if (shape := tuple(getattr(data, "shape", ()))) != tuple(like.data.shape):
        raise OutputError(
            f"Pixels of shape {shape} cannot take the metadata of an image of shape "
            f"{tuple(like.data.shape)}: write an array of the same shape."
        )
    check_name(path, like)
    made = result_like(path, like)
    _check_type(made, data.dtype)
    form = format_like(made)
    tables = form.tables(made.path, Path(path)) if form is format_like(like) else {}
    options = {"overwrite": overwrite, "keep": (made.path, *made.files, *tables)}
    for table in tables.values():
        output.check_output(table, **options)
    if form.new_image is not None:
        opened = form.new_image(path, made, overwrite=overwrite)
    elif form is dicom.FORMAT and made.path.is_dir():
        opened = output.new_folder(path, **options)
    else:
        opened = output.new_file(path, **options)
    with opened as target, output.writing(path, form.name):
        assert form.write is not None  # `check_name` has refused the others
        written = form.write(target, path, data, made, records)
    for source, table in tables.items():
        with input_checks.open_regular(source) as given, output.new_file(table, **options) as copy:
            shutil.copyfileobj(given, copy)
    if form in (dicom.FORMAT, video.FORMAT) and data.dtype.kind == "f" != like.data.dtype.kind:
        written += (f"Fractions, if any, are rounded to {like.data.dtype}, as the input holds.",)
    return made.notes[len(like.notes) :] + written


def check_name(path: str | os.PathLike, like: ImageFile) -> None:
    """Refuse a name for a result that is not one of the format of its input."""
    wanted, named = format_like(like), format_named(path)
    if (named or FORMATS[0]) is not wanted and (not named or named.name not in wanted.becomes):
        first = wanted if wanted.write else FORMATS[0]
        ends = [first.suffixes[0]]
        ends += [e.suffixes[0] for e in FORMATS if e.name in wanted.becomes and e is not first]
        raise OutputError(
            f"{path} cannot be the result of {like.path}, which is written as {first.name}: end it "
            f"with {', '.join(ends)}."
        )


def format_named(path: str | os.PathLike) -> Format | None:
    """Return the format of a result of a name; None if it is that of none."""
    name = os.fspath(path).lower()
    ends = ((each, each.written) for each in FORMATS)
    found = (e for e, own in ends if (e.is_path(path) if own is None else name.endswith(own)))
    return next(found, None)


def result_like(path: str | os.PathLike, like: ImageFile) -> ImageFile:
    """Return an image as its result of a name is written: in its own format, or another allowed."""
    own, named = format_like(like), format_named(path)
    if named is None or named is own or named.name not in own.becomes:
        return like
    made = named.described_anew(like, split_name(Path(path).name)[0])
    notes = like.notes
    if not own.write:
        notes += (
            f"{own.name} cannot be written: the result is {'OME-' * (made.kind == 'ome')}"
            f"{named.name}, with axes, steps and names of channels; other metadata stay in the "
            "input.",
        )
    if like.history:
        notes += (f"Records of earlier filters stay in {like.path}.",)
    return replace(made, notes=notes)


def check_writable(like: ImageFile, dtype: np.dtype) -> None:
    """Refuse pixels of a type, before they are computed, that cannot be written like an image."""
    _check_type(like, dtype)
    format_like(like).check_writable(like, dtype)


def _check_type(like: ImageFile, dtype: np.dtype) -> None:
    """Refuse pixels of a type that no file of the kind of an image holds."""
    name, held = format_like(like).held.get(like.kind, ("", {dtype.name}))
    if dtype.name not in held:
        raise OutputError(
            f"{like.path} is {name} file, which cannot hold {dtype}",
            "pass dtype='float32'",
            code="file-dtype",
        )


def format_like(like: ImageFile) -> Format:
    """Return the format in which an image is written."""
    return next(each for each in FORMATS if like.kind in each.kinds)


def find_files(inputs: str | os.PathLike | Iterable[str | os.PathLike]) -> list[Path]:
    """List the files that names, patterns and folders stand for, each once.

    They keep the order given, those of a pattern or folder are sorted. A name that matches nothing
    stays in the list, and so does a pattern or a folder beside others: reading it is an error.
    """
    if isinstance(inputs, (str, bytes, os.PathLike)) or not isinstance(inputs, Iterable):
        inputs = [inputs]
    names: list[Any] = list(inputs)
    found: dict[str, Path] = {}
    for name in names:
        try:
            members = _members(name)
        except FileError:
            if len(names) == 1:
                raise
            members = [zarr.places.as_path(name)]
        for path in members:
            found.setdefault(os.path.realpath(path), path)
    if not found:
        raise FileError(f"No input is given: give {FORMAT_NAMES} files, patterns or folders.")
    return list(found.values())


def _members(name: str) -> list[Path]:
    """Return the files that one name stands for."""
    if isinstance(place := zarr.places.as_path(name), zarr.places.Address):
        return _at_address(place)
    if zarr.places.is_zarr(place):
        return zarr.metadata.images_of(place)
    if os.path.isdir(place) and dicom.is_dicom(place):
        return [place]
    if name and os.path.isdir(place):
        found = [p for p in sorted(place.iterdir()) if has_suffix(p)]
        members = [image for each in found for image in microscopes.images_of(each)]
        if not members:
            raise FileError(f"The folder {name} contains no {FORMAT_NAMES}: choose another.")
        return members
    if os.path.exists(place) or not glob.has_magic(str(place)):
        return microscopes.images_of(place)
    matches = sorted(glob.glob(str(place), recursive=True))
    folders = {match for match in matches if os.path.isdir(match)}
    others = {one for one in folders if not (zarr.places.is_zarr(one) or dicom.is_dicom(one))}
    members = [image for match in matches if match not in others for image in _members(match)]
    if not members:
        raise FileError(f"No file matches the pattern {name}: check folder and spelling.")
    return members


def _at_address(place: zarr.places.Address) -> list[Path]:
    """Return the images of OME-Zarr that an address, a pattern or a folder there stands for."""
    if glob.has_magic(str(place)):
        several = [each for each in place.matching() if zarr.places.is_zarr(each)]
        if not several:
            raise FileError(f"No OME-Zarr matches the pattern {place}: check folder and spelling.")
    elif zarr.places.is_zarr(place):
        several = [place]
    else:
        # What holds none is taken for an image, and is said to be missing when it is read.
        several = [each for each in place.iterdir() if zarr.places.has_suffix(each)] or [place]
    return [image for each in several for image in zarr.metadata.images_of(each)]


def pair(found: list[Path], output: str | os.PathLike) -> list[tuple[Path, Path]]:
    """Pair each input that is meant to be an image with its output."""
    images = found
    if len(found) > 1:
        # A pattern may match text files as well; a broken file that is named .tif is an error.
        images = [
            path for path in found if has_suffix(path) or not path.is_file() or is_image(path)
        ]
    folder = zarr.places.as_path(output)
    name = os.fspath(output)
    is_folder = folder.is_dir() and not (
        zarr.places.has_suffix(folder) or dicom.FORMAT.is_path(folder)
    )
    if folder.suffix and not is_folder and not name.endswith(("/", os.sep)):
        if not has_suffix(folder):
            raise OutputError(
                f"{name} is neither the name of a {FORMAT_NAMES} file nor an existing folder: end "
                f"it with {', '.join(each.suffixes[0] for each in FORMATS if each.write)}, or with "
                "/ for a new folder."
            )
        if zarr.places.has_suffix(folder) and (plate := zarr.metadata.plate_of(images)) is not None:
            targets = [folder / zarr.metadata.within(plate, path) for path in images]
            zarr.metadata.check_plate_target(folder, targets)
            return list(zip(images, targets, strict=True))
        if len(images) > 1:
            raise OutputError(
                f"{name} is a single file, but there are {len(images)} inputs: give a folder."
            )
        return [(path, folder) for path in images]
    return [(path, folder / own) for path, own in zip(images, _own_names(images), strict=True)]


def _own_names(images: list[Path]) -> list[str]:
    """Return a name for each result; equal ones get the names of their folders, as far as needed.

    Those of one folder, such as a.tif and A.tif, which many file systems do not tell apart, stay.
    """
    names = [_result_name(path) for path in images]
    folders = [_absolute(path).parent for path in images]
    while True:
        equal: dict[str, list[int]] = {}
        for number, name in enumerate(names):
            equal.setdefault(name.casefold(), []).append(number)
        several = [held for held in equal.values() if len({folders[n] for n in held}) > 1]
        if not several:
            return names
        for number in [each for held in several for each in held]:
            above = folders[number].name
            names[number] = f"{above}_{names[number]}" if above else names[number]
            folders[number] = folders[number].parent


def _absolute(path: Path) -> Path:
    return path if isinstance(path, zarr.places.Address) else Path(os.path.abspath(path))


def beside(path: str | os.PathLike, name: str) -> str:
    """Return where the result of a file lies beside it: `name` is added to the file's own name."""
    # As text: the path may be an address.
    folder = os.path.dirname(os.fspath(path).rstrip("/\\"))
    stem, suffix = split_name(_result_name(zarr.places.as_path(path)))
    return os.path.join(folder, f"{stem}_{name}{suffix}")


def split_name(name: str) -> tuple[str, str]:
    """Split the name of a file before its suffix, which may be double, as ``.ome.tif``."""
    known = (".ome.tiff", ".ome.tif", ".ome.zarr", *sorted(SUFFIXES, key=len, reverse=True))
    suffix = next((each for each in known if name.lower().endswith(each)), "")
    return (name[: -len(suffix)], name[-len(suffix) :]) if suffix else os.path.splitext(name)


def _result_name(path: Path) -> str:
    """Return the name of the result of a file: its own, if that is one of its format."""
    if has_suffix(path) and format_named(path):  # a field of a plate has no name of its own
        return path.name
    form = format_of(path)
    # A TIFF in the format of a vendor is written as a plain TIFF, so its suffix changes.
    return form.result_name(path) if form.result_name else path.stem + form.suffixes[0]


def check_target(target: Path, inputs: output.Kept, written: set[tuple[int, int]]) -> None:
    """Check before the work starts that its result can be written, or replace what is there."""
    if not target.parent.is_dir():
        return
    folder = zarr.places.is_zarr_path(target) or target.is_dir()
    check = output.check_folder if folder else output.check_output
    check(target, overwrite=True, keep=inputs.near(target))
    if target.exists() and identity(target) in written:
        raise OutputError(
            f"{target} is the result of an earlier file of this run under another name: write the "
            "results to two folders."
        )


def identity(path: Path) -> tuple[int, int]:
    """Return the device and inode of a file, the same for all its names."""
    if isinstance(path, zarr.places.Address):
        return -1, hash(path)
    status = os.stat(path)
    return status.st_dev, status.st_ino
