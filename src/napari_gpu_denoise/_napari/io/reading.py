"""Files as layers, with their scale, units, axes, and channels apart.

napari calls `get_reader` for the names that the manifest lists. Where other plugins read them too
it asks the user which to take.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from weakref import finalize

import numpy as np

from napari_gpu_denoise._napari.layers.origin import KEY, Origin, is_rgb, split_axis, stamp_of
from napari_gpu_denoise.errors import DenoiseError
from napari_gpu_denoise.files import formats
from napari_gpu_denoise.files.tiff import Picture
from napari_gpu_denoise.files.tiff.looks import Channel

LayerData = tuple[Any, dict[str, Any], str]

LARGEST_LOADED = 1 << 27  # bytes; more stays in the file until it is looked at
_SUFFIXES = (".ome.tiff", ".ome.tif", ".nii.gz", ".ome.zarr")
# Where a file names no colours: those that napari gives channels.
_TWO, _MORE = ("magenta", "green"), ("cyan", "yellow", "magenta", "red", "green", "blue")


def get_reader(path: str | list[str]) -> Callable[[str], list[LayerData]] | None:
    """Return the reader of a file, or None if it is none of ours; several are napari's to stack."""
    if not isinstance(path, (str, os.PathLike)) or not formats.is_image(path):
        return None
    return read


def read(path: str) -> list[LayerData]:
    """Return the layers of a file: one, or one for each channel."""
    from napari_gpu_denoise._napari.wording import in_panel

    try:
        with contextlib.ExitStack() as opened:
            picture = opened.enter_context(formats.open_stack(path))
            if picture.data.nbytes <= LARGEST_LOADED:
                picture = picture.loaded()
                pixels = picture.data
            else:
                pixels = _lazily(picture, opened.pop_all())
    except DenoiseError as error:
        raise type(error)(in_panel(error)) from error
    for note in picture.notes:
        _tell(note)
    return list(_layers(picture, pixels))


class _Held:
    """The pixels of an open file, which is closed when nothing refers to them any more."""

    def __init__(self, picture: Picture, opened: contextlib.ExitStack):
        self._pixels = picture.data
        self.shape, self.dtype, self.ndim = (
            picture.data.shape,
            picture.data.dtype,
            picture.data.ndim,
        )
        finalize(self, opened.close)

    def __getitem__(self, index: Any) -> Any:
        return self._pixels[index]


def _lazily(picture: Picture, opened: contextlib.ExitStack) -> Any:
    """Return the pixels of a file as a dask array, in chunks as they are read together."""
    import dask.array as da

    data = picture.data
    chunks = getattr(data, "chunks", None)
    if chunks is None:
        planes = {picture.axes.index("Y"), picture.axes.index("X"), *_samples(picture.axes)}
        chunks = tuple(n if i in planes else 1 for i, n in enumerate(data.shape))
    # Without a name dask would read all of it, to make one of its content.
    return da.from_array(_Held(picture, opened), chunks, name=False, asarray=False, lock=False)


def _samples(axes: str) -> list[int]:
    return [axes.index("S")] if axes.endswith("S") else []


def _layers(picture: Picture, pixels: Any) -> Iterator[LayerData]:
    """Yield the layers of an image."""
    from napari_gpu_denoise._napari.layers.results import HISTORY
    from napari_gpu_denoise._napari.layers.source import METADATA_KEY

    shape, axes = tuple(pixels.shape), picture.axes
    split = split_axis(axes, shape)
    stem = _stem(picture.path)
    metadata: dict[str, Any] = {}
    if picture.history:
        *earlier, last = picture.history
        metadata[METADATA_KEY] = {**last, HISTORY: earlier} if earlier else dict(last)
    rgb = is_rgb(axes, shape)
    count = 1 if split is None else shape[split]
    left = "".join(a for i, a in enumerate(axes) if i != split and not (rgb and a == "S"))
    steps = [picture.looks.steps.get(a, (1.0, "")) for a in left]
    place = {
        "scale": tuple(step for step, _ in steps),
        "units": tuple(unit or "pixel" for _, unit in steps),
    }
    labels = _labels(left)
    for number in range(count):
        known = picture.looks.channels
        channel = known[number] if number < len(known) else Channel()
        data = pixels if split is None else pixels[(slice(None),) * split + (number,)]
        origin = Origin(
            path=os.path.abspath(picture.path),
            axes=axes,
            shape=shape,
            place=-1 if split is None else number,
            name=channel.name,
            colour=channel.colour,
            stamp=stamp_of(picture),
            **place,
        )
        own = channel.name or f"channel {number}"
        attributes = {
            "name": stem if count == 1 else f"{stem} {own}",
            "axis_labels": labels,
            "rgb": rgb,
            "multiscale": False,
            "metadata": {**metadata, KEY: origin.as_dict()},
            **place,
        }
        if not rgb:
            attributes |= _colours(channel, number, count)
        yield data, attributes, "image"


def _labels(axes: str) -> tuple[str, ...]:
    """Return labels of axes; those without a name are numbered."""
    return tuple(a.lower() if a in "TZCSYX" else f"axis {number}" for number, a in enumerate(axes))


def _stem(path: Path) -> str:
    name = Path(path).name
    for suffix in _SUFFIXES:
        if name.lower().endswith(suffix):
            return name[: -len(suffix)]
    return Path(name).stem


def _colours(channel: Channel, number: int, count: int) -> dict[str, Any]:
    """Return how a channel is drawn, beside `count` others."""
    found: dict[str, Any] = {}
    grey = channel.colour in ("", "#ffffff")
    if not grey:
        found["colormap"] = channel.colour
    elif count > 1 and not channel.colour:
        colours = _TWO if count == 2 else _MORE
        found["colormap"] = colours[number % len(colours)]
    else:
        found["colormap"] = "gray"
    if count > 1:
        found["blending"] = "additive"
    if channel.limits is not None and all(map(math.isfinite, channel.limits)):
        found["contrast_limits"] = tuple(np.asarray(channel.limits, float).tolist())
    return found


def _tell(note: str) -> None:
    from napari.utils.notifications import show_info

    show_info(note)
