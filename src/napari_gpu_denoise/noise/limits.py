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
MAX_EQUAL_PATCHES = 0.01  # share of the patches of two frames: those of compressed videos are
MAX_SIGMA_OVER_SINGLE = 1.05  # of differences of frames; single frames hold the same, and texture
MIN_SIGMA_OVER_SINGLE = 0.3  # the same: less where frames were averaged or stored twice
MAX_SIGMA_OF_FURTHER = 1.15  # sigma of differences of each second frame over that of neighbours
MAX_SIGMA_RATIO_ALIKE = 1.2  # of planes whose noise is the same (planes_noise)
MIN_MOTION_ERRORS = 4.0  # standard errors of low frequencies above the noise, in what moves
MIN_STILL_SHARE = 0.6  # of the patches of a level, in a time-lapse that stands still
MAX_LOW_OVER_HIGH = 1.15  # power of low over high frequencies of differences, of a still level
MAX_MOVING_LEVELS = 0.25  # share of the levels of brightness, in a time-lapse that stands still
MAX_TEXTURE_GROWTH = 0.35  # of power in rougher patches of a level that shows noise

# Structured noise, noise by place, speckle.
