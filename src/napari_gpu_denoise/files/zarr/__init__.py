"""OME-Zarr in and out: pixels replaced, metadata, chunks and levels of the pyramid kept.

Images are read and written part by part, whatever their size. zarr is imported when one is; it is
an extra of this package.
"""

from napari_gpu_denoise.files.image_file import Format
from napari_gpu_denoise.files.zarr import metadata, places, reading, writing

FORMAT = Format(
    name="OME-Zarr",
    suffixes=(".ome.zarr", *places.SUFFIXES),
    kinds=("zarr",),
    is_format=places.is_zarr,
    open_image=reading.open_image,
    write=writing.write,
    held={"zarr": ("an OME-Zarr", writing.HELD)},
    is_named=places.is_zarr_path,
    new_image=writing.new_image,
    described_anew=writing.described_anew,
    result_name=metadata.name_of,
)
