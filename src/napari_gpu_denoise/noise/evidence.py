"""What is measured on one channel: each thing once, when a noise model asks for it."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import ImageError, NonFiniteError
from napari_gpu_denoise.image.threads import mapping
from napari_gpu_denoise.noise.correlation import NoiseSpectrum, noise_share, spectrum_of_patches
from napari_gpu_denoise.noise.frames import FramesInARow
from napari_gpu_denoise.noise.patches import selection
from napari_gpu_denoise.noise.patches.coefficients import frequency_order
from napari_gpu_denoise.noise.patches.laws import VarianceLaws, variance_laws
from napari_gpu_denoise.noise.patches.selection import Plane
from napari_gpu_denoise.noise.patches.spectra import (
    PatchSpectra,
    combined_sigma,
    plane_sigmas,
    planes_differ,
    read_spectra,
    sigma_of_differences,
)
from napari_gpu_denoise.noise.patches.variance import VarianceCurve
from napari_gpu_denoise.noise.photon import PhotonNoise, single_image_noise
from napari_gpu_denoise.noise.sampling import Channel, PlaneReader
from napari_gpu_denoise.noise.speckle import log_speckle_spectrum


class Evidence:
    """Measurements on one channel that noise models take their parameters from.

    Each is made when it is first asked for, and kept. Where planes are too small, or grey levels
    too extreme, `spectra` is None, and so is what follows from it. `device` is where patches are
    read, as `patches_on` yields it. NonFiniteError if none of the pixels is finite.
    """

    def __init__(self, source: PlaneReader, channel: Channel | None, device: Any = None) -> None:
        self._source, self._channel, self._device = source, channel, device
        self.planes = planes = list(source.sampled(channel))
        with mapping(min(len(planes), source.threads)) as each:
            areas = list(each(selection.blank_area, planes))
            #: The planes, and what of each is not image.
            self.examined = list(each(Plane.of, planes, selection.not_image(planes, areas)))
        # Width of constant squares that are not image; 0 where there are none.
        left_out = any(each.blank is not None for each in self.examined)
        self.blank_width = left_out * max((each.width for each in areas if each), default=0)
        sigma_and_error = combined_sigma(self._measured)
        #: Standard deviation if the noise is white, grey levels, and its standard error.
        self.sigma, self.error = (0.0, 0.0) if self.is_drawing else sigma_and_error

    #: Whether the other colours prove that the noise is correlated; else the sigma of correlated
    #: noise that this one suggests alone.
    proven_by_colours: bool = False
    unproven: float = 0.0

    def with_spectrum(self, spectrum: NoiseSpectrum) -> Evidence:
        """Return the same with the spectrum that all colours of an image prove."""
        other, own = copy.copy(self), self.spectrum
        other.proven_by_colours = not spectrum.white
        other.unproven = own.sigma if spectrum.white and own and not own.white else 0.0
        other.__dict__["spectrum"] = spectrum
        if not spectrum.white:
            # Tone curves of cameras leave no law of photons, and the noise of counts is white.
            other.__dict__["photons"] = None
        return other

    # Planes

    @cached_property
    def blank(self) -> float:
        """Share of the pixels in constant areas, which are left out."""
        masks = [each.blank for each in self.examined]
        return sum(0.0 if mask is None else float(mask.mean()) for mask in masks) / len(masks)

    @property
    def is_plain(self) -> bool:
        """Whether no plane has constant areas, or clipped pixels."""
        return not self.blank and not any(each.ends for each in self.examined)

    @cached_property
    def clipped(self) -> tuple[float, float]:
        """Share of the pixels that are clipped at the dark and at the bright end."""
        found = np.zeros(2)
        for plane, blank, known in self.examined:
            rows = plane[:: 1 + (plane.size >> 20)]
            for level in known if blank is None else selection.clipping_levels(plane):
                end = 1 if level >= np.nanmean(rows[:: max(1, len(rows) // 64)]) else 0
                found[end] += np.count_nonzero(rows == level) / rows.size
        return tuple((found / len(self.planes)).tolist())

    @cached_property
    def is_drawing(self) -> bool:
        """Whether there are no more than two grey levels, which are no counts of photons."""
        for plane in self.planes:
            some = plane.ravel()[:: 1 + (plane.size >> 14)]
            some = some[some == some]  # not NaN
            if some.size and ((some != some.min()) & (some != some.max())).any():
                return False
        return self.photons is None

    # Patches and white noise

    @cached_property
    def spectra(self) -> PatchSpectra | None:
        """Patches of 8 x 8 pixels of all planes."""
        return self._patches(self.examined)

    def _patches(self, planes: Sequence[Plane]) -> PatchSpectra | None:
        """Return patches of 8 x 8 pixels; None where there are none, or values are too extreme."""
        try:
            spectra = read_spectra(planes, None, self._device)
        except (ImageError, NonFiniteError):
            return None
        largest = float(np.abs(spectra.mean).max())
        return spectra if largest == 0 or 2.0**-200 < largest < 2.0**200 else None

    @cached_property
    def _measured(self) -> np.ndarray:
        """Sigma of the white noise of each plane and its error, (plane, 2); NaN if unknown."""
        if self.spectra is None:
            return np.array(list(map(sigma_of_differences, self.planes)))
        return plane_sigmas(self.spectra)

    @cached_property
    def levelled(self) -> PatchSpectra | None:
        """Patches of planes that are scaled to the same noise, if it clearly differs.

        The smoothest patches would all be of the planes with the weakest noise, and the rest of the
        noise pass as texture.
        """
        sigma, error = self._measured.T
        known = sigma > 0
        if not planes_differ(sigma[known], error[known] / sigma[known]):
            return None
        pairs = zip(self.examined, sigma, strict=True)
        scaled = [
            Plane.of(plane.pixels * np.float64(self.sigma / one), plane.blank)
            for plane, one in pairs
            if one > 0
        ]
        return self._patches(scaled)

    # Variance over brightness

    @cached_property
    def laws(self) -> VarianceLaws | None:
        """How the variance depends on brightness, where known."""
        return None if self.spectra is None else variance_laws(self.spectra)

    @property
    def curve(self) -> VarianceCurve | None:
        """Noise variance against brightness."""
        return self.laws.curve if self.laws else None

    def at_all_frequencies(self, curve: VarianceCurve | None) -> VarianceCurve | None:
        """Return a curve, read at the high frequencies, with the variance of whole pixels."""
        if curve is None or self.spectrum is None:
            return curve
        power = np.array(self.spectrum.power)
        _, high = frequency_order()
        rest = float(power.ravel()[high].mean())
        share = 1.0 if self.spectrum.white or rest <= 0 else float(power.mean()) / rest
        return replace(curve, variance=tuple(share * each for each in curve.variance))

    @cached_property
    def photons(self) -> float | None:
        """Grey levels per photon, where the values are counts of few photons; else None."""
        found = [selection.photon_counts(plane) for plane in self.planes]
        steps = [each for each in found if each is not None]
        return float(np.median(steps)) if 2 * len(steps) > len(found) else None

    @cached_property
    def single(self) -> PhotonNoise:
        """Photon and read noise of single images."""
        spectra = self.spectra or read_spectra(self.examined)
        return single_image_noise(spectra, not self.is_correlated)

    # Frames

    @cached_property
    def temporal(self) -> PhotonNoise | None:
        """Noise of a time-lapse in which hardly anything moves, where it is known."""
        if self.row is None:
            return None
        try:
            found = self.row.still_noise()
        except NonFiniteError:
            return None
        return found if found is not None and math.isfinite(found.gain_error) else None

    @property
    def grows_over_time(self) -> bool | None:
        """Whether noise between still frames grows with brightness; None where they do not tell."""
        if self.temporal is None or self.temporal.grows:
            return None if self.temporal is None else True
        return None if self.temporal.significant else False

    @cached_property
    def row(self) -> FramesInARow | None:
        """Some frames of a time-lapse with those that follow, if they have patches."""
        axis = self._source.axes.find("T")
        if axis < 0 or self.spectra is None:
            return None
        frames = self._source.along(axis, self._channel, range(self._source.shape[axis]))
        return FramesInARow.of(frames, self._source.threads, self._device)

    # Correlation

    @cached_property
    def _spectrum_read(self) -> tuple[NoiseSpectrum | None, FramesInARow | None]:
        """The spectrum of the noise, and the frames it is from."""
        if self.spectra is None:
            return None, None
        spectrum = spectrum_of_patches(self.levelled or self.spectra)
        speckle = None
        if not spectrum.white:
            speckle = log_speckle_spectrum(self.examined)
        if speckle is not None:
            return speckle, None
        if self.levelled is not None:
            each = list(map(spectrum_of_patches, self.spectra.alone()))
            # After registration by parts of a pixel each plane has a spectrum of its own.
            if sum(not one.white for one in each) > 0.5 * len(self.planes):
                power = np.mean([one.power for one in each], axis=0)
                spectrum = NoiseSpectrum.of_power(power, sum(one.patches for one in each))
        # Texture alone may make planes differ at the high frequencies.
        row, alike = self.row, self.levelled is None
        over_time = None if row is None else row.spectrum(spectrum, alike)
        return (spectrum, None) if over_time is None else (over_time, row)

    @cached_property
    def spectrum(self) -> NoiseSpectrum | None:
        """Spectrum of the noise."""
        return self._spectrum_read[0]

    @property
    def frames(self) -> FramesInARow | None:
        """Frames of a time-lapse, if the spectrum was read from them."""
        return self._spectrum_read[1]

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
    def is_correlated(self) -> bool:
        """Whether the noise of neighbouring pixels is correlated."""
        return self.spectrum is not None and not self.spectrum.white

    @cached_property
    def proof(self) -> float:
        """Share of the image, 0 to 1, that shows noise and not only texture."""
        return 0.0 if self.spectra is None else noise_share(self.spectra)
