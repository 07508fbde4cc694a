"""Limits that decide what is noise and what is not.

Each has its quantity in its name; the comment says its unit, why it is there, and which table of
`tests/benchmarks` (or other data) it was set on.
"""

# Patches of a plane.

MAX_CLIPPED_SHARE = 0.01  # of pixels of a patch or level: more weaken its noise (test_white)
MAX_CLIPPED_SHARE_OF_NOISE = 0.5  # of pixels of a patch; more of them show none (test_selection)
MIN_CLIPPED_PIXELS = 16  # of one extreme value, in a sample of 65,536 (test_selection)
# Variance over mean of what are counts of photons (test_photon).
COUNT_DISPERSION = 0.75, 1.3
# Standard errors by which more patches may raise the variance of smoother ones: else they are
# texture (quality_trust, test_white: photographs).
MAX_ERRORS_OF_MORE_PATCHES = 1.5
# Power of the top over that of the middle frequencies of smooth patches, 1 for white noise: 10 % of
# right claims are below it, and half of the wrong ones (quality_trust).
MIN_PATCH_FLATNESS = 0.65
MIN_FREE_FLATNESS = 0.8  # the same of levels with more noise than others (quality_trust: laws)
MAX_LEVEL_DISPERSION = 3.0  # variance of energies of patches, over white noise (quality_trust)
MIN_WHITE_LEVELS = 5  # of brightness, from which the others do not count (quality_trust: laws)
MIN_WHITE_SHARE = 0.75  # the same, of the levels or of their patches, where there are few
# Squared standard errors by which a law over brightness has to fit better than a constant.
MIN_COST_GAIN = 16.0
# The same, where something else tells, too (noise_estimates: models; photon_scenes).
MIN_COST_GAIN_BESIDE_PROOF = 9.0
MAX_COST_OF_LEVEL = 3.0  # squared standard errors, above which no law fits (noise_estimates)
MAX_COST_OF_SQUARE_OVER_LINE = 5.0  # the same; the line has one more number (noise_estimates)
MIN_VARIANCE_GROWTH = 1.3  # over the levels, from which it matters (photon_scenes)
# Ratio of sigma from which it matters: of the middle four fifths of planes, or of the ends of a
# surface (test_places; quality_noise: places).
MIN_SIGMA_RATIO = 1.25
MIN_ERRORS_BETWEEN_PLANES = 3.0  # from their median, in the root mean square (test_places)

# Models of noise, their choice and their proof.

# Squared standard errors that proof by something else than the variance over brightness counts as.
PROOF_WORTH = 100.0
# Factor that a note says: growth of the variance over brightness, from which one sigma is a
# compromise; deviation of most grey levels over that of the model; noise of a plane over that of
# most others, or its inverse.
MIN_FACTOR_SAID = 2.0
# Share of an image that shows noise and not only texture, for photons that are correlated: 0.94 and
# more in micrographs, less of textures.
MIN_NOISE_SHARE_OF_PHOTONS = 0.9

# Proof, on textured photographs without and with white noise (`textures`, `unchanged`, `laws` and
# `pairs` of quality_trust.py): limits of the ratios of what is claimed to what is shown.
# Variance of the energy of the smoothest patches over that of white noise; 1.7 in 90 % of right
# claims.
MAX_SMOOTH_DISPERSION = 2.0
# Variance of the smoothest patches over that claimed: 0.34 where half of the pixels are clipped.
MIN_SHARE_OF_CLAIM = 0.1
# Claimed sigma over the median error of pixels predicted from neighbours: from and to.
SIGMA_OVER_PREDICTION_ERROR = 0.88, 1.5
# Sigma over that of the differences of repeats, from which these prove it (perfusion series).
MIN_SIGMA_OVER_DIFFERENCES = 0.75
# Share of a claimed sigma that is proven, from which no note says that the rest is not.
MIN_PROVEN_SHARE = 0.8
# How much the power of correlated noise falls from the middle to the highest frequencies, 1 for
# white noise: of colours together, and of what they do not share, over the former 0.6 to 7 in files
# of cameras, and 0.05 to 0.5 in textures and means of many shots (quality_trust: pairs, unchanged;
# colours of textures).
MIN_FALL_OF_COLOURS, MIN_FALL_RATIO = 5.0, 0.6
# Power of colours within the patches that are read, rough over smooth: 1.2 to 2.5 of noise of
# cameras, 1.8 to 5 of what is left in the means of many shots.
MAX_GROWTH_OF_COLOURS = 2.5

# Squared standard errors of a spectrum that a model does not describe, beside another that does:
# more than any law of the variance costs.
UNLIKE_SPECTRUM_COST = 1000.0

