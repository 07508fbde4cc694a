"""The metadata of images and plates as they are stored, read without the package zarr.

zarr would open whatever they name, such as codecs that run code, before anything could be checked.
A plate is a batch of the images of its wells.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from napari_gpu_denoise.errors import FileError, OutputError
from napari_gpu_denoise.files.image_file import Channel, PixelMetadata, kept_steps
from napari_gpu_denoise.files.input_checks import leads_out, open_regular
from napari_gpu_denoise.files.output import writing
from napari_gpu_denoise.files.zarr import places
from napari_gpu_denoise.files.zarr.places import Address

_LARGEST = 1 << 26  # bytes of JSON; with the metadata of all its images a plate may have 10 MB

VERSIONS = {"0.4": 2, "0.5": 3}  # and the version of zarr that each one rests on
OURS = "napari-gpu-denoise"  # the attribute that holds our records
_TYPES = {"T": "time", "C": "channel", "Z": "space", "Y": "space", "X": "space"}
_LEVELS, _IMAGES = 64, 1000  # of an image, and in one folder
_SPARE = "QIRVWABDEFGHJKLMNOPU"


@dataclass(frozen=True)
class Node:
    """Metadata of a group or an array; `array` is empty for a group."""

    form: int
    attributes: Mapping[str, Any]
    array: Mapping[str, Any]


def node_at(place: Path | Address, within: str | None) -> Node | None:
    """Return the metadata at a place; None if there are none.

    Files outside of the real folder `within` are refused, as by `check_inside`.
    """
    told = _json_at(place / "zarr.json", within)
    if told is not None:
        attributes = _mapping(told.get("attributes") or {}, place)
        return Node(3, attributes, told if told.get("node_type") == "array" else {})
    array = _json_at(place / ".zarray", within)
    if array is None and _json_at(place / ".zgroup", within) is None:
        return None
    return Node(2, _json_at(place / ".zattrs", within) or {}, array or {})


def _json_at(file: Path | Address, within: str | None) -> Mapping[str, Any] | None:
    """Return the JSON in a file, None if there is no file; one that is too large is not read."""
    try:
        if isinstance(file, Address):
            system, inside = file.system()
            text = system.cat_file(inside, end=_LARGEST + 1)
        else:
            with open_regular(places.check_inside(within, file)) as opened:
                text = opened.read(_LARGEST + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if len(text) > _LARGEST:
        raise FileError(
            f"{file} is longer than {_LARGEST >> 20} MiB, which no metadata are: save the image "
            "again as OME-Zarr."
        )
    return _mapping(json.loads(text), file)


def _mapping(told: Any, place: Path | Address) -> Mapping[str, Any]:
    if not isinstance(told, dict):
        raise FileError(f"The metadata of {place} are damaged: save the image again as OME-Zarr.")
    return told


@dataclass(frozen=True)
class Described:
    """What the attributes of an image say.

    `axes` are letters as of an `ImageFile`; `paths` and `scales` are those of the levels of the
    pyramid, the finest first, with `moves` where they begin.
    """

    version: str
    axes: str
    paths: tuple[str, ...]
    scales: tuple[tuple[float, ...], ...]
    moves: tuple[tuple[float, ...], ...]
    pixel_metadata: PixelMetadata
    history: tuple[dict, ...]


def ome_of(attributes: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return the version, and the attributes that OME-Zarr defines; version 0.5 has a place."""
    ome = attributes.get("ome")
    if isinstance(ome, Mapping):
        return str(ome.get("version", "")), ome
    several = attributes.get("multiscales")
    first = several[0] if isinstance(several, list) and several else {}
    told = first.get("version", "0.4") if isinstance(first, Mapping) else ""
    return str(told), attributes


def at_most(most: int, named: Any, path: Path | Address) -> Any:
    """Return what metadata name; `FileError` if that is more than there is in any image."""
    if len(named) > most:
        raise FileError(
            f"The metadata of {path} name {len(named)} levels, images or wells, of which {most} "
            "can be read: they are damaged; save the image again as OME-Zarr."
        )
    return named


