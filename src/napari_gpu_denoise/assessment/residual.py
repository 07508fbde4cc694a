"""What a filter took away, beside what it takes from a twin: the result with fresh noise.

Both are filtered alike, so that whatever the filter does to an image as it should be shows in both.
What shows in the residual alone is in the image: noise of another strength or kind.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Statistics:
    """Of a residual in units of the noise.

    Attributes
    ----------
    variance : float
        1 where all the noise was taken, and nothing else.
    along_x, along_y : float
        Correlation of neighbouring pixels.
    """

    variance: float
    along_x: float
    along_y: float

    @classmethod
    def of(cls, residual: np.ndarray, known: np.ndarray) -> Statistics:
        """Return those of planes (…, y, x); `known` says which pixels count."""
        values = np.where(known, residual, 0).astype(np.float32)
        count = max(int(np.count_nonzero(known)), 1)
        mean = values.sum(dtype=np.float64) / count
        values = np.where(known, values - np.float32(mean), 0)
        variance = float(np.vdot(values, values)) / count

        def neighbours(one: tuple, other: tuple) -> float:
            pairs = max(int(np.count_nonzero(known[one] & known[other])), 1)
            product = float(np.sum(values[one] * values[other], dtype=np.float64))
            return product / pairs / variance if variance > 0 else 0.0

        return cls(
            variance,
            neighbours(np.s_[..., 1:], np.s_[..., :-1]),
            neighbours(np.s_[..., 1:, :], np.s_[..., :-1, :]),
        )
