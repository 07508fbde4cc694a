"""TIFF in and out: pixels replaced, everything else about the image kept.

A file is read into an `ImageFile`, which carries the tags and text that describe it as they stand
in the file. `write` puts new pixels under the same description, so that axes, voxel size, units,
time interval and channel names need no translation between formats and none of them can get lost.

Planes of an image are read when they are asked for, so that it need not be in memory as a whole.
Large planes are read and written tile by tile, or in bands of rows.
"""

from napari_gpu_denoise.files.image_file import Format
from napari_gpu_denoise.files.tiff import imagej, ome_xml
from napari_gpu_denoise.files.tiff.reading import LargePlanes, Planes, is_tiff, open_image
from napari_gpu_denoise.files.tiff.writing import check_writable, described_anew, lettered, write

FORMAT = Format(
    name="TIFF",
    suffixes=(".tif", ".tiff", ".btf", ".tf8"),
    kinds=("ome", "imagej", "plain"),
    is_format=is_tiff,
    open_image=open_image,
    check_writable=check_writable,
    write=write,
    held={
        "ome": ("an OME-TIFF", ome_xml.HELD),
        "imagej": ("an ImageJ", imagej.HOLDS | imagej.CONVERTS),
    },
    described_anew=described_anew,
)

__all__ = ["FORMAT", "LargePlanes", "Planes", "described_anew", "lettered", "write"]
