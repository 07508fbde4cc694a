"""Limits that decide what is noise and what is not.

Each has its quantity in its name; the comment says its unit, why it is there, and which table of
`tests/benchmarks` (or other data) it was set on.
"""

# Patches of a plane.

# Models of noise, their choice and their proof.

# Correlation, photons, magnitudes, frames and channels.

# Structured noise, noise by place, speckle.
MIN_OUTLIER_SCORE = 5.5  # x
MAX_SECOND_OUTLIER = 0.5
OUTLIER_NOISE_OVER_MEAN_DEVIATION = 1.4
MIN_OUTLIER_NOISE_OVER_PLANE = 0.5
MIN_SALT_SHARE, MAX_SALT_SHARE = 0.002, 0.1
MIN_OUTLIERS = 6
MIN_OUTLIER_WEIGHT = 28.0
MAX_CHANCE_OUTLIERS = 0.2
MAX_CROWDED_OUTLIERS = 0.35
MIN_ROW_AGREEMENT = 0.25  # of natural images without such offsets: 0.18 at most (BSD68, W2S)
MIN_STEP_OVER_ROW_OFFSETS = 2.5
MIN_WAVE_CYCLES = 8
MAX_WAVE_DIFFERENCE = 0.65
MAX_BLOCKS_WITHOUT_WAVE = 0.25
