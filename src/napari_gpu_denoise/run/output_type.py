"""The type of a result where none is asked for: integers only where rounding costs little."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import ImageError
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


def type_with(out: Any, shape: tuple[int, ...], dtype: np.dtype | None) -> np.dtype:
    """Return the type of a result for an array that takes it: `dtype`, or its own if that is None.

    Refuses an array that cannot take the result.
    """
    if not all(hasattr(out, name) for name in ("shape", "dtype", "__setitem__")):
        raise ImageError(
            f"out={out!r} is not an array", "give an array with shape, dtype and NumPy indexing"
        )
    held = tuple(out.shape), np.dtype(out.dtype).newbyteorder("=")
    if dtype is None and held[1].kind in "iuf" and held[1].itemsize <= 8:
        dtype = held[1]
    if dtype is None or held != (shape, dtype.newbyteorder("=")):
        kind = dtype or "real numbers"
        raise ImageError(
            f"out= is of shape {held[0]} and type {held[1]}, the result of {shape} and {kind}",
            "give an array of that shape and type, or set its type with dtype=",
        )
    if isinstance(out, np.ndarray) and not out.flags.writeable:
        raise ImageError("out= cannot be written to", "give an array that is not read-only")
    return dtype
