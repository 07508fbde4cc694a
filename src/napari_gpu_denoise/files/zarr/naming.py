"""Which folders are OME-Zarr, and the package that reads them."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType
from typing import BinaryIO

from napari_gpu_denoise.errors import FileError
from napari_gpu_denoise.files.regular import open_real, open_regular
from napari_gpu_denoise.files.tiff.messages import brief
from napari_gpu_denoise.files.zarr.address import Address, located

SUFFIXES = (".zarr",)
HEADS = ("zarr.json", ".zgroup", ".zattrs", ".zarray")
# In an image at an address, as long as it is being written.
UNFINISHED = ".gpu-denoise-unfinished"


def has_suffix(path: str | os.PathLike) -> bool:
    """Return whether a name ends like that of an OME-Zarr folder."""
    return os.fspath(path).lower().rstrip("/\\").endswith(SUFFIXES)


def is_named(path: str | os.PathLike) -> bool:
    """Return whether a place has such a name, or lies in one that has, as images of a plate do."""
    place = located(path)
    return has_suffix(place) or (not place.suffix and any(map(has_suffix, place.parents)))


def is_zarr(path: str | os.PathLike) -> bool:
    """Return whether a path is a folder, or another place, that holds the metadata of zarr."""
    place = located(path)
    if isinstance(place, Address):
        return any((place / name).exists() for name in HEADS)
    return any(os.path.isfile(place / name) for name in HEADS)


def member(folder: Path | Address, name: object) -> Path | Address:
    """Return the place of a well, an image or a level, as metadata of a folder name it.

    `FileError` for a name that could be one of another place, or of metadata.
    """
    text = name if isinstance(name, str) else ""
    if any(not part or part[0] == "." or {*part} & {*"\\:\0"} for part in text.split("/")):
        raise FileError(
            f"The metadata of {folder} name {brief(repr(name))}, which is no name of a folder in "
            "it: it was not read; save it again."
        )
    return folder / text


def leads_out(folder: Path | Address, place: Path | Address) -> bool:
    """Return whether a place in a folder is, by a link, one outside of it."""
    return Path(os.path.realpath(folder)) not in Path(os.path.realpath(place)).parents


def open_inside(folder: str | None, path: Path) -> BinaryIO:
    """Open a file to read it, as `open_regular`; `FileError` if it is outside of a real folder.

    Without a folder it may be anywhere.
    """
    if folder is not None and _without_links(folder, str(path)):
        return open_real(str(path))
    real = os.path.realpath(path)
    if folder is not None and not real.startswith(os.path.join(folder, "")):
        raise FileError(
            f"{path} is a link to {real}, outside of {folder}, and was not read",
            "copy what it leads to into the folder, or pass companions_anywhere=True to read it",
            code="link-outside",
        )
    return open_regular(real)


def _without_links(folder: str, path: str) -> bool:
    """Return whether a path is below a real folder, with no link on the way, which is soon told."""
    start = os.path.join(folder, "")
    if not path.startswith(start):
        return False
    at = folder
    for part in path[len(start) :].split(os.sep):
        at = f"{at}{os.sep}{part}"
        if part == ".." or os.path.islink(at):
            return False
    return True


def is_unfinished(path: str | os.PathLike) -> bool:
    """Return whether an address holds what was written so far of an image."""
    place = located(path)
    if not isinstance(place, Address) or not (place / UNFINISHED).exists():
        return False
    heads = [(place / name).exists() for name in ("zarr.json", ".zgroup", ".zattrs")]
    return not heads[0] and not all(heads[1:])


def zarr_package() -> ModuleType:
    """Return the package zarr; `FileError` says how to install it."""
    try:
        import zarr
    except ImportError as error:
        raise FileError(
            "OME-Zarr needs another package: pip install 'napari-gpu-denoise[zarr]'."
        ) from error
    if int(zarr.__version__.split(".")[0]) < 3:
        raise FileError(
            f"OME-Zarr needs zarr 3 or newer, but {zarr.__version__} is installed: "
            "pip install 'zarr>=3'."
        )
    return zarr
