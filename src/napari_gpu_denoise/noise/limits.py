"""Limits that decide what is noise and what is not.

Each has its quantity in its name; the comment says its unit, why it is there, and which table of
`tests/benchmarks` (or other data) it was set on.
"""

# Patches of a plane.

# Share of clipped pixels of a patch, or of a level of brightness: more of them weaken its noise.
MAX_CLIPPED_SHARE = 0.01
# The same, from which a patch shows no noise at all.
MAX_CLIPPED_SHARE_OF_NOISE = 0.5
# Pixels of the lowest or highest value of a sample of 65,536, fewer of which are not clipped.
MIN_CLIPPED_PIXELS = 16
# Variance of counts of photons over their mean, from and to: values that vary otherwise are none.
COUNT_DISPERSION = 0.75, 1.3
# Standard errors by which more patches may raise the variance of the smoothest ones, before the
# rest is texture.
MAX_ERRORS_OF_MORE_PATCHES = 1.5
# Power of the top over that of the middle frequencies of smooth patches: 1 for white noise, less of
# texture (10 % of right claims are below 0.65, half of the wrong ones).
MIN_PATCH_FLATNESS = 0.65
# The same of levels with more noise than others, for a table of sigmas.
MIN_FREE_FLATNESS = 0.8
# Variance of the energy of smooth patches of a level over that of white noise, and over flatness.
MAX_LEVEL_DISPERSION = 3.0
# Levels of brightness, and share of all or of their patches, that look like white noise, from which
# these alone tell how noise depends on brightness.
MIN_WHITE_LEVELS, MIN_WHITE_SHARE = 5, 0.75
# Squared standard errors by which a law has to fit levels of brightness better than a constant.
MIN_COST_GAIN = 16.0
# The same, where something else tells, too: levels that look like white noise, or a background.
MIN_COST_GAIN_BESIDE_PROOF = 9.0
# Squared standard errors of a level, above which no law fits.
MAX_COST_OF_LEVEL = 3.0
# Squared standard errors by which the square may fit worse than the line, which has more numbers.
MAX_COST_OF_SQUARE_OVER_LINE = 5.0
# Growth of the variance along a line over the levels, from which it matters.
MIN_VARIANCE_GROWTH = 1.3
# Ratio of the brightest level to the darkest, below which a line and a square are the same.
MIN_BRIGHTNESS_RATIO = 2.5
# Ratio of the middle four fifths of the sigmas of planes, and standard errors from their median in
# the root mean square, from which these differ.
MIN_RATIO_OF_PLANES, MIN_ERRORS_BETWEEN_PLANES = 1.25, 3.0

# Models of noise, their choice and their proof.

# Squared standard errors that proof by something else than the variance over brightness counts as.
PROOF_WORTH = 100.0
# Growth of the variance over brightness, from which one sigma is a compromise and a note says so.
MIN_UNEVEN_GROWTH = 2.0
# Share of an image that shows noise and not only texture, for photons that are correlated: 0.94 and
# more in micrographs, less of textures.
MIN_NOISE_SHARE_OF_PHOTONS = 0.9

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
