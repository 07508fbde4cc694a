"""Structured noise: offsets of rows and columns, hum, hot and dead pixels."""
