"""OME-Zarr in and out: pixels replaced, metadata, chunks and levels of the pyramid kept.

Images are read and written part by part, whatever their size. zarr is imported when one is; it is
an extra of this package.
"""

from napari_gpu_denoise.files.image_file import Format
from napari_gpu_denoise.files.zarr.metadata import (
    check_plate_target,
    describe_plate,
    images_of,
    name_of,
    plate_of,
    within,
)
from napari_gpu_denoise.files.zarr.places import (
    HEADS,
    SUFFIXES,
    Address,
    as_path,
    has_suffix,
    is_unfinished,
    is_zarr,
    is_zarr_path,
)
from napari_gpu_denoise.files.zarr.reading import open_stack
from napari_gpu_denoise.files.zarr.writing import (
    NewImage,
    check_writable,
    described_anew,
    new_image,
    write,
)

FORMAT = Format(
    name="OME-Zarr",
    suffixes=SUFFIXES,
    kinds=("zarr",),
    new_suffix=".ome.zarr",
    is_format=is_zarr,
    open_stack=open_stack,
    check_writable=check_writable,
    write=write,
    is_named=is_zarr_path,
    new_image=new_image,
    described_anew=described_anew,
    result_name=name_of,
)

__all__ = [
    "FORMAT",
    "HEADS",
    "Address",
    "NewImage",
    "as_path",
    "check_plate_target",
    "describe_plate",
    "described_anew",
    "has_suffix",
    "images_of",
    "is_unfinished",
    "is_zarr",
    "is_zarr_path",
    "name_of",
    "new_image",
    "plate_of",
    "within",
]
