"""Files in and out: TIFF, sample data, batches."""
