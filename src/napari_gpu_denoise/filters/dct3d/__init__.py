"""Sliding 3D DCT."""
