"""PRI-NLM: NL-means of volumes with a prefiltered guide."""
