"""Functions as tables, for the host and the device, and their use on images."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from napari_gpu_denoise.image.threads import in_bands

TABLE_ENTRIES = 4096
REACH = 9.0  # standard deviations beyond which a normal distribution is cut off

_BLOCK = 1 << 16  # values worked on at once: float64 of a few of them fit a cache


@cache
def quadrature() -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights of a Gauss-Legendre quadrature on -1 to 1, for expected values."""
    from numpy.polynomial.legendre import leggauss  # slow to import, and rarely needed

    return leggauss(128)


class Curve(NamedTuple):
    """A function tabulated at rising places `at`, linear in between."""

    at: np.ndarray
    value: np.ndarray


class Table(NamedTuple):
    """A function at even steps from `start`, `steps` per unit, for kernels/noise/table.h."""

    values: np.ndarray
    start: float
    steps: float


def tabulated(function: Callable[[np.ndarray], np.ndarray], start: float, end: float) -> Table:
    """Return a function from start to end as a table for the device."""
    values = function(np.linspace(start, end, TABLE_ENTRIES))
    return Table(values.astype(np.float32), start, (len(values) - 1) / (end - start))


def pointwise(function: Callable[[np.ndarray], np.ndarray], image: np.ndarray) -> np.ndarray:
    """Apply a function of float64 values (n,) to an image; the result is float32.

    It runs in several threads, and on blocks, so that it takes little memory.
    """
    result = np.empty(image.shape, np.float32)

    def fill(source: np.ndarray, target: np.ndarray) -> None:
        blocks = np.nditer(
            [source, target],
            flags=["external_loop", "buffered", "zerosize_ok"],
            op_flags=[["readonly"], ["writeonly"]],
            op_dtypes=[np.float64, np.float32],
            casting="same_kind",
            buffersize=_BLOCK,
        )
        with blocks:
            for values, changed in blocks:
                changed[...] = function(values)

    in_bands(fill, image, result)
    return result
