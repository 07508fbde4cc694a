"""Files in and out: TIFF, NIfTI, sample data, batches."""
