"""Which filter suits an image, and how good a result is, told from the noisy image alone."""
