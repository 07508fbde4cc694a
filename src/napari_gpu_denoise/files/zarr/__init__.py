"""OME-Zarr in and out: pixels replaced, metadata, chunks and levels of the pyramid kept.

Images are read and written part by part, whatever their size. zarr is imported when one is; it is
an extra of this package.
"""

from napari_gpu_denoise.files.zarr.places import (
    HEADS,
    SUFFIXES,
    Address,
    as_path,
    has_suffix,
    is_unfinished,
    is_zarr,
    is_zarr_path,
    leads_out,
)
from napari_gpu_denoise.files.zarr.plates import (
    describe_plate,
    images_of,
    name_of,
    plate_of,
    within,
)
from napari_gpu_denoise.files.zarr.reading import open_stack
from napari_gpu_denoise.files.zarr.writing import (
    NewImage,
    check_place,
    check_writable,
    new_image,
    new_picture,
    write,
)

__all__ = [
    "HEADS",
    "SUFFIXES",
    "Address",
    "NewImage",
    "as_path",
    "check_place",
    "check_writable",
    "describe_plate",
    "has_suffix",
    "images_of",
    "is_unfinished",
    "is_zarr",
    "is_zarr_path",
    "leads_out",
    "name_of",
    "new_image",
    "new_picture",
    "open_stack",
    "plate_of",
    "within",
    "write",
]
