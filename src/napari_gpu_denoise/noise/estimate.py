"""The noise of an image: which kind it is, how much there is, and how that is known."""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from napari_gpu_denoise.axes import check_axes
from napari_gpu_denoise.errors import ImageError, NonFiniteError, SettingsError
from napari_gpu_denoise.noise.channels import ChannelCovariance, channel_covariance
from napari_gpu_denoise.noise.model_choice import Choice, choose_model
from napari_gpu_denoise.noise.model_fit import ChannelNoise, Fit, fit_model, spectra_sigma
from napari_gpu_denoise.noise.noise_estimate import NoiseEstimate, SigmaSeries
from napari_gpu_denoise.noise.patch_spectra import PatchSpectra, read_spectra
from napari_gpu_denoise.noise.patch_statistics import read_statistics
from napari_gpu_denoise.noise.patches import clipping_levels
from napari_gpu_denoise.noise.photon_curve import PhotonNoise
from napari_gpu_denoise.noise.rician import rayleigh_background
from napari_gpu_denoise.noise.sampling import (
    PlaneReader,
    PlaneStack,
    channel_indices,
    plane_indices,
    readable,
    spread,
)
from napari_gpu_denoise.noise.sigma_estimate import joined_sigma
from napari_gpu_denoise.noise.sigma_series import PATCHES, positions, sigma_series
from napari_gpu_denoise.noise.spectrum import spectrum_of_patches
from napari_gpu_denoise.noise.stillness import grows, still_noise
from napari_gpu_denoise.noise.variance_laws import variance_laws
from napari_gpu_denoise.noise.white import plane_noise

MODELS = ("auto", "gaussian", "poisson-gaussian", "rician", "speckle")
REPEATS = 8  # of a slice, for what differs between them to be noise alone
MOST_REPEATS = 64
EXTREME = 2.0**200  # grey levels whose squares are beyond what is computed here


def estimate_noise(
    image: Any, axes: str | None = None, model: str = "auto", *, device: Any = None
) -> NoiseEstimate:
    """Find out what kind of noise an image has, and how much.

    Parameters
    ----------
    image : array, at least two axes, any real dtype
        Anything with ``shape``, ``dtype`` and NumPy indexing; only the sampled planes are read, so
        that dask, zarr and memory-mapped arrays stay on disk. Not modified.
    axes : str, optional
        One letter per axis, such as ``"TCYX"``. Each index of the first axis named ``C`` or ``S``
        gets its own parameters; all other axes but ``Y`` and ``X`` hold planes that share them.
        Default: the last two axes are ``Y`` and ``X``, the rest planes.
    model : {"auto", "gaussian", "poisson-gaussian", "rician", "speckle"}, optional
        Kind of noise. "auto" chooses, and takes Gaussian noise unless the image clearly says
        otherwise; `reason` tells. Gaussian noise that neighbouring pixels share becomes
        `Correlated`.
    device : Device, int, str or None, optional
        Reads the frames and slices, as `choose` takes it. None: the best device, where there is
        one and enough to read; else NumPy. Both agree to 1e-4.

    Returns
    -------
    NoiseEstimate
        All noise in grey levels of `image`. A constant image gives Gaussian noise of exactly 0.

    Raises
    ------
    SettingsError
        If there is no such model.
    ImageError
        If the image has no pixels, or its dtype is boolean, complex or not a number.
    NonFiniteError
        If NaN or infinity leave no pixels of a channel to estimate from.
    AxesError
        If `axes` does not fit the shape of the image.
    NoDeviceError
        If the device asked for is not there.

    Notes
    -----
    Of each channel 8 planes are read, spread evenly over all axes, and 4096 patches of each of up
    to 256 frames and as many slices (32 where the array is not in memory, for whole planes are
    read there), those of other axes from the middle. So the cost is bounded.

    The choice: speckle where the variance at 16 levels of brightness is as the square of the mean;
    Rician noise where at least 5 % of the image has the distribution of magnitudes without signal;
    photon noise where the variance grows in a line, by a factor of 1.5 at least. Texture raises a
    variance and never lowers it, which the fits take into account. A law has to be clearly better
    than a constant, and few levels far from it. Most channels decide.

    Photon noise is measured on the differences of neighbouring frames where there is an axis ``T``
    along which most places stand still, which is far better than one image; then noise that stays
    from frame to frame does not count. Rician noise is measured by PIESNO where a slice is repeated
    8 times or more, along ``T`` or an axis without a name.

    White Gaussian noise has the sigma that filters find where none is given. Small images, of
    fewer than 8 pixels a side, and extreme grey levels are taken to have Gaussian noise.

    Time O(planes + frames + slices). See ``docs/methods/noise.md`` for how well each is known.

    References
    ----------
    A. Foi, M. Trimeche, V. Katkovnik, K. Egiazarian, "Practical Poissonian-Gaussian noise modeling
    and fitting for single-image raw-data", IEEE Trans. Image Process. 17 (2008),
    doi:10.1109/TIP.2008.2001399 (variance against mean); C. G. Koay, E. Özarslan,
    C. Pierpaoli, "Probabilistic identification and estimation of noise (PIESNO)", J. Magn. Reson.
    199 (2009), doi:10.1016/j.jmr.2009.03.005.
    """
    return _estimate(image, axes, model, "TZ", device)


