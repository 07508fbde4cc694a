"""What is read of one channel of an image before a noise model is chosen and fitted."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from napari_gpu_denoise.errors import NonFiniteError
from napari_gpu_denoise.noise.correlation.spectrum import NoiseSpectrum, spectrum_of_patches
from napari_gpu_denoise.noise.patches.laws import VarianceLaws, variance_laws
from napari_gpu_denoise.noise.patches.levels import VarianceCurve
from napari_gpu_denoise.noise.patches.selection import clipping_levels
from napari_gpu_denoise.noise.patches.spectra import PatchSpectra, read_spectra
from napari_gpu_denoise.noise.patches.white import plane_noise
from napari_gpu_denoise.noise.photon.curve import PhotonNoise
from napari_gpu_denoise.noise.photon.stillness import grows, still_noise
from napari_gpu_denoise.noise.sampling import PlaneReader, PlaneStack, spread
from napari_gpu_denoise.noise.sigma_estimate import joined_sigma

REPEATS = 8  # of a slice, for the differences between them to be noise alone
MOST_REPEATS = 64
EXTREME = 2.0**200  # grey levels whose squares are beyond what is computed here


@dataclass(frozen=True)
class ChannelNoise:
    """Measurements on one channel, which noise models take their evidence and parameters from.

    Attributes
    ----------
    planes : PlaneStack
        Sample planes, in memory.
    sigma, error : float
        Standard deviation of noise assumed white, and its standard error.
    ends : (float, float) or None
        The same in the dark and in the bright parts, where noise grows with brightness.
    spectra : PatchSpectra or None
        Patches of 8 x 8 pixels; None where planes are too small or values too extreme. All that
        follows is then None too.
    spectrum : NoiseSpectrum or None
    laws : VarianceLaws or None
        How the variance depends on brightness; None where that is unknown.
    temporal : PhotonNoise or None
        Noise of the differences of frames that stand still; None without such frames.
    repeats : PlaneStack or None
        Planes of one slice measured many times, where there are such.
    clipped : (float, float)
        Share of clipped pixels at the dark and the bright end.
    """

    planes: PlaneStack
    sigma: float
    error: float
    ends: tuple[float, float] | None
    spectra: PatchSpectra | None
    spectrum: NoiseSpectrum | None
    laws: VarianceLaws | None
    temporal: PhotonNoise | None
    repeats: PlaneStack | None
    clipped: tuple[float, float]

    @property
    def curve(self) -> VarianceCurve | None:
        """Noise variance against brightness."""
        return self.laws.curve if self.laws else None

    @cached_property
    def grows_over_time(self) -> bool | None:
        """Whether differences of still frames show noise that grows with brightness.

        None without such frames.
        """
        return None if self.temporal is None else grows(self.temporal)


def read_channel(source: PlaneReader, channel: tuple[int, int] | None) -> ChannelNoise:
    """Read and measure one channel.

    Parameters
    ----------
    source : PlaneReader
    channel : tuple of int or None
        One of ``source.channels``.

    Raises
    ------
    NonFiniteError
        If NaN or infinity leave no pixels.
    """
    planes = list(source.sampled(channel))
    with ThreadPoolExecutor(min(len(planes), os.cpu_count() or 1)) as pool:
        sigma, error, ends = joined_sigma(pool.map(plane_noise, planes))
    spectra = _spectra(planes)
    spectrum = laws = temporal = repeats = None
    if spectra is not None:
        spectrum = spectrum_of_patches(spectra)
        laws = variance_laws(spectra.statistics)
        temporal = _still(source, channel)
        repeats = _repeats(source, channel)
    return ChannelNoise(
        PlaneStack.held(planes),
        sigma,
        error,
        ends,
        spectra,
        spectrum,
        laws,
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
