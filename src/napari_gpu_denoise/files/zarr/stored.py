"""How the levels of a new image are stored: chunks, shards, compression and names of chunks."""

from __future__ import annotations

from typing import Any

import numpy as np

from napari_gpu_denoise.files.tiff.picture import Picture
from napari_gpu_denoise.files.zarr.metadata import ome_of


def stored_like(array: Any, shape: tuple[int, ...], dtype: np.dtype) -> dict[str, Any]:
    """Return how an array is stored, for another of this shape and type."""
    same = np.dtype(array.dtype).newbyteorder("=") == dtype
    chunks = tuple(max(1, min(c, n)) for c, n in zip(array.chunks, shape, strict=True))
    options: dict[str, Any] = {"chunks": chunks, "compressors": array.compressors or None}
    if array.metadata.zarr_format == 2:
        options["chunk_key_encoding"] = {
            "name": "v2",
            "separator": array.metadata.dimension_separator,
        }
        if not same:
            options["compressors"] = "auto"
    else:
        options["chunk_key_encoding"] = array.metadata.chunk_key_encoding
        options["dimension_names"] = array.metadata.dimension_names
        if array.shards:
            # A shard is a whole number of chunks.
            options["shards"] = tuple(
                c * max(1, min(s // d, -(-n // c)))
                for c, s, d, n in zip(chunks, array.shards, array.chunks, shape, strict=True)
            )
    # Filters such as differences are of the type of the pixels.
    if same and array.filters:
        options["filters"] = array.filters
    return options


def stored_new(like: Picture, shape: tuple[int, ...]) -> dict[str, Any]:
    """Return how the pixels of a picture are stored that comes from no OME-Zarr."""
    planes = "YX"
    chunks = tuple(
        min(n, 1024) if a in planes else 1 for a, n in zip(like.axes, shape, strict=True)
    )
    axes = ome_of(like.metadata["attributes"])[1]["multiscales"][0]["axes"]
    return {"chunks": chunks, "dimension_names": [each["name"] for each in axes]}
