"""What a layer remembers of its file, so that it can be written as the file was."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from napari_gpu_denoise.files.tiff import Picture

KEY = "napari-gpu-denoise file"  # in the metadata of a layer


@dataclass(frozen=True)
class Origin:
    """The file that a layer was read from.

    `axes` and `shape` are those of the whole image there, `place` is that of the layer along the
    axis of channels that was taken apart (-1 if none was), `name` that channel's own. `stamp` tells
    whether the file has changed since; `scale` and `units` are what the layer was given.
    """

    path: str
    axes: str
    shape: tuple[int, ...]
    place: int
    name: str
    colour: str
    stamp: tuple[int, ...]
    scale: tuple[float, ...]
    units: tuple[str, ...]

    @property
    def split(self) -> int | None:
        """The axis of channels that was taken apart, in the file; None if none was."""
        return None if self.place < 0 else split_axis(self.axes, self.shape)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, to be kept in the metadata of a layer."""
        return asdict(self)


def origin_of(metadata: Mapping[str, Any]) -> Origin | None:
    """Return the file that a layer with these metadata was made from; None if of none."""
    try:
        found = dict(metadata[KEY])
        lists = ("shape", "stamp", "scale", "units")
        return Origin(**{**found, **{name: tuple(found[name]) for name in lists}})
    except (KeyError, TypeError, ValueError):
        return None


def split_axis(axes: str, shape: Sequence[int]) -> int | None:
    """Return the axis whose places become layers: channels, or samples that are no colours."""
    if "C" in axes:
        return axes.index("C")
    if "S" in axes and not is_rgb(axes, shape):
        return axes.index("S")
    return None


def is_rgb(axes: str, shape: Sequence[int]) -> bool:
    """Return whether napari can show the samples of pixels as colours."""
    return axes.endswith("S") and shape[-1] in (3, 4)


def stamp_of(picture: Picture) -> tuple[int, ...]:
    """Return numbers that change when a file of an image is written anew."""
    found: list[int] = []
    for path in picture.files or (Path(picture.path),):
        try:
            status = os.stat(path)
        except OSError:
            continue
        found += [status.st_size, status.st_mtime_ns]
    return tuple(found)
