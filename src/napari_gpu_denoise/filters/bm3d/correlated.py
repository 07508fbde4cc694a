"""Noise in groups of patches: what overlapping patches share, and correlated noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Self

import numpy as np

from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.filters.bm3d.groups import CollaborativeFilter, GroupSettings
from napari_gpu_denoise.filters.channels import OPPONENT
from napari_gpu_denoise.image.axes import channel_axis
from napari_gpu_denoise.noise.correlation import LAGS
from napari_gpu_denoise.noise.models import Correlated, NoiseModel
from napari_gpu_denoise.protocol.filter import Filter

# Corrections of Haar's sums by the differences beside them that make the wavelet bior1.5.
_BESIDE = 11 / 64

APARTS = 12  # displacement, in pixels, from which patches count as sharing no noise
LEAST_POWER = 1e-3  # of correlated noise at any frequency, relative to the mean power
_FURTHEST = 13  # distance, in pixels, from which noise is independent
_PERIOD = 64  # pixels: more than twice what two patches that share noise span
_PROJECTIONS = 200


def transform_matrix(name: str, length: int = 8) -> np.ndarray:
    """Return the matrix of a transform in `TRANSFORMS` of a line, with rows of unit norm.

    There are 1, 2, 4 or 8 values, 8 for the DFT. kernels/bm3d/patch_transform.h and
    kernels/bm4d/line_transform.h compute the same.
    """
    n, k = np.arange(length), np.arange(length)[:, None]
    if name == "dct":
        rows = np.cos(np.pi * k * (2 * n + 1) / (2 * length))
    elif name == "dft":
        turns = 2 * np.pi * n / 8
        waves = [wave(f * turns) for f in (1, 2, 3) for wave in (np.cos, np.sin)]
        rows = np.array([np.ones(8), *waves, (-1.0) ** n])
    else:
        rows = _wavelets(length, _BESIDE if name == "bior1.5" else 0.0)
    return rows / np.sqrt((rows**2).sum(axis=1, keepdims=True))


def _wavelets(length: int, beside: float) -> np.ndarray:
    """Return the rows of a wavelet; of fewer than eight values all wavelets are Haar's."""
    if length == 1:
        return np.ones((1, 1))
    sums = np.repeat(np.eye(length // 2), 2, axis=1)
    differences = sums * (-1.0) ** np.arange(length)
    before, after = np.roll(differences, 1, axis=0), np.roll(differences, -1, axis=0)
    return np.vstack(
        [_wavelets(length // 2, 0.0) @ (sums - beside * (before - after)), differences]
    )


def correlations(name: str) -> np.ndarray:
    """Return how white noise correlates between the spectra of two patches along one axis.

    The shape is (9, 8), by displacement along that axis and coefficient: 1 without displacement, 0
    where patches lie side by side.
    """
    matrix = transform_matrix(name)
    return np.array([np.sum(matrix[:, d:] * matrix[:, : 8 - d], axis=1) for d in range(9)])


def extended_autocorrelation(autocorrelation) -> np.ndarray:
    """Extend an autocorrelation, given for displacements of 0, 1, ... along y and x, to 32 pixels.

    One that is cut off before it reaches 0 is not that of any noise: its power spectrum would be
    negative at some frequencies. By alternating projections (A. Papoulis, IEEE Trans. Circuits and
    Systems 22 (1975), :doi:`10.1109/TCS.1975.1084118`) a nearby one is found that has at least
    `LEAST_POWER` of the mean power at all frequencies, is 0 from `_FURTHEST` on and begins as
    given. If there is none, the given values change. The noise is symmetric along each axis.
    """
    found = np.zeros((_PERIOD // 2 + 1,) * 2)
    rows, columns = np.shape(autocorrelation)
    lag = np.arange(_PERIOD // 2 + 1)
    cosines = np.cos(2 * np.pi * np.outer(lag, lag) / _PERIOD)
    sums = cosines * np.where(lag % (_PERIOD // 2), 2.0, 1.0)  # all but the ends are there twice
    for _ in range(_PROJECTIONS):
        found[_FURTHEST:] = found[:, _FURTHEST:] = 0.0
        found[:rows, :columns] = autocorrelation
        power = np.maximum(sums @ found @ sums.T, LEAST_POWER)
        found = sums @ power @ sums.T / _PERIOD**2
    return found / found[0, 0]


@lru_cache(maxsize=32)
def covariances(name: str, autocorrelation: tuple[tuple[float, ...], ...]) -> np.ndarray:
    """Return the covariance of correlated noise in the spectra of two patches, in sigma squared.

    The shape is (12, 12, 8, 8), by displacement of the patches along y and x, and coefficient along
    y and x. Patches further apart count as sharing nothing. The array is cached: do not modify it.
    """
    along, near = products_at_distances(name), extended_autocorrelation(autocorrelation)
    return np.einsum("dfk,kl,egl->defg", along, near, along, optimize=True)


def products_at_distances(name: str, length: int = 8, apart: int = APARTS) -> np.ndarray:
    """Return sums of products of the coefficients' weights in two lines, by pixels between them.

    The shape is (apart, length, 33), by displacement of the lines, coefficient, and distance.
    """
    matrix, at = transform_matrix(name, length), np.arange(length)
    # Distance between pixel n of one line and pixel m of another, by their displacement.
    between = np.abs(np.arange(apart)[:, None, None] + at - at[:, None])
    along = np.zeros((apart, length, _PERIOD // 2 + 1))
    for d, distance in enumerate(between):
        for n, m in np.ndindex(length, length):
            along[d, :, distance[n, m]] += matrix[:, n] * matrix[:, m]
    return along


# If neighbouring pixels are correlated by more than this, along the axis that has more, patches are
# prefiltered with this threshold for matching: noise alone makes nearby patches look similar.
ALIKE = 0.6
PREFILTER_CORRELATED = 3.0

MOST_SCALES = 3
LEAST_SIDE = 32  # pixels of a halved image
# Sigma in a halved image, relative to that in the image, from which the halved image is filtered,
# too; it is 0.5 for white noise.
BLOTCHY = 0.7

# Noise that colours share by more than this comes from a camera, whose processing and compression
# leave more noise beside edges and texture than in the smooth places where it is measured, and
# with another spectrum: sigma is multiplied, and a part of the noise is taken for white.
SHARED = 0.25
CAMERA = 1.9
WHITE = 0.55

Autocorrelation = tuple[tuple[float, ...], ...]
_WHITE = tuple(tuple(float(y == x == 0) for x in range(LAGS + 1)) for y in range(LAGS + 1))


def spectra(
    models: tuple[Correlated, ...], channels: str, guide: int
) -> tuple[tuple[Autocorrelation, ...], tuple[Autocorrelation, ...]]:
    """Return the autocorrelations of the noise in what is filtered, and in what is searched.

    `models`, and each result, are one for all channels or one for each.
    """
    filtered = searched = tuple(model.autocorrelation for model in models)
    sigmas = np.array([model.sigma for model in models])
    if len(models) > 1 and channels == "opponent":
        # The noise of channels is independent: variances add up.
        filtered = tuple(_average(filtered, np.square(row * sigmas)) for row in OPPONENT)
        if shared_noise(models) > SHARED:
            filtered = tuple(
                _average((one, _WHITE), np.array([1 - WHITE, WHITE])) for one in filtered
            )
        searched = filtered[:1]
    elif len(models) > 1 and channels == "joint":
        # The guide is a channel, or the mean of all channels, each divided by its sigma.
        mean = _average(filtered, np.sign(sigmas))
        searched = filtered[guide : guide + 1] if guide >= 0 else (mean,)
    return filtered, searched


def shared_noise(models: tuple[Correlated, ...]) -> float:
    """Return the mean correlation of the noise of these channels with that of others."""
    return float(np.mean([model.shared for model in models]))


def opponent_strengths(models: tuple[Correlated, ...]) -> tuple[float, float, float]:
    """Return sigma of opponent colours over what it would be if channels were independent.

    Variances of luminance add up with the covariances of the channels. Those of chrominance could
    be reduced by as much, but not at low frequencies, where the correlation is not measured.
    """
    shared = shared_noise(models)
    if shared <= SHARED:
        return (1.0, 1.0, 1.0)
    return (CAMERA * math.sqrt(1 + 2 * shared), CAMERA, CAMERA)


def prefilter_settings(models: tuple[Correlated, ...]) -> dict[str, str | float]:
    """Return the settings that decide ``prefilter="auto"`` for noise of these models."""
    alike = np.mean([max(m.autocorrelation[0][1], m.autocorrelation[1][0]) for m in models])
    if alike > ALIKE:
        return {"prefilter": "on", "prefilter_threshold": PREFILTER_CORRELATED}
    return {"prefilter": "off"}


def most_scales(side: int, least: int = LEAST_SIDE) -> int:
    """Return on how many scales an image `side` pixels wide may be filtered, down to `least`."""
    return next(n for n in range(MOST_SCALES, 0, -1) if n == 1 or side >> (n - 1) >= least)


def scale_count(models: tuple[Correlated, ...], most: int) -> int:
    """Return on how many scales to filter noise of these models."""
    scales = 1
    while scales < most:
        halves = tuple(map(halved, models))
        before, after = (np.linalg.norm([m.sigma for m in each]) for each in (models, halves))
        if after <= BLOTCHY * before:
            break
        models, scales = halves, scales + 1
    return scales


@lru_cache(maxsize=64)
def halved(model: Correlated) -> Correlated:
    """Return the noise in an image whose pixels are means of 2 x 2."""
    lags = len(model.autocorrelation)
    near = extended_autocorrelation(model.autocorrelation)
    # Means of two pixels, two pixels apart, share none; their covariance is a sum over three lags.
    places, weights = 2 * np.arange(lags)[:, None] + [-1, 0, 1], [0.25, 0.5, 0.25]
    along = np.zeros((lags, len(near)))
    for row, at in zip(along, np.abs(places), strict=True):
        np.add.at(row, at, weights)
    table = along @ near @ along.T
    correlation = np.clip(table / table[0, 0], -1, 1)
    return Correlated(model.sigma * math.sqrt(table[0, 0]), correlation, model.shared)


def _average(tables: tuple[Autocorrelation, ...], weights: np.ndarray) -> Autocorrelation:
    # Without noise in any channel there is nothing to filter, and any table will do.
    weights = weights if np.any(weights) else np.ones(len(tables))
    table = np.tensordot(weights / np.sum(weights), np.array(tables), axes=1)
    return tuple(map(tuple, table.tolist()))


def spectral_models(
    models: Sequence[NoiseModel], *, volume: bool = False
) -> tuple[Correlated, ...] | None:
    """Return the correlated noise that is left after stabilisation, one for all channels or each.

    Empty if all of it is white, in a `volume` also along z, None if any model is of another kind.
    """
    if not models or not all(model.models_correlation for model in models):
        return None
    found = [model.spectral for model in models]
    if all(model.white and not (volume and any(model.along_z[1:])) for model in found):
        return ()
    return tuple(found[:1] if len(set(found)) == 1 else found)


class ModelledFilter(Filter):
    """Base of filters whose `models` describe the noise: one for all channels, or one for each."""

    models: tuple[Correlated, ...]

    def for_array(self, names: str, shape: tuple[int, ...]) -> Self:
        """Return the settings for an array whose channels fit the models."""
        axis = channel_axis(names)
        count = 1 if axis is None else shape[axis]
        if len(self.models) not in (1, count):
            raise SettingsError(
                f"{len(self.models)} noise models were given for {count} channels: give one, or "
                "one for each channel."
            )
        return super().for_array(names, shape)

    def for_planes(self, models: Sequence[NoiseModel]) -> Self:
        """Return the filter with these models."""
        found = [model.spectral for model in models]
        return replace(self, models=tuple(found[:1] if len(set(found)) == 1 else found))


class SpectralFilter(ModelledFilter, CollaborativeFilter):
    """The same of filters of patches."""

    guide: int

    @property
    def passes(self) -> dict[str, GroupSettings]:
        """The passes with the spectra of the noise in what they filter."""
        filtered, searched = spectra(self.models, self.channels, self.guide)
        return {
            name: replace(one, spectra=searched if name == "prefilter" else filtered)
            for name, one in super().passes.items()
        }
