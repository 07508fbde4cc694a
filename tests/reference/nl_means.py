"""Patchwise NL-means, slow and plain: what the kernels have to compute.

A. Davy, T. Ehret, "GPU acceleration of NL-means, BM3D and VBM3D", 2020, section 2.1, algorithms 1
and 4. Images are arrays (t, z, y, x); a patch lies in one plane, at (t, z, y, x) of its first
pixel. What the paper leaves open is settled here, and marked "convention".
"""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from reference.block_matching import reference_positions


def nl_means(
    image: np.ndarray,
    sigma: float | np.ndarray,
    *,
    patch: int = 8,
    step: int = 4,
    window: int = 21,
    neighbours: int = 16,
    strength: float = 1.0,
    flat: float = 1.05,
    frames_before: int = 0,
    frames_after: int = 0,
    slices: int = 0,
    rician: bool = False,
) -> np.ndarray:
    """Denoise an image (t, z, y, x), or (y, x), of noise with standard deviation `sigma`.

    `sigma` is one number, or a map (y, x) for all planes. Convention: that of a group is the map
    in the middle of its reference patch; pixels whose sigma is 0 are left as they are.

    `rician` takes off the bias of magnitudes after Wiest-Daesslé et al. 2008 and Manjón et al.
    2008: squares are averaged in place of magnitudes, and their excess of 2 sigma² is taken off
    before the root. Convention: it is taken off every estimate, with the sigma of its weights; a
    group whose mean square is at most `flat` times the excess has no signal, and its estimate is
    not above 0; the root is that of joined estimates, and 0 where they are below 0.

    Returns
    -------
    ndarray of float64, of the shape of `image`
    """
    image = np.asarray(image, dtype=np.float64)
    *_, ny, nx = image.shape
    noise = np.broadcast_to(np.asarray(sigma, dtype=np.float64), (ny, nx))
    wide = extend(noise[None, None], patch)[0, 0]
    extended = extend(image if image.ndim == 4 else image[None, None], patch)
    nt, nz = extended.shape[:2]
    offsets = offset_table(window, frames_before, frames_after, slices)
    positions, estimates = [], []
    for position in product(
        range(nt),
        range(nz),
        *(reference_positions(length, step, patch) for length in extended.shape[2:]),
    ):
        matches = search(extended, position, offsets, patch, neighbours)
        positions.append(position)
        here = wide[position[2] + patch // 2, position[3] + patch // 2]
        estimates.append(
            estimate(
                extended,
                matches,
                patch,
                here,
                strength * here,
                flat,
                squares=rician,
            )
        )
    result = aggregate(extended.shape, positions, estimates)[:, :, :ny, :nx]
    if rician:
        result = np.sqrt(np.maximum(result, 0))
    return np.where(noise == 0, image, result.reshape(image.shape))


def extend(image: np.ndarray, patch: int) -> np.ndarray:
    """Extend axes y and x that are shorter than a patch to its width, at their end, by mirroring.

    Convention: the mirror lies beyond the last pixel, which is repeated.
    """
    missing = [max(0, patch - length) for length in image.shape[2:]]
    return np.pad(image, [(0, 0), (0, 0), (0, missing[0]), (0, missing[1])], mode="symmetric")


def offset_table(
    window: int, frames_before: int = 0, frames_after: int = 0, slices: int = 0
) -> np.ndarray:
    """Return the offsets (dt, dz, dy, dx) from a reference patch to the candidates around it.

    Convention: nearest first, so that the reference itself is at index 0; among equally near ones
    in the order of dt, dz, dy, dx.
    """
    radius = window // 2
    offsets = product(
        range(-frames_before, frames_after + 1),
        range(-slices, slices + 1),
        range(-radius, radius + 1),
        range(-radius, radius + 1),
    )
    return np.array(sorted(offsets, key=lambda offset: (sum(d * d for d in offset), *offset)))


def search(
    image: np.ndarray,
    position: tuple[int, int, int, int],
    offsets: np.ndarray,
    patch: int,
    neighbours: int,
) -> np.ndarray:
    """Return the positions (found, 4) of the patches most similar to the one at `position`.

    The first one is the reference itself. Near borders fewer than `neighbours` may be found, since
    candidates lie wholly inside the image.
    """
    places = np.array(position) + offsets
    room = np.array(image.shape) - (1, 1, patch, patch)
    inside = np.all((places >= 0) & (places <= room), axis=1)
    index, places = np.flatnonzero(inside), places[inside]
    difference = read(image, places, patch) - read(image, places[:1], patch)
    distances = np.square(difference).sum(axis=(1, 2)).astype(np.float32)
    order = np.argsort(match_keys(distances, index, len(offsets)))
    return places[order[:neighbours]]


def match_keys(distances: np.ndarray, index: np.ndarray, offsets: int) -> np.ndarray:
    """Return one integer per candidate that sorts by distance, then by place in the offset table.

    Convention: the bits of the float32 distance, with as many of the lowest as are needed replaced
    by the index of the candidate. Distances that agree in all other bits count as equal.
    """
    mask = np.uint32(2 ** (offsets - 1).bit_length() - 1)
    return (distances.view(np.uint32) & ~mask) | index.astype(np.uint32)


def estimate(
    image: np.ndarray,
    matches: np.ndarray,
    patch: int,
    sigma: float,
    h: float,
    flat: float,
    *,
    squares: bool = False,
) -> np.ndarray:
    """Return the denoised patch (patch, patch) at ``matches[0]``.

    With `squares` the patch is that of the squares of the signal, less their bias.
    """
    similar = read(image, matches, patch)
    averaged = similar**2 if squares else similar
    excess = 2 * sigma**2 if squares else 0.0
    if sigma == 0:
        return averaged[0]
    if similar.var() <= flat * sigma**2:
        made = np.full((patch, patch), averaged.mean())
    else:
        distances = np.square(similar - similar[0]).mean(axis=(1, 2))
        weights = np.exp(-np.maximum(distances - 2 * sigma**2, 0) / h**2)
        made = np.tensordot(weights, averaged, axes=1) / weights.sum()
    if squares and averaged.mean() <= flat * excess:
        return np.minimum(made - excess, 0)
    return made - excess


def aggregate(
    shape: tuple[int, ...], positions: list[tuple[int, int, int, int]], estimates: list[np.ndarray]
) -> np.ndarray:
    """Join overlapping patches to an image of `shape`, each pixel a weighted mean.

    The weight is a tent: pixels near the centre of a patch count for more.
    """
    total, weight = np.zeros(shape), np.zeros(shape)
    for (t, z, y, x), patch in zip(positions, estimates, strict=True):
        width = len(patch)
        tent = np.minimum(np.arange(width) + 1, width - np.arange(width))
        place = t, z, slice(y, y + width), slice(x, x + width)
        total[place] += np.outer(tent, tent) * patch
        weight[place] += np.outer(tent, tent)
    return total / weight


def read(image: np.ndarray, places: np.ndarray, patch: int) -> np.ndarray:
    """Return the patches (number, patch, patch) at the given places (number, 4)."""
    patches = sliding_window_view(image, (patch, patch), axis=(2, 3))
    return patches[tuple(np.transpose(places))]
