"""Noise of an image: measuring it, models of it, and making it the same everywhere."""
