"""What is measured on one channel before a noise model is chosen and fitted.

Frames of one scene, and repeats, tell more of the noise than each alone.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import ImageError, NonFiniteError
from napari_gpu_denoise.image.flicker import block_means, block_pixels, brightness_change
from napari_gpu_denoise.image.threads import mapping
from napari_gpu_denoise.noise.correlation import (
    LAGS,
    NoiseSpectrum,
    SpectrumEvidence,
    VarianceLine,
    mean_spectrum,
    powers_by_brightness,
    spectrum_of_patches,
    spectrum_with_evidence,
    with_covariance,
)
from napari_gpu_denoise.noise.log_speckle import log_speckle_spectrum
from napari_gpu_denoise.noise.patches import selection, white
from napari_gpu_denoise.noise.patches.laws import VarianceLaws, variance_laws
from napari_gpu_denoise.noise.patches.spectra import (
    PatchSpectra,
    read_alike,
    read_spectra,
    together,
)
from napari_gpu_denoise.noise.patches.variance import VarianceCurve, unclipped
from napari_gpu_denoise.noise.photon import PhotonNoise, single_image_noise
from napari_gpu_denoise.noise.photon_pairs import still_noise
from napari_gpu_denoise.noise.sampling import Channel, PlaneReader, PlaneStack, spread

# The autocovariance of noise of any range, from its power in patches of 8 x 8 pixels.
#
# A patch sees noise that reaches beyond it at its lowest frequencies only, where single images have
# slopes: what is fitted here must hold noise alone, as differences of frames do.
FREQUENCIES = 16  # of the spectrum, besides 0, along each axis
ROUNDS = 30  # iterations; with more, what is not noise makes it peak at the lowest frequency


def covariance_of_any_range(power: np.ndarray) -> np.ndarray:
    """Return the autocovariance, (5, 5), of noise with this power of coefficients, (8, 8).

    The first coefficient is ignored. The spectrum, nowhere negative, is found from a flat one by
    multiplicative updates (C. Févotte, N. Bertin, J.-L. Durrieu, Neural Computation 21 (2009),
    :doi:`10.1162/neco.2008.04-08-771`), which suit variances: errors are relative to the power.
    """
    seen, cosines = _responses()
    known = np.ones(power.shape)
    known[0, 0] = 0
    floor = 1e-6 * float(power.max())
    if not floor > 0:
        return np.zeros((LAGS + 1, LAGS + 1))
    power = np.maximum(power, floor)
    spectrum = np.full((FREQUENCIES + 1,) * 2, power[1:, 1:].mean())
    for _ in range(ROUNDS):
        found = seen @ spectrum @ seen.T
        more = seen.T @ (known * power / found**2) @ seen
        spectrum = spectrum * more / (seen.T @ (known / found) @ seen)
    return cosines @ spectrum @ cosines.T


@cache
def _responses() -> tuple[np.ndarray, np.ndarray]:
    """Return the response of coefficients, and of displacements, to frequencies along an axis."""
    number = np.arange(FREQUENCIES + 1)
    turns = np.pi * number / FREQUENCIES
    waves = np.exp(-1j * np.outer(np.arange(white.PATCH), turns))
    # All frequencies but the ends are there twice.
    share = np.where(number % FREQUENCIES, 2.0, 1.0) / (2 * FREQUENCIES)
    seen = np.square(np.abs(white.cosine_transform(white.PATCH) @ waves)) * share
    return seen, np.cos(np.outer(np.arange(LAGS + 1), turns)) * share


# The spectrum of the noise from differences of neighbouring frames, where little moves.
#
# Frames of one scene share the scene, so that hardly any texture is left in their difference. Where
# everything moves no more is left than in a single frame.
PLACES = 4  # along time at which three frames in a row are read
PATCHES = 20_000  # read of each of the three, over all places
# Noise of neighbouring frames that is this much weaker than that of frames further apart, or of
# single frames with their texture, is not independent: frames were averaged or stored twice.
FURTHER, SINGLE = 1.15, 0.3
# Share of patches, at most, that are the same in two frames, as in compressed videos.
REPEATED = 0.01
UNLIKE = 1.25  # ratio from which noise of pairs differs
FAR, REACHES = 3, 0.1  # pixels, and the correlation at them from which noise reaches far
MORE = 1.05  # noise over that of single frames, at most: these hold the same, and texture


@dataclass(frozen=True)
class FramesInARow:
    """Three frames in a row, at some places of a time-lapse."""

    rows: tuple[tuple[np.ndarray, np.ndarray, np.ndarray], ...]
    threads: int = 1  # that work at once

    @classmethod
    def of(cls, frames: PlaneStack, threads: int = 1) -> FramesInARow | None:
        """Read some frames of a time-lapse (t, y, x); None if there are fewer than three."""
        if len(frames) < 3:
            return None
        places = spread(len(frames) - 2, PLACES)
        rows = tuple(tuple(frames[t + k] for k in range(3)) for t in places)
        return cls(rows, threads)

    def changed(self, change: Callable[[np.ndarray], np.ndarray]) -> FramesInARow:
        """Return frames that are changed one by one, such as stabilised."""
        return replace(self, rows=tuple(tuple(map(change, row)) for row in self.rows))

    def spectrum(self, single: NoiseSpectrum, alike: bool = True) -> NoiseSpectrum | None:
        """Return the spectrum of the noise, `single` being that of single frames.

        None if frames share noise, or unless they are `alike`, if pairs of them differ in it.
        """
        try:
            parts, apart = self._differences(single.sigma)
            near, far = together(parts), together(apart)
            if np.mean(near.energy_of("high") == 0) > REPEATED:
                return None
            found, further = spectrum_of_patches(near), spectrum_of_patches(far)
            each = [1.0] if alike else [spectrum_of_patches(part).sigma for part in parts]
        except (ImageError, NonFiniteError):
            return None
        least = max(further.sigma / FURTHER, SINGLE * single.sigma)
        if max(each) > UNLIKE * min(each) or not least <= found.sigma <= MORE * single.sigma:
            return None
        return found if found.white else _of_any_range(found)

    def read(self) -> None:
        """Read the patches of all frames now, and not when they are needed."""
        with suppress(ImageError, NonFiniteError):
            _ = self._patches

    @cached_property
    def _patches(self) -> list[list[PatchSpectra]]:
        """The patches of each frame, row by row."""

        def of_row(row: tuple[np.ndarray, ...]) -> list[PatchSpectra]:
            masks = [mask for mask in selection.not_image(row) if mask is not None]
            blank = np.any(masks, axis=0) if masks else None
            return read_alike([[frame] for frame in row], PATCHES // len(self.rows), [blank])

        return self._each(of_row, self.rows)

    def _differences(self, sigma: float) -> tuple[list[PatchSpectra], list[PatchSpectra]]:
        """Return the patches of differences of neighbouring frames, and of each second one."""

        def of_row(row: tuple[np.ndarray, ...], patches: list[PatchSpectra]) -> list[PatchSpectra]:
            first, second, third = patches
            # The contrast of a frame over that of the one before it.
            noise, means = sigma * math.sqrt(2 / block_pixels(row[0].shape)), map(block_means, row)
            one, other = (brightness_change(*pair, noise).gain for pair in pairwise(means))
            near = _difference(first, second, one), _difference(second, third, other)
            return [*near, _difference(first, third, one * other)]

        found = self._each(of_row, self.rows, self._patches)
        return [near for row in found for near in row[:2]], [row[2] for row in found]

    def _each(self, function: Callable, *rows: Sequence) -> list:
        """Apply a function to each row; return the results."""
        with mapping(min(self.threads, len(self.rows))) as each:
            return list(each(function, *rows))


def _of_any_range(found: NoiseSpectrum) -> NoiseSpectrum:
    """Return the spectrum with sigma and autocorrelation of noise that reaches far, if it does."""
    covariance = covariance_of_any_range(np.array(found.power))
    variance = float(covariance[0, 0])
    if not max(covariance[0, FAR], covariance[FAR, 0]) > REACHES * variance:
        return found
    return with_covariance(found, covariance)


def _difference(before: PatchSpectra, after: PatchSpectra, gain: float) -> PatchSpectra:
    """Return patches of the difference, with the noise of the first frame.

    The transform of a difference is the difference of transforms.
    """
    found = np.asarray(after.coefficients)
    found = (found if gain == 1 else found / gain) - np.asarray(before.coefficients)
    found *= 1 / math.hypot(1, 1 / gain)
    return before.changed(found, np.maximum(before.clipped, after.clipped))


# What frames and repetitions tell of a channel.
REPEATS = 8  # positions along an axis from which they count as repetitions of one slice
MOST_REPEATS = 64  # repetitions read


def repeated_planes(source: PlaneReader, channel: Channel | None) -> PlaneStack | None:
    """Return the planes of a slice that was measured many times, if an axis may hold repeats."""
    taken = "ZYX" if channel is None else "ZYX" + source.axes[channel[0]]
    found = [k for k, letter in enumerate(source.axes) if letter not in taken]
    longest = max(found, key=lambda k: source.shape[k], default=None)
    if longest is None or source.shape[longest] < REPEATS:
        return None
    return source.along(longest, channel, spread(source.shape[longest], MOST_REPEATS))


def _still(frames: PlaneStack | None) -> PhotonNoise | None:
    """Return the noise of a time-lapse in which hardly anything moves, else None."""
    try:
        return None if frames is None else still_noise(frames)
    except NonFiniteError:
        return None


def _in_a_row(frames: PlaneStack | None, threads: int) -> FramesInARow | None:
    """Return some frames of a time-lapse with those that follow, else None."""
    found = None if frames is None else FramesInARow.of(frames, threads)
    if found is not None and threads > 1:
        found.read()  # in this thread
    return found


# A channel.
MOST_COUNTED = 1 << 20  # pixels of a plane in which clipped ones are counted, about
EXTREME = 2.0**200  # grey levels whose squares are beyond what is computed here


@dataclass(frozen=True)
class Evidence:
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
    shown: SpectrumEvidence | None = None  # what levels of brightness tell of it
    laws: VarianceLaws | None = None  # how the variance depends on brightness, where known
    temporal: PhotonNoise | None = None  # from differences of still frames, where there are any
    frames: FramesInARow | None = None  # of a time-lapse, if the spectrum was read from them
    repeats: PlaneStack | None = None  # planes of one slice measured many times, where found
    blank: float = 0.0  # share of the pixels in constant areas, which were left out
    blanks: tuple[np.ndarray | None, ...] = ()  # mask of these in each plane, None for none
    levels: tuple[list, ...] = ()  # at which each plane is clipped
    blank_width: int = 0  # width of constant squares that are not image; 0 where there are none
    in_a_row: FramesInARow | None = None  # of a time-lapse
    levelled: PatchSpectra | None = None  # patches of planes scaled to one noise, if it differs

    @property
    def is_plain(self) -> bool:
        """Whether no plane has constant areas, or clipped pixels."""
        return not self.blank and not any(self.levels)

    @property
    def curve(self) -> VarianceCurve | None:
        """Noise variance against brightness."""
        return self.laws.curve if self.laws else None

    def at_all_frequencies(self, curve: VarianceCurve | None) -> VarianceCurve | None:
        """Return a curve, read at the high frequencies, with the variance of whole pixels."""
        if curve is None or self.spectrum is None:
            return curve
        power = np.array(self.spectrum.power)
        _, high = white.frequency_order(power.shape)
        rest = float(power.ravel()[high].mean())
        share = 1.0 if self.spectrum.white or rest <= 0 else float(power.mean()) / rest
        return replace(curve, variance=tuple(share * each for each in curve.variance))

    @property
    def log_speckle(self) -> bool:
        """Whether the noise is speckle on a logarithmic scale."""
        return self.spectrum is not None and self.spectrum.log_speckle

    @property
    def spectrum_of(self) -> str:
        """How the spectrum was read, in words."""
        if self.log_speckle:
            return "spectrum of windows of speckle"
        return f"spectrum of the smoothest patches{' of differences' if self.frames else ''}"

    @property
    def shows_line(self) -> bool:
        """Whether the variance of correlated noise over brightness is read from single planes."""
        alone = self.frames is None and self.temporal is None
        return alone and self.spectrum is not None and not self.spectrum.white

    @cached_property
    def rising_line(self) -> VarianceLine | None:
        """How the variance of correlated noise grows with brightness; None where it does not.

        It has to grow at the high frequencies, too. Texture makes it grow more, so the smaller
        growth counts.
        """
        line = self.shown.line if self.shows_line and self.shown is not None else None
        if line is None or not line.rises or self.laws is None or not self.laws.grows:
            return None
        growth = min(line.growth, self.laws.growth)
        return line.with_growth(growth, self.spectra.mean)

    @cached_property
    def proof(self) -> float:
        """Share of the image, 0 to 1, that shows noise and not only texture."""
        return powers_by_brightness(self.spectra, unclipped(self.spectra.clipped)).proof

    @cached_property
    def photons(self) -> float | None:
        """Grey levels per photon, where the values are counts of few photons; else None."""
        found = [selection.photon_counts(plane) for plane in self.planes]
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


def read_evidence(source: PlaneReader, channel: Channel | None, device: Any = None) -> Evidence:
    """Measure one of ``source.channels``, its patches on a device where one is given.

    NonFiniteError if none of its pixels is finite.
    """
    axis = source.axes.find("T")
    frames = None if axis < 0 else source.along(axis, channel, range(source.shape[axis]))
    compared = partial(_still, frames), partial(_in_a_row, frames, source.threads)
    if frames is None or source.threads == 1:
        return _read_evidence(source, channel, device, *compared)
    # Large frames are compared in threads of their own.
    with ThreadPoolExecutor(len(compared)) as pool:
        results = [pool.submit(compare).result for compare in compared]
        return _read_evidence(source, channel, device, *results)


def _read_evidence(
    source: PlaneReader,
    channel: Channel | None,
    device: Any,
    still: Callable[[], PhotonNoise | None],
    in_a_row: Callable[[], FramesInARow | None],
) -> Evidence:
    planes = list(source.sampled(channel))
    # Nothing is gained by other threads for one plane, and a device takes one after another.
    with mapping(min(len(planes), os.cpu_count() or 1)) as each:
        areas = list(each(selection.blank_area, planes))
        blanks = selection.not_image(planes, areas)
        levels = list(each(selection.clipping_levels, planes, blanks))
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
        measured = list(each(white.plane_noise, planes, blanks, patches, levels, shown, every))
    sigma, error, ends = white.combined_sigma(measured)
    spectra = apart[0] if len(planes) == 1 and apart[0] else None
    spectra = spectra or _spectra(planes, blanks, levels, device)
    share = sum(0.0 if mask is None else float(mask.mean()) for mask in blanks) / len(blanks)
    found = Evidence(
        PlaneStack.held(planes),
        sigma,
        error,
        ends,
        _clipped(planes, blanks, levels),
        spectra,
        blank=share,
        blanks=tuple(blanks),
        levels=tuple(levels),
        blank_width=selection.blank_width(areas, blanks),
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
    temporal = still()
    clipped = temporal is not None and not math.isfinite(temporal.gain_error)
    if clipped or (temporal is not None and temporal.exceeds(found.single)):
        temporal = None  # texture and fixed pattern raise the noise of single images, motion this
    spectrum, shown = spectrum_with_evidence(levelled or spectra)
    if levelled is not None:
        each = list(map(spectrum_of_patches, alone))
        # After registration by parts of a pixel each plane has a spectrum of its own.
        if sum(not one.white for one in each) > 0.5 * len(planes):
            spectrum = mean_spectrum(each)
    # Frames of moving tissue share speckle.
    speckle = log_speckle_spectrum(planes, blanks, levels)
    frames = row = in_a_row() if speckle is None else None
    # Texture alone may make planes differ at the high frequencies, where correlated noise is weak.
    over_time = None if frames is None else frames.spectrum(spectrum, levelled is None)
    spectrum, frames = (spectrum, None) if over_time is None else (over_time, frames)
    if speckle is not None:
        spectrum, shown = speckle, SpectrumEvidence(True, speckle.sigma, proof=1.0)
    return replace(
        found,
        spectrum=spectrum,
        shown=shown,
        frames=frames,
        laws=laws,
        temporal=temporal,
        repeats=repeated_planes(source, channel),
        in_a_row=row,
        levelled=levelled,
    )


def _spectra(
    planes: list[np.ndarray],
    blanks: list[np.ndarray | None],
    levels: list[list] | None = None,
    device: Any = None,
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
    device: Any = None,
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
    mean, _ = laws.curve.fitted
    return float(mean.max() - mean.min())


def _level(
    planes: list[np.ndarray],
    blanks: list[np.ndarray | None],
    measured: list[white.PlaneSigma | None],
    sigma: float,
) -> PatchSpectra | None:
    """Return the patches of planes that are scaled to the same noise, if it clearly differs.

    The smoothest patches would all be of the planes with the weakest noise, and the rest of the
    noise pass as texture.
    """
    known = [each for each in measured if each is not None and each.sigma > 0]
    if len(known) < 2:
        return None
    if not white.planes_differ([m.sigma for m in known], [m.error / m.sigma for m in known]):
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
        ends = known if blank is None else selection.clipping_levels(plane)
        middle = np.nanmean(rows[:: max(1, len(rows) // 64)]) if ends else 0.0
        for level in ends:
            number = int(np.count_nonzero(rows == level))
            if level < middle:
                dark += number
            else:
                bright += number
    return dark / total, bright / total
