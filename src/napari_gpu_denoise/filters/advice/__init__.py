"""Advice: which filter and profile suit an image, and why."""
