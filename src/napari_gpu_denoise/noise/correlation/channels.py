"""Covariance of the noise between channels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import AxesError, NonFiniteError
from napari_gpu_denoise.image.levels import check_numbers
from napari_gpu_denoise.noise.patches.blank import Blank, blank_area, not_image
from napari_gpu_denoise.noise.patches.coefficients import ranked
from napari_gpu_denoise.noise.patches.spectra import read_spectra
from napari_gpu_denoise.noise.patches.variance import pooled_variance, unclipped
from napari_gpu_denoise.noise.patches.white import MAX_PATCHES


@dataclass(frozen=True)
class ChannelCovariance:
    """Covariance of the noise between channels; tables are (channel, channel)."""

    covariance: tuple[tuple[float, ...], ...]  # grey levels squared
    error: tuple[tuple[float, ...], ...]  # standard error of the covariance
    # 1 on the diagonal; elsewhere 0 where a channel has no noise.
    correlation: tuple[tuple[float, ...], ...]
    patches: int  # how many patches were read

    @property
    def shared(self) -> float:
        """Mean correlation of two channels, at least 0."""
        others = np.tril_indices(len(self.correlation), -1)
        return float(np.clip(np.mean(np.array(self.correlation)[others]), 0, 1))

    def summary(self) -> str:
        """Return the strongest correlation as one line."""
        largest = np.abs(np.tril(self.correlation, -1)).max()
        return f"correlation of noise between channels is at most {largest:.2f}"


def channel_covariance(image: Any) -> ChannelCovariance:
    """Estimate the covariance of the noise between the channels of an image (c, y, x).

    It is read at the high frequencies of the patches that are smoothest in all channels together,
    each channel relative to its own noise. A pixel that is NaN, infinite or clipped in one channel
    is left out in all, and so is a constant area of one; NonFiniteError if that leaves no patch. A
    constant image gives 0.
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
    rank, energy = 0.0, 0.0
    for values, each in zip(high, spectra, strict=True):
        smooth = each.energy_of("low").astype(np.float64)
        order = members[ranked(smooth[members])]
        alone, *_ = pooled_variance(order, np.square(values), overlap)
        scale = 1 / alone if alone > 0 else 0.0
        rank, energy = rank + scale * smooth, energy + scale * np.square(values)
    if np.ndim(energy) == 0 or not np.any(energy):
        number, order = len(members), members
    else:
        # The mean over channels has the same relative error as one, or a smaller one.
        _, relative, _ = pooled_variance(members[ranked(rank[members])], energy, overlap)
        # Of grey levels near the end of float64 nothing is known about the error.
        needed = 0.5 / relative**2 / energy.shape[1] * overlap if relative**2 > 0 else math.inf
        number = max(round(min(needed, len(members))), 1)
        order = members[np.argsort(rank[members], kind="stable")[:number]]
    high = np.array([values[order].ravel() for values in high])
    covariance = high @ high.T / high.shape[1]
    deviation = np.sqrt(np.diag(covariance))
    product = np.outer(deviation, deviation)
    correlation = np.divide(covariance, product, out=np.zeros_like(covariance), where=product > 0)
    np.fill_diagonal(correlation, 1.0)
    independent = max(number / overlap, 1) * len(spectra[0].upper)
    # Of normal values: var(s_ab) = (s_aa s_bb + s_ab^2) / n.
    error = np.sqrt((np.square(product) + np.square(covariance)) / independent)
    return ChannelCovariance(
        *(tuple(map(tuple, each.tolist())) for each in (covariance, error, correlation)), number
    )


def _common_blank(image: np.ndarray) -> np.ndarray | None:
    """Return a mask of the constant areas of any channel; empty channels do not count."""
    areas = [blank_area(channel) for channel in image]
    parts = [each for each in areas if each is not None and not each.pixels.all()]
    if not parts:
        return None
    together = Blank(np.any([each.pixels for each in parts], axis=0), 0)
    return not_image([image[0]], [together])[0]
