"""Sigma of NL-means for magnitude images, and for the Pearson distance."""

from __future__ import annotations

from typing import Any

import numpy as np

from napari_gpu_denoise.noise.correlation import noise_spectrum
from napari_gpu_denoise.noise.magnitude import rician_noise
from napari_gpu_denoise.noise.patches.selection import blank_area, blank_width, not_image
from napari_gpu_denoise.noise.patches.white import SigmaEstimate, estimate_sigma
from napari_gpu_denoise.noise.sampling import PlaneReader

MAGNITUDES = "Rician noise, from the background if there is one"
ROOTS = "square root of variance over mean, from the smoothest patches"
ROOTS_CORRELATED = f"{ROOTS}, including correlated noise"


def magnitude_sigma(image: Any, names: str) -> SigmaEstimate:
    """Estimate sigma of Rician noise in each channel of an array with these axes, in grey levels.

    The array may be lazy; at most 8 planes of a channel are read.
    """
    source = PlaneReader(image, names)
    found, width = [], 0
    for channel in source.channels:
        planes = np.stack(list(source.sampled(channel)))
        found.append(rician_noise(planes))
        areas = [blank_area(plane) for plane in planes]
        width = max(width, blank_width(areas, not_image(planes, areas)))
    values, errors = tuple(f.sigma for f in found), tuple(f.error for f in found)
    return SigmaEstimate(values, errors, MAGNITUDES, source.count, blank_width=width)


def root_sigma(image: Any, names: str) -> SigmaEstimate:
    """Estimate sigma, in each channel, of noise whose variance is sigma squared times the mean.

    Twice the square root of such an image has noise of standard deviation sigma everywhere. If it
    is correlated, as speckle mostly is, sigma is that of the whole spectrum.
    """
    source, found, width = PlaneReader(image, names), [], 0
    for channel in source.channels:
        planes = np.stack(list(source.sampled(channel)))
        roots = 2 * np.sqrt(np.maximum(planes, 0, dtype=np.float64))
        one = estimate_sigma(roots)
        width = max(width, one.blank_width)
        sigma, error, method = one.sigma[0], one.standard_error[0], ROOTS
        if sigma > 0:
            spectrum = noise_spectrum(roots)
            if not spectrum.white and spectrum.sigma > sigma:
                sigma, method = spectrum.sigma, ROOTS_CORRELATED
                error = sigma * spectrum.ratio_error / 2
        found.append((sigma, error, method))
    values, errors, methods = zip(*found, strict=True)
    method = ", or ".join(dict.fromkeys(methods))
    return SigmaEstimate(values, errors, method, source.count, blank_width=width)
