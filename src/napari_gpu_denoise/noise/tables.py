"""The stabilising curves and their inverses as tables at even steps, for the device."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from napari_gpu_denoise.noise import stabilising

_ENTRIES = 4096
_LIGHT = 400.0  # electrons² of variance above which the expansion of the inverse stands alone
_LARGEST = 6.0  # magnitudes, in sigma, above which the curve is its asymptote
_SIGNAL = 40.0  # the same of the inverse


class Table(NamedTuple):
    """A function at even steps.

    `values` is float32, (n,); the first one belongs to `start`, and there are `steps` of them in 1.
    """

    values: np.ndarray
    start: float
    steps: float

    @property
    def end(self) -> float:
        """What the last value belongs to."""
        return self.start + (len(self.values) - 1) / self.steps


def _table(values: np.ndarray, start: float, end: float) -> Table:
    return Table(values.astype(np.float32), start, (len(values) - 1) / (end - start))


@lru_cache(maxsize=64)
def photon_inverse(read_noise: float) -> Table:
    """Return what the expansion of the exact unbiased inverse lacks, in electrons.

    A function of the stabilised value, from that of no light on; 0 at its end, and beyond.

    Parameters
    ----------
    read_noise : float
        Electrons.
    """
    dark = float(stabilising.expected_anscombe(np.zeros(1), read_noise)[0])
    # A large read noise leaves hardly a range: the table is then all but 0.
    end = max(2 * (_LIGHT + 1) ** 0.5, dark + 1)
    at = np.linspace(dark, end, _ENTRIES)
    lacking = stabilising.unbiased_electrons(at, read_noise) - stabilising.expansion(at, read_noise)
    lacking[-1] = 0
    return _table(lacking, dark, end)


@lru_cache(maxsize=1)
def magnitudes() -> Table:
    """Return the curve that stabilises magnitudes, both in sigma, from 0 to where it ends."""
    at = np.linspace(0, _LARGEST, _ENTRIES)
    return _table(stabilising.stabilised_magnitude(at), 0.0, _LARGEST)


@lru_cache(maxsize=1)
def magnitude_inverse() -> Table:
    """Return the square of the signal, in sigma squared, as a function of the stabilised mean."""
    magnitude, probability = stabilising.rice(np.zeros(1))
    dark = float((probability * stabilising.stabilised_magnitude(magnitude)).sum())
    at = np.linspace(dark, _SIGNAL, _ENTRIES)
    return _table(stabilising.unbiased_signal(at, False) ** 2, dark, _SIGNAL)
