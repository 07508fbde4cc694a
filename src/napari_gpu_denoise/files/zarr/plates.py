"""Plates of OME-Zarr as batches: the images of their wells, and the metadata of a new plate."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from napari_gpu_denoise.errors import FileError, OutputError
from napari_gpu_denoise.files.output import writing
from napari_gpu_denoise.files.zarr.metadata import at_most, node_at, ome_of
from napari_gpu_denoise.files.zarr.places import (
    HEADS,
    Address,
    has_suffix,
    is_zarr,
    leads_out,
    member,
    zarr_package,
)

_WELLS, _FIELDS = 10_000, 10_000  # of a plate, and images of a well
_LAYOUT = "bioformats2raw.layout"  # of folders that hold more than the plate


def images_of(path: Path | Address) -> list[Path | Address]:
    """Return the places of the images of a plate or a well; of any other folder itself."""
    try:
        try:
            ome = ome_of(_attributes(path))[1]
        except FileError as error:
            if error.code != "link-outside":
                raise
            return [path]  # as an image it may be read, if that is asked for
        if "plate" in ome:
            wells = [
                _member(path, each["path"]) for each in at_most(_WELLS, ome["plate"]["wells"], path)
            ]
        elif "well" in ome:
            wells = [path]
        else:
            return [path]
        found = []
        for well in wells:
            images = ome_of(_attributes(well))[1]["well"]["images"]
            found += [_member(well, each["path"]) for each in at_most(_FIELDS, images, well)]
    except FileError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FileError(
            f"The plate {path} cannot be read ({error or type(error).__name__}): name the folders "
            "of its images."
        ) from error
    if not found:
        raise FileError(f"The plate {path} holds no image: choose another.")
    return found


def _member(folder: Path | Address, name: object) -> Path | Address:
    """Return the place of a well in its plate, or of an image in its well."""
    place = member(folder, name)
    if leads_out(folder, place):
        raise FileError(
            f"{place} is a link to a place outside of {folder}, and was not read: name the folders "
            "of its images."
        )
    return place


def plate_of(images: Sequence[Path | Address]) -> Path | Address | None:
    """Return the plate of which these are all images, and several; None if they are not."""
    if len(images) < 2:
        return None
    for folder in images[0].parents:
        if not is_zarr(folder):
            continue
        with contextlib.suppress(FileError, OSError, ValueError, AttributeError):
            if "plate" in ome_of(_attributes(folder))[1]:
                return folder if set(images_of(folder)) == set(images) else None
    return None


def within(plate: Path | Address, path: Path | Address) -> str:
    """Return the place of an image in a plate, such as ``"A/1/0"``."""
    return path.as_posix()[len(plate.as_posix()) :].strip("/")


def check_plate_target(plate: Path | Address, images: Sequence[Path | Address]) -> None:
    """Refuse a place for a plate where links lead out of it, or metadata are no files."""
    if isinstance(plate, Address):
        return
    groups = {each for image in images for each in image.parents if plate in (each, *each.parents)}
    heads = [group / name for group in sorted(groups) for name in (*HEADS, ".zmetadata")]
    for place in (*images, *heads):
        if leads_out(plate, place):
            raise OutputError(
                f"{place} is a link to a place outside of {plate}: choose another folder."
            )
    for head in heads:
        if os.path.lexists(head) and not head.is_file():
            raise OutputError(f"{head} is no file of metadata: choose another folder.")


def describe_plate(target: Path | Address, plate: Path | Address) -> tuple[str, ...]:
    """Give new images the metadata of their plate; return what of it could not be kept."""
    zarr, form = zarr_package(), 3 if (plate / "zarr.json").exists() else 2
    attributes = _attributes(plate)
    named = [each["path"] for each in ome_of(attributes)[1]["plate"]["wells"]]
    wells = [within(plate, _member(plate, name)) for name in named]
    rows = sorted({well.rpartition("/")[0] for well in wells} - {""})
    with writing(target, "OME-Zarr"):
        for place in (*rows, *wells):
            told = {"attributes": dict(_attributes(plate / place)), "zarr_format": form}
            zarr.open_group(f"{os.fspath(target)}/{place}", mode="a", **told)
        kept = {name: told for name, told in attributes.items() if name != _LAYOUT}
        zarr.open_group(os.fspath(target), mode="a", zarr_format=form, attributes=kept)
    known = {place.partition("/")[0] for place in (*rows, *wells)}
    known |= {*HEADS, ".zmetadata"}
    others = sorted(each.name for each in plate.iterdir() if each.name not in known)
    if not others:
        return ()
    return (f"Of the plate {plate} the wells are kept; {', '.join(others)} beside them are not.",)


def name_of(path: Path | Address) -> str:
    """Return a name for the result of an image: with its places, if it is one of a plate."""
    parts: list[str] = []
    for folder in (path, *path.parents):
        if has_suffix(folder):
            name = folder.name[: -len(".zarr")]
            name = name[: -len(".ome")] if name.lower().endswith(".ome") else name
            return "_".join([name, *reversed(parts)]) + ".ome.zarr"
        parts.append(folder.name)
    return f"{path.name}.ome.zarr"


def _attributes(path: Path | Address) -> Mapping[str, Any]:
    node = node_at(path, os.path.realpath(path))
    return node.attributes if node else {}
