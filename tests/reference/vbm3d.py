"""VBM3D, slow and plain: what the kernels have to compute, in float64.

K. Dabov, A. Foi, K. Egiazarian, "Video denoising by sparse 3D transform-domain collaborative
filtering", 2007; A. Davy, T. Ehret, "GPU acceleration of NL-means, BM3D and VBM3D", 2020, sections
2.3 and 4.2. It is BM3D with another search, see `video_matching`: patches are followed from frame
to frame. What the papers leave open is marked "convention".

Convention: the grey levels of frame t mean in frame r what the link of the two says, so that the
brightness of whole frames may change. Frames that are constant or without noise, "holes", are left
alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from reference.block_matching import reference_positions
from reference.block_motion import block_motions
from reference.bm3d import (
    LEAST_VARIANCE,
    MIDDLE,
    SMALLEST_SIGMA,
    extend,
    group_spectrum,
    noise_variances,
    removed_patches,
    shrink_hard,
    shrink_wiener,
)
from reference.bm3d_correlated import LEAST_MEAN, Table, shared
from reference.transforms import PATCH, stack_matrix
from reference.video_links import Links, unlinked
from reference.video_matching import find_matches

FLAT = 1.3  # mean square of coefficients, in sigma squared, that is more than noise


@dataclass(frozen=True)
class Pass:
    """What one pass needs to know: of `threshold` and `wiener_sigma` a pass uses one."""

    frames_before: int = 4
    frames_after: int = 4
    window: int = 5
    window_nearest: int = 15
    window_next: int = 5
    per_frame: int = 2
    neighbours: int = 8
    step: int = 6
    transform: str = "bior1.5"
    stack: str = "haar"
    similar: float = 25.0
    still: float = 0.0
    threshold: float = 2.7
    common: float | None = None  # the same for what patches have in common
    wiener_sigma: float = 1.0
    kaiser: float = 2.0
    shared_noise: bool = False
    kalman: bool = False  # from patch to patch, instead of along the stack

    @classmethod
    def of(cls, settings, stage: str) -> Pass:
        """Return the pass ``"basic"`` or ``"final"`` of settings with the attributes of VBM3D."""
        both = ("frames_before", "frames_after", "window_nearest", "threshold", "wiener_sigma")
        chosen = {name: getattr(settings, name) for name in both}
        chosen["neighbours"] = getattr(settings, f"neighbours_{stage}")
        basic = stage == "basic"
        chosen["common"] = settings.threshold_common if basic else settings.wiener_common
        chosen["step"] = settings.steps[stage]
        fixed = {"transform": "dct", "similar": 2.0, "still": 0.02}
        if basic:
            fixed = {"transform": "bior1.5", "similar": 5.0, "still": 0.12}
        chosen |= {**fixed, "window": 3, "window_next": 3, "kaiser": 1.0}
        return cls(**chosen, shared_noise=settings.shared_noise)

    @classmethod
    def between(cls, settings) -> Pass:
        """Return the pass between these two, which filters causal videos from patch to patch."""
        changes = {"per_frame": 1, "neighbours": 4, "step": 2, "window_next": 5}
        final = cls.of(settings, "final")
        return replace(final, kalman=True, common=None, shared_noise=False, **changes)


@dataclass(frozen=True)
class Group:
    """One reference patch, the patches found for it, and what is removed from them."""

    position: tuple[int, int, int]  # (t, y, x) of the first pixel of the reference
    matches: list[tuple]  # (t, y, x, d2) of each patch, nearest first
    scales: np.ndarray  # (m,), from the grey levels of each patch's frame to those of frame t
    level: float  # subtracted from the patches
    sigma: float  # in the grey levels of frame t, like `level`
    spectrum: np.ndarray  # (m, 8, 8), in sigma
    guide: np.ndarray | None  # the spectrum of the basic estimate
    removed: np.ndarray  # (m, 8, 8), the part of the spectrum that is taken for noise
    weight: float
    variance: np.ndarray | float = 1.0  # of the noise in the spectrum, in sigma squared
    energy: float = 0.0  # of what the patches have in common, in units of the noise


def vbm3d(
    video: np.ndarray,
    sigma,
    settings,
    *,
    links: Links | None = None,
    table: Table | None = None,
) -> np.ndarray:
    """Denoise a video (t, y, x) of noise with standard deviation `sigma`.

    Parameters
    ----------
    video : array (t, y, x)
    sigma : float, or one for each frame
        In the grey levels of that frame.
    settings : object with the attributes of ``filters.vbm3d.VBM3D``
    links : callable, optional
        ``links(r, t)`` is the `Link` from the grey levels of frame t to those of frame r; by
        default all frames are alike.
    table : tuple, (5, 5), optional
        Autocorrelation of the noise in a frame, as `bm3d_correlated` takes it; by default it is
        white. Different frames share no noise.

    Returns
    -------
    ndarray of float64, of the shape of `video`
    """
    video = np.asarray(video, dtype=np.float64)
    nt, ny, nx = video.shape
    sigmas = np.broadcast_to(np.asarray(sigma, dtype=np.float64), nt)
    holes = [t for t in range(nt) if sigmas[t] == 0 or np.ptp(video[t]) == 0]
    known = {"links": links, "holes": holes, "table": table}
    noisy = extend(video)
    nearest = settings.window_nearest or Pass.window_nearest
    settings = replace(settings, window_nearest=nearest)
    if any((settings.frames_before, settings.frames_after)):
        around = settings.window_nearest, sigmas, links, holes
        known["motions"] = block_motions(noisy, *around)
    result = one_pass(noisy, sigmas, Pass.of(settings, "basic"), **known)
    if settings.frames_before and not settings.frames_after:
        result = one_pass(noisy, sigmas, Pass.between(settings), basic=result, **known)
    result = one_pass(noisy, sigmas, Pass.of(settings, "final"), basic=result, **known)
    return result[:, :ny, :nx]


def one_pass(noisy, sigmas: Sequence[float], settings: Pass, *, basic=None, **known) -> np.ndarray:
    """Filter a video (t, y, x), frames of 8 x 8 pixels or more, once.

    It is a Wiener pass if a `basic` estimate is given; patches are then compared on that. `known`
    (links, holes, frames, positions) as in `filter_groups`. Pixels without an estimate stay.
    """
    noisy = np.asarray(noisy, dtype=np.float64)
    search = noisy if basic is None else basic
    groups = filter_groups(noisy, search, sigmas, settings, basic, **known)
    return aggregate(noisy, groups, settings)


def filter_groups(
    noisy: np.ndarray,
    search: np.ndarray,
    sigmas: Sequence[float],
    settings: Pass,
    basic: np.ndarray | None = None,
    links: Links | None = None,
    holes: Collection[int] = (),
    frames: Iterable[int] | None = None,
    *,
    positions: Iterable[tuple[int, int, int]] | None = None,
    table: Table | None = None,
    motions: dict | None = None,
) -> Iterator[Group]:
    """Yield the filtered group of every reference patch, frame by frame and row by row.

    `frames` are those with references, by default all but `holes`; `positions` (t, y, x) are some
    references to do instead. `motions` are those of blocks, if they are known.
    """
    nt, ny, nx = noisy.shape
    if motions is None:
        motions = block_motions(noisy, settings.window_nearest, sigmas, links, holes)
    if positions is None:
        frames = [t for t in (range(nt) if frames is None else frames) if t not in holes]
        across = (reference_positions(length, settings.step) for length in (ny, nx))
        positions = product(frames, *across)
    for t, y, x in positions:
        matches = find_matches(search, t, y, x, settings, sigmas, links, holes, motions)
        yield filter_group(noisy, matches, sigmas, settings, basic, links, table=table)


def filter_group(
    noisy: np.ndarray,
    matches: list[tuple],
    sigmas: Sequence[float],
    settings: Pass,
    basic: np.ndarray | None = None,
    links: Links | None = None,
    *,
    variation: np.ndarray | None = None,
    table: Table | None = None,
) -> Group:
    """Return the group of the patches at `matches`, or of as many as are a power of two.

    The first one is the reference, and all of them are taken to its grey levels. `variation` is a
    map (y, x) that sigma is multiplied by, `table` the autocorrelation of noise that is not white.
    Convention: what patches have in common is shrunk by `common` if at least three of them, and
    half of all, are of other frames, and if it is more than noise, coefficient by coefficient.
    """
    links = unlinked if links is None else links
    matches = matches[: 2 ** (len(matches).bit_length() - 1)]
    position = t, y, x = matches[0][:3]
    chosen = [links(t, match[0]) for match in matches]
    scales = np.array([link.scale for link in chosen])
    noise = scales * [sigmas[match[0]] for match in matches]
    if variation is not None:
        noise = noise * [variation[y + MIDDLE, x + MIDDLE] for _, y, x, _ in matches]
    sigma = np.sqrt(np.mean(noise**2))
    level = noisy[t, y, x]

    def spectrum_of(video: np.ndarray) -> np.ndarray:
        patches = [
            video[t, y : y + PATCH, x : x + PATCH] * link.scale + link.shift
            for (t, y, x, _), link in zip(matches, chosen, strict=True)
        ]
        column = [(PATCH * k, 0) for k in range(len(patches))]  # one below the other
        how = level, max(sigma, SMALLEST_SIGMA), settings.transform, settings.stack
        return group_spectrum(np.concatenate(patches), column, *how)

    spectrum = spectrum_of(noisy)
    energy = common_energy(spectrum, settings, table)
    others = sum(match[0] != t for match in matches)
    enough = others >= max(3, len(matches) / 2) and energy >= FLAT
    common = settings.common if enough else None
    variance, mean = 1.0, None
    if table is not None:
        variance = correlated_variances(matches, table, settings)
        # Convention: weights are relative to that of a group which keeps a mean alone.
        mean = max(shared(table, settings.transform, 0, 0)[0, 0], LEAST_MEAN)
    elif settings.shared_noise:
        variance = shared_variances(matches, noisy.shape[1], settings)
    if settings.kalman:
        alone = 1.0 if table is None else shared(table, settings.transform, 0, 0)
        along = stack_matrix(settings.stack, len(matches)).T
        values, guides = (np.tensordot(along, spectrum_of(v), axes=1) for v in (noisy, basic))
        state = kalman(values, guides, settings.wiener_sigma**2 * alone)
        removed = values[:1] - state
        known = position, matches[:1], scales[:1], level, sigma, values[:1], guides[:1]
        return Group(*known, removed, 1.0, alone, energy)
    if basic is None:
        guide = None
        removed, weight = shrink_hard(spectrum, settings.threshold, variance, common)
    else:
        guide = spectrum_of(basic)
        removed, weight = shrink_wiener(
            spectrum,
            guide,
            settings.wiener_sigma**2,
            variance,
            None if common is None else common**2,
        )
    if mean is not None:
        weight = min(weight * mean, 1)
    return Group(
        position, matches, scales, level, sigma, spectrum, guide, removed, weight, variance, energy
    )


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


def common_energy(spectrum: np.ndarray, settings: Pass, table: Table | None = None) -> float:
    """Return the mean square of what patches have in common, without its mean.

    It is in units of the variance of the noise in each coefficient of a patch.
    """
    alone = 1.0 if table is None else shared(table, settings.transform, 0, 0)
    energy = spectrum[0] ** 2 / alone
    return float(np.sum(energy) - energy[0, 0]) / (PATCH**2 - 1)


def shared_variances(matches: list[tuple], ny: int, settings: Pass) -> np.ndarray:
    """Return the variances (m, 8, 8) of noise, which patches of different frames do not share.

    Convention: all patches count as equally noisy.
    """
    apart = [(t * (ny + PATCH) + y, x) for t, y, x, _ in matches]  # frames one below the other
    return noise_variances(apart, settings.transform, settings.stack)


def correlated_variances(matches: list[tuple], table: Table, settings: Pass) -> np.ndarray:
    """Return the variances (m, 8, 8) of correlated noise; as for white noise otherwise."""
    alone = shared(table, settings.transform, 0, 0)
    if not settings.shared_noise:
        return np.broadcast_to(alone, (len(matches), PATCH, PATCH))
    along = stack_matrix(settings.stack, len(matches))
    pairs = np.array(
        [
            [
                shared(table, settings.transform, p[1] - q[1], p[2] - q[2]) * (p[0] == q[0])
                for q in matches
            ]
            for p in matches
        ]
    )
    variance = np.einsum("kp,pqyx,kq->kyx", along, pairs, along, optimize=True)
    return np.maximum(variance, LEAST_VARIANCE * alone)


def aggregate(noisy: np.ndarray, groups: Iterable[Group], settings: Pass) -> np.ndarray:
    """Return the video less the weighted mean, pixel by pixel, of what the groups remove.

    Convention: a group tells nothing of frames so long before its reference that they would have to
    wait for more than `frames_after` frames. Pixels that no group tells of stay as they are.
    """
    total, weight = np.zeros(noisy.shape), np.zeros(noisy.shape)
    kaiser = np.kaiser(PATCH, settings.kaiser)
    for group in groups:
        window = group.weight * np.outer(kaiser, kaiser)
        removed = removed_patches(group.removed, settings.transform, settings.stack)
        found = zip(group.matches, group.scales, removed, strict=True)
        for (t, y, x, _), scale, patch in found:
            if t >= group.position[0] - settings.frames_after:
                place = t, slice(y, y + PATCH), slice(x, x + PATCH)
                total[place] += group.sigma / scale * window * patch
                weight[place] += window
    return noisy - np.divide(total, weight, out=np.zeros(noisy.shape), where=weight > 0)
