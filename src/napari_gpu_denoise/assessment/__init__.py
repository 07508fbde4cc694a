"""Recommendation of a filter, and quality of a result, from the noisy image alone."""