def noise_to_filter(image: Any, axes: str | None, model: str = "auto") -> NoiseEstimate:
    """Estimate what a filter has to be told: as `estimate_noise`, but nothing of single frames.

    So fewer planes are read: of lazy arrays it is they that take the time.

    Parameters
    ----------
    image, axes, model
        As `estimate_noise` takes them.

    Returns
    -------
    NoiseEstimate
        Whose `frames` and `slices` are None.

    Raises
    ------
    SettingsError, ImageError, NonFiniteError, AxesError
        As `estimate_noise` does.
    """
    return _estimate(image, axes, model, "", None)


def _estimate(image: Any, axes: str | None, model: str, along: str, device: Any) -> NoiseEstimate:
    """Estimate the noise, for the axes `along` also of each frame or slice."""
    if model not in MODELS:
        raise SettingsError(f"model={model!r} is not known: give {', '.join(MODELS)}.")
    image = readable(image)
    shape = tuple(int(length) for length in image.shape)
    axes = check_axes(axes, shape)

    channels = list(channel_indices(axes, shape))
    source = PlaneReader(image, axes)
    read = [_read(source, channel) for channel in channels]
    choice = _choice(read, model)
    fits = [fit_model(choice.name, each) for each in read]
    series = {
        axis: _series(source, axis, channels, read, fits, device) for axis in along if axis in axes
    }
    methods = dict.fromkeys(fit.method for fit in fits)
    return NoiseEstimate(
        sigma=tuple(fit.sigma for fit in fits),
        standard_error=tuple(fit.error for fit in fits),
        method=", or ".join(methods),
        planes=source.count,
        notes=_notes(read, fits, choice),
        axes=axes,
        models=tuple(fit.model for fit in fits),
        reason=choice.reason,
        errors=tuple(fit.errors for fit in fits),
        curves=tuple(fit.curve for fit in fits),
        frames=series.get("T"),
        slices=series.get("Z"),
        spectra=tuple(each.spectrum for each in read),
        covariance=_covariance([each.planes for each in read]),
        clipped=tuple(each.clipped for each in read),
    )


def _read(source: PlaneReader, channel: tuple[int, int] | None) -> ChannelNoise:
    """Read what the noise of one channel is estimated from."""
    sampled = source.stack(plane_indices(source.axes, source.shape, channel))
    planes = [sampled[k] for k in range(len(sampled))]
    with ThreadPoolExecutor(min(len(planes), os.cpu_count() or 1)) as pool:
        measured = pool.map(plane_noise, planes)
        sigma, error, ends = joined_sigma([each for each in measured if each is not None])
    spectra = _spectra(planes)
    spectrum = temporal = repeats = None
    if spectra is not None:
        spectrum = spectrum_of_patches(spectra)
        temporal = _still(source, channel)
        repeats = _repeats(source, channel)
    return ChannelNoise(
        PlaneStack.held(planes),
        sigma,
        error,
        ends,
        spectra,
        spectrum,
        variance_laws(spectra) if spectra is not None else None,
        temporal,
        repeats,
        _clipped(planes),
    )


def _spectra(planes: list[np.ndarray]) -> PatchSpectra | None:
    """Return patches of 8 x 8 pixels of planes; None where there are none to work with."""
    spectra = read_spectra(planes)
    whole = spectra.low.shape[1] + spectra.high.shape[1] == 63
    largest = float(np.abs(spectra.mean).max())
    if not whole or not (largest == 0 or 1 / EXTREME < largest < EXTREME):
        return None
    return spectra


def _still(source: PlaneReader, channel: tuple[int, int] | None) -> PhotonNoise | None:
    """Return the noise of the frames of a time-lapse that stands still, else None."""
    axis = source.axes.find("T")
    if axis < 0:
        return None
    try:
        return still_noise(source.along(axis, channel, range(source.shape[axis])))
    except NonFiniteError:
        return None


