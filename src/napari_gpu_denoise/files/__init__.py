"""Files in and out: TIFF, NIfTI, OME-Zarr, DICOM, videos, sample data, batches."""

#: The names of all `formats.FORMATS`, for messages.
FORMAT_NAMES = "TIFF, NIfTI, OME-Zarr, DICOM or video"
