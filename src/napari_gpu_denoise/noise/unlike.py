"""When the noise of planes, or of places, is not the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# Planes differ if the middle four fifths of their sigmas differ by this factor,
RATIO = 1.25
# and by this many standard errors from their median, in the root mean square.
SIGNIFICANT = 3.0
SYSTEMATIC = 0.05  # relative error of a sigma that texture leaves


def unlike(sigma: Sequence[float], error: Sequence[float]) -> bool:
    """Return whether planes clearly differ in their noise; `error` is relative.

    Planes without noise, or where it is not known, do not count.
    """
    values, errors = np.array(sigma), np.array(error)
    known = np.isfinite(values) & (values > 0)
    values, errors = values[known], errors[known]
    if len(values) < 2:
        return False
    low, high = np.quantile(values, (0.1, 0.9))
    distance = np.log(values / np.median(values)) / np.hypot(errors, SYSTEMATIC)
    return bool(high >= RATIO * low and np.sqrt(np.mean(distance**2)) >= SIGNIFICANT)
