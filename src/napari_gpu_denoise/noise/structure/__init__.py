"""Structured noise: rows and columns with offsets of their own, hum, hot and dead pixels."""
