"""Pixels on their way through a device: as tiles, or as frames in order of time."""
