"""Groups of similar patches, slow and plain: what BM3D and VBM3D do with what they have found.

K. Dabov et al., "Image denoising by sparse 3-D transform-domain collaborative filtering", 2007;
A. Davy, T. Ehret, "GPU acceleration of NL-means, BM3D and VBM3D", 2020, sections 2.2 and 2.3. A
group is a stack of similar patches of 8 x 8 pixels of frames (t, y, x), of which an image is one.
Its spectrum is in units of sigma, so that noise has the standard deviation 1 in every coefficient,
unless patches overlap and share some of it. What the papers leave open is marked "convention".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from reference.shared_noise import WHITE, Spectrum, mean_variance, shared, variances
from reference.transforms import PATCH, inverse_matrix, stack_matrix, transform_matrix
from reference.video_links import Links, unlinked

MIDDLE = PATCH // 2  # convention: a sigma map is read at this pixel of a patch
SMALLEST_SIGMA = 1e-18
FLAT = 1.3  # mean square of coefficients, in sigma squared, that is more than noise
ONE = 1, PATCH, PATCH  # a patch as a cube


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
    common: float | None = None  # the same for what patches have in common
    wiener_sigma: float = 1.0
    kaiser: float = 2.0
    shared_noise: bool = False
    kalman: bool = False  # from patch to patch, instead of along the stack
    frames_before: int = 0
    frames_after: int = 0
    window_nearest: int = 15
    window_fill: int = 0  # in which more of the own frame are found; 0: `window_nearest`
    window_next: int = 5
    per_frame: int = 2
    still: float = 0.0


@dataclass(frozen=True)
class Group:
    """One reference patch, the patches found for it, and what is removed from them."""

    position: tuple[int, int, int]  # (t, y, x) of the first pixel of the reference
    matches: list[tuple]  # (t, y, x, d2) of each patch, nearest first
    scales: np.ndarray  # (m,), from the grey levels of each patch's frame to those of frame t
    sigma: float  # in the grey levels of frame t
    removed: np.ndarray  # (m, 8, 8), the part of the spectrum that is taken for noise
    weight: float


def filter_group(
    noisy: np.ndarray,
    matches: list[tuple],
    sigma: np.ndarray,
    settings: Pass,
    basic: np.ndarray | None = None,
    links: Links = unlinked,
    spectrum: Spectrum = WHITE,
) -> Group:
    """Return the group of the patches at `matches`, or of as many as are a power of two.

    The first one is the reference, and all of them are taken to its grey levels. `sigma`, of the
    shape of the frames, is in the grey levels of each. It is a Wiener filter if a `basic` estimate
    is given. Conventions: what patches have in common is shrunk by `common` if at least three of
    them, and half of all, are of other frames, and if it is more than noise, coefficient by
    coefficient; where there is no noise, units are so small that every coefficient but 0 is kept.
    """
    matches = matches[: 2 ** (len(matches).bit_length() - 1)]
    position, t = matches[0][:3], matches[0][0]
    chosen = [links(t, match[0]) for match in matches]
    scales = np.array([link.scale for link in chosen])
    noise = scales * [sigma[t, y + MIDDLE, x + MIDDLE] for t, y, x, _ in matches]
    rms, level = np.sqrt(np.mean(noise**2)), noisy[position]

    def spectrum_of(video: np.ndarray) -> np.ndarray:
        patches = [
            video[t, y : y + PATCH, x : x + PATCH] * link.scale + link.shift
            for (t, y, x, _), link in zip(matches, chosen, strict=True)
        ]
        return group_spectrum((np.array(patches) - level) / max(rms, SMALLEST_SIGMA), settings)

    found = spectrum_of(noisy)
    guide = None if basic is None else spectrum_of(basic)
    places, how = [match[:3] for match in matches], (spectrum, settings.transform, ONE)
    variance = variances(places, *how, settings.stack, settings.shared_noise)[:, 0]
    alone = shared(*how, (0, 0, 0))[0]
    if settings.kalman:
        along = stack_matrix(settings.stack, len(matches)).T
        values, guides = (np.tensordot(along, each, axes=1) for each in (found, guide))
        removed = values[:1] - kalman(values, guides, settings.wiener_sigma**2 * alone)
        return Group(position, matches[:1], scales[:1], rms, removed, 1.0)
    # Of what patches have in common, the mean apart.
    energy = (np.sum(found[0] ** 2 / alone) - found[0, 0, 0] ** 2 / alone[0, 0]) / (PATCH**2 - 1)
    others = sum(match[0] != t for match in matches)
    common = settings.common if others >= max(3, len(matches) / 2) and energy >= FLAT else None
    limit = settings.threshold if basic is None else settings.wiener_sigma
    removed, left = shrink(found, guide, limit, variance, common)
    # Convention: weights are relative to that of a group which keeps a mean alone.
    return Group(position, matches, scales, rms, removed, min(mean_variance(*how) / left, 1))


def kalman(values: np.ndarray, guides: np.ndarray, noise) -> np.ndarray:
    """Return the estimate (8, 8) of the first of some similar patches, by a Kalman filter.

    The spectra (m, 8, 8) of noisy patches and of their basic estimates are taken from the last to
    the first, which is the reference. How far the basic estimate is from the state tells the
    variance of the error of the state; `noise` is that of the coefficients.
    """
    state = guides[-1]
    for value, guide in zip(values[-2::-1], guides[-2::-1], strict=True):
        error = (guide - state) ** 2
        state = state + error / (error + noise) * (value - state)
    return state


def shrink(
    spectrum: np.ndarray,
    guide: np.ndarray | None,
    limit: float,
    variance=1.0,
    common: float | None = None,
    keep_mean: bool = True,
) -> tuple[np.ndarray, float]:
    """Return what is removed from a spectrum, and the variance of the noise that is left.

    That is what a hard threshold takes away, or, told by the spectrum `guide`, a Wiener filter. The
    limit for what patches or cubes have in common is `common`, if that is given. Convention: the
    first coefficient, which belongs to the mean, always stays.
    """
    limits = np.full(spectrum.shape, limit)
    if common is not None:
        limits[0] = common
    if guide is None:
        gain = (np.abs(spectrum) >= limits * np.sqrt(variance)).astype(float)
    else:
        gain = guide**2 / (guide**2 + limits**2 * variance)
    if keep_mean:
        gain.flat[0] = 1.0
    return (1 - gain) * spectrum, float(np.sum(gain**2 * variance))


def group_spectrum(patches: np.ndarray, settings: Pass) -> np.ndarray:
    """Return the 3D spectrum (m, 8, 8) of patches."""
    matrix = transform_matrix(settings.transform)
    flat = matrix @ patches @ matrix.T
    return np.tensordot(stack_matrix(settings.stack, len(patches)), flat, axes=1)


def removed_patches(removed: np.ndarray, settings: Pass) -> np.ndarray:
    """Return the patches (m, 8, 8) of a spectrum: the inverse transform."""
    inverse = inverse_matrix(settings.transform)
    stacks = stack_matrix(settings.stack, len(removed)).T
    return inverse @ np.tensordot(stacks, removed, axes=1) @ inverse.T


def aggregate(noisy: np.ndarray, groups: Iterable[Group], settings: Pass) -> np.ndarray:
    """Return the frames less the weighted mean, pixel by pixel, of what the groups remove.

    Convention: a group tells nothing of frames so long before its reference that they would have to
    wait for more than `frames_after` frames. Pixels that no group tells of stay as they are.
    """
    total, weight = np.zeros((2, *noisy.shape))
    kaiser = np.outer(*2 * [np.kaiser(PATCH, settings.kaiser)])
    for group in groups:
        window = group.weight * kaiser
        found = zip(
            *(group.matches, group.scales, removed_patches(group.removed, settings)), strict=True
        )
        for (t, y, x, _), scale, patch in found:
            if t >= group.position[0] - settings.frames_after:
                place = t, slice(y, y + PATCH), slice(x, x + PATCH)
                total[place] += group.sigma / scale * window * patch
                weight[place] += window
    return noisy - np.divide(total, weight, out=np.zeros(noisy.shape), where=weight > 0)


def one_pass(planes, sigmas, settings: Pass, found, basics=None, links=unlinked, spectra=None):
    """Filter channels (c, t, y, x) once; `found` are the matches of every reference patch."""
    known = zip(
        *(planes, sigmas, spectra or [WHITE] * len(planes)),
        [None] * len(planes) if basics is None else basics,
        strict=True,
    )
    return np.array(
        [
            aggregate(
                z, (filter_group(z, m, s, settings, b, links, spectrum) for m in found), settings
            )
            for z, s, spectrum, b in known
        ]
    )


def extend(planes: np.ndarray) -> np.ndarray:
    """Extend the last axes, if shorter than a patch, at their end, mirrored beyond the last."""
    missing = [(0, max(0, PATCH - length)) for length in planes.shape[-2:]]
    return np.pad(planes, [(0, 0)] * (planes.ndim - 2) + missing, mode="symmetric")
