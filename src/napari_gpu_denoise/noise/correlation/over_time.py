"""The spectrum of the noise from differences of neighbouring frames, where little moves.

Frames of one scene share the scene, so that hardly any texture is left in their difference. Where
everything moves no more is left than in a single frame.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from napari_gpu_denoise.errors import ImageError, NonFiniteError
from napari_gpu_denoise.image.flicker import block_means, block_pixels, brightness_change
from napari_gpu_denoise.noise.correlation.any_range import covariance_of_any_range
from napari_gpu_denoise.noise.correlation.spectrum import NoiseSpectrum, spectrum_of_patches
from napari_gpu_denoise.noise.patches.blank import not_image
from napari_gpu_denoise.noise.patches.spectra import PatchSpectra, read_spectra, together
from napari_gpu_denoise.noise.sampling import PlaneStack, spread

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
            if np.mean(~near.high.any(axis=1)) > REPEATED:
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
            blank, limit = _blank(row), PATCHES // len(self.rows)
            return [read_spectra([frame], limit, [blank]) for frame in row]

        return self._each(of_row, self.rows)

    def _differences(self, sigma: float) -> tuple[list[PatchSpectra], list[PatchSpectra]]:
        """Return the patches of differences of neighbouring frames, and of each second one."""

        def of_row(row: tuple[np.ndarray, ...], patches: list[PatchSpectra]) -> list[PatchSpectra]:
            first, second, third = patches
            one, other = (_gain(*pair, sigma) for pair in pairwise(row))
            near = _difference(first, second, one), _difference(second, third, other)
            return [*near, _difference(first, third, one * other)]

        found = self._each(of_row, self.rows, self._patches)
        return [near for row in found for near in row[:2]], [row[2] for row in found]

    def _each(self, function: Callable, *rows: Sequence) -> list:
        """Return what a function makes of each row."""
        if self.threads == 1:
            return list(map(function, *rows))
        with ThreadPoolExecutor(min(self.threads, len(self.rows))) as pool:
            return list(pool.map(function, *rows))


def _of_any_range(found: NoiseSpectrum) -> NoiseSpectrum:
    """Return the spectrum with sigma and autocorrelation of noise that reaches far, if it does."""
    covariance = covariance_of_any_range(np.array(found.power))
    variance = float(covariance[0, 0])
    if not max(covariance[0, FAR], covariance[FAR, 0]) > REACHES * variance:
        return found
    table = tuple(map(tuple, (covariance / variance).tolist()))
    return replace(found, autocorrelation=table, sigma=math.sqrt(variance), any_range=True)


def _blank(row: tuple[np.ndarray, ...]) -> np.ndarray | None:
    """Return a mask of what is no image, or not finite, in one of the frames."""
    masks = [mask for mask in not_image(list(row)) if mask is not None]
    masks += [~np.isfinite(frame) for frame in row if frame.dtype.kind == "f"]
    masks = [mask for mask in masks if mask.any()]
    return np.any(masks, axis=0) if masks else None


def _gain(before: np.ndarray, after: np.ndarray, sigma: float) -> float:
    """Return how much the contrast of a frame exceeds that of the one before it."""
    noise = sigma * math.sqrt(2 / block_pixels(before.shape))
    return brightness_change(block_means(before), block_means(after), noise).gain


def _difference(before: PatchSpectra, after: PatchSpectra, gain: float) -> PatchSpectra:
    """Return patches of the difference, with the noise of the first frame.

    The transform of a difference is the difference of transforms.
    """
    found = np.asarray(after.coefficients)
    found = (found if gain == 1 else found / gain) - np.asarray(before.coefficients)
    found *= 1 / math.hypot(1, 1 / gain)
    return before.changed(found, np.maximum(before.clipped, after.clipped))
