"""Noise of differences of frames of one scene, which hold hardly any texture."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from napari_gpu_denoise.errors import ImageError, NonFiniteError
from napari_gpu_denoise.image.flicker import block_means, block_pixels, brightness_change
from napari_gpu_denoise.image.threads import mapping
from napari_gpu_denoise.noise import limits, photon
from napari_gpu_denoise.noise.correlation import LAGS, NoiseSpectrum, spectrum_of_patches
from napari_gpu_denoise.noise.patches import selection
from napari_gpu_denoise.noise.patches.coefficients import PATCH, cosine_transform
from napari_gpu_denoise.noise.patches.spectra import PatchSpectra, read_alike, together
from napari_gpu_denoise.noise.patches.variance import VarianceCurve, brightness_levels
from napari_gpu_denoise.noise.sampling import MAX_PLANES, PlaneStack, spread

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
    waves = np.exp(-1j * np.outer(np.arange(PATCH), turns))
    # All frequencies but the ends are there twice.
    share = np.where(number % FREQUENCIES, 2.0, 1.0) / (2 * FREQUENCIES)
    seen = np.square(np.abs(cosine_transform(PATCH) @ waves)) * share
    return seen, np.cos(np.outer(np.arange(LAGS + 1), turns)) * share


# The spectrum of the noise from differences of neighbouring frames, where little moves.
#
# Frames of one scene share the scene, so that hardly any texture is left in their difference. Where
# everything moves no more is left than in a single frame.
PLACES = 4  # along time at which three frames in a row are read
PATCHES = 8000  # read of each of the three, over all places
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
    return found.with_covariance(covariance)


def _difference(before: PatchSpectra, after: PatchSpectra, gain: float) -> PatchSpectra:
    """Return patches of the difference, with the noise of the first frame.

    The transform of a difference is the difference of transforms.
    """
    found = np.asarray(after.coefficients)
    found = (found if gain == 1 else found / gain) - np.asarray(before.coefficients)
    found *= 1 / math.hypot(1, 1 / gain)
    return before.changed(found, np.maximum(before.clipped, after.clipped))


PAIR_PATCHES = 40_000  # read over all pairs, about
MEMBERS = 16  # patches a level of brightness needs
CORE = 3.0  # distance above the median, in spreads, from which a patch counts as moving
FAR_FROM_LINE = 2.5  # standard errors from the line from which a level counts less
STILL = 0.6  # share of the patches of a level that are to stand still in a time-lapse that does
MOVING_LEVELS = 0.25  # share of the levels of brightness that may move
SHIFTED = 1.15  # power at the low frequencies over that at the high ones, at most
MOVING = 4.0  # standard errors by which the low frequencies of a difference are above its noise
METHOD = "differences of neighbouring frames"


class Differences(NamedTuple):
    """Patches of differences of frames; variances are half of theirs, (patch,)."""

    mean: np.ndarray  # grey level of both frames
    seen: np.ndarray  # the same, as the high frequencies see it
    variance: np.ndarray  # of all pixels, less flicker
    low: np.ndarray  # at the low frequencies
    high: np.ndarray
    clipped: np.ndarray  # share of clipped pixels
    frequencies: tuple[int, int]  # how many of these are low and high
    overlap: float  # how many patches share a pixel

    @classmethod
    def of(cls, pairs: Sequence[tuple[np.ndarray, ...]]) -> Differences:
        """Read the patches of pairs of frames (y, x); NonFiniteError if none is whole."""
        masks = selection.not_image([frame for pair in pairs for frame in pair])
        halves = zip(masks[::2], masks[1::2], strict=True)
        blanks = [b if a is None else a if b is None else a | b for a, b in halves]
        before, after = read_alike(list(zip(*pairs, strict=True)), PAIR_PATCHES, blanks)
        # The transform of a difference is the difference of transforms.
        change = np.square(np.asarray(after.coefficients) - np.asarray(before.coefficients)) / 2
        lows, number = before.lows, change.shape[1]
        low, high = (part.sum(axis=1, dtype=float) for part in np.split(change, [lows], axis=1))
        mean, shift = (before.mean + after.mean) / 2, after.mean - before.mean
        ends = np.cumsum([0, *before.count])
        for first, last in pairwise(ends):
            shift[first:last] -= _drift(mean[first:last], shift[first:last])
        return cls(
            mean,
            (before.seen + after.seen) / 2,
            (low + high) / PATCH**2 + np.square(shift) / 2,
            low / lows,
            high / (number - lows),
            (before.clipped + after.clipped) / 2,
            (lows, number - lows),
            before.overlap,
        )

    def moves(self, found: photon.PhotonNoise) -> bool:
        """Return whether the scene moves, or noise is correlated, given the noise."""
        least = found.read_noise**2 or 1e-300
        low, high = (
            power / photon.line_values(seen, found.gain, found.intercept, least)
            for power, seen in ((self.low, self.mean), (self.high, self.seen))
        )
        limit = 1 + MOVING * math.sqrt(2 / self.frequencies[0])
        # Objects may move on a ground that stands still: the gain is measured on both.
        parts = brightness_levels(self.mean, MEMBERS).each()
        moving = [
            np.mean(low[part] <= limit) < STILL or self._shifted(low[part], high[part], SHIFTED)
            for part in parts
        ]
        return bool(np.mean(moving) > MOVING_LEVELS)

    def _shifted(self, low: np.ndarray, high: np.ndarray, least: float) -> bool:
        """Return whether all patches differ a little more at the low frequencies: faint objects."""
        known = max(len(low) / self.overlap, 1.0)
        error = math.sqrt(sum(2 / (number * known) for number in self.frequencies))
        return bool(np.median(low) > (least + 2 * error) * np.median(high))

    def noise(self, white: bool) -> photon.PhotonNoise:
        """Fit a line to the noise of patches that stand still, at levels of brightness.

        Where the low frequencies hold more than the high ones, and noise is `white`, something
        moves, and the high ones tell the noise.
        """
        rows = []
        for part in brightness_levels(self.mean, MEMBERS).each():
            moves = white and self._shifted(self.low[part], self.high[part], 1.0)
            means, variances = (self.seen, self.high) if moves else (self.mean, self.variance)
            core, error = _still(variances[part])
            core = part[core]
            enough = len(part) >= min(MEMBERS, len(self.mean))
            enough &= self.clipped[part].mean() <= limits.MAX_CLIPPED_SHARE
            level = means[core].mean(), variances[core].mean()
            rows.append((*level, len(core), enough, error * math.sqrt(self.overlap)))
        x, y, count, used, error = (np.array(each) for each in zip(*rows, strict=True))
        known = used.any()
        if not known:
            used[:] = True
        line = 0.0, 0.0, np.zeros((2, 2))
        if y[used].any():
            errors = np.hypot(error[used], photon.SYSTEMATIC)
            *line, used[used] = photon.robust_line(x[used], y[used], errors, FAR_FROM_LINE)
        curve = VarianceCurve(*(tuple(each.tolist()) for each in (x, y, count, used)))
        result = photon.photon_noise(tuple(line), curve, METHOD)
        return result if known else replace(result, gain_error=math.inf)


def still_noise(frames: PlaneStack) -> photon.PhotonNoise | None:
    """Return the noise of frames, from differences of neighbouring ones; None where they move.

    Correlated noise is taken for motion.
    """
    if len(frames) < 2:
        return None
    read = Differences.of(neighbours(frames))
    found = read.noise(white=True)
    return None if read.moves(found) else found


def neighbours(frames: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return pairs of neighbouring frames, spread evenly over time."""
    places = spread(int(frames.shape[0]) - 1, MAX_PLANES)
    return [(np.asarray(frames[t]), np.asarray(frames[t + 1])) for t in places]


