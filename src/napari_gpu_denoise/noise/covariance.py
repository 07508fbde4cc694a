"""Covariance of the noise between channels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import AxesError, ImageError, NonFiniteError
from napari_gpu_denoise.image.levels import check_numbers
from napari_gpu_denoise.noise.correlation import HALVES
from napari_gpu_denoise.noise.models.base import NoiseModel
from napari_gpu_denoise.noise.patches import selection
from napari_gpu_denoise.noise.patches.coefficients import ranked, smallest
from napari_gpu_denoise.noise.patches.spectra import SETS, frequency_sets, read_spectra
from napari_gpu_denoise.noise.patches.variance import pooled_variance, unclipped
from napari_gpu_denoise.noise.patches.white import MAX_PATCHES, PATCH
from napari_gpu_denoise.noise.sampling import PlaneStack

CLEAREST = 0.02  # share of the patches whose lowest frequencies hold little texture
CLEARLY_SHARED = 10.0  # errors of a covariance above which noise is shared: texture is, by 8
LEAST_SHARED = 0.08  # correlation between channels that costs 0.1 to 0.2 dB if it is ignored


@dataclass(frozen=True)
class ChannelCovariance:
    """Covariance of the noise between channels; tables are (channel, channel)."""

    covariance: tuple[tuple[float, ...], ...]  # grey levels squared
    # Standard error of the covariance, with that by texture, which differs between frequencies.
    error: tuple[tuple[float, ...], ...]
    # 1 on the diagonal; elsewhere 0 where a channel has no noise.
    correlation: tuple[tuple[float, ...], ...]
    patches: int  # how many patches were read

    @property
    def shared(self) -> tuple[float, ...]:
        """Mean correlation of each channel with the others."""
        table = np.array(self.correlation)
        mean = (table.sum(axis=1) - 1) / (len(table) - 1)
        return tuple(np.clip(mean, -1, 1).tolist())

    @property
    def is_clear(self) -> bool:
        """Whether channels share noise beyond what texture or chance could cause."""
        others = np.tril_indices(len(self.correlation), -1)
        each = (self.correlation, self.covariance, self.error)
        correlation, covariance, error = (np.abs(table)[others] for table in map(np.array, each))
        clear = (correlation > LEAST_SHARED) & (covariance > CLEARLY_SHARED * error)
        return bool(clear.any())

    def summary(self) -> str:
        """Return the strongest correlation as one line."""
        largest = np.abs(np.tril(self.correlation, -1)).max()
        return f"correlation of noise between channels is at most {largest:.2f}"


def channel_covariance(image: Any, correlated: bool = False) -> ChannelCovariance:
    """Estimate the covariance of the noise between the channels of an image (c, y, x).

    It is read at the high frequencies of the patches that are smoothest in all channels together,
    each channel relative to its own noise; where noise is `correlated` between pixels, at all
    frequencies of the smoothest of these, as cameras and JPEG mix the high ones more. A pixel that
    is NaN, infinite or clipped in one channel is left out in all, and so is a constant area of one;
    NonFiniteError if that leaves no patch. A constant image gives 0.
    """
    image = np.asarray(image)
    check_numbers(image)
    if image.ndim != 3:
        raise AxesError(f"An image of shape {image.shape} has no channels; give (c, y, x).")
    bad = ~np.isfinite(image).all(axis=0)
    if bad.all():
        raise NonFiniteError(
            "Too few finite pixels are left to estimate the noise; replace NaN and infinity first."
        )
    if bad.any():
        image = np.where(bad, np.nan, image)
    blanks = [_common_blank(image)]
    spectra = [read_spectra([channel], MAX_PATCHES // len(image), blanks) for channel in image]
    clipped = np.max([each.clipped for each in spectra], axis=0)
    members = unclipped(clipped)
    overlap = spectra[0].overlap
    high = [each.high for each in spectra]
    ranks, energy = np.zeros((3, len(clipped))), 0.0
    for values, each in zip(high, spectra, strict=True):
        smooth = each.energy_of("low").astype(np.float64)
        order = members[ranked(smooth[members])]
        alone, *_ = pooled_variance(order, np.square(values), overlap)
        scale = 1 / alone if alone > 0 else 0.0
        ranks += scale * np.array([smooth, *map(each.energy_of, HALVES)])
        energy = energy + scale * np.square(values)
    rank = ranks[0]
    if np.ndim(energy) == 0 or not np.any(energy):
        number, order = len(members), members
    else:
        # The mean over channels has the same relative error as one, or a smaller one.
        _, relative, _ = pooled_variance(members[ranked(rank[members])], energy, overlap)
        # Of grey levels near the end of float64 nothing is known about the error.
        needed = 0.5 / relative**2 / energy.shape[1] * overlap if relative**2 > 0 else math.inf
        number = max(round(min(needed, len(members))), 1)
        order = members[np.argsort(rank[members], kind="stable")]
    high = read = np.array([values[order[:number]] for values in high])
    if correlated and spectra[0].whole:
        number = min(number, max(round(CLEAREST * len(members)), 1))
        half = frequency_sets(spectra[0].lows, PATCH**2 - 1)[SETS.index("half")]
        coefficients = [np.asarray(each.coefficients) for each in spectra]
        # Ranked by one half, read at the other.
        read = np.concatenate(
            [
                np.array(
                    [
                        values[members[smallest(each[members], number)]][:, which]
                        for values in coefficients
                    ]
                )
                for each, which in zip(ranks[1:], (half, ~half), strict=True)
            ],
            axis=2,
        ).astype(np.float64)
    covariance = _products(read)
    correlation = _correlation(covariance)
    if correlated:
        # Texture shares the low frequencies.
        other = _correlation(_products(high))
        correlation = np.where(np.abs(other) < np.abs(correlation), other, correlation)
    deviation = np.sqrt(np.diag(covariance))
    product = np.outer(deviation, deviation)
    covariance = correlation * product
    independent = max(number / overlap, 1) * len(spectra[0].upper)
    # Of normal values: var(s_ab) = (s_aa s_bb + s_ab^2) / n.
    chance = (np.square(product) + np.square(covariance)) / independent
    error = np.sqrt(chance + _texture(high, spectra[0].upper, chance))
    return ChannelCovariance(
        *(tuple(map(tuple, each.tolist())) for each in (covariance, error, correlation)), number
    )


def _correlation(covariance: np.ndarray) -> np.ndarray:
    """Return the correlation, 1 on the diagonal; elsewhere 0 where a channel has no noise."""
    product = np.sqrt(np.outer(*(np.diag(covariance),) * 2))
    found = np.divide(covariance, product, out=np.zeros_like(covariance), where=product > 0)
    np.fill_diagonal(found, 1.0)
    return found


def _products(high: np.ndarray) -> np.ndarray:
    """Return mean products of channels, of coefficients (channel, patch, frequency)."""
    rows = high.reshape(len(high), -1)
    return rows @ rows.T / rows.shape[1]


def _texture(high: np.ndarray, upper: np.ndarray, chance: np.ndarray) -> np.ndarray:
    """Return the variance of covariances by texture; patches are listed from the smoothest on.

    Unlike noise, texture falls with frequency, and rougher patches have more of it. So it is the
    squared difference between two halves of the frequencies, and of the patches, each less twice
    that by chance.
    """
    half, share = high.shape[1] // 2, float(upper.mean())
    halves = [(high[:, :half], high[:, half:])] if half else []
    if share not in (0, 1):
        halves.append((high[..., upper], high[..., ~upper]))
    found = np.zeros_like(chance)
    for one, other in halves:
        size = high.size / one.size, high.size / other.size
        difference = np.square(_products(one) - _products(other))
        found += np.maximum(difference - 4 * sum(size) * chance, 0)
    return found


def _common_blank(image: np.ndarray) -> np.ndarray | None:
    """Return a mask of the constant areas of any channel; empty channels do not count."""
    areas = [selection.blank_area(channel) for channel in image]
    parts = [each for each in areas if each is not None and not each.pixels.all()]
    if not parts:
        return None
    together = selection.Blank(np.any([each.pixels for each in parts], axis=0), 0)
    return selection.not_image([image[0]], [together])[0]


def covariance_of_planes(stacks: list[PlaneStack], correlated: bool) -> ChannelCovariance | None:
    """Return the covariance between channels in a plane in the middle."""
    if len(stacks) < 2:
        return None
    middle = len(stacks[0]) // 2
    try:
        image = np.stack([stack[middle] for stack in stacks])
        return channel_covariance(image, correlated)
    except (ImageError, NonFiniteError):
        return None


def is_shared(kind: type[NoiseModel], covariance: ChannelCovariance, axes: str) -> bool:
    """Return whether models say how much noise channels share: white noise, if that is clear."""
    if kind.models_correlation:
        return "S" in axes
    return hasattr(kind, "shared") and len(covariance.shared) == 3 and covariance.is_clear
