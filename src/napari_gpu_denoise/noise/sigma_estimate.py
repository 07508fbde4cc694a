"""One sigma per channel, for noise that is assumed to be additive and white."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import NonFiniteError, Note
from napari_gpu_denoise.noise.patches.white import METHOD, PlaneNoise, plane_noise
from napari_gpu_denoise.noise.sampling import PlaneReader

MIXED_METHOD = "mean variance over the levels of brightness"


@dataclass(frozen=True)
class SigmaEstimate:
    """Noise standard deviation of an image, in the grey levels of that image.

    Parameters
    ----------
    sigma : tuple of float
        One standard deviation per channel, or a single one for an image without channels.
    standard_error : tuple of float
        Statistical standard error of each `sigma`. It covers the number of pixels used and the
        spread between planes, not the bias left by texture that looks like noise.
    method : str
        How the estimate was made, in words.
    planes : int
        Number of two-dimensional planes read, over all channels.
    notes : tuple of str
        Remarks for the user, in sentences.
    """

    sigma: tuple[float, ...]
    standard_error: tuple[float, ...]
    method: str
    planes: int
    notes: tuple[str, ...] = ()


def estimate_sigma(image: Any, axes: str | None = None) -> SigmaEstimate:
    """Estimate the standard deviation of additive white noise.

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
    SigmaEstimate
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

    Where the noise of most planes clearly grows with brightness, as photon noise does, `sigma` is
    the square root of the mean variance over the levels of brightness: the one value that serves
    best, too high for the dark parts and too low for the bright ones. `method` and `notes` say so.
    It is seen from a factor of about 1.5 between the standard deviations in the darkest and the
    brightest parts, where some places at several levels are free of fine texture.

    Noise is assumed white: where it is correlated (interpolated, filtered or compressed images)
    the estimate is too low. So it is where the noise of an integer image is
    below about half a grey level, or where single photons are counted.

    On the 68 images of the Berkeley test set with noise of standard deviation 5, 10, 20, 30 and 50
    on a scale of 255 the mean relative error is 2.6, 1.7, 1.2, 1.0 and 0.7 %.
    """
    source = PlaneReader(image, axes)
    results, notes = [], []
    for channel in source.channels:
        measured = map(plane_noise, source.sampled(channel))
        value, error, ends = joined_sigma(measured)
        results.append((value, error))
        if ends is not None:
            place = f" of channel {channel[1]}" if len(source.channels) > 1 else ""
            notes.append(
                Note(
                    f"{uneven_note(place, *ends)}; a noise model works better",
                    "noise='auto'",
                    code="uneven",
                )
            )
    values, errors = zip(*results, strict=True)
    methods = [METHOD] * (len(notes) < len(results)) + [MIXED_METHOD] * bool(notes)
    return SigmaEstimate(values, errors, ", or ".join(methods), source.count, tuple(notes))


def joined_sigma(
    measured: Iterable[PlaneNoise | None],
) -> tuple[float, float, tuple[float, float] | None]:
    """Return sigma of planes, its standard error, and the noise at both ends of brightness.

    The ends are None where noise does not clearly grow with brightness in most planes.

    Raises
    ------
    NonFiniteError
        If no pixel of any plane is finite.
    """
    known = [each for each in measured if each is not None]
    if not known:
        raise NonFiniteError(
            "NaN or infinite pixels leave nothing to estimate the noise from; "
            "give sigma, or replace those pixels first."
        )
    # Blank planes, such as padding at the end of a stack, say nothing about the noise.
    noisy = [each for each in known if each.sigma > 0] or known
    trends = [each.trend for each in noisy if each.trend is not None]
    if 2 * len(trends) > len(noisy):
        ends = tuple(float(np.median(each)) for each in zip(*(t[2:] for t in trends), strict=True))
        sigma, error = np.array([(each.trend or each)[:2] for each in noisy]).T
    else:
        ends = None
        sigma, error = np.array([each[:2] for each in noisy]).T
    if len(sigma) == 1:
        return float(sigma[0]), float(error[0]), ends
    spread = max(float(np.sqrt(np.mean(error**2))), float(np.std(sigma, ddof=1)))
    # The median of n normal values has pi/2 times the variance of their mean (n large).
    return float(np.median(sigma)), spread * float(np.sqrt(np.pi / (2 * len(sigma)))), ends


def uneven_note(place: str, dark: float, bright: float) -> str:
    """Return the note that no single sigma fits; `place` names the channel."""
    return (
        f"the noise{place} grows with brightness, from {dark:.3g} in the dark to {bright:.3g} in "
        "the bright parts: one sigma is a compromise"
    )
