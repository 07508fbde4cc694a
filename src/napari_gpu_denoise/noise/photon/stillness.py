"""Whether frames of a time-lapse stand still, so that their differences hold noise alone."""

from __future__ import annotations

import math

import numpy as np

from napari_gpu_denoise.noise.patches.spectra import read_spectra
from napari_gpu_denoise.noise.photon.curve import PhotonNoise
from napari_gpu_denoise.noise.photon.pairs import BLOCK, DIFFERENCES, neighbours, pairs_noise
from napari_gpu_denoise.noise.sampling import PlaneStack

STILL = 0.6  # share of the patches that is to stand still
MOVING = 4.0  # standard errors by which the low frequencies of a difference are above its noise
ALIKE = 0.7  # noise at the high frequencies of differences over that at all of them, at least
PATCHES = 8000  # looked at over all differences, about
SIGNIFICANT = 4.0  # standard errors by which a gain is above 0
GROWTH = 1.5  # of the variance over the levels of brightness, that matters


def still_noise(frames: PlaneStack) -> PhotonNoise | None:
    """Return the noise of frames, from differences of neighbouring ones; None where they move.

    Correlated noise is taken for motion.
    """
    if len(frames) < 2 or min(frames.shape[1:]) < BLOCK:
        return None
    pairs = neighbours(frames)
    found = pairs_noise(pairs, None, DIFFERENCES)
    # The transform of a difference is the difference of transforms.
    before, after = (read_spectra([pair[k] for pair in pairs[::2]], PATCHES) for k in (0, 1))
    if before.low.shape != after.low.shape or before.low.shape[1] < 2:
        return None
    means = (before.mean + after.mean) / 2
    floor = found.read_noise**2 or 1e-300
    expected = np.maximum(found.gain * means + found.intercept, floor)
    low = np.square(after.low - before.low).mean(axis=1) / 2 / expected
    high = np.square(after.high - before.high).mean(axis=1) / 2 / expected
    limit = 1 + MOVING * math.sqrt(2 / before.low.shape[1])
    still = np.mean(low <= limit) >= STILL and np.median(high) >= ALIKE
    return found if still else None


def grows(noise: PhotonNoise) -> bool:
    """Return whether noise clearly grows with brightness."""
    used = np.array(noise.curve.used, bool)
    level = np.array(noise.curve.mean)[used]
    if not noise.gain > SIGNIFICANT * noise.gain_error or len(level) < 2:
        return False
    dark, bright = noise.gain * level[[0, -1]] + noise.intercept
    return bool(bright > GROWTH * max(dark, 0.0))