def described(attributes: Mapping[str, Any], path: Path) -> Described:
    """Parse the attributes of an image; `FileError` if they are damaged or missing."""
    version, ome = ome_of(attributes)
    if "multiscales" not in ome:
        raise FileError(
            f"{path} is zarr, but not an image of OME-Zarr, whose attributes say what its axes "
            "are (multiscales): save it as OME-Zarr, or read it by zarr and pass the array."
        )
    if version not in VERSIONS:
        raise FileError(
            f"{path} is OME-Zarr {version}, but only 0.4 and 0.5 are supported: convert it."
        )
    try:
        image = at_most(_IMAGES, ome["multiscales"], path)[0]
        axes = _letters(image["axes"])
        levels = at_most(_LEVELS, image["datasets"], path)
        paths = tuple(each["path"] for each in levels)
        for each in paths:
            places.member(path, each)
        told = (_transformed(each["coordinateTransformations"], len(axes)) for each in levels)
        scales, moves = zip(*told, strict=True)
        all_scale, all_move = _transformed(image.get("coordinateTransformations") or (), len(axes))
        moves = tuple(
            tuple(a * b + c for a, b, c in zip(one, all_scale, all_move, strict=True))
            for one in moves
        )
        scales = tuple(tuple(a * b for a, b in zip(one, all_scale, strict=True)) for one in scales)
        units = [each.get("unit", "") for each in image["axes"]]
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise FileError(
            f"The OME-Zarr metadata of {path} are damaged ({error or type(error).__name__}): save "
            "it again."
        ) from error
    if not {"Y", "X"} <= set(axes):
        raise FileError(f"{path} has the axes {axes}, without y and x: it is no image.")
    steps = kept_steps(
        {a: (s, u) for a, s, u in zip(axes, scales[0], units, strict=True) if a in "TZYX"}
    )
    steps = {a: both for a, both in steps.items() if both != (1.0, "")}
    pixel_metadata = PixelMetadata(steps, _channels(ome.get("omero")))
    ours = attributes.get(OURS)
    history = ours.get("history", ()) if isinstance(ours, Mapping) else ()
    history = tuple(dict(each) for each in history if isinstance(each, Mapping))
    return Described(version, axes, paths, scales, moves, pixel_metadata, history)


def _letters(axes: Sequence[Mapping[str, Any]]) -> str:
    """Return a letter for each axis; what is no time, channel or direction gets a spare one."""
    spare, found = iter(_SPARE), ""
    for each in axes:
        name = str(each["name"]).upper()
        kind = each.get("type", _TYPES.get(name))
        letter = {"time": "T", "channel": "C"}.get(kind, name)
        known = letter in _TYPES and kind == _TYPES[letter] and letter not in found
        found += letter if known else next(spare)
    return found


def _transformed(steps: Sequence[Mapping[str, Any]], count: int) -> tuple[tuple, tuple]:
    """Return scale and translation of a list of transformations."""
    found = {"scale": (1.0,) * count, "translation": (0.0,) * count}
    for each in steps:
        if (kind := each["type"]) == "identity":
            continue
        if kind not in found:
            raise ValueError(f"a transformation of type {kind!r}")
        found[kind] = tuple(float(value) for value in each[kind])
        if len(found[kind]) != count or not all(map(math.isfinite, found[kind])):
            raise ValueError(f"{len(found[kind])} values of {kind} for {count} axes")
    return found["scale"], found["translation"]


def _channels(omero: Any) -> tuple[Channel, ...]:
    """Return names, colours and limits of channels; none if they are damaged."""
    with contextlib.suppress(TypeError, KeyError, ValueError, AttributeError):
        return tuple(_channel(each) for each in omero["channels"])
    return ()


def _channel(told: Mapping[str, Any]) -> Channel:
    colour = str(told.get("color", "")).lstrip("#").lower()
    window = told.get("window") or {}
    limits = (float(window["start"]), float(window["end"])) if "end" in window else None
    limits = limits if limits is not None and limits[0] < limits[1] else None
    colour = f"#{colour}" if len(colour) == 6 and int(colour, 16) >= 0 else ""
    return Channel(str(told.get("label", "")), colour, limits)


def revised(
    attributes: Mapping[str, Any],
    paths: Sequence[str],
    factors: Sequence[Sequence[float]],
    records: Sequence[dict],
) -> dict[str, Any]:
    """Return the attributes of an image for new pixels of it.

    `factors` tell by how much each level is coarser than the finest along each axis.
    """
    made = copy.deepcopy(dict(attributes))
    made.pop("bioformats2raw.layout", None)
    ome: Any = ome_of(made)[1]
    image = ome["multiscales"][0]
    image.pop("coordinateTransformations", None)
    found = described(attributes, Path())
    known = {each["path"]: each for each in image["datasets"]}
    image["datasets"] = [
        {
            **known.get(path, {}),
            "path": path,
            "coordinateTransformations": _placed(found.scales[0], found.moves[0], factor),
        }
        for path, factor in zip(paths, factors, strict=True)
    ]
    ome["multiscales"] = [image]
    if len(factors) > 1:
        image["type"] = "mean"
    if records:
        made[OURS] = {"history": [*found.history, *records]}
    return made


