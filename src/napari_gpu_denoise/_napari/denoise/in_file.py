"""Large results of layers that are not in memory: an OME-Zarr that the user names."""

from __future__ import annotations

import math
import os
from collections.abc import Generator
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from napari_gpu_denoise._napari.denoise.request import Request
from napari_gpu_denoise._napari.io import reading, writing
from napari_gpu_denoise._napari.layers.lazy import is_lazy
from napari_gpu_denoise._napari.stage import Stage, as_stages
from napari_gpu_denoise.files import formats, zarr
from napari_gpu_denoise.image.levels import output_dtype
from napari_gpu_denoise.run import denoise
from napari_gpu_denoise.run.record import Result
from napari_gpu_denoise.run.request import Run

# The double ones first.
_SUFFIXES = (".ome.tif", ".ome.tiff", ".ome.zarr", ".nii.gz", *formats.SUFFIXES)


def size_of_file(request: Request, largest: int) -> int:
    """Return the bytes of a result that is to be written to a file; 0 for one that is not.

    `largest` is what a result may take without one. OME-Zarr has no colour samples, and its planes
    come last.
    """
    data = request.source.data
    fits = request.run.axes.upper().endswith("YX") and not request.places
    if not fits or not is_lazy(data) or find_spec("zarr") is None:
        return 0
    dtype = output_dtype(request.run.dtype, np.dtype(data.dtype)) or np.dtype(data.dtype)
    size = math.prod(data.shape) * dtype.itemsize
    return size if size > largest else 0


def suggested(request: Request) -> str:
    """Return a name for the file: beside that of the layer, if it has one."""
    source, name = request.source, request.run.filter.name
    own = "".join(c if c.isalnum() or c in " -_." else "_" for c in source.name)
    if source.path is None or "://" in source.path:
        return f"{own}_{name}.ome.zarr"
    folder, stem = os.path.split(source.path)
    for suffix in _SUFFIXES:
        stem = stem.removesuffix(suffix)
    # Of the channels of a file each layer is one.
    return os.path.join(folder, f"{stem if source.split is None else own}_{name}.ome.zarr")


def written(request: Request, image: Any, run: Run) -> Generator[Stage, None, Result]:
    """Filter an image into the file of a request; the result has its levels, as dask arrays."""
    source = request.source
    attributes = {**source.attributes, "name": source.name}
    like, earlier = writing.described(request.target, image, attributes, run.axes)
    with zarr.new_image(request.target, like, overwrite=False) as made:
        running = denoise.denoise_steps(image, run, out=made.finest)
        result = yield from as_stages(running, "Denoising")
        yield Stage("Writing the coarser levels")
        made.finish([*earlier, result.record.as_dict()])
    return replace(result, image=reading.levels_of(request.target))
