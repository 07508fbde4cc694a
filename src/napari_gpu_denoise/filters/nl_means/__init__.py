"""Patchwise NL-means."""
