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

# Correlation, photons, magnitudes, frames and channels.

# Structured noise, noise by place, speckle.
