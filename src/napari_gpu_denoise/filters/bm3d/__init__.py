"""BM3D: block matching and collaborative filtering."""
