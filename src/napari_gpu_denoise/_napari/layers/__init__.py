"""Image layers: their data and axes, parts of them, and the layers of results."""
