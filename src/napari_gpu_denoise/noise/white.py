"""White Gaussian noise of one plane.

Patches are described by their discrete cosine transform. White noise is spread evenly and
independently over all coefficients, texture is strong at the low frequencies first. So patches
are ranked by their energy at the low frequencies and the noise is read at the high frequencies of
the smoothest ones: ranking and reading use independent numbers, so that preferring smooth patches
does not favour patches whose noise happens to be weak. Fine regular texture fills a few of the high
frequencies, so where their mean is above their median, the median counts. How many patches are used
follows from the image (`_pooled_variance`): few where texture is everywhere, all where there is
none.
"""

from __future__ import annotations

import math

import numpy as np

from napari_gpu_denoise.noise.patches import as_floats, clipping_levels, read_patches

METHOD = "high frequencies of the smoothest patches"

MAX_PATCHES = 40_000  # patches read of a plane, about
PATCH = 8
# A coefficient (j, k) of an n x m patch counts as high where (j + 1/2)/n + (k + 1/2)/m is above
# this: the upper 28 of the 64 of an 8 x 8 patch, and at least one of any patch above one pixel.
HIGH_FREQUENCY = 1.125
FIRST_PATCHES = 64  # the smallest set of patches a variance is read from
SIGNIFICANT = 1.5  # standard errors by which more patches may raise the variance
CLIPPED_SHARE = 0.5  # patches with more clipped pixels than this say nothing
MARGIN = 3  # noise standard deviations that keep nearly all pixels from a clipping level


def plane_noise(plane: np.ndarray) -> tuple[float, float] | None:
    """Estimate the noise of one plane.

    Parameters
    ----------
    plane : ndarray, two axes, any real dtype
        Not modified.

    Returns
    -------
    tuple of float or None
        Standard deviation of the noise and its standard error, in grey levels; None where no pixel
        is finite.
    """
    # Scattered non-finite pixels may leave no large patch whole, but still smaller ones.
    for size in (PATCH, PATCH // 2, PATCH // 4, 1):
        patches, shape, overlap = read_patches(plane, size, MAX_PATCHES)
        if len(patches):
            break
    else:
        return None
    low, high = _frequencies(shape)
    if not len(high):
        return 0.0, 0.0  # single pixels: nothing to compare them with

    levels = clipping_levels(plane)
    clean = np.ones(len(patches), bool)
    if levels:
        share = np.mean([patches == level for level in levels], axis=(0, 2)) * len(levels)
        last = min(FIRST_PATCHES, len(share)) - 1
        least = np.partition(share, last)[last]
        if least > CLIPPED_SHARE:
            levels = []  # a mask, a drawing, a blank plane: its extremes are what there is
        else:
            clean = share <= least

    values, levels, unit = as_floats(patches, levels)
    differences = values - values[:, :1]  # small numbers, whatever the level of the patch
    spectrum = np.square(differences @ np.concatenate([low, high]).T)
    rank = spectrum[:, : len(low)].sum(axis=1)
    energy = spectrum[:, len(low) :]
    variance, error = _pooled_variance(rank[clean], energy[clean], overlap)
    if levels:
        # Patches that show few clipped pixels are those whose noise happened to spare them, so it
        # is too weak near a clipping level. Chosen by their mean they are free of that: it says
        # nothing on the high frequencies. A better estimate moves the choice, hence twice.
        mean = values.mean(axis=1)
        distance = np.min([np.abs(mean - level) for level in levels], axis=0)
        for _ in range(2):
            far = distance > MARGIN * math.sqrt(variance)
            if np.count_nonzero(far) < FIRST_PATCHES:
                break
            variance, error = _pooled_variance(rank[far], energy[far], overlap)
    sigma = math.sqrt(variance) * unit
    return sigma, sigma * error


def _frequencies(shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the cosine transform of a patch as two matrices: low frequencies, high ones.

    Rows are orthonormal; the mean of the patch belongs to neither.
    """
    transforms, frequencies = [], []
    for n in shape:
        k = np.arange(n)
        transform = np.cos(np.pi * np.outer(k, k + 0.5) / n) * math.sqrt(2 / n)
        transform[0] /= math.sqrt(2)
        transforms.append(transform)
        frequencies.append((k + 0.5) / n)
    matrix = np.kron(*transforms)
    frequency = np.add.outer(*frequencies).ravel()
    high = frequency > HIGH_FREQUENCY
    return matrix[~high][1:], matrix[high]


def _pooled_variance(rank: np.ndarray, energy: np.ndarray, overlap: float) -> tuple[float, float]:
    """Return the noise variance and the relative standard error of its square root.

    `rank` orders the patches from smooth to textured, `energy` (patch, frequency) holds their
    squared high-frequency coefficients, `overlap` is how many patches share a pixel. Of sets of
    the smoothest 64, 128, 256 ... patches the largest is taken whose variance exceeds that of no
    smaller set by more than its standard error allows: where it does, texture has come in.
    """
    energy = energy[np.argsort(rank, kind="stable")]
    patches, frequencies = energy.shape
    power = np.zeros(frequencies)
    variance, error, bound = 0.0, 0.0, math.inf
    start, stop = 0, min(FIRST_PATCHES, patches)
    while True:
        power += energy[start:stop].sum(axis=0)
        # Overlapping patches share pixels, so they count as fewer independent numbers.
        independent = max(stop / overlap, 1.0)
        # The median of chi-squared variables is below their mean, by nearly this factor.
        median = float(np.median(power)) / (1 - 2 / (9 * independent)) ** 3
        found = min(float(power.mean()), median) / stop
        relative = math.sqrt(0.5 / (independent * frequencies))
        if found <= bound:
            variance, error = found, relative
        # The variance varies twice as much as its square root.
        bound = min(bound, found * (1 + SIGNIFICANT * 2 * relative))
        if stop == patches:
            return variance, error
        start, stop = stop, min(2 * stop, patches)
