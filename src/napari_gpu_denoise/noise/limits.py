"""Limits that decide what is noise and what is not.

Each has its quantity in its name; the comment says its unit, why it is there, and which table of
`tests/benchmarks` (or other data) it was set on.
"""

# Patches of a plane.

# Models of noise, their choice and their proof.

# Correlation, photons, magnitudes, frames and channels.

# Structured noise, noise by place, speckle.
