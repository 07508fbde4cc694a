"""Limits that decide what is noise and what is not.

Each has its quantity in its name; the comment says its unit, why it is there, and which table of
`tests/benchmarks` (or other data) it was set on.
"""

# Patches of a plane.

# Models of noise, their choice and their proof.

# Correlation, photons, magnitudes, frames and channels.
MIN_NEIGHBOUR_CORRELATION = 0.1  # of noise that is not white: less costs less than 0.1 dB
MIN_CORRELATION_ERRORS = 3.0  # standard errors by which it differs from 0 (test_correlation)
MAX_SPECTRUM_MISFIT = 0.75  # squared error over chance of a fit (quality_correlated: sigma)
MAX_CORRELATION_ERROR = 0.2  # of the correlation of neighbours, where texture could be separated
CORRELATION_OF_TEXTURE = 0.1  # of neighbours, over its power at the highest frequencies to noise
MAX_MIDDLE_RATIO = 5.0  # of power, middle to highest frequencies, of white noise beside texture
MAX_EDGE_RATIO = 2.5  # the same of frequencies high along one axis (noise_models: pictures)
MIN_BAND_RATIO = 1 / 1.5  # the same of all of these, at least; texture never lowers them
MAX_TEXTURE_GROWTH = 0.35  # of power in rougher patches of a level that shows noise

# Structured noise, noise by place, speckle.
