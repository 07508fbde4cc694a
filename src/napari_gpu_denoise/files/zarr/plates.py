"""Plates of OME-Zarr as batches: the images of their wells."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from napari_gpu_denoise.errors import FileError
from napari_gpu_denoise.files.zarr.address import Address
from napari_gpu_denoise.files.zarr.metadata import ome_of
from napari_gpu_denoise.files.zarr.naming import has_suffix


def images_of(path: Path | Address) -> list[Path | Address]:
    """Return the places of the images of a plate or a well; of any other folder itself."""
    try:
        ome = ome_of(_attributes(path))[1]
        if "plate" in ome:
            wells = [path / str(each["path"]) for each in ome["plate"]["wells"]]
        elif "well" in ome:
            wells = [path]
        else:
            return [path]
        found = []
        for well in wells:
            images = ome_of(_attributes(well))[1]["well"]["images"]
            found += [well / str(each["path"]) for each in images]
    except FileError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FileError(
            f"The plate {path} cannot be read ({error or type(error).__name__}): name the folders "
            "of its images."
        ) from error
    outside = [one for one in found if path.resolve() not in one.resolve().parents]
    if outside:
        raise FileError(
            f"The plate {path} names {outside[0]}, which is not in it: it was not read."
        )
    if not found:
        raise FileError(f"The plate {path} holds no image: choose another.")
    return found


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
    """Return the attributes of a group, without the package zarr."""
    if (path / "zarr.json").exists():
        return json.loads((path / "zarr.json").read_text(encoding="utf-8")).get("attributes", {})
    if (path / ".zattrs").exists():
        return json.loads((path / ".zattrs").read_text(encoding="utf-8"))
    return {}
