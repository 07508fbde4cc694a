"""Call a filter for its pixels alone."""

from __future__ import annotations

import warnings

import numpy as np

from napari_gpu_denoise.errors import SaturationWarning
from napari_gpu_denoise.run import denoise


def denoised(image, settings, sigma, **options) -> np.ndarray:
    """Return what `denoise` makes, without the record; warn where values were clipped.

    Warns
    -----
    SaturationWarning
        If results were clipped to the range of an integer type.
    """
    result = denoise(image, settings, sigma, **options)
    if result.record.saturated:
        warnings.warn(
            f"{result.record.saturated} values were clipped to the range of {result.image.dtype}: "
            "use dtype='float32' to keep them.",
            SaturationWarning,
            stacklevel=3,
        )
    return result.image
