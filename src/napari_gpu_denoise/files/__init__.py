"""Files in and out: TIFF, NIfTI, OME-Zarr, DICOM, sample data, batches."""

#: The names of all `formats.FORMATS`, for messages.
FORMAT_NAMES = "TIFF, NIfTI, OME-Zarr or DICOM"
