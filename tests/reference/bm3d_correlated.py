"""BM3D of correlated noise, slow and plain: what the kernels have to compute, in float64.

Y. Makinen, L. Azzari, A. Foi, "Collaborative filtering of correlated noise", 2020, section III.
Only the variances of coefficients differ from `reference.bm3d`: every pair of pixels of two patches
is looked up in the autocovariance of the noise, and what the transform makes of those is added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from reference.bm3d import (
    LEAST_VARIANCE,
    MIDDLE,
    Group,
    Pass,
    aggregate,
    all_matches,
    group_spectrum,
    shrink_hard,
    shrink_wiener,
)
from reference.bm3d_channels import OPPONENT, mix, mix_sigmas, noise_weights
from reference.transforms import PATCH, stack_matrix, transform_matrix

PERIOD = 64  # pixels after which the noise is taken to repeat itself
LEAST_POWER = 1e-3  # convention: of the noise at any frequency, in units of the mean
FURTHEST = 12  # convention: pixels that noise reaches at most
PROJECTIONS = 200
REACH = 12  # convention: patches that far apart share no noise
LEAST_MEAN = 1 / 16  # convention: variance of the mean of a patch that weights are told relative to

Table = tuple[tuple[float, ...], ...]


@cache
def autocovariance(table: Table) -> np.ndarray:
    """Return the covariance of pixels that are (dy, dx) apart, of any sign, modulo `PERIOD`.

    Convention: that of a spectrum nowhere below `LEAST_POWER`, found by projections in turn.
    """
    known = range(1 - len(table), len(table))
    lag = np.abs((np.arange(PERIOD) + PERIOD // 2) % PERIOD - PERIOD // 2)
    near = np.maximum(lag[:, None], lag) <= FURTHEST
    around = np.zeros((PERIOD, PERIOD))
    for _ in range(PROJECTIONS):
        around = np.where(near, around, 0.0)
        for dy in known:
            for dx in known:
                around[dy, dx] = table[abs(dy)][abs(dx)]
        power = np.maximum(np.fft.fft2(around).real, LEAST_POWER)
        around = np.fft.ifft2(power).real
    return around / around[0, 0]


@cache
def shared(table: Table, transform: str, dy: int, dx: int) -> np.ndarray:
    """Return the covariance (8, 8) of each coefficient of two patches that are (dy, dx) apart."""
    if max(abs(dy), abs(dx)) >= REACH:
        return np.zeros((PATCH, PATCH))
    y, x = np.divmod(np.arange(PATCH**2), PATCH)
    pixels = autocovariance(table)[y[:, None] - y - dy, x[:, None] - x - dx]
    matrix = transform_matrix(transform)
    both = np.kron(matrix, matrix)
    return np.einsum("ki,ij,kj->k", both, pixels, both, optimize=True).reshape(PATCH, PATCH)


def variances(
    places: list[tuple], table: Table, transform: str, stack: str, overlap: bool
) -> np.ndarray:
    """Return the variance of the noise, in sigma squared, in a spectrum (m, 8, 8) of patches.

    Without `overlap` patches count as if they shared nothing.
    """
    alone = shared(table, transform, 0, 0)
    if not overlap:
        return np.broadcast_to(alone, (len(places), PATCH, PATCH))
    along = stack_matrix(stack, len(places))
    pairs = np.array(
        [[shared(table, transform, p[0] - q[0], p[1] - q[1]) for q in places] for p in places]
    )
    variance = np.einsum("kp,pqyx,kq->kyx", along, pairs, along, optimize=True)
    return np.maximum(variance, LEAST_VARIANCE * alone)


def filter_group(
    noisy: np.ndarray,
    matches: list[tuple],
    sigma,
    settings: Pass,
    table: Table,
    basic: np.ndarray | None = None,
) -> Group:
    """Return the group of the patches at `matches`, as `reference.bm3d.filter_group` does."""
    matches = matches[: 2 ** (len(matches).bit_length() - 1)]
    y, x = matches[0][:2]
    level = noisy[y, x]
    sigmas = np.broadcast_to(sigma, noisy.shape)
    sigma = np.sqrt(np.mean([sigmas[m[0] + MIDDLE, m[1] + MIDDLE] ** 2 for m in matches]))
    how = level, max(sigma, 1e-18), settings.transform, settings.stack
    spectrum = group_spectrum(noisy, matches, *how)
    guide = None if basic is None else group_spectrum(basic, matches, *how)
    variance = variances(matches, table, settings.transform, settings.stack, settings.shared_noise)
    if guide is None:
        removed, weight = shrink_hard(spectrum, settings.threshold, variance)
    else:
        removed, weight = shrink_wiener(spectrum, guide, settings.wiener_sigma**2, variance)
    # Convention: weights are relative to that of a group which keeps a mean alone.
    mean = max(shared(table, settings.transform, 0, 0)[0, 0], LEAST_MEAN)
    return Group(
        (y, x), matches, level, sigma, spectrum, guide, removed, min(weight * mean, 1), variance
    )


def one_pass(noisy, sigma, settings: Pass, table: Table, found, basic=None):
    """Filter an image (y, x) once; `found` are the matches of every reference patch."""
    groups = [filter_group(noisy, matches, sigma, settings, table, basic) for matches in found]
    return aggregate(noisy, groups, settings)


def bm3d_correlated(planes: np.ndarray, sigmas: Sequence[float], tables, settings) -> np.ndarray:
    """Denoise channels (c, y, x), each of its own sigma and autocorrelation.

    `settings` has the attributes of ``filters.bm3d.BM3D``, with its `channels` settled.
    """
    planes, sigmas = np.asarray(planes, np.float64), np.asarray(sigmas, np.float64)
    if settings.channels == "opponent":
        squares = np.square(OPPONENT * sigmas)
        turned = [mixed(tables, row) for row in squares]
        given = mix(OPPONENT, planes), mix_sigmas(OPPONENT, sigmas), turned
        return mix(OPPONENT.T, _together(*given, np.eye(3)[0], turned[0], settings))
    if settings.channels == "joint":
        weights = noise_weights(sigmas)
        guide = mixed(tables, np.square(weights * sigmas))
        return _together(planes, sigmas, tables, weights, guide, settings)
    parts = zip(planes, sigmas, tables, strict=True)
    return np.array(
        [
            _together(plane[None], [sigma], [table], np.ones(1), table, settings)[0]
            for plane, sigma, table in parts
        ]
    )


def mixed(tables: Sequence[Table], variances) -> Table:
    """Return the autocorrelation of a sum of independent noises of these variances."""
    total = sum(v * np.array(table) for v, table in zip(variances, tables, strict=True))
    return tuple(map(tuple, total / np.sum(variances)))


def _together(planes, sigmas, tables, weights, guide: Table, settings) -> np.ndarray:
    """Denoise planes with the matches of one search, on their sum with the `weights`."""
    search_sigma = float(mix_sigmas(weights[None], sigmas)[0])

    def run(stage: Pass, search, basics) -> np.ndarray:
        found = list(all_matches(search, search_sigma, stage, exact=False))
        channels = zip(planes, sigmas, tables, basics, strict=True)
        return np.array([one_pass(z, s, stage, table, found, b) for z, s, table, b in channels])

    search = np.tensordot(weights, planes, axes=1)
    if settings.prefiltered:
        alone = Pass.alone(settings)
        found = all_matches(search, search_sigma, alone, exact=False)
        search = one_pass(search, search_sigma, alone, guide, found)
    result = run(Pass.of(settings, "basic"), search, [None] * len(planes))
    if "final" in settings.stages:
        search = np.tensordot(weights, result, axes=1)
        result = run(Pass.of(settings, "final"), search, result)
    return result
