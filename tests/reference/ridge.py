"""Ridge combinations of similar patches in NumPy, written to be read: methods page, "refinement".

Images are volumes of one slice.
"""

from __future__ import annotations

import itertools

import numpy as np

from reference.block_matching import find_matches, reference_positions

SEARCH_AGAIN, FIRST_REMAINING, LEAST_REMAINING = 3, 0.75, 0.1


def ridge(noisy, estimate, sigma, settings, find=None) -> np.ndarray:
    """Combine the patches of a noisy volume (z, y, x), or image (y, x), guided by an estimate.

    `sigma` broadcasts to the image; that of a patch is the one in its middle. `settings` has the
    attributes of ``filters.ridge.RidgeSettings``. `find` takes the place of `similar_patches`.
    """
    find = find or similar_patches
    noisy, estimate = (np.asarray(each, np.float64) for each in (noisy, estimate))
    sigma = np.broadcast_to(np.asarray(sigma, np.float64), noisy.shape)
    if noisy.ndim == 2:
        return ridge(noisy[None], estimate[None], sigma[None], settings, find)[0]
    begun, sides, total = noisy, settings.sides, settings.iterations
    grid = map(reference_positions, noisy.shape, settings.steps, sides)
    references = list(itertools.product(*grid))
    for m in range(total):
        least = FIRST_REMAINING * (1 - (m + 1) / total)
        if m % SEARCH_AGAIN == 0:
            from_begun = total > 1 and (m > 0 or settings.from_noisy)
            searched = begun if from_begun else estimate
            groups = [find(searched, place, settings) for place in references]
        sums = np.zeros((2, *noisy.shape))
        weights = np.zeros(noisy.shape)
        for group in groups:
            at = [tuple(slice(a, a + n) for a, n in zip(p, sides, strict=True)) for p in group]
            images = noisy, estimate, begun
            y, x, z = (np.array([image[p].ravel() for p in at]) for image in images)
            middles = [tuple(a + n // 2 for a, n in zip(p, sides, strict=True)) for p in group]
            levels = np.array([sigma[middle] for middle in middles])[:, None]
            remaining = 1.0
            if total > 1:
                removed = np.std((y - z) / levels)
                remaining = max(1 - removed, least + 1e-6, LEAST_REMAINING)
            theta = combinations(x, x.shape[1] * (levels[:, 0] * remaining) ** 2)
            made = theta @ z
            part = least / remaining
            kept = (1 - part) * made + part * z
            variance = (theta**2 @ levels**2)[:, 0] / levels[0] ** 2
            for k, p in enumerate(at):
                weight = 1 / max(variance[k], 1 / settings.neighbours)
                sums[0][p] += weight * made[k].reshape(sides)
                sums[1][p] += weight * kept[k].reshape(sides)
                weights[p] += weight
        estimate, begun = sums / weights
    return estimate


def combinations(patches: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Return the affine combinations, one a row, of patches (k, n) with noise (k,), its energy."""
    inverse = np.linalg.inv(patches @ patches.T + np.diag(noise))
    ones = inverse.sum(axis=1)
    return np.eye(len(patches)) - noise[:, None] * (inverse - np.outer(ones, ones) / ones.sum())


def similar_patches(image: np.ndarray, place, settings) -> list[tuple[int, ...]]:
    """Return where the patches most similar to the one at `place` begin, most similar first."""
    found = find_matches(image, place, settings.sides, settings.windows, settings.neighbours)
    return [match[:-1] for match in found]
