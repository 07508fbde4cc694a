"""The Shapiro-Wilk statistic by Royston (AS R94): weights of sorted values, and limits of W."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

_LARGEST = (0.0, 0.221157, -0.147981, -2.071190, 4.434685, -2.706056)
_SECOND = (0.0, 0.042981, -0.293762, -1.752461, 5.682633, -3.582633)


def _polynomial(coefficients: tuple[float, ...], x: float) -> float:
    return sum(c * x**k for k, c in enumerate(coefficients))


def weights(n: int) -> np.ndarray:
    """Return the weights of the largest of n values, the second largest, and so on to the median.

    Those of the smallest ones are the same, with the other sign; n is at least 6.
    """
    scores = [NormalDist().inv_cdf((n - k - 3 / 8) / (n + 1 / 4)) for k in range(n // 2)]
    m = np.array(scores, np.float64)
    squares = 2 * (m @ m)
    largest = m[0] / math.sqrt(squares) + _polynomial(_LARGEST, n**-0.5)
    second = m[1] / math.sqrt(squares) + _polynomial(_SECOND, n**-0.5)
    rest = squares - 2 * m[0] ** 2 - 2 * m[1] ** 2
    found = m * math.sqrt((1 - 2 * largest**2 - 2 * second**2) / rest)
    found[:2] = largest, second
    return found


def limit(n: int, alpha: float) -> float:
    """Return the W below which n normal values fall with probability alpha; n is at least 4."""
    if alpha <= 0:
        return 0.0
    z = NormalDist().inv_cdf(alpha)
    if n < 12:
        mean = _polynomial((0.5440, -0.39978, 0.025054, -0.0006714), n)
        deviation = math.exp(_polynomial((1.3822, -0.77857, 0.062767, -0.0020322), n))
        return 1 - math.exp(-2.273 + 0.459 * n - math.exp(deviation * z - mean))
    log_n = math.log(n)
    mean = _polynomial((-1.5861, -0.31082, -0.083751, 0.0038915), log_n)
    deviation = math.exp(_polynomial((-0.4803, -0.082676, 0.0030302), log_n))
    return 1 - math.exp(mean - deviation * z)