def _repeats(source: PlaneReader, channel: tuple[int, int] | None) -> PlaneStack | None:
    """Return the planes of a slice that was measured many times, where an axis may be that."""
    taken = "ZYX" if channel is None else "ZYX" + source.axes[channel[0]]
    found = [k for k, letter in enumerate(source.axes) if letter not in taken]
    longest = max(found, key=lambda k: source.shape[k], default=None)
    if longest is None or source.shape[longest] < REPEATS:
        return None
    return source.along(longest, channel, spread(source.shape[longest], MOST_REPEATS))


def _clipped(planes: list[np.ndarray]) -> tuple[float, float]:
    """Return the share of clipped pixels at the dark and the bright end."""
    dark = bright = 0
    for plane in planes:
        for level in clipping_levels(plane):
            number = int(np.count_nonzero(plane == level))
            if level < np.nanmean(plane[:: max(1, len(plane) // 64)]):
                dark += number
            else:
                bright += number
    total = sum(plane.size for plane in planes)
    return dark / total, bright / total


def _choice(read: list[ChannelNoise], model: str) -> Choice:
    """Choose one model for all channels."""
    noisy = [each for each in read if each.sigma > 0 or each.spectra is not None]
    if model != "auto":
        choice = Choice(model, "it was asked for")
    elif not any(each.sigma for each in read):
        choice = Choice("gaussian", "no noise was found")
    else:
        found = [_channel_choice(each) for each in noisy]
        name, votes = Counter(each.name for each in found).most_common(1)[0]
        if 2 * votes <= len(found) and len(found) > 1:
            name = "gaussian"
        reasons = [each.reason for each in found if each.name == name]
        choice = Choice(name, reasons[0] if reasons else "the channels do not agree on another")
    if choice.name == "gaussian":
        spectra = [each.spectrum for each in noisy if each.spectrum is not None]
        if 2 * sum(not each.white for each in spectra) > len(spectra):
            reason = f"{choice.reason}, and neighbouring pixels share noise"
            return Choice("correlated", reason)
    return choice


def _channel_choice(channel: ChannelNoise) -> Choice:
    if channel.spectra is None:
        return Choice("gaussian", "there are too few pixels to tell other noise by")
    planes = [channel.planes[k] for k in range(len(channel.planes))]
    still = None if channel.temporal is None else grows(channel.temporal)
    return choose_model(channel.laws, rayleigh_background(planes), still)


def _series(
    source: PlaneReader,
    axis: str,
    channels: list[tuple[int, int] | None],
    read: list[ChannelNoise],
    fits: list[Fit],
    device: Any,
) -> SigmaSeries:
    """Return sigma along T or Z."""
    number = source.axes.index(axis)
    index = positions(source.shape[number], source.lazy)
    statistics = [
        read_statistics(source.along(number, channel, index), PATCHES, device)
        for channel in channels
    ]
    scales = tuple(map(_scale, read, fits))
    return sigma_series(axis, index, statistics, tuple(fit.model for fit in fits), scales)


def _scale(channel: ChannelNoise, fit: Fit) -> float:
    """Return the variance that sigma stands for over that of the high frequencies."""
    if fit.model.name not in ("gaussian", "correlated") or channel.spectra is None:
        return 1.0
    if fit.model.name == "gaussian" and channel.ends is None:
        return 1.0
    high, _ = spectra_sigma(fit.model, channel.spectra)
    return (fit.sigma / high) ** 2 if high else 1.0


def _covariance(stacks: list[PlaneStack]) -> ChannelCovariance | None:
    """Return how the channels of a plane in the middle share noise."""
    if len(stacks) < 2:
        return None
    middle = len(stacks[0]) // 2
    try:
        return channel_covariance(np.stack([stack[middle] for stack in stacks]))
    except (ImageError, NonFiniteError):
        return None


def _notes(read: list[ChannelNoise], fits: list[Fit], choice: Choice) -> tuple[str, ...]:
    """Return the notes of all channels, each with its number, and those of the whole."""
    found = []
    for number, fit in enumerate(fits):
        place = f" of channel {number}" if len(fits) > 1 else ""
        found += [note.replace("the noise", f"the noise{place}", 1) for note in fit.notes]
    spectra = [each.spectrum for each in read if each.spectrum is not None]
    correlated = any(not each.white for each in spectra)
    doubtful = any(each.doubtful for each in spectra)
    if choice.name == "gaussian" and (correlated or doubtful):
        found.append("neighbouring pixels may share a little noise, or there is fine texture")
    elif choice.name != "correlated" and correlated:
        found.append(
            "neighbouring pixels share noise, which this model does not know: sigma may be too low"
        )
    return tuple(found)
