"""Files as layers, with their scale, units, axes, and channels apart.

napari calls `get_reader` for the names that the manifest lists. Where other plugins read them too
it asks the user which to take.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from napari.types import FullLayerData
from napari.utils.colormaps import CYMRGB, MAGENTA_GREEN

from napari_gpu_denoise._napari.layers import provenance
from napari_gpu_denoise._napari.layers.arrays import LazyArray, as_dask
from napari_gpu_denoise.errors import DenoiseError
from napari_gpu_denoise.files import formats
from napari_gpu_denoise.files.image_file import Channel, ImageFile

_COLOURS = (2, 6)  # RGB and YCbCr, photometric interpretations of a TIFF
LARGEST_LOADED = 1 << 27  # bytes; more stays in the file until it is looked at


def get_reader(path: str | list[str]) -> Callable[[str], list[FullLayerData]] | None:
    """Return the reader of a file, or None if it is none of ours; several are napari's to stack."""
    if not isinstance(path, (str, os.PathLike)) or not formats.is_image(path):
        return None
    return read


def read(path: str) -> list[FullLayerData]:
    """Return the layers of a file: one, or one for each channel."""
    from napari.utils.notifications import show_info

    from napari_gpu_denoise._napari.wording import in_panel

    try:
        with _File() as opened:
            picture = opened.enter_context(formats.open_stack(path))
            if picture.data.nbytes <= LARGEST_LOADED:
                picture = picture.loaded()
                levels = [picture.data]
            else:
                levels = _lazily(picture, opened.pop_all())
    except DenoiseError as error:
        raise type(error)(in_panel(error)) from error
    for note in picture.notes:
        show_info(note)
    return list(_layers(picture, levels))


class _File(contextlib.ExitStack):
    """An open file, which is closed when no pixels refer to it any more."""

    __del__ = contextlib.ExitStack.close


def _lazily(picture: ImageFile, file: _File) -> list[Any]:
    """Return the pixels of a file, and those of its pyramid, as dask arrays."""
    every = picture.data, *picture.metadata.get("levels", ())
    return [as_dask(LazyArray(each, held=file), picture.axes.endswith("S")) for each in every]


def _layers(picture: ImageFile, levels: list[Any]) -> Iterator[FullLayerData]:
    """Yield the layers of an image."""
    colours = picture.metadata.get("photometric") in _COLOURS
    order = provenance.layer_order(picture.axes, colours)
    levels = [each.transpose(order) for each in levels]
    axes = "".join(picture.axes[i] for i in order)
    shape = tuple(levels[0].shape)
    split = provenance.split_axis(axes, shape)
    stem, _ = formats.split_name(Path(picture.path).name)
    rgb = provenance.is_rgb(axes, shape)
    count = 1 if split is None else shape[split]
    left = "".join(a for i, a in enumerate(axes) if i != split and not (rgb and a == "S"))
    place = provenance.placing(picture, left)
    channels = [*picture.pixel_metadata.channels, *[Channel()] * count][:count]
    # Where a file names no colours, as napari has them.
    usual = {1: ["gray"], 2: MAGENTA_GREEN}.get(count, CYMRGB)
    for number, channel in enumerate(channels):
        data = levels
        if split is not None:
            data = [each[(slice(None),) * split + (number,)] for each in levels]
        origin = provenance.Origin(
            path=os.path.abspath(picture.path),
            split=None if split is None else order[split],
            place=-1 if split is None else number,
            name=channel.name,
            colour=channel.colour,
            stamp=provenance.stamp_of(picture),
        )
        metadata = _made(picture.history, number)
        title = provenance.filter_title(provenance.record_in(metadata))
        made = f" {title}" if title and title not in stem else ""  # as of panels
        own = channel.name or f"channel {number}"
        attributes = {
            "name": (stem if count == 1 else f"{stem} {own}") + made,
            "rgb": rgb,
            "multiscale": len(levels) > 1,
            "metadata": {**metadata, provenance.FILE_KEY: asdict(origin)},
            **place,
        }
        if not rgb:
            told = channel.colour.replace("#ffffff", "gray")
            attributes["colormap"] = told or usual[number % len(usual)]
            if count > 1:
                attributes["blending"] = "additive"
            if channel.limits is not None and all(map(math.isfinite, channel.limits)):
                attributes["contrast_limits"] = tuple(map(float, channel.limits))
        yield data if len(levels) > 1 else data[0], attributes, "image"


def _made(history: Sequence[dict], channel: int) -> dict[str, Any]:
    """Return the metadata of a layer that tell how a channel was made; empty if nothing does."""
    # What only a layer has is never in a file of ours.
    own = {provenance.HISTORY, provenance.TEMPORARY}
    found = [
        {key: value for key, value in each.items() if key not in own}
        for each in history
        if each.get("channel", channel) == channel
    ]
    if not found:
        return {}
    *earlier, last = found
    return {provenance.METADATA_KEY: {**last, provenance.HISTORY: earlier} if earlier else last}
