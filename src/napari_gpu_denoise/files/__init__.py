"""Files in and out: TIFF, NIfTI, OME-Zarr, DICOM, videos, ND2, CZI, LIF, sample data, batches."""

#: The names of all `formats.FORMATS`, for messages.
FORMAT_NAMES = "TIFF, NIfTI, OME-Zarr, DICOM, video or ND2/CZI/LIF"
