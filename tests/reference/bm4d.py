"""BM4D in NumPy, written to be read: Maggioni et al. 2013, with the noise that cubes share.

Over time groups take cubes of the volumes before and after: of each cube of a group A is the mean
over time, weighted by 1 / sigma^2, and E what the cube itself differs from it. Both are filtered,
and added. Of one volume there is A alone.
"""

from __future__ import annotations

import itertools

import numpy as np

from reference.block_matching import find_matches, reference_positions
from reference.groups import SMALLEST_SIGMA, shrink
from reference.shared_noise import WHITE, Spectrum, mean_variance, variances
from reference.transforms import cube_matrix, stack_matrix

LEAST_COMPARED = 0.25  # of the voxels of a block


def bm4d(volumes, sigma, settings, *, exact: bool = True) -> np.ndarray:
    """Denoise a volume (z, y, x), or volumes (t, z, y, x) of constant brightness.

    No side is shorter than that of a cube. `sigma` broadcasts to the image. `settings` has the
    attributes of ``filters.bm4d.BM4D``, with the cube chosen; `exact` is as in
    `reference.block_matching.find_matches`.
    """
    volumes = np.asarray(volumes, np.float64)
    sigma = np.broadcast_to(np.asarray(sigma, np.float64), volumes.shape)
    if volumes.ndim == 3:
        return bm4d(volumes[None], sigma[None], settings, exact=exact)[0]
    basic = None
    for one in settings.passes.values():
        made = [one_volume(volumes, sigma, one, basic, t, exact) for t in range(len(volumes))]
        basic = np.array(made)
    return basic


