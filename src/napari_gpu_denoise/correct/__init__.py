"""Removal of structured noise, on request."""
