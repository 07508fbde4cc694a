"""VBM3D: BM3D for time-lapses."""
