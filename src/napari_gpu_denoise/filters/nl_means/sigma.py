"""Sigma of NL-means for magnitude images, and for the Pearson distance."""

from __future__ import annotations

from typing import Any

import numpy as np

from napari_gpu_denoise.noise.correlation.spectrum import noise_spectrum
from napari_gpu_denoise.noise.magnitude.rician import rician_noise
from napari_gpu_denoise.noise.sampling import PlaneReader
from napari_gpu_denoise.noise.sigma_estimate import SigmaEstimate, estimate_sigma

MAGNITUDES = "Rician noise, from the background where there is one"
ROOTS = "square root of variance over mean, from the smoothest patches"
ROOTS_CORRELATED = f"{ROOTS}, including correlated noise"


def magnitude_sigma(image: Any, names: str) -> SigmaEstimate:
    """Estimate sigma of Rician noise in each channel of an array with these axes, in grey levels.

    The array may be lazy; at most 8 planes of a channel are read.
    """
    source = PlaneReader(image, names)
    found = [rician_noise(source.sampled(channel)) for channel in source.channels]
    values, errors = tuple(f.sigma for f in found), tuple(f.error for f in found)
    return SigmaEstimate(values, errors, MAGNITUDES, source.count)


def root_sigma(image: Any, names: str) -> SigmaEstimate:
    """Estimate sigma, in each channel, of noise whose variance is sigma squared times the mean.

    Twice the square root of such an image has noise of standard deviation sigma everywhere. If it
    is correlated, as speckle mostly is, sigma is that of the whole spectrum.
    """
    source, found = PlaneReader(image, names), []
    for channel in source.channels:
        planes = np.stack(list(source.sampled(channel)))
        roots = 2 * np.sqrt(np.maximum(planes, 0, dtype=np.float64))
        one = estimate_sigma(roots)
        sigma, error, method = one.sigma[0], one.standard_error[0], ROOTS
        if sigma > 0:
            spectrum = noise_spectrum(roots)
            if not spectrum.white and spectrum.sigma > sigma:
                sigma, method = spectrum.sigma, ROOTS_CORRELATED
                error = sigma * spectrum.ratio_error / 2
        found.append((sigma, error, method))
    values, errors, methods = zip(*found, strict=True)
    return SigmaEstimate(values, errors, ", or ".join(dict.fromkeys(methods)), source.count)
