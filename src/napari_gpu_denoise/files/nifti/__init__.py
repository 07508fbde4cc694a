"""NIfTI in and out: voxels replaced, header and extensions kept.

A file holds its axes as (x, y, z, t, …), the first varying fastest. From the last to the first they
are (…, T, Z, Y, X), in the order in which NumPy lays arrays out, so that nothing is turned round or
copied. nibabel knows the header; it is imported when a NIfTI file is read or written.
"""

from napari_gpu_denoise.files.image_file import Format
from napari_gpu_denoise.files.nifti.reading import SUFFIXES, has_suffix, is_nifti, open_stack
from napari_gpu_denoise.files.nifti.writing import as_stored, check_writable, write

FORMAT = Format(
    name="a NIfTI file",
    suffixes=SUFFIXES,
    kinds=("nifti",),
    new_suffix=".nii or .nii.gz",
    is_path=has_suffix,
    is_format=is_nifti,
    open_stack=open_stack,
    check_writable=check_writable,
    write=write,
)

__all__ = ["FORMAT", "as_stored", "has_suffix", "is_nifti", "open_stack", "write"]
