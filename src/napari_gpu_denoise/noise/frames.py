"""Noise of differences of frames of one scene, which hold hardly any texture."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import ImageError, NonFiniteError
from napari_gpu_denoise.image.flicker import block_means, block_pixels, brightness_changes
from napari_gpu_denoise.image.threads import mapping
from napari_gpu_denoise.noise import limits, photon
from napari_gpu_denoise.noise.correlation import LAGS, NoiseSpectrum, spectrum_of_patches
from napari_gpu_denoise.noise.patches import selection
from napari_gpu_denoise.noise.patches.coefficients import HIGHS, LOWS, PATCH, cosine_transform
from napari_gpu_denoise.noise.patches.spectra import PatchSpectra, read_alike, together
from napari_gpu_denoise.noise.patches.variance import brightness_levels
from napari_gpu_denoise.noise.sampling import spread

# The autocovariance of noise of any range, from its power in patches of 8 x 8 pixels.
#
# A patch sees noise that reaches beyond it at its lowest frequencies only, where single images have
# slopes: what is fitted here must hold noise alone, as differences of frames do.
FREQUENCIES = 16  # of the spectrum, besides 0, along each axis


def covariance_of_any_range(power: np.ndarray) -> np.ndarray:
    """Return the autocovariance, (5, 5), of noise with this power of coefficients, (8, 8).

    The first coefficient is ignored. The spectrum, nowhere negative, is found from a flat one by
    multiplicative updates (C. Févotte, N. Bertin, J.-L. Durrieu, Neural Computation 21 (2009),
    :doi:`10.1162/neco.2008.04-08-771`), which suit variances: errors are relative to the power.
    """
    seen, cosines = _responses()
    known = np.ones(power.shape)
    known[0, 0] = 0
    power = np.maximum(power, 1e-6 * float(power.max()))
    spectrum = np.full((FREQUENCIES + 1,) * 2, power[1:, 1:].mean())
    for _ in range(30):  # with more, what is not noise makes it peak at the lowest frequency
        found = seen @ spectrum @ seen.T
        more = seen.T @ (known * power / found**2) @ seen
        spectrum = spectrum * more / (seen.T @ (known / found) @ seen)
    return cosines @ spectrum @ cosines.T


@cache
def _responses() -> tuple[np.ndarray, np.ndarray]:
    """Return the response of coefficients, and of displacements, to frequencies along an axis."""
    number = np.arange(FREQUENCIES + 1)
    turns = np.pi * number / FREQUENCIES
    waves = np.exp(-1j * np.outer(np.arange(PATCH), turns))
    # All frequencies but the ends are there twice.
    share = np.where(number % FREQUENCIES, 2.0, 1.0) / (2 * FREQUENCIES)
    seen = np.square(np.abs(cosine_transform(PATCH) @ waves)) * share
    return seen, np.cos(np.outer(np.arange(LAGS + 1), turns)) * share


# Frames of one scene share the scene, so that hardly any texture is left in their difference. Where
# everything moves no more is left than in a single frame.


@dataclass(frozen=True)
class FramesInARow:
    """Two or three frames in a row, at some places of a time-lapse."""

    rows: tuple[tuple[np.ndarray, ...], ...]
    threads: int = 1  # that work at once
    device: Any = None  # that patches are read on, as `patches_on` yields it

    @classmethod
    def of(
        cls, frames: Sequence[np.ndarray], threads: int = 1, device: Any = None
    ) -> FramesInARow | None:
        """Read frames of a time-lapse (t, y, x) at four places; None if there are fewer than two.

        There are three at each, if there are as many.
        """
        number = min(len(frames), 3)
        if number < 2:
            return None
        places = spread(len(frames) - number + 1, 4)
        rows = tuple(tuple(frames[t + k] for k in range(number)) for t in places)
        return cls(rows, threads, device)

    def changed(self, change: Callable[[np.ndarray], np.ndarray]) -> FramesInARow:
        """Return frames that are changed one by one, such as stabilised."""
        return replace(self, rows=tuple(tuple(map(change, row)) for row in self.rows))

    @cached_property
    def patches(self) -> list[PatchSpectra]:
        """The same patches of the first frame of each row, of the second, and of the third.

        NonFiniteError if none is whole.
        """
        sets = list(zip(*self.rows, strict=True))
        frames = [frame for each in sets for frame in each]
        with mapping(min(self.threads, len(frames))) as each:
            masks = selection.not_image(frames, list(each(selection.blank_area, frames)))
        blanks: list[np.ndarray | None] = []
        for row in range(len(self.rows)):
            known = [mask for mask in masks[row :: len(self.rows)] if mask is not None]
            blanks.append(np.any(known, axis=0) if known else None)
        return read_alike(sets, 5000, blanks, self.device)

    def spectrum(self, single: NoiseSpectrum, alike: bool = True) -> NoiseSpectrum | None:
        """Return the spectrum of the noise, `single` being that of single frames.

        None if frames share noise, as averaged ones do, and those of compressed videos, or unless
        they are `alike`, if pairs of them differ in it.
        """
        if len(self.rows[0]) < 3:
            return None
        try:
            near, apart = self._differences(single.sigma)
            found, further = spectrum_of_patches(near), spectrum_of_patches(apart)
            each = [1.0] if alike else [spectrum_of_patches(one).sigma for one in near.alone()]
        except (ImageError, NonFiniteError):
            return None
        most = limits.MAX_SIGMA_OVER_BOUND * single.sigma
        least = max(
            further.sigma / limits.MAX_SIGMA_OF_FURTHER, limits.MIN_SIGMA_OVER_SINGLE * single.sigma
        )
        unlike = max(each) > limits.MAX_SIGMA_RATIO_ALIKE * min(each)
        if unlike or not least <= found.sigma <= most:
            return None
        return found if found.white else _of_any_range(found)

    def _differences(self, sigma: float) -> tuple[PatchSpectra, PatchSpectra]:
        """Return the patches of differences of neighbouring frames, and of each second one."""
        # The contrast of each frame over that of the one before it.
        noise = sigma * math.sqrt(2 / block_pixels(self.rows[0][0].shape))
        means = [np.array(list(map(block_means, row))) for row in self.rows]
        noises = np.full(len(means[0]) - 1, noise)
        gains = [brightness_changes(row[:-1], row[1:], noises)[:, 0] for row in means]
        gains = np.array(gains).T
        before, after = self.patches[:-1], self.patches[1:]
        near = list(map(_difference, before, after, gains))
        apart = _difference(self.patches[0], self.patches[2], gains.prod(axis=0))
        return together(near), apart

    def still_noise(self) -> photon.PhotonNoise | None:
        """Return the noise from differences of neighbouring frames; None where they move.

        Correlated noise is taken for motion.
        """
        found = noise_of_differences(self.differences)
        return None if _moves(self.differences, found) else found

    @cached_property
    def differences(self) -> PatchSpectra:
        """The patches of differences of neighbouring frames; NonFiniteError if none is whole."""
        same = np.ones(len(self.rows))
        return together([_difference(*pair, same) for pair in pairwise(self.patches)])


def _of_any_range(found: NoiseSpectrum) -> NoiseSpectrum:
    """Return the spectrum with sigma and autocorrelation of noise that reaches far, if it does."""
    covariance = covariance_of_any_range(np.array(found.power))
    reaches = max(covariance[0, 3], covariance[3, 0]) / covariance[0, 0]
    if not reaches > limits.MIN_NEIGHBOUR_CORRELATION:
        return found
    return found.with_covariance(covariance)


def _difference(before: PatchSpectra, after: PatchSpectra, gain: np.ndarray) -> PatchSpectra:
    """Return patches of the difference, with the noise of the first frame; `gain` is (row,).

    The transform of a difference is the difference of transforms. Grey levels are those of both.
    """
    gain = np.repeat(gain, before.count).astype(np.float32)[:, None]
    found = np.asarray(after.coefficients) / gain - np.asarray(before.coefficients)
    clipped = np.maximum(before.clipped, after.clipped)
    made = before.changed(found / np.hypot(1, 1 / gain), clipped)
    mean, seen = (before.mean + after.mean) / 2, (before.seen + after.seen) / 2
    return replace(made, mean=mean, seen=seen)


MEMBERS = 16  # patches a level of brightness needs
METHOD = "differences of neighbouring frames"


def noise_of_differences(patches: PatchSpectra) -> photon.PhotonNoise:
    """Fit a line to the white noise of patches that stand still, at levels of brightness."""
    energy = patches.energy_of("low") + patches.energy_of("high")
    rows: list[tuple[Any, ...]] = []
    variance = energy / np.float64(LOWS + HIGHS)
    for part in brightness_levels(patches.mean, MEMBERS).each():
        core, error = _still(variance[part])
        core = part[core]
        enough = len(part) >= min(MEMBERS, len(variance))
        enough &= patches.clipped[part].mean() <= limits.MAX_CLIPPED_SHARE
        level = patches.mean[core].mean(), variance[core].mean()
        rows.append((*level, len(core), enough, error * math.sqrt(patches.overlap)))
    x, y, count, used, error = (np.array(each) for each in zip(*rows, strict=True))
    known = used.any()
    errors = np.hypot(error, photon.SYSTEMATIC)
    result = photon.photon_noise((x, y, count), errors, used | ~known, 2.5, METHOD)
    return result if known else replace(result, gain_error=math.inf)


def _moves(patches: PatchSpectra, found: photon.PhotonNoise) -> bool:
    """Return whether the scene moves, or noise is correlated, given the noise of differences."""
    line = found.gain, found.intercept, found.read_noise**2 or 1e-300
    low = patches.energy_of("low") / (LOWS * photon.line_values(patches.mean, *line))
    high = patches.energy_of("high") / (HIGHS * photon.line_values(patches.seen, *line))
    still = low <= 1 + limits.MIN_ERRORS_ABOVE * math.sqrt(2 / LOWS)
    moving: list[np.bool_] = []
    # Objects may move on a ground that stands still: the gain is measured on both.
    for part in brightness_levels(patches.mean, MEMBERS).each():
        # Faint objects: all patches differ a little more at the low frequencies.
        independent = max(len(part) / patches.overlap, 1.0)
        error = math.sqrt(2 / (LOWS * independent) + 2 / (HIGHS * independent))
        most = (limits.MAX_LOW_OVER_HIGH + 2 * error) * np.median(high[part])
        few = still[part].mean() < limits.MIN_STILL_SHARE
        moving.append(few or np.median(low[part]) > most)
    return bool(np.mean(moving) > limits.MAX_MOVING_LEVELS)


def _still(variance: np.ndarray) -> tuple[np.ndarray, float]:
    """Return a mask of still patches, and the relative standard error of their mean variance."""
    ordered = np.sort(variance)  # they are the smallest ones
    for _ in range(20):
        low, centre = np.quantile(ordered, (0.16, 0.5))
        now = np.count_nonzero(ordered <= centre + 3 * (centre - low))
        if now == len(ordered):
            break
        ordered = ordered[:now]
    core = variance <= ordered[-1]
    level = variance[core].mean()
    # At least the spread of independent normal values, whatever a few patches happen to show.
    spread = max(float(variance[core].std()) / level, math.sqrt(2) / PATCH) if level else 0.0
    return core, spread / math.sqrt(np.count_nonzero(core))
