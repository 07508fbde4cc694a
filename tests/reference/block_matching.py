"""Where the reference patches of BM3D lie, and the patches that are similar to each."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from reference.transforms import PATCH


def reference_positions(length: int, step: int) -> list[int]:
    """Return where reference patches begin: every `step` pixels, and the last one that fits."""
    last = length - PATCH
    return sorted({*range(0, last + 1, step), last})


def find_matches(
    image: np.ndarray,
    y: int,
    x: int,
    window: int,
    neighbours: int,
    limit: float,
    *,
    exact: bool = True,
) -> list[tuple[int, int, float]]:
    """Return (y, x, d2) of the patches most similar to the one at (y, x), most similar first.

    d2 is the mean squared difference, at most `limit`. Convention: among equal ones the smaller
    offset comes first, then the smaller dy, then the smaller dx; so the reference is the first.
    `exact=False` knows distances only as well as the kernels do: they are equal if they differ in
    no bit of a float32 but those that hold the place in the table of offsets there, and the middle
    of such equal ones is compared with the limit.
    """
    rows, columns = (
        np.arange(max(at - window // 2, 0), min(at + window // 2, length - PATCH) + 1)
        for at, length in zip((y, x), image.shape, strict=True)
    )
    patches = sliding_window_view(image, (PATCH, PATCH))[rows[0] :, columns[0] :]
    difference = patches[: len(rows), : len(columns)] - image[y : y + PATCH, x : x + PATCH]
    d2 = np.square(difference).mean(axis=(2, 3)).ravel()
    dy, dx = (offset.ravel() for offset in np.meshgrid(rows - y, columns - x, indexing="ij"))
    known = d2 if exact else as_kernels_know(d2, window**2)
    order = np.lexsort((dx, dy, dy**2 + dx**2, known))
    similar = order[(known[order] <= limit) | (order == order[0])][:neighbours]
    return [(int(y + dy[k]), int(x + dx[k]), float(d2[k])) for k in similar]


def as_kernels_know(distances: np.ndarray, offsets: int) -> np.ndarray:
    """Return float32 distances whose lowest bits are cut off, and replaced by half of those."""
    cut = 2 ** max(1, (offsets - 1).bit_length())
    bits = distances.astype(np.float32).view(np.uint32) // np.uint32(cut) * np.uint32(cut)
    return np.where(bits == 0, bits, bits + np.uint32(cut // 2)).view(np.float32)
