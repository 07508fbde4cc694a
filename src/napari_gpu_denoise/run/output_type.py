"""The type of a result where none is asked for: integers only where rounding costs little."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from napari_gpu_denoise.noise.sampling import PlaneReader
from napari_gpu_denoise.run.filter import Filter
from napari_gpu_denoise.run.sigma import Sigma

# Share of the variance of the noise that a good filter leaves in an image with large smooth areas.
# It leaves more where there is texture.
_REMAINS = 0.1
_LOSS = 0.05  # dB that rounding may cost beside what remains
_ROUNDING = 1 / 12  # variance
# Least variance of the noise at which rounding costs no more.
_ENOUGH = _ROUNDING / (10 ** (_LOSS / 10) - 1) / _REMAINS


def type_for_noise(
    given: np.dtype, sigma: Sigma, filter: Filter, image: Any, names: str
) -> np.dtype:
    """Return the integer type of an image for its result too, or float32 where noise is weak.

    From a standard deviation of the noise of about 8.5 grey levels on, rounding costs less than
    0.05 dB. Colour samples keep their type, as programs show floats of another range; so do
    integers of more than 16 bits, which float32 may not hold, and results that are no grey levels.
    """
    same = given.newbyteorder("=")
    grey = filter.sigma_power == 1 and not filter.keeps_zero and not filter.yields_map
    if given.itemsize > 2 or "S" in names or not grey or filter.sigma_unused:
        return same
    variance = _variance(sigma, image, names)
    return np.dtype(np.float32) if 0 < variance < _ENOUGH else same


def _variance(sigma: Sigma, image: Any, names: str) -> float:
    """Return the mean variance of the noise, of the channel that has least."""
    if not sigma.stabilised:
        values = np.square(sigma.array)
        axes = tuple(k for k, name in enumerate(names) if name != "C")
        each = values.mean(axis=axes)
        return float(each[each > 0].min(initial=math.inf))
    reader, found = PlaneReader(image, names), []
    for number, channel in enumerate(reader.channels):
        plane = reader.sampled(channel)[0]
        model = sigma.models[number % len(sigma.models)]
        finite = plane[np.isfinite(plane)] if plane.dtype.kind == "f" else plane
        found.append(float(model.variance(finite).mean()) if finite.size else math.inf)
    return min(found)