def _placed(
    scale: Sequence[float], move: Sequence[float], factor: Sequence[float]
) -> list[dict[str, Any]]:
    """Return the transformations of a level: its pixels lie in the middle of those it averages."""
    steps = [s * f for s, f in zip(scale, factor, strict=True)]
    moved = [m + s * (f - 1) / 2 for m, s, f in zip(move, scale, factor, strict=True)]
    placed: list[dict[str, Any]] = [{"type": "scale", "scale": steps}]
    if any(moved):
        placed.append({"type": "translation", "translation": moved})
    return placed


def new_attributes(axes: str, pixel_metadata: PixelMetadata, name: str) -> dict[str, Any]:
    """Return the attributes of a new OME-Zarr image, without its levels."""
    held = []
    for number, letter in enumerate(axes):
        one = {"name": letter.lower() if letter.isalpha() else f"axis{number}"}
        if letter in _TYPES:
            one["type"] = _TYPES[letter]
        if letter in "TZYX" and pixel_metadata.steps.get(letter, (0, ""))[1]:
            one["unit"] = pixel_metadata.steps[letter][1]
        held.append(one)
    scale = [pixel_metadata.steps.get(a, (1.0, ""))[0] for a in axes]
    dataset = {"path": "0", "coordinateTransformations": [{"type": "scale", "scale": scale}]}
    image = {"axes": held, "datasets": [dataset], "name": name}
    ome: dict[str, Any] = {"version": "0.5", "multiscales": [image]}
    if pixel_metadata.channels:
        ome["omero"] = {"channels": [_told(each) for each in pixel_metadata.channels]}
    return {"ome": ome}


def _told(channel: Channel) -> dict[str, Any]:
    told: dict[str, Any] = {"label": channel.name, "color": channel.colour.lstrip("#") or "ffffff"}
    if channel.limits is not None:
        low, high = channel.limits
        told["window"] = {"start": low, "end": high, "min": low, "max": high}
    return {**told, "active": True}


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
    place = places.member(folder, name)
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
        if not places.is_zarr(folder):
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
    heads = [group / name for group in sorted(groups) for name in (*places.HEADS, ".zmetadata")]
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
    form = 3 if (plate / "zarr.json").exists() else 2
    attributes = _attributes(plate)
    named = [each["path"] for each in ome_of(attributes)[1]["plate"]["wells"]]
    wells = [within(plate, _member(plate, name)) for name in named]
    rows = sorted({well.rpartition("/")[0] for well in wells} - {""})
    with writing(target, "OME-Zarr"):
        for place in (*rows, *wells):
            group = f"{os.fspath(target)}/{place}"
            places.describe_group(group, form, dict(_attributes(plate / place)))
        kept = {name: told for name, told in attributes.items() if name != _LAYOUT}
        places.describe_group(os.fspath(target), form, kept)
    return tuple(beside(plate, [within(plate, each) for each in images_of(plate)]))


def beside(folder: Path | Address, members: Sequence[str]) -> list[str]:
    """Return a note of what is in a folder, and in those that lead to members, besides them."""
    lead = {each[:n] for each in members for n, sign in enumerate(each) if sign == "/"}
    seen: set[str] = set()
    with contextlib.suppress(OSError):
        for inner in ("", *(f"{each}/" for each in lead)):
            names = (each.name for each in (folder / inner).iterdir())
            seen |= {inner + name for name in names if name[0] != "." and name not in places.HEADS}
    others = [repr(each) for each in sorted(seen.difference(lead, members))]
    told = ", ".join(
        others[:20] + ["more"] * (len(others) > 20) if seen else ["what is not listed"]
    )
    return [f"Not in the result is what lies beside the image in {folder}: {told}."] if told else []


def name_of(path: Path | Address) -> str:
    """Return a name for the result of an image: with its places, if it is one of a plate."""
    parts: list[str] = []
    for folder in (path, *path.parents):
        if places.has_suffix(folder):
            name = folder.name[: -len(".zarr")]
            name = name[: -len(".ome")] if name.lower().endswith(".ome") else name
            return "_".join([name, *reversed(parts)]) + ".ome.zarr"
        parts.append(folder.name)
    return f"{path.name}.ome.zarr"


def _attributes(path: Path | Address) -> Mapping[str, Any]:
    node = node_at(path, os.path.realpath(path))
    return node.attributes if node else {}