# Correlation, photons, magnitudes, frames and channels.
MIN_NEIGHBOUR_CORRELATION = 0.1  # of noise that is not white: less costs less than 0.1 dB
MIN_CORRELATION_ERRORS = 3.0  # standard errors by which it differs from 0 (test_correlation)
MAX_SPECTRUM_MISFIT = 0.75  # squared error over chance of a fit (quality_correlated)
MAX_CORRELATION_ERROR = 0.2  # of the correlation of neighbours, where texture could be separated
MAX_MIDDLE_RATIO = 5.0  # of power, middle to highest frequencies, of white noise beside texture
MAX_EDGE_RATIO = 2.5  # the same of frequencies high along one axis (noise_models: whiteness)
MIN_BAND_RATIO = 1 / 1.5  # the same of all of these, at least; texture never lowers them
# Sigma over one that bounds it: of differences of frames over that of single frames, which hold
# texture besides; of any claim over that of differences of repeats (quality_noise: planes).
MAX_SIGMA_OVER_BOUND = 1.1
MIN_SIGMA_OVER_SINGLE = 0.3  # of differences; less where frames were averaged or stored twice
MAX_SIGMA_OF_FURTHER = 1.15  # sigma of differences of each second frame over that of neighbours
MAX_SIGMA_RATIO_ALIKE = 1.2  # of planes whose noise is the same (quality_noise: planes)
# Standard errors of a gain above 0 (photon_scenes); of low frequencies above noise, in what moves.
MIN_ERRORS_ABOVE = 4.0
MIN_STILL_SHARE = 0.6  # of the patches of a level, in a time-lapse that stands still
MAX_LOW_OVER_HIGH = 1.15  # power of low over high frequencies of differences, of a still level
MAX_MOVING_LEVELS = 0.25  # share of the levels of brightness, in a time-lapse that stands still
# Growth of the variance along a line, of magnitudes: 2.33, and more by texture.
MAX_GROWTH_OF_MAGNITUDES = 10.0
# Mean over standard deviation of the darkest level, where magnitudes differ from a constant.
MAX_MEAN_OF_DARK_LEVEL = 4.5
MAX_MISFIT_OF_MAGNITUDES = 2.0  # squared standard errors a level (magnitudes_noise)
# Share of the values by which a background differs from noise alone, but for chance.
MAX_DEVIATION_OF_BACKGROUND = 0.012
# Standard errors of a covariance of channels above 0: textures have up to 8 (quality_noise).
MIN_SHARED_ERRORS = 10.0
MAX_TEXTURE_GROWTH = 0.35  # of power in rougher patches of a level that shows noise

# Structured noise, noise by place, speckle.
# Standard deviations of the local noise between a hot or dead pixel and its neighbours; offsets of
# whole rows, too (quality_structure: found, removed).
MIN_OUTLIER_SCORE = 5.5
# Deviation of the second most extreme neighbour over that of an outlier: optics resolve no object
# into a single pixel (quality_structure: alarms).
MAX_SECOND_OUTLIER = 0.5
# Number of outliers, times the square of how far beyond the limit they are, in an image of 481 x
# 321 pixels, from which they are found: without any at most 21 (quality_structure: alarms).
MIN_OUTLIER_WEIGHT = 28.0
MIN_OUTLIERS = 6  # tips of masked objects, as in colin27, are fewer (quality_structure: alarms)
MAX_CROWDED_OUTLIERS = 0.35  # share with another near: more are objects (quality_structure: alarms)
SALT_SHARE = 0.002, 0.1  # of the pixels, that have one extreme value: from and to (test_structure)
# Correlation of the levels of rows between the thirds of a plane, from which they have offsets;
# without at most 0.18 (quality_structure: alarms, BSD68 and W2S).
MIN_ROW_AGREEMENT = 0.25
# Share of its amplitude that a wave may differ by in a block, and share of the blocks where it is
# the same (quality_structure: found, alarms).
MAX_WAVE_DIFFERENCE, MIN_WAVE_BLOCKS = 0.65, 0.75
MIN_WAVE_CYCLES = 8  # over the plane; slower waves may be its shading (quality_structure: removed)
# Correlation of the offsets of planes, or share of outliers in common, if fixed (test_structure).
MIN_SHARED_BY_PLANES = 0.5
MIN_SURFACE_ERRORS = 6.0  # standard errors between the ends of a surface of sigma
# Squared standard errors by which it fits better than other laws; relative error at any place.
MIN_SURFACE_GAIN, MAX_SURFACE_ERROR = 25.0, 0.12
# Windows of speckle on a logarithmic scale: share with nearly the same standard deviation, their
# median skewness, and the range of brightness over that deviation (test_speckle, ultrasound).
MIN_SPECKLE_SHARE, MAX_SPECKLE_SKEWNESS, MIN_SPECKLE_CONTRAST = 0.75, -0.4, 1.5