def _still(variance: np.ndarray) -> tuple[np.ndarray, float]:
    """Return a mask of still patches, and the relative standard error of their mean variance."""
    ordered = np.sort(variance)  # they are the smallest ones
    for _ in range(20):
        low, centre = np.quantile(ordered, (0.16, 0.5))
        now = int(np.searchsorted(ordered, centre + CORE * (centre - low), "right"))
        if now == len(ordered):
            break
        ordered = ordered[:now]
    core = variance <= ordered[-1]
    level = variance[core].mean()
    # At least the spread of independent normal values, whatever a few patches happen to show.
    spread = max(float(variance[core].std()) / level, math.sqrt(2) / PATCH) if level else 0.0
    return core, spread / math.sqrt(np.count_nonzero(core))


def _drift(mean: np.ndarray, change: np.ndarray) -> np.ndarray:
    """Return the difference of brightness between two frames, at the mean of each patch.

    A line: a constant, and a part proportional to brightness. What moves does not tilt it. The mean
    of each patch is not simply subtracted, as it holds a share of correlated noise.
    """
    factor, constant = 0.0, float(np.median(change))
    for _ in range(10):
        rest = np.abs(change - factor * mean - constant)
        scale = 1.4826 * float(np.median(rest))
        if scale == 0:
            break
        factor, constant, _ = photon.weighted_line(
            mean, change, np.sqrt(np.maximum(rest / scale, 1))
        )
    return factor * mean + constant
