"""BM4D: collaborative filtering of groups of similar cubes of a volume."""
