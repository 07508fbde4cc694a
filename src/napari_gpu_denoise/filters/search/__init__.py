"""The search for similar patches, shared by NL-means, BM3D and VBM3D."""
