"""Photon and read noise of a sensor: gain, offset and read noise."""
