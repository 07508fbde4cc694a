"""Noise that is correlated between channels: what makes it independent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from napari_gpu_denoise.image.axes import channel_axis
from napari_gpu_denoise.noise.correlation import channel_covariance

# Least variance of a mixture, relative to that of the channels: less would be guesswork.
_LEAST = 0.02


@dataclass(frozen=True)
class Mixing:
    """What channels are multiplied by, and why, in words for the record."""

    mixing: tuple[tuple[float, ...], ...]
    words: str


def measured_mixing(image: Any, names: str) -> Mixing | None:
    """Measure the noise of an image, which may be lazy; None where a channel has none.

    One plane is read, in the middle of all axes but those of channels, Y and X.
    """
    axis = channel_axis(names)
    kept = (axis, names.index("Y"), names.index("X"))
    index = tuple(slice(None) if i in kept else n // 2 for i, n in enumerate(image.shape))
    order = [sorted(kept).index(i) for i in kept]
    found = channel_covariance(np.transpose(np.asarray(image[index]), order))
    covariance = np.array(found.covariance)
    if not np.all(np.diag(covariance) > 0):
        return None
    words = f"{found.summary()}: channels are compared after whitening"
    return Mixing(tuple(map(tuple, mixing_of(covariance).tolist())), words)


def mixing_of(covariance: np.ndarray) -> np.ndarray:
    """Return the inverse square root of a covariance between channels.

    It is scaled so that the noise of the mixtures has the mean variance of the channels.
    """
    values, vectors = np.linalg.eigh(covariance)
    mean = np.trace(covariance) / len(covariance)
    return (vectors * np.sqrt(mean / np.maximum(values, _LEAST * mean))) @ vectors.T
