"""Files in and out: TIFF, NIfTI, OME-Zarr, sample data, batches."""

#: The names of all `formats.FORMATS`, for messages.
FORMAT_NAMES = "TIFF, NIfTI or OME-Zarr"
