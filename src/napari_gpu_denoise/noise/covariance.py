"""Noise that channels share, and what colours prove of correlated noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from napari_gpu_denoise.errors import ImageError, NonFiniteError
from napari_gpu_denoise.noise import limits
from napari_gpu_denoise.noise.correlation import HALVES, band_ratios
from napari_gpu_denoise.noise.models.base import NoiseModel
from napari_gpu_denoise.noise.patches import selection
from napari_gpu_denoise.noise.patches.coefficients import (
    HIGHS,
    LOWS,
    PATCH,
    SETS,
    coefficient_order,
    compared_bands,
    frequency_sets,
    ranked,
)
from napari_gpu_denoise.noise.patches.spectra import MAX_PATCHES, PatchSpectra, read_spectra
from napari_gpu_denoise.noise.patches.variance import pooled_variance, unclipped

COLOUR_SHARE = 0.15  # of the patches that show the noise of colours: JPEG took it from the first


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
        covariance, error = np.abs(self.covariance), np.array(self.error)
        return bool(np.tril(covariance > limits.MIN_SHARED_ERRORS * error, -1).any())

    def summary(self) -> str:
        """Return the strongest correlation as one line."""
        largest = np.abs(np.tril(self.correlation, -1)).max()
        return f"correlation of noise between channels is at most {largest:.2f}"


class ColourSpectra(NamedTuple):
    """Power of the noise of colours, and of its part without their mean."""

    power: np.ndarray  # (colour, 8, 8)
    fall: float  # of the power of the colours together, from middle to the highest frequencies
    unshared_fall: float  # of that of a colour without what they share, the least of all
    growth: float  # of the power, from smooth patches to the roughest of those that were read
    patches: int


@dataclass(frozen=True, eq=False)
class ChannelPatches:
    """Cosine coefficients of the same patches in all channels."""

    spectra: list[PatchSpectra]
    members: np.ndarray  # patches without clipped pixels

    @classmethod
    def of(cls, image: np.ndarray) -> ChannelPatches:
        """Read them from an image (c, y, x).

        A pixel that is NaN or infinite in one channel is left out in all, and so is a constant area
        of one; NonFiniteError if that leaves no patch.
        """
        bad = ~np.isfinite(image).all(axis=0)
        if bad.any():
            image = np.where(bad, np.nan, image)
        blank, limit = _common_blank(image), 2 * MAX_PATCHES // len(image)
        spectra = [read_spectra([selection.Plane.of(plane, blank)], limit) for plane in image]
        return cls(spectra, unclipped(np.max([each.clipped for each in spectra], axis=0)))

    @classmethod
    def of_planes(cls, stacks: Sequence[Sequence[np.ndarray]]) -> ChannelPatches | None:
        """Read them from the plane in the middle of each channel, if there are several."""
        if len(stacks) < 2:
            return None
        try:
            return cls.of(np.stack([stack[len(stack) // 2] for stack in stacks]))
        except (ImageError, NonFiniteError):
            return None

    @cached_property
    def _coefficients(self) -> np.ndarray:
        return np.array([each.coefficients for each in self.spectra], np.float64)

    def _scale(self, name: str) -> np.ndarray:
        """Return one over the typical energy of a set of frequencies in each channel, or 0."""
        typical = [np.quantile(each.energy_of(name)[self.members], 0.25) for each in self.spectra]
        return np.array([1 / each if each > 0 else 0.0 for each in map(float, typical)])

    def _rank(self, name: str) -> np.ndarray:
        """Return the energy of a set of frequencies, of all channels relative to their own."""
        energies = np.array([each.energy_of(name) for each in self.spectra], np.float64)
        return self._scale(name) @ energies

    def _smoothest(self, number: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return coefficients (channel, patch, frequency) of each half of the frequencies.

        They are those of the patches that are smoothest at the other half, with a mask of the half.
        """
        half = frequency_sets()[SETS.index("half")]
        parts: list[tuple[np.ndarray, np.ndarray]] = []
        for name, which in zip(HALVES, (half, ~half), strict=True):
            rows = self.members[ranked(self._rank(name)[self.members])[:number]]
            parts.append((which, self._coefficients[:, rows][..., which]))
        return parts

    def colours(self) -> ColourSpectra | None:
        """Return the noise of the colours of an image; None where a colour shows none."""
        number = round(COLOUR_SHARE * len(self.members))
        if not number:
            return None
        places = coefficient_order()
        power, unshared = np.zeros((2, len(self.spectra), PATCH**2))
        for which, part in self._smoothest(number):
            power[:, places[which]] = np.square(part).mean(axis=1)
            unshared[:, places[which]] = np.square(part - part.mean(axis=0)).mean(axis=1)
        if not power[:, places].all():
            return None
        power, unshared = (each.reshape(-1, PATCH, PATCH) for each in (power, unshared))
        # From the middle to the highest frequencies.
        fall, *falls = (band_ratios(each)[0] for each in (power.mean(axis=0), *unshared))
        rank = (self._rank("low") + self._rank("high"))[self.members]
        smooth, rough = np.quantile(rank, (COLOUR_SHARE / 3, COLOUR_SHARE))
        growth = rough / smooth if smooth else math.inf
        return ColourSpectra(power, fall, min(falls), growth, number)

    def covariance(self, correlated: bool) -> ChannelCovariance:
        """Estimate the covariance of the noise.

        It is read at the high frequencies of the patches that are smoothest in all channels
        together, each channel relative to its own noise; where noise is `correlated` between
        pixels, at all frequencies of the smoothest of these, as cameras and JPEG mix the high ones
        more.
        """
        first, rank = self.spectra[0], self._rank("low")[self.members]
        energy = np.einsum("c,cpf->pf", self._scale("high"), np.square(self._coefficients))
        order = self.members[ranked(rank)]
        # The smoothest patches that have the noise of the smoothest of all.
        _, relative, _ = pooled_variance(order, energy[:, LOWS:], first.overlap)
        unlike = relative**2 * HIGHS
        number = max(round(0.5 * first.overlap / unlike), 1)
        rows = self.members[np.argsort(rank, kind="stable")[:number]]
        high = read = self._coefficients[:, rows, LOWS:]
        number = max(round(COLOUR_SHARE * len(order)), 1)
        parts = self._smoothest(number) if correlated else []
        if parts:
            read = np.concatenate([part for _, part in parts], axis=2)
        covariance = _products(read)
        correlation = _correlation(covariance)
        if parts:
            # Texture shares the low frequencies.
            frequency = np.concatenate([np.flatnonzero(which) for which, _ in parts])
            other = _correlation(_products(read[..., frequency >= LOWS]))
            correlation = np.where(np.abs(other) < np.abs(correlation), other, correlation)
        deviation = np.sqrt(np.diag(covariance))
        product = np.outer(deviation, deviation)
        covariance = correlation * product
        independent = max(len(rows) / first.overlap, 1) * HIGHS
        # Of normal values: var(s_ab) = (s_aa s_bb + s_ab^2) / n.
        chance = (np.square(product) + np.square(covariance)) / independent
        error = np.sqrt(chance + _texture(high, chance))
        tables = covariance, error, correlation
        return ChannelCovariance(
            *(tuple(tuple(row) for row in each.tolist()) for each in tables), patches=len(rows)
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


def _texture(high: np.ndarray, chance: np.ndarray) -> np.ndarray:
    """Return the variance of covariances by texture; patches are listed from the smoothest on.

    Unlike noise, texture falls with frequency, and rougher patches have more of it. So it is the
    squared difference between two halves of the frequencies, and of the patches, each less twice
    that by chance.
    """
    half = high.shape[1] // 2
    halves = [(high[:, :half], high[:, half:])] if half else []
    lower, _ = compared_bands()
    halves.append((high[..., ~lower], high[..., lower]))
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


def is_shared(kind: type[NoiseModel], covariance: ChannelCovariance, axes: str) -> bool:
    """Return whether models say how much noise channels share: white noise, if that is clear."""
    if kind.models_correlation:
        return "S" in axes
    return hasattr(kind, "shared") and len(covariance.shared) == 3 and covariance.is_clear
