"""One run of a filter: preparation, tiles and frames, transfer to a device and back."""
