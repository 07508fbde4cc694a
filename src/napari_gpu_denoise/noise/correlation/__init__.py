"""Correlated noise, of pixels or channels: autocovariance, spectrum, covariance."""
