"""Patches of planes and their statistics, from which noise is estimated."""
