"""The metadata of groups and arrays as they are stored, read without the package zarr.

zarr would open whatever they name, such as codecs that run code, before anything could be checked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from napari_gpu_denoise.errors import FileError
from napari_gpu_denoise.files.zarr.address import Address
from napari_gpu_denoise.files.zarr.naming import open_inside
from napari_gpu_denoise.files.zarr.steady import steadily

_LARGEST = 1 << 26  # bytes of JSON; with the metadata of all its images a plate may have 10 MB


@dataclass(frozen=True)
class Node:
    """What is told of a group or an array; `array` is empty for a group."""

    form: int
    attributes: Mapping[str, Any]
    array: Mapping[str, Any]


def node_at(place: Path | Address, within: str | None) -> Node | None:
    """Return what the metadata at a place say; None if there are none.

    Files outside of the real folder `within` are refused, as by `open_inside`.
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
    """Return what a file holds, None if there is none; it is not read if it is too large."""
    try:
        if isinstance(file, Address):
            system, inside = file.system()
            text = steadily(file, lambda: system.cat_file(inside, end=_LARGEST + 1))
        else:
            with open_inside(within, file) as opened:
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
