"""Noise of an image: what is measured, on which planes of it, and with what certainty."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from napari_gpu_denoise.axes import CHANNEL_AXES, check_axes, check_numbers
from napari_gpu_denoise.errors import NonFiniteError
from napari_gpu_denoise.noise.white import METHOD, plane_noise

MAX_PLANES = 8  # planes read of each channel


@dataclass(frozen=True)
class NoiseEstimate:
    """Noise standard deviation of an image, in the grey levels of that image.

    Parameters
    ----------
    sigma : tuple of float
        One standard deviation per channel, or a single one for an image without channels.
    standard_error : tuple of float
        Statistical standard error of each `sigma`. It knows the number of pixels used and the
        spread between planes, not the bias left by texture that looks like noise.
    method : str
        How the estimate was made, in words.
    planes : int
        Number of two-dimensional planes read, over all channels.
    """

    sigma: tuple[float, ...]
    standard_error: tuple[float, ...]
    method: str
    planes: int

    def summary(self) -> str:
        """Return the estimate as one line of text.

        Returns
        -------
        str
            Such as ``"20.1 ± 0.05 (high frequencies of the smoothest patches, 8 planes)"``.
        """
        values = ", ".join(
            f"{sigma:.4g} ± {error:.2g}"
            for sigma, error in zip(self.sigma, self.standard_error, strict=True)
        )
        return f"{values} ({self.method}, {self.planes} plane{'s' * (self.planes != 1)})"

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as plain lists, numbers and text, ready for JSON.

        Returns
        -------
        dict
            Keys ``sigma``, ``standard_error``, ``method`` and ``planes``.
        """
        return {
            "sigma": list(self.sigma),
            "standard_error": list(self.standard_error),
            "method": self.method,
            "planes": self.planes,
        }


def estimate_noise(image: Any, axes: str | None = None) -> NoiseEstimate:
    """Estimate the standard deviation of additive white Gaussian noise.

    Parameters
    ----------
    image : array, at least two axes, any real dtype
        Anything with ``shape``, ``dtype`` and NumPy indexing; of a stack only the sampled planes
        are read, so that dask, zarr and memory-mapped arrays stay on disk. Not modified.
    axes : str, optional
        One letter per axis, such as ``"TCYX"``. Each index of the first axis named ``C`` or ``S``
        gets its own estimate; all other axes but ``Y`` and ``X`` hold planes that share one.
        Default: the last two axes are ``Y`` and ``X``, the rest planes.

    Returns
    -------
    NoiseEstimate
        In grey levels of `image`. A constant image gives exactly 0.

    Raises
    ------
    ImageError
        If the image has no pixels, or its dtype is boolean, complex or not a number.
    NonFiniteError
        If NaN or infinity leave no pixels of a channel to estimate from.
    AxesError
        If `axes` does not fit the shape of the image.

    Notes
    -----
    At most 8 planes of each channel, spread evenly over every axis, and about 40 000 patches of
    8 x 8 pixels of each plane are read, so that the cost is bounded; several planes give their
    median. Pixels that are NaN or infinite are left out, and so are places where the values are
    clipped: at the ends of an integer dtype, or at an extreme value that piles up. Rounding to
    integers counts as noise, with a variance of 1/12.

    Noise is assumed white: where neighbouring pixels share noise (interpolated, filtered or
    compressed images) the estimate is too low. So it is where the noise of an integer image is
    below about half a grey level, or where single photons are counted.

    On the 68 images of the Berkeley test set with noise of standard deviation 5, 10, 20, 30 and 50
    on a scale of 255 the mean relative error is 2.6, 1.7, 1.2, 1.0 and 0.7 %.
    """
    if not all(hasattr(image, name) for name in ("shape", "dtype", "__getitem__")):
        image = np.asarray(image)
    check_numbers(image)
    shape = tuple(int(length) for length in image.shape)
    axes = check_axes(axes, shape)

    results = []
    planes = 0
    for channel in _channels(axes, shape):
        measured = []
        for index in _sample_planes(axes, shape, channel):
            planes += 1
            found = plane_noise(np.asarray(image[index]))
            if found is not None:
                measured.append(found)
        if not measured:
            raise NonFiniteError(
                "NaN or infinite pixels leave nothing to estimate the noise from; "
                "give sigma, or replace those pixels first."
            )
        results.append(_combine(measured))
    sigma, error = zip(*results, strict=True)
    return NoiseEstimate(sigma, error, METHOD, planes)


def _channels(axes: str, shape: tuple[int, ...]) -> Iterator[tuple[int, int] | None]:
    """Yield (axis, index) for each channel, or None once where there are no channels."""
    axis = next((i for i, letter in enumerate(axes) if letter in CHANNEL_AXES), None)
    if axis is None:
        yield None
        return
    for index in range(shape[axis]):
        yield axis, index


def _sample_planes(
    axes: str, shape: tuple[int, ...], channel: tuple[int, int] | None
) -> Iterator[tuple[int | slice, ...]]:
    """Yield the indices of at most MAX_PLANES planes, spread evenly over each axis."""
    fixed = {axes.index("Y"), axes.index("X")} | ({channel[0]} if channel else set())
    free = [axis for axis in range(len(shape)) if axis not in fixed]
    counts = dict.fromkeys(free, 1)
    while True:
        total = int(np.prod(list(counts.values()), initial=1))
        room = [
            axis
            for axis in free
            if counts[axis] < shape[axis]
            and total // counts[axis] * (counts[axis] + 1) <= MAX_PLANES
        ]
        if not room:
            break
        # The axis sampled most sparsely gets the next sample.
        counts[max(room, key=lambda axis: shape[axis] / counts[axis])] += 1
    positions = (
        [(2 * i + 1) * shape[axis] // (2 * counts[axis]) for i in range(counts[axis])]
        for axis in free
    )
    for chosen in product(*positions):
        index: list[int | slice] = [slice(None)] * len(shape)
        if channel:
            index[channel[0]] = channel[1]
        for axis, position in zip(free, chosen, strict=True):
            index[axis] = position
        yield tuple(index)


def _combine(measured: list[tuple[float, float]]) -> tuple[float, float]:
    """Median over planes of (sigma, standard error), and the standard error of that median."""
    # Blank planes, such as padding at the end of a stack, say nothing about the noise.
    noisy = [pair for pair in measured if pair[0] > 0] or measured
    sigma, error = np.array(noisy).T
    if len(sigma) == 1:
        return float(sigma[0]), float(error[0])
    spread = max(float(np.sqrt(np.mean(error**2))), float(np.std(sigma, ddof=1)))
    # The median of n normal values has pi/2 times the variance of their mean (n large).
    return float(np.median(sigma)), spread * float(np.sqrt(np.pi / (2 * len(sigma))))
