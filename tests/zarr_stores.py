"""Small images of OME-Zarr, as other programs write them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

FORMATS = {"0.4": 2, "0.5": 3}
_TYPES = {"T": "time", "C": "channel"}
_UNITS = {"T": "second", "Z": "micrometer", "Y": "micrometer", "X": "micrometer"}
STEPS = {"T": 2.0, "C": 1.0, "Z": 1.5, "Y": 0.25, "X": 0.2}


def write_store(
    path: Path,
    image: np.ndarray,
    axes: str,
    version: str = "0.5",
    *,
    levels: int = 2,
    chunks: tuple[int, ...] | None = None,
    shards: tuple[int, ...] | None = None,
    **options,
) -> Path:
    """Write an image with a pyramid of every second pixel, and channels of two colours."""
    import zarr

    group = zarr.open_group(str(path), mode="w", zarr_format=FORMATS[version])
    chunks = chunks or image.shape
    datasets, level = [], image
    for number in range(levels):
        kept = {"dimension_names": [a.lower() for a in axes]} if version == "0.5" else {}
        if shards and not number:
            kept["shards"] = shards
        size = tuple(min(c, n) for c, n in zip(chunks, level.shape, strict=True))
        array = group.create_array(
            str(number), shape=level.shape, dtype=level.dtype, chunks=size, **kept, **options
        )
        array[...] = level
        scale = [STEPS.get(a, 1.0) * (2**number if a in "YX" else 1) for a in axes]
        datasets.append(
            {
                "path": str(number),
                "coordinateTransformations": [{"type": "scale", "scale": scale}],
            }
        )
        level = level[tuple(slice(None, None, 2 if a in "YX" else 1) for a in axes)]
    named = [{"name": a.lower(), "type": _TYPES.get(a, "space")} for a in axes]
    for letter in _UNITS.keys() & axes:
        named[axes.index(letter)]["unit"] = _UNITS[letter]
    ome = {"multiscales": [{"name": "cells", "axes": named, "datasets": datasets}]}
    if "C" in axes:
        ome["omero"] = {
            "channels": [
                {
                    "label": f"dye {number}",
                    "color": "00FF00" if number else "0000FF",
                    "window": {"start": 10, "end": 240, "min": 0, "max": 65535},
                    "active": True,
                }
                for number in range(image.shape[axes.index("C")])
            ],
            "rdefs": {"model": "color"},
        }
    if version == "0.4":
        ome["multiscales"][0]["version"] = "0.4"
    group.attrs.update({"_creator": {"name": "another program"}, "lab": "ours"})
    return describe(path, version, **ome)


def describe(path: Path, version: str = "0.5", **ome) -> Path:
    """Say this of a group, which is made if it is not there."""
    import zarr

    group = zarr.open_group(str(path), mode="a", zarr_format=FORMATS[version])
    group.attrs.update(ome if version == "0.4" else {"ome": {"version": version, **ome}})
    return path


def write_plate(
    path: Path, images: dict[str, np.ndarray], axes: str = "YX", version: str = "0.5", **options
) -> Path:
    """Write a plate of images by their places, such as ``A/1/0``."""
    wells: dict[str, list[dict]] = {}
    for place, image in images.items():
        write_store(path / place, image, axes, version, **{"levels": 1, **options})
        well, _, name = place.rpartition("/")
        wells.setdefault(well, []).append({"path": name})
    for well, named in wells.items():
        describe(path / well, version, well={"images": named})
    return describe(path, version, plate={"wells": [{"path": well} for well in wells]})
