"""Where reference patches and cubes lie, and what is similar to each."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from reference.transforms import PATCH


def reference_positions(length: int, step: int, side: int = PATCH) -> list[int]:
    """Return where reference patches begin: every `step` pixels, and the last one that fits."""
    last = length - side
    return sorted({*range(0, last + 1, step), last})


def find_matches(
    image: np.ndarray,
    place: tuple[int, ...],
    sides: tuple[int, ...],
    windows: tuple[int, ...],
    neighbours: int,
    limit: float = np.inf,
    *,
    exact: bool = False,
) -> list[tuple]:
    """Return where the patches or cubes most similar to the one at `place` begin, and d2.

    d2 is the mean squared difference, at most `limit`. Convention: among equal ones the smaller
    offset comes first, then the smaller dz, dy and dx; so the reference is the first. If not
    `exact`, distances are known only as well as the kernels do: they are equal if they differ in no
    bit of a float32 but those that hold the place in the table of offsets there, and the middle of
    such equal ones is compared with the limit.
    """
    spans = [
        np.arange(max(at - width // 2, 0), min(at + width // 2, length - side) + 1)
        for at, width, length, side in zip(place, windows, image.shape, sides, strict=True)
    ]
    reached = [slice(k[0], k[-1] + side) for k, side in zip(spans, sides, strict=True)]
    own = image[tuple(slice(at, at + side) for at, side in zip(place, sides, strict=True))]
    patches = sliding_window_view(image[tuple(reached)], sides)
    inside = tuple(range(-len(sides), 0))
    d2 = np.square(patches - own).mean(axis=inside).ravel()
    offsets = np.stack(np.meshgrid(*spans, indexing="ij"), -1).reshape(-1, len(place)) - place
    known = d2 if exact else as_kernels_know(d2, int(np.prod(windows)))
    order = np.lexsort((*offsets.T[::-1], (offsets**2).sum(axis=1), known))
    similar = order[(known[order] <= limit) | (order == order[0])][:neighbours]
    return [(*(offsets[k] + place).tolist(), float(d2[k])) for k in similar]


def as_kernels_know(distances: np.ndarray, offsets: int) -> np.ndarray:
    """Return float32 distances whose lowest bits are cut off, and replaced by half of those."""
    cut = 2 ** max(1, (offsets - 1).bit_length())
    bits = distances.astype(np.float32).view(np.uint32) // np.uint32(cut) * np.uint32(cut)
    return np.where(bits == 0, bits, bits + np.uint32(cut // 2)).view(np.float32)
