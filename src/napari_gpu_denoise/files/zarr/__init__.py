"""OME-Zarr in and out: pixels replaced, metadata, chunks and levels of the pyramid kept.

Images are read and written part by part, whatever their size. zarr is imported when one is; it is
an extra of this package.
"""

from napari_gpu_denoise.files.zarr.address import Address, located
from napari_gpu_denoise.files.zarr.naming import (
    HEADS,
    SUFFIXES,
    has_suffix,
    is_named,
    is_unfinished,
    is_zarr,
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
    "check_place",
    "check_writable",
    "describe_plate",
    "has_suffix",
    "images_of",
    "is_named",
    "is_unfinished",
    "is_zarr",
    "leads_out",
    "located",
    "name_of",
    "new_image",
    "new_picture",
    "open_stack",
    "plate_of",
    "within",
    "write",
]
