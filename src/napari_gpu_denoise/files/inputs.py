"""Which files a batch reads, and where each result goes."""

from __future__ import annotations

import glob
import itertools
import os
from collections.abc import Iterable
from pathlib import Path

from napari_gpu_denoise.errors import FileError, OutputError
from napari_gpu_denoise.files import formats, zarr


def find_files(inputs: str | os.PathLike | Iterable[str | os.PathLike]) -> list[Path]:
    """List the files that names, patterns and folders stand for, each once.

    They keep the order given, those of a pattern or folder are sorted. A name that matches nothing
    stays in the list, and so does a pattern or a folder beside others: reading it is an error.
    """
    if isinstance(inputs, (str, os.PathLike)):
        inputs = [inputs]
    names = [os.fspath(name) for name in inputs]
    found: dict[str, Path] = {}
    for name in names:
        try:
            members = _members(name)
        except FileError:
            if len(names) == 1:
                raise
            members = [zarr.as_path(name)]
        for path in members:
            found.setdefault(os.path.realpath(path), path)
    if not found:
        raise FileError(
            "No input is given: give TIFF, NIfTI or OME-Zarr files, patterns or folders."
        )
    return list(found.values())


def _members(name: str) -> list[Path]:
    """Return the files that one name stands for."""
    if isinstance(place := zarr.as_path(name), zarr.Address):
        return _at_address(place)
    if zarr.is_zarr(place):
        return zarr.images_of(place)
    if name and os.path.isdir(place):
        members = [p for p in sorted(place.iterdir()) if formats.has_suffix(p)]
        if not members:
            raise FileError(
                f"The folder {name} contains no TIFF, NIfTI or OME-Zarr: choose another."
            )
        return members
    if os.path.exists(place) or not glob.has_magic(str(place)):
        return [place]
    members = [
        image
        for match in sorted(glob.glob(str(place), recursive=True))
        if not os.path.isdir(match) or zarr.is_zarr(match)
        for image in (zarr.images_of(Path(match)) if zarr.is_zarr(match) else [Path(match)])
    ]
    if not members:
        raise FileError(f"No file matches the pattern {name}: check folder and spelling.")
    return members


def _at_address(place: zarr.Address) -> list[zarr.Address]:
    """Return the images of OME-Zarr that an address, a pattern or a folder there stands for."""
    if glob.has_magic(str(place)):
        several = [each for each in place.matching() if zarr.is_zarr(each)]
        if not several:
            raise FileError(f"No OME-Zarr matches the pattern {place}: check folder and spelling.")
    elif zarr.is_zarr(place):
        several = [place]
    else:
        # What holds none is taken for an image, and is said to be missing when it is read.
        several = [each for each in place.iterdir() if zarr.has_suffix(each)] or [place]
    return [image for each in several for image in zarr.images_of(each)]


def pair(found: list[Path], output: str | os.PathLike) -> list[tuple[Path, Path]]:
    """Pair each input that is meant to be an image with its output."""
    images = found
    if len(found) > 1:
        # A pattern may match text files as well; a broken file that is named .tif is an error.
        images = [
            path
            for path in found
            if formats.has_suffix(path) or not path.is_file() or formats.is_image(path)
        ]
    name = os.fspath(output)
    folder = zarr.as_path(name)
    is_folder = folder.is_dir() and not zarr.has_suffix(folder)
    if folder.suffix and not is_folder and not name.endswith(("/", os.sep)):
        if not formats.has_suffix(folder):
            raise OutputError(
                f"{name} is neither the name of a TIFF, NIfTI or OME-Zarr file nor an existing "
                "folder: end it with .tif, .nii, .nii.gz or .ome.zarr, or with / for a new folder."
            )
        if zarr.has_suffix(folder) and (plate := zarr.plate_of(images)) is not None:
            targets = [folder / zarr.within(plate, path) for path in images]
            zarr.check_plate_target(folder, targets)
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
    # A TIFF in the format of a vendor is written as a plain TIFF, so its suffix changes.
    names = [path.name if formats.has_suffix(path) else _renamed(path) for path in images]
    folders = [_absolute(path).parent for path in images]
    while True:
        equal: dict[str, list[int]] = {}
        for number, name in enumerate(names):
            equal.setdefault(name.casefold(), []).append(number)
        several = [held for held in equal.values() if len({folders[n] for n in held}) > 1]
        if not several:
            return names
        for number in itertools.chain(*several):
            above = folders[number].name
            names[number] = f"{above}_{names[number]}" if above else names[number]
            folders[number] = folders[number].parent


def _absolute(path: Path) -> Path:
    return path if isinstance(path, zarr.Address) else Path(os.path.abspath(path))


def beside(path: str | os.PathLike, name: str) -> str:
    """Return where the result of a file lies beside it: `name` is added to the file's own name."""
    # As text: the path may be an address.
    folder, own = os.path.split(os.fspath(path).rstrip("/\\"))
    double = (".ome.tiff", ".ome.tif", ".ome.zarr")
    known = (*double, *sorted(formats.SUFFIXES, key=len, reverse=True))
    ending = next((each for each in known if own.lower().endswith(each)), "")
    if not ending:
        # A TIFF in the format of a vendor is written as a plain one.
        return os.path.join(folder, f"{os.path.splitext(own)[0]}_{name}.tif")
    cut = len(own) - len(ending)
    return os.path.join(folder, f"{own[:cut]}_{name}{own[cut:]}")


def _renamed(path: Path) -> str:
    """Return the name of the result of a file whose own name is not one of its format."""
    if zarr.is_zarr(path):
        return zarr.name_of(path)
    return path.stem + formats.format_of(path).suffixes[0]


def check_target(target: Path, inputs: list[Path], written: set[tuple[int, int]]) -> None:
    """Check before the work starts that its result can be written, or replace what is there."""
    if target.parent.is_dir():
        formats.check_target(target, inputs)
        if target.exists() and identity(target) in written:
            raise OutputError(
                f"{target} is the result of an earlier file of this run under another name: "
                "write the results to two folders."
            )


def identity(path: Path) -> tuple[int, int]:
    """Return the device and inode of a file, the same for all its names."""
    if isinstance(path, zarr.Address):
        return -1, hash(path)
    status = os.stat(path)
    return status.st_dev, status.st_ino
