"""Limits that decide what is noise and what is not.

Each has its quantity in its name; the comment says its unit, why it is there, and which table of
`tests/benchmarks` (or other data) it was set on.
"""

# Patches of a plane.

# Models of noise, their choice and their proof.

# Squared standard errors that proof by something else than the variance over brightness counts as.
PROOF_WORTH = 100.0
# Growth of the variance over brightness, from which one sigma is a compromise and a note says so.
MIN_UNEVEN_GROWTH = 2.0
# Share of an image that shows noise and not only texture, for photons that are correlated: 0.94 and
# more in micrographs, less of textures.
MIN_NOISE_SHARE_OF_PHOTONS = 0.9

# Squared standard errors of a spectrum that a model does not describe, beside another that does:
# more than any law of the variance costs.
UNLIKE_SPECTRUM_COST = 1000.0
# Standard deviation of most grey levels over that of the model, from which a note says so.
MIN_UNEXPLAINED_RATIO = 2.0
# Ratio of the noise of a plane to that of most others, or its inverse, that is said.
MIN_ODD_PLANE_RATIO = 2.0

# Correlation, photons, magnitudes, frames and channels.

# Structured noise, noise by place, speckle.
