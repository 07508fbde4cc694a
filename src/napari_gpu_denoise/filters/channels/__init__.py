"""Channels that are filtered together."""
