"""Live preview: what the camera shows of a layer, filtered as settings change."""
