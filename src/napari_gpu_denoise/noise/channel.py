"""What is measured on one channel before a noise model is chosen and fitted."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from napari_gpu_denoise.errors import NonFiniteError
from napari_gpu_denoise.image.threads import mapping
from napari_gpu_denoise.noise.correlation import (
    NoiseSpectrum,
    mean_spectrum,
    spectrum_of_patches,
)
from napari_gpu_denoise.noise.frames import Comparisons, FramesInARow, comparisons, repeated_planes
from napari_gpu_denoise.noise.patches.selection import (
    blank_area,
    blank_width,
    clipping_levels,
    not_image,
    photon_counts,
)
from napari_gpu_denoise.noise.patches.spectra import PatchReader, PatchSpectra, read_spectra
from napari_gpu_denoise.noise.patches.variance import VarianceCurve, VarianceLaws, variance_laws
from napari_gpu_denoise.noise.patches.white import (
    PlaneNoise,
    combined_sigma,
    plane_noise,
    planes_differ,
)
from napari_gpu_denoise.noise.photon import PhotonNoise, single_image_noise
from napari_gpu_denoise.noise.sampling import PlaneReader, PlaneStack

MOST_COUNTED = 1 << 20  # pixels of a plane in which clipped ones are counted, about
EXTREME = 2.0**200  # grey levels whose squares are beyond what is computed here


@dataclass(frozen=True)
class ChannelNoise:
    """Measurements on one channel that noise models take their evidence and parameters from.

    Where planes are too small or values too extreme `spectra` and all fields after it are None.
    """

    planes: PlaneStack  # sample planes, in memory
    sigma: float  # standard deviation if the noise is white
    error: float  # its standard error
    ends: tuple[float, float] | None  # dark and bright sigma, where noise grows with brightness
    clipped: tuple[float, float]  # share of clipped pixels at the dark and the bright end
    spectra: PatchSpectra | None  # patches of 8 x 8 pixels
    spectrum: NoiseSpectrum | None = None
    laws: VarianceLaws | None = None  # how the variance depends on brightness, where known
    temporal: PhotonNoise | None = None  # from differences of still frames, where there are any
    frames: FramesInARow | None = None  # of a time-lapse, if the spectrum was read from them
    repeats: PlaneStack | None = None  # planes of one slice measured many times, where found
    blank: float = 0.0  # share of the pixels in constant areas, which were left out
    blanks: tuple[np.ndarray | None, ...] = ()  # mask of these in each plane, None for none
    levels: tuple[list, ...] = ()  # at which each plane is clipped
    compressed: bool = False  # as JPEG after the noise was added; sigma is that before
    blank_width: int = 0  # width of constant squares that are not image; 0 where there are none

    @property
    def is_plain(self) -> bool:
        """Whether no plane has constant areas, or clipped pixels."""
        return not self.blank and not any(self.levels)

    @property
    def curve(self) -> VarianceCurve | None:
        """Noise variance against brightness."""
        return self.laws.curve if self.laws else None

    @property
    def spectrum_of(self) -> str:
        """How the spectrum was read, in words."""
        return f"spectrum of the smoothest patches{' of differences' if self.frames else ''}"

    @cached_property
    def photons(self) -> float | None:
        """Grey levels per photon, where the values are counts of few photons; else None."""
        found = [photon_counts(plane) for plane in self.planes]
        steps = [each for each in found if each is not None]
        return float(np.median(steps)) if 2 * len(steps) > len(found) else None

    @cached_property
    def single(self) -> PhotonNoise:
        """Photon and read noise of single images."""
        return single_image_noise(self.planes, self.spectra)

    @cached_property
    def grows_over_time(self) -> bool | None:
        """Whether noise between still frames grows with brightness; None where they do not tell."""
        if self.temporal is None or self.temporal.grows:
            return None if self.temporal is None else True
        return None if self.temporal.significant else False


def read_channel(
    source: PlaneReader, channel: tuple[int, int] | None, device: PatchReader | None = None
) -> ChannelNoise:
    """Measure one of ``source.channels``, its patches on a device where one is given.

    NonFiniteError if none of its pixels is finite.
    """
    with comparisons(source, channel) as compared:
        return _read_channel(source, channel, device, compared)


def _read_channel(
    source: PlaneReader,
    channel: tuple[int, int] | None,
    device: PatchReader | None,
    compared: Comparisons,
) -> ChannelNoise:
    planes = list(source.sampled(channel))
    # Nothing is gained by other threads for one plane, and a device takes one after another.
    with mapping(min(len(planes), os.cpu_count() or 1)) as each:
        areas = list(each(blank_area, planes))
        blanks = not_image(planes, areas)
        levels = list(each(clipping_levels, planes, blanks))
        # The patches of a plane serve for both.
        apart: list[PatchSpectra | None] = [None] * len(planes)
        if len(planes) == 1 or device is not None:
            apart = [
                _spectra_alone(*one, device) for one in zip(planes, blanks, levels, strict=True)
            ]
            each = map
        patches = [None if one is None else one.statistics for one in apart]
        shown = every = [None] * len(planes)
        if len(planes) == 1 and apart[0]:
            shown, every = [_laws(apart[0])], [apart[0].every]
        measured = list(each(plane_noise, planes, blanks, patches, levels, shown, every))
    sigma, error, ends = combined_sigma(measured)
    spectra = apart[0] if len(planes) == 1 and apart[0] else None
    spectra = spectra or _spectra(planes, blanks, levels, device)
    share = sum(0.0 if mask is None else float(mask.mean()) for mask in blanks) / len(blanks)
    found = ChannelNoise(
        PlaneStack.held(planes),
        sigma,
        error,
        ends,
        _clipped(planes, blanks, levels),
        spectra,
        blank=share,
        blanks=tuple(blanks),
        levels=tuple(levels),
        compressed=2 * sum(each.compressed for each in measured if each) > len(planes),
        blank_width=blank_width(areas, blanks),
    )
    if spectra is None:
        return found
    levelled, laws = _level(planes, blanks, measured, sigma), shown[0]
    laws = laws if len(planes) == 1 else _laws(spectra)
    alone = []
    if levelled is not None:
        every = apart if device is not None else map(_spectra_alone, planes, blanks, levels)
        alone = [each for each in every if each is not None]
    if levelled is not None and laws is not None and laws.is_linear:
        # Planes of unlike noise must not pass for photon noise together, if they show alone that
        # noise does not grow with brightness. Flat planes of one brightness each do not.
        every = map(_laws, alone)
        wide = [each for each in every if each and _width(each) > 0.5 * _width(laws)]
        if sum(not each.is_linear for each in wide) > 0.5 * len(planes):
            laws = _laws(levelled)
    temporal = compared.still()
    clipped = temporal is not None and not math.isfinite(temporal.gain_error)
    if clipped or (temporal is not None and temporal.exceeds(found.single)):
        temporal = None  # texture and fixed pattern raise the noise of single images, motion this
    spectrum = spectrum_of_patches(levelled or spectra)
    if levelled is not None:
        each = list(map(spectrum_of_patches, alone))
        # After registration by parts of a pixel each plane has a spectrum of its own.
        if sum(not one.white for one in each) > 0.5 * len(planes):
            spectrum = mean_spectrum(each)
    frames = compared.in_a_row()
    # Texture alone may make planes differ at the high frequencies, where correlated noise is weak.
    over_time = None if frames is None else frames.spectrum(spectrum, levelled is None)
    spectrum, frames = (spectrum, None) if over_time is None else (over_time, frames)
    return replace(
        found,
        spectrum=spectrum,
        frames=frames,
        laws=laws,
        temporal=temporal,
        repeats=repeated_planes(source, channel),
    )


def _spectra(
    planes: list[np.ndarray],
    blanks: list[np.ndarray | None],
    levels: list[list] | None = None,
    device: PatchReader | None = None,
) -> PatchSpectra | None:
    """Return patches of 8 x 8 pixels; None where there are none, or values are too extreme.

    `levels` are the `clipping_levels` of the planes, if known.
    """
    spectra = read_spectra(planes, None, blanks, levels, device)
    largest = float(np.abs(spectra.mean).max())
    if not spectra.whole or not (largest == 0 or 1 / EXTREME < largest < EXTREME):
        return None
    return spectra


def _spectra_alone(
    plane: np.ndarray,
    blank: np.ndarray | None,
    levels: list,
    device: PatchReader | None = None,
) -> PatchSpectra | None:
    """Return the patches of one plane of several; None also where it shows nothing at all."""
    try:
        return _spectra([plane], [blank], [levels], device)
    except NonFiniteError:
        return None  # other planes tell of the noise


def _laws(spectra: PatchSpectra) -> VarianceLaws | None:
    """Return the laws of the variance over the brightness that each frequency sees."""
    return variance_laws(spectra.level_noise)


def _width(laws: VarianceLaws) -> float:
    """Return the range of brightness of the levels that laws were fitted to."""
    used = [mean for mean, kept in zip(laws.curve.mean, laws.curve.used, strict=True) if kept]
    return max(used) - min(used)


def _level(
    planes: list[np.ndarray],
    blanks: list[np.ndarray | None],
    measured: list[PlaneNoise | None],
    sigma: float,
) -> PatchSpectra | None:
    """Return the patches of planes that are scaled to the same noise, if it clearly differs.

    The smoothest patches would all be of the planes with the weakest noise, and the rest of the
    noise pass as texture.
    """
    known = [each for each in measured if each is not None and each.sigma > 0]
    if len(known) < 2:
        return None
    if not planes_differ([m.sigma for m in known], [m.error / m.sigma for m in known]):
        return None
    scaled = [
        (plane * np.float64(sigma / each.sigma), blank)
        for plane, blank, each in zip(planes, blanks, measured, strict=True)
        if each is not None and each.sigma > 0
    ]
    return _spectra(*map(list, zip(*scaled, strict=True)))


def _clipped(
    planes: list[np.ndarray], blanks: list[np.ndarray | None], levels: list[list]
) -> tuple[float, float]:
    """Return the share of clipped pixels at the dark and the bright end."""
    dark = bright = total = 0
    for plane, blank, known in zip(planes, blanks, levels, strict=True):
        rows = plane[:: 1 + plane.size // MOST_COUNTED]
        total += rows.size
        ends = known if blank is None else clipping_levels(plane)
        middle = np.nanmean(rows[:: max(1, len(rows) // 64)]) if ends else 0.0
        for level in ends:
            number = int(np.count_nonzero(rows == level))
            if level < middle:
                dark += number
            else:
                bright += number
    return dark / total, bright / total
