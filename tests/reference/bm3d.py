"""BM3D, slow and plain: what the kernels have to compute, in float64.

K. Dabov et al., "Image denoising by sparse 3-D transform-domain collaborative filtering", 2007;
A. Davy, T. Ehret, "GPU acceleration of NL-means, BM3D and VBM3D", 2020, section 2.2;
Y. Makinen, L. Azzari, A. Foi, "Collaborative filtering of correlated noise", 2020, section III. A
group is a stack of similar patches of 8 x 8 pixels. Its spectrum is in units of sigma, so that
noise has the standard deviation 1 in every coefficient, unless patches overlap and share some of
it. What the papers leave open is marked "convention".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from reference.block_matching import find_matches, reference_positions
from reference.transforms import PATCH, stack_matrix, transform_matrix

MIDDLE = PATCH // 2  # convention: a sigma map is read at this pixel of a patch
SMALLEST_SIGMA = 1e-18
LEAST_VARIANCE = 1e-3  # convention: overlapping patches leave at least so much in a coefficient


@dataclass(frozen=True)
class Pass:
    """What one pass needs to know: of `threshold` and `wiener_sigma` a pass uses one."""

    step: int = 3
    window: int = 39
    neighbours: int = 16
    transform: str = "bior1.5"
    stack: str = "haar"
    similar: float = 6.25
    threshold: float = 2.7
    kaiser: float = 2.0
    wiener_sigma: float = 1.0
    shared_noise: bool = False

    @classmethod
    def of(cls, settings, stage: str) -> Pass:
        """Return the pass ``"basic"`` or ``"final"`` of settings with the attributes of BM3D."""
        names = ("step", "window", "neighbours", "transform", "stack", "similar")
        chosen = {name: getattr(settings, f"{name}_{stage}") for name in names}
        chosen |= {
            name: getattr(settings, name) for name in ("threshold", "wiener_sigma", "kaiser")
        }
        return cls(**chosen, shared_noise=settings.shared_noise and chosen["stack"] == "haar")

    @classmethod
    def alone(cls, settings, step: int = 2) -> Pass:
        """Return the prefilter: every patch is a group of its own."""
        return cls(
            step=step,
            window=1,
            neighbours=1,
            transform=settings.transform_basic,
            stack=settings.stack_basic,
            similar=0.0,
            threshold=3.0,
            kaiser=settings.kaiser,
        )


@dataclass(frozen=True)
class Group:
    """One reference patch, the patches found for it, and what is removed from them."""

    position: tuple[int, int]  # (y, x) of the first pixel of the reference
    matches: list[tuple]  # (y, x, d2) of each patch, nearest first
    level: float  # subtracted from the patches
    sigma: float
    spectrum: np.ndarray  # (m, 8, 8), in sigma
    guide: np.ndarray | None  # the spectrum of the basic estimate
    removed: np.ndarray  # (m, 8, 8), the part of the spectrum that is taken for noise
    weight: float
    variance: np.ndarray | float = 1.0  # of the noise in the spectrum, in sigma squared


def bm3d(
    image: np.ndarray,
    sigma,
    settings,
    *,
    prefilter: bool | None = None,
    prefilter_step: int = 2,
    exact: bool = True,
) -> np.ndarray:
    """Denoise an image (y, x) of noise with standard deviation `sigma`.

    Parameters
    ----------
    image : array (y, x)
    sigma : float, or array (y, x)
    settings : object with the attributes of ``filters.bm3d.BM3D``
    prefilter : bool, optional
        Match on smoothed patches in the first pass; by default if settings are `prefiltered`.
    prefilter_step : int, optional
        Spacing of the patches that are smoothed for it.
    exact : bool, optional
        As for `find_matches`.

    Returns
    -------
    ndarray of float64, of the shape of `image`
    """
    options = {"prefilter": prefilter, "prefilter_step": prefilter_step, "exact": exact}
    return filter_together(np.asarray(image)[None], [sigma], [1.0], settings, **options)[0]


def filter_together(
    planes: np.ndarray,
    sigmas: Sequence,
    weights: Sequence[float],
    settings,
    *,
    prefilter: bool | None = None,
    prefilter_step: int = 2,
    exact: bool = True,
) -> np.ndarray:
    """Denoise planes (c, y, x) with the matches of one search, on their sum with the `weights`."""
    planes = np.asarray(planes, dtype=np.float64)
    *_, ny, nx = planes.shape
    sigmas = [np.broadcast_to(np.asarray(sigma, np.float64), (ny, nx)) for sigma in sigmas]
    planes, sigmas = extend(planes), extend(np.array(sigmas))
    weights = np.asarray(weights, np.float64)
    search_sigma = np.sqrt(np.tensordot(weights**2, sigmas**2, axes=1))

    def run(stage: Pass, search: np.ndarray, basics: Iterable) -> np.ndarray:
        found = list(all_matches(search, search_sigma, stage, exact))
        channels = zip(planes, sigmas, basics, strict=True)
        return np.array([one_pass(z, s, stage, basic=b, found=found) for z, s, b in channels])

    search = np.tensordot(weights, planes, axes=1)
    if prefilter or (prefilter is None and settings.prefiltered):
        search = one_pass(search, search_sigma, Pass.alone(settings, prefilter_step))
    result = run(Pass.of(settings, "basic"), search, [None] * len(planes))
    if "final" in settings.stages:
        search = np.tensordot(weights, result, axes=1)
        result = run(Pass.of(settings, "final"), search, result)
    return result[:, :ny, :nx]


def one_pass(noisy, sigma, settings: Pass, *, search=None, basic=None, **options) -> np.ndarray:
    """Filter an image (y, x), of 8 x 8 pixels or more, once.

    It is a Wiener pass if a `basic` estimate is given. Patches are compared on `search`; by default
    on the basic estimate, or else on `noisy`. `options` as in `filter_groups`.
    """
    noisy = np.asarray(noisy, dtype=np.float64)
    if search is None:
        search = noisy if basic is None else basic
    groups = filter_groups(noisy, search, sigma, settings, basic, **options)
    return aggregate(noisy, groups, settings)


def filter_groups(
    noisy: np.ndarray,
    search: np.ndarray,
    sigma,
    settings: Pass,
    basic: np.ndarray | None = None,
    *,
    found: Iterable[list[tuple]] | None = None,
) -> Iterator[Group]:
    """Yield the filtered group of every reference patch, row by row.

    `found` are the matches of each, if they are known.
    """
    for matches in all_matches(search, sigma, settings) if found is None else found:
        yield filter_group(noisy, matches, sigma, settings, basic)


def all_matches(
    search: np.ndarray, sigma, settings: Pass, exact: bool = True
) -> Iterator[list[tuple]]:
    """Yield the matches of every reference patch, row by row."""
    sigma = np.broadcast_to(sigma, search.shape)
    for y in reference_positions(search.shape[0], settings.step):
        for x in reference_positions(search.shape[1], settings.step):
            limit = settings.similar * sigma[y + MIDDLE, x + MIDDLE] ** 2
            yield find_matches(
                search, y, x, settings.window, settings.neighbours, limit, exact=exact
            )


def filter_group(
    noisy: np.ndarray, matches: list[tuple], sigma, settings: Pass, basic: np.ndarray | None = None
) -> Group:
    """Return the group of the patches at `matches`, or of as many as are a power of two.

    The first one is the reference. Convention: where a map says that there is no noise, units are
    so small that every coefficient but 0 is kept.
    """
    matches = matches[: 2 ** (len(matches).bit_length() - 1)]
    y, x = matches[0][:2]
    level = noisy[y, x]
    sigmas = np.broadcast_to(sigma, noisy.shape)
    sigma = np.sqrt(np.mean([sigmas[m[0] + MIDDLE, m[1] + MIDDLE] ** 2 for m in matches]))
    how = level, max(sigma, SMALLEST_SIGMA), settings.transform, settings.stack
    spectrum = group_spectrum(noisy, matches, *how)
    guide = None if basic is None else group_spectrum(basic, matches, *how)
    variance = 1.0
    if settings.shared_noise:
        variance = noise_variances(matches, settings.transform, settings.stack)
    if guide is None:
        removed, weight = shrink_hard(spectrum, settings.threshold, variance)
    else:
        removed, weight = shrink_wiener(spectrum, guide, settings.wiener_sigma**2, variance)
    return Group((y, x), matches, level, sigma, spectrum, guide, removed, weight, variance)


def aggregate(noisy: np.ndarray, groups: Iterable[Group], settings: Pass) -> np.ndarray:
    """Return the image less the weighted mean, pixel by pixel, of what the groups remove."""
    total, weight = np.zeros(noisy.shape), np.zeros(noisy.shape)
    kaiser = np.kaiser(PATCH, settings.kaiser)
    for group in groups:
        window = group.weight * np.outer(kaiser, kaiser)
        removed = removed_patches(group.removed, settings.transform, settings.stack)
        for (y, x, *_), patch in zip(group.matches, removed, strict=True):
            place = slice(y, y + PATCH), slice(x, x + PATCH)
            total[place] += group.sigma * window * patch
            weight[place] += window
    return noisy - total / weight


def group_spectrum(
    image: np.ndarray, places: list[tuple], level: float, sigma: float, transform: str, stack: str
) -> np.ndarray:
    """Return the 3D spectrum (m, 8, 8), in sigma, of the patches at `places` (y, x, ...)."""
    patches = np.array([image[y : y + PATCH, x : x + PATCH] for y, x, *_ in places])
    matrix = transform_matrix(transform)
    flat = matrix @ ((patches - level) / sigma) @ matrix.T
    return np.tensordot(stack_matrix(stack, len(places)), flat, axes=1)


def removed_patches(removed: np.ndarray, transform: str, stack: str) -> np.ndarray:
    """Return the patches (m, 8, 8), in sigma, of a spectrum: the inverse transform."""
    inverse = inverse_matrix(transform)
    return inverse @ np.tensordot(stack_matrix(stack, len(removed)).T, removed, axes=1) @ inverse.T


@cache
def inverse_matrix(transform: str) -> np.ndarray:
    return np.linalg.inv(transform_matrix(transform))


def noise_variances(places: list[tuple], transform: str, stack: str) -> np.ndarray:
    """Return the variance of white noise, in sigma squared, in a spectrum (m, 8, 8) of patches.

    A pixel in two patches has the same noise in both: as much as they overlap, their coefficients
    go up and down together.
    """
    y0, x0 = places[0][:2]
    apart = tuple((place[0] - y0, place[1] - x0) for place in places)
    return _noise_variances(apart, transform, stack)


@lru_cache(4096)  # of channels that are filtered together the groups are the same
def _noise_variances(places: tuple, transform: str, stack: str) -> np.ndarray:
    along = stack_matrix(stack, len(places))
    common = common_coefficients(transform)
    y, x = np.array(places).T
    shared_y, shared_x = (common[np.minimum(np.abs(at[:, None] - at), PATCH)] for at in (y, x))
    shared = shared_y[..., :, None] * shared_x[..., None, :]
    variance = np.einsum("kq,kqyx->kyx", along, np.tensordot(along, shared, axes=1))
    return np.maximum(variance, LEAST_VARIANCE)


@cache
def common_coefficients(transform: str) -> np.ndarray:
    """Return what coefficients of two patches share, by how far they are apart along one axis."""
    matrix, common = transform_matrix(transform), np.zeros((PATCH + 1, PATCH))
    for apart in range(PATCH):
        common[apart] = np.sum(matrix[:, apart:] * matrix[:, : PATCH - apart], axis=1)
    return common


def shrink_hard(
    spectrum: np.ndarray, threshold: float, variance=1.0, common: float | None = None
) -> tuple[np.ndarray, float]:
    """Return the coefficients below the threshold, and 1 / variance of the noise in the others.

    The threshold of what the patches have in common is `common`, if that is given. Convention: the
    first coefficient, which belongs to the mean, always stays.
    """
    kept = np.abs(spectrum) >= threshold * np.sqrt(variance)
    if common is not None:
        kept[0] = np.abs(spectrum[0]) >= common * np.broadcast_to(np.sqrt(variance), kept.shape)[0]
    kept[0, 0, 0] = True
    return np.where(kept, 0.0, spectrum), 1 / float(np.sum(kept * variance))


def shrink_wiener(
    spectrum: np.ndarray,
    guide: np.ndarray,
    strength: float = 1.0,
    variance=1.0,
    common: float | None = None,
) -> tuple[np.ndarray, float]:
    """Return what a Wiener filter removes, told by the spectrum `guide`, and the weight.

    The strength for what the patches have in common is `common`, if that is given. Convention: the
    first coefficient, which belongs to the mean, always stays.
    """
    strengths = np.full(spectrum.shape, strength)
    if common is not None:
        strengths[0] = common
    gain = guide**2 / (guide**2 + strengths * variance)
    gain[0, 0, 0] = 1.0
    return spectrum * (1 - gain), 1 / float(np.sum(gain**2 * variance))


def extend(planes: np.ndarray) -> np.ndarray:
    """Extend axes y and x that are shorter than a patch at their end, mirrored beyond the last."""
    missing = [(0, max(0, PATCH - length)) for length in planes.shape[1:]]
    return np.pad(planes, [(0, 0), *missing], mode="symmetric")
