"""TIFF in and out: pixels replaced, everything else about the image kept.

A file is read into a `Picture`, which carries the tags and text that describe it as they stand in
the file. `write` puts new pixels under the same description, so that axes, voxel size, units, time
interval and channel names need no translation between formats and none of them can get lost in one.

`open_stack` reads the planes of an image when they are asked for, and a `PlaneStore` keeps those of
a result in a file until `write` gets them, so that neither need be in memory as a whole. Large
planes are read and written tile by tile, or in bands of rows.
"""

from napari_gpu_denoise.files.tiff.large_planes import LargePlanes
from napari_gpu_denoise.files.tiff.output import check_folder, check_output, new_file
from napari_gpu_denoise.files.tiff.picture import SUFFIXES, Picture, is_tiff
from napari_gpu_denoise.files.tiff.plane_store import PlaneStore
from napari_gpu_denoise.files.tiff.planes import Planes
from napari_gpu_denoise.files.tiff.reading import open_stack, read
from napari_gpu_denoise.files.tiff.writing import check_writable, write

__all__ = [
    "SUFFIXES",
    "LargePlanes",
    "Picture",
    "PlaneStore",
    "Planes",
    "check_folder",
    "check_output",
    "check_writable",
    "is_tiff",
    "new_file",
    "open_stack",
    "read",
    "write",
]