def one_volume(noisy, sigma, one, basic, t: int, exact: bool) -> np.ndarray:
    """Filter the volume of time t once; estimates are searched in its place, if there are any."""
    compared = noisy if basic is None else basic
    shape = noisy.shape[1:]
    total, weights = np.zeros(shape), np.zeros(shape)
    kaiser = np.einsum("z,y,x->zyx", *(np.kaiser(side, one.kaiser) for side in one.cube))
    matrix = cube_matrix(one.transform, tuple(one.cube))
    inverse = np.linalg.inv(matrix)
    motions = follow(compared, sigma, t, one)
    noise_of = Spectrum(one.spectra[0].plane, one.spectra[0].along_z) if one.spectra else WHITE
    how = noise_of, one.transform, tuple(one.cube)
    grid = map(reference_positions, shape, one.steps, one.cube)
    for place in itertools.product(*grid):
        own = middle(sigma[t], place, one.cube)
        near = compared[t], place, one.cube, one.windows, one.neighbours, one.similar * own**2
        group = [match[:3] for match in find_matches(*near, exact=exact)]
        group = group[: 2 ** (len(group).bit_length() - 1)]
        level = noisy[t][place]
        block = tuple(at // (2 * side) for at, side in zip(place, one.cube, strict=True))
        # Of times in which the block is found again.
        moved = {other: way[block] for other, (way, alike) in motions.items() if alike[block]}
        moved[t] = (0, 0, 0)
        shares = shares_of(compared, sigma, place, moved, t, one)
        along = stack_matrix(one.stack, len(group))
        variance = variances(group, *how, one.stack, bool(one.shared_noise))
        variance = variance.reshape(len(group), -1)
        rms = np.sqrt(np.mean([middle(sigma[t], cube, one.cube) ** 2 for cube in group]))

        removed, left = 0.0, 0.0
        for difference in (False, True)[: len(shares)]:
            parts = {other: share - (difference and other == t) for other, share in shares.items()}
            if difference:
                parts = {other: -part for other, part in parts.items()}
            noise = np.sqrt(combined_variance(sigma, group, moved, parts, one))
            given = group, moved, parts, noise, level, one.cube
            images = [noisy, basic] if one.wiener else [noisy]
            found, *guide = (along @ cubes_over_time(z, *given) @ matrix.T for z in images)
            limits = one.threshold, variance, None, not difference
            taken, kept = shrink(found, guide[0] if guide else None, *limits)
            removed = removed + noise * taken
            left += noise**2 * kept
        weight = 1 / max(left / rms**2 / mean_variance(*how), 1.0)
        for cube, taken in zip(group, along.T @ removed @ inverse.T, strict=True):
            at = region(cube, one.cube)
            total[at] += weight * kaiser * taken.reshape(one.cube)
            weights[at] += weight * kaiser
    return noisy[t] - total / weights


def cubes_over_time(images, group, moved, parts, noise, level, sides):
    """Return the cubes of a group (m, voxels), added up over time, in units of their noise."""
    shape = images[0].shape
    cubes = np.zeros((len(group), *sides))
    for other, part in parts.items():
        for k, cube in enumerate(group):
            at = displaced(cube, moved[other], shape, sides)
            cubes[k] += part * (images[other][region(at, sides)] - level)
    return cubes.reshape(len(group), -1) / max(noise, SMALLEST_SIGMA)


def follow(volumes, sigma, t: int, one) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Return the motion (dz, dy, dx) of every block of the volume of time t, to each other time.

    Also returned is whether it is similar there.
    """
    before, after = one.frames
    sides = [2 * side for side in one.cube]
    blocks = tuple(-(-n // side) for n, side in zip(volumes.shape[1:], sides, strict=True))
    found, still = {}, one.still * np.mean(sigma[t].max(axis=(1, 2)) ** 2)
    for sign, count in ((-1, before), (1, after)):
        nearer = np.zeros((*blocks, 3), int)
        for other in range(t + sign, t + sign * (count + 1), sign):
            if 0 <= other < len(volumes):
                nearer, alike = nearer.copy(), np.zeros(blocks, bool)
                pair = volumes[t], volumes[other]
                levels = (sigma[t] ** 2 + sigma[other] ** 2).max(axis=(1, 2)) / 2
                for block in np.ndindex(blocks):
                    way, d2, slices = follow_block(*pair, block, nearer[block], one, still)
                    nearer[block] = way
                    alike[block] = d2 <= one.similar_next * np.mean(levels[slices])
                found[other] = nearer, alike
    return found


def follow_block(here, there, block, centre, one, still: float):
    """Return the displacement with the smallest mean squared difference around a block.

    Also returned are that difference, and the slices that were compared.
    """
    voxels = []
    for k, side, n in zip(block, one.cube, here.shape, strict=True):
        along = np.arange(2 * side * k - side, 2 * side * k + 3 * side, 2)
        voxels.append(along[(along >= 0) & (along < n)])
    best, chosen, least = np.inf, centre, np.inf
    windows = [range(-(width // 2), width // 2 + 1) for width in one.next_windows]
    for way in itertools.product(*windows):
        displacement = centre + np.array(way)
        inside = [
            along[(along + d >= 0) & (along + d < n)]
            for along, d, n in zip(voxels, displacement, here.shape, strict=True)
        ]
        if np.prod([len(along) for along in inside]) < LEAST_COMPARED * 512:
            continue
        moved = [along + d for along, d in zip(inside, displacement, strict=True)]
        d2 = np.mean((here[np.ix_(*inside)] - there[np.ix_(*moved)]) ** 2)
        preferred = d2 - still * (not any(way))
        if preferred < best:
            best, chosen, least = preferred, displacement, d2
    return chosen, least, voxels[0]


def shares_of(compared, sigma, place, moved, t: int, one) -> dict[int, float]:
    """Return the weights of the times in A: of those alone whose cubes are similar."""
    own = middle(sigma[t], place, one.cube)
    reference = compared[t][region(place, one.cube)]
    found = {t: 1 / own**2}
    for other, way in moved.items():
        at = displaced(place, way, compared.shape[1:], one.cube)
        s = middle(sigma[other], at, one.cube)
        d2 = np.mean((compared[other][region(at, one.cube)] - reference) ** 2)
        if other != t and d2 <= one.similar_next * (own**2 + s**2) / 2:
            found[other] = 1 / s**2
    total = sum(found.values())
    return {other: precision / total for other, precision in found.items()}


def combined_variance(sigma, group, moved, parts, one) -> float:
    """Return the mean variance over a group of cubes added up over time."""
    squares = 0.0
    for cube in group:
        for other, part in parts.items():
            at = displaced(cube, moved[other], sigma.shape[1:], one.cube)
            squares += (part * middle(sigma[other], at, one.cube)) ** 2
    return squares / len(group)


def middle(sigma, place, sides) -> float:
    """Return sigma in the middle of a cube."""
    return sigma[tuple(at + side // 2 for at, side in zip(place, sides, strict=True))]


def region(place, sides) -> tuple[slice, ...]:
    return tuple(slice(at, at + side) for at, side in zip(place, sides, strict=True))


def displaced(place, way, shape, sides) -> tuple[int, int, int]:
    """Return where a cube is that moved; it stays inside the volume."""
    each = zip(place, way, shape, sides, strict=True)
    return tuple(int(min(max(at + d, 0), n - side)) for at, d, n, side in each)
