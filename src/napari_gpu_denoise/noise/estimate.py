"""The noise of an image: which kind it is, how much there is, and how that is known."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from napari_gpu_denoise.axes import check_axes, check_numbers
from napari_gpu_denoise.errors import ImageError, NonFiniteError, SettingsError
from napari_gpu_denoise.noise.channels import ChannelCovariance, channel_covariance
from napari_gpu_denoise.noise.model_choice import Choice, choose_model
from napari_gpu_denoise.noise.model_fit import ChannelNoise, Fit, fit_model
from napari_gpu_denoise.noise.noise_estimate import NoiseEstimate, SigmaSeries
from napari_gpu_denoise.noise.patch_spectra import PatchSpectra, read_spectra
from napari_gpu_denoise.noise.patch_statistics import read_statistics
from napari_gpu_denoise.noise.patches import clipping_levels
from napari_gpu_denoise.noise.rician import rayleigh_background
from napari_gpu_denoise.noise.sampling import (
    PlaneStack,
    channel_indices,
    plane_indices,
    spread,
    whole_plane,
)
from napari_gpu_denoise.noise.sigma_estimate import planes_sigma
from napari_gpu_denoise.noise.sigma_series import PATCHES, positions, sigma_series
from napari_gpu_denoise.noise.spectrum import spectrum_of_patches
from napari_gpu_denoise.noise.stillness import grows, still_noise
from napari_gpu_denoise.noise.variance_laws import variance_laws

MODELS = ("auto", "gaussian", "poisson-gaussian", "rician", "speckle")
REPEATS = 8  # of a slice, for what differs between them to be noise alone
MOST_REPEATS = 64
EXTREME = 2.0**200  # grey levels whose squares are beyond what is computed here


def estimate_noise(
    image: Any, axes: str | None = None, model: str = "auto", *, device: Any = None
) -> NoiseEstimate:
    """DOC"""
    if model not in MODELS:
        raise SettingsError(f"model={model!r} is not known: give {', '.join(MODELS)}.")
    if not all(hasattr(image, name) for name in ("shape", "dtype", "__getitem__")):
        image = np.asarray(image)
    check_numbers(image)
    shape = tuple(int(length) for length in image.shape)
    axes = check_axes(axes, shape)

    channels = list(channel_indices(axes, shape))
    read = [_read(image, axes, channel) for channel in channels]
    choice = _choice(read, model, axes)
    fits = [fit_model(choice.name, each) for each in read]
    series = {
        axis: _series(image, axes, axis, channels, read, fits, device)
        for axis in "TZ"
        if axis in axes
    }
    count = sum(len(each.planes) for each in read)
    methods = dict.fromkeys(fit.method for fit in fits)
    return NoiseEstimate(
        sigma=tuple(fit.sigma for fit in fits),
        standard_error=tuple(fit.error for fit in fits),
        method=", or ".join(methods),
        planes=count,
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


def _read(image: Any, axes: str, channel: tuple[int, int] | None) -> ChannelNoise:
    """Read what the noise of one channel is estimated from."""
    sampled = PlaneStack.of(image, axes, plane_indices(axes, image.shape, channel))
    planes = [sampled[k] for k in range(len(sampled))]
    sigma, error, ends = planes_sigma(planes)
    spectra = _spectra(planes)
    spectrum = temporal = repeats = None
    if spectra is not None:
        spectrum = spectrum_of_patches(spectra)
        temporal = _still(image, axes, channel)
        repeats = _repeats(image, axes, channel)
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


def _along(
    image: Any, axes: str, axis: int, channel: tuple[int, int] | None, index: list[int]
) -> PlaneStack:
    """Return planes at these positions of an axis, from the middle of all others."""
    places = {
        k: image.shape[k] // 2
        for k, letter in enumerate(axes)
        if letter not in "YX" and k != axis and (channel is None or k != channel[0])
    }
    chosen = [whole_plane(len(axes), channel, {**places, axis: k}) for k in index]
    return PlaneStack.of(image, axes, chosen)


def _still(image: Any, axes: str, channel: tuple[int, int] | None) -> Any:
    """Return the noise of the frames of a time-lapse that stands still, else None."""
    if "T" not in axes or image.shape[axes.index("T")] < 2:
        return None
    axis = axes.index("T")
    try:
        return still_noise(_along(image, axes, axis, channel, list(range(image.shape[axis]))))
    except NonFiniteError:
        return None


def _repeats(image: Any, axes: str, channel: tuple[int, int] | None) -> PlaneStack | None:
    """Return the planes of a slice that was measured many times, where an axis may be that."""
    taken = "ZYX" if channel is None else "ZYX" + axes[channel[0]]
    found = [k for k, letter in enumerate(axes) if letter not in taken]
    longest = max(found, key=lambda k: image.shape[k], default=None)
    if longest is None or image.shape[longest] < REPEATS:
        return None
    return _along(image, axes, longest, channel, spread(image.shape[longest], MOST_REPEATS))


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


def _choice(read: list[ChannelNoise], model: str, axes: str) -> Choice:
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
        if spectra and 2 * sum(not each.white for each in spectra) > len(spectra):
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
    image: Any,
    axes: str,
    axis: str,
    channels: list[tuple[int, int] | None],
    read: list[ChannelNoise],
    fits: list[Fit],
    device: Any,
) -> SigmaSeries:
    """Return sigma along T or Z."""
    number = axes.index(axis)
    index = positions(int(image.shape[number]), type(image) is not np.ndarray)
    statistics = []
    for channel in channels:
        planes = _along(image, axes, number, channel, index)
        statistics.append(read_statistics(planes, PATCHES, device))
    scales = tuple(map(_scale, read, fits))
    return sigma_series(axis, index, statistics, tuple(fit.model for fit in fits), scales)


def _scale(channel: ChannelNoise, fit: Fit) -> float:
    """Return the variance of all frequencies over that of the high ones."""
    if fit.model.name != "correlated" or not channel.sigma:
        return 1.0
    return (fit.sigma / channel.sigma) ** 2


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
    correlated = any(each.spectrum is not None and not each.spectrum.white for each in read)
    if choice.name not in ("gaussian", "correlated") and correlated:
        found.append(
            "neighbouring pixels share noise, which this model does not know: sigma may be too low"
        )
    return tuple(found)
