"""Exact pixelwise NL-means."""
