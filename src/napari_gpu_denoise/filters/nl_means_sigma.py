"""Sigma of NL-means where it is told of magnitudes, or compares as Pearson does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from napari_gpu_denoise.axes import channel_axis
from napari_gpu_denoise.noise.patch_spectra import MAX_PLANES
from napari_gpu_denoise.noise.rician import rician_noise
from napari_gpu_denoise.noise.sigma_estimate import SigmaEstimate, estimate_sigma
from napari_gpu_denoise.noise.spectrum import noise_spectrum

MAGNITUDES = "Rician noise, from the background where there is one"
ROOTS = "square root of variance over mean, from the smoothest patches"
ROOTS_CORRELATED = f"{ROOTS}, noise of neighbours included"


def magnitude_sigma(image: Any, names: str) -> SigmaEstimate:
    """Estimate sigma of the two parts whose magnitude an image shows, one a channel.

    Parameters
    ----------
    image : array, any real dtype
        Anything with ``shape``, ``dtype`` and NumPy indexing; at most 8 planes of a channel are
        read. Not modified.
    names : str
        Its axes, as `check_axes` returns them.

    Returns
    -------
    SigmaEstimate
        Grey levels.
    """
    found, planes = [], 0
    for stack in _channels(image, names):
        found.append(rician_noise(stack))
        planes += len(stack)
    values, errors = tuple(f.sigma for f in found), tuple(f.error for f in found)
    return SigmaEstimate(values, errors, MAGNITUDES, planes)


def root_sigma(image: Any, names: str) -> SigmaEstimate:
    """Estimate sigma of noise whose variance is sigma squared times the mean, one a channel.

    Parameters
    ----------
    image, names
        As for `magnitude_sigma`.

    Returns
    -------
    SigmaEstimate
        In units of the square root of a grey level.

    Notes
    -----
    Twice the square root of such an image has noise of standard deviation sigma everywhere. Where
    neighbouring pixels share it, as speckle mostly does, that of the whole spectrum is taken.
    """
    found, planes = [], 0
    for stack in _channels(image, names):
        roots = 2 * np.sqrt(np.maximum(stack, 0, dtype=np.float64))
        planes += len(stack)
        one = estimate_sigma(roots)
        sigma, error, method = one.sigma[0], one.standard_error[0], ROOTS
        if sigma > 0:
            spectrum = noise_spectrum(roots)
            if not spectrum.white and spectrum.sigma > sigma:
                sigma, method = spectrum.sigma, ROOTS_CORRELATED
                error = sigma * spectrum.ratio_error / 2
        found.append((sigma, error, method))
    values, errors, methods = zip(*found, strict=True)
    return SigmaEstimate(values, errors, ", or ".join(dict.fromkeys(methods)), planes)


def _channels(image: Any, names: str) -> Iterator[np.ndarray]:
    """Yield planes (n, y, x) of each channel, evenly spread over its other axes."""
    channel = channel_axis(names)
    free = [i for i, a in enumerate(names) if a not in "YX" and i != channel]
    lengths = tuple(int(image.shape[i]) for i in free)
    count = int(np.prod(lengths))
    chosen = min(count, MAX_PLANES)
    upright = names.index("Y") < names.index("X")
    for c in range(1 if channel is None else int(image.shape[channel])):
        planes = []
        for k in range(chosen):
            index: list[Any] = [slice(None)] * len(names)
            if channel is not None:
                index[channel] = c
            # The middle of each of `chosen` equal parts.
            places = np.unravel_index((2 * k + 1) * count // (2 * chosen), lengths)
            for axis, place in zip(free, places, strict=True):
                index[axis] = int(place)
            plane = np.asarray(image[tuple(index)])
            planes.append(plane if upright else plane.T)
        yield np.stack(planes)
