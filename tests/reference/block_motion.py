"""How blocks of a frame move to the next frame and to the previous one.

Convention: a block of 8 x 8 pixels moves as it and its eight neighbours together do. The frames are
noisy ones in both passes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from reference.video_links import Links, unlinked, usable

BLOCK = 8
LEAN = 0.01  # in sigma squared, of a pixel further, so that what stands still is not moved by noise


def block_motions(
    video: np.ndarray,
    window: int,
    sigmas: Sequence[float],
    links: Links | None = None,
    holes: Collection[int] = (),
) -> dict[tuple[int, int], np.ndarray]:
    """Return (dy, dx) of every block, (rows, columns, 2), from frame r to frame t, by (r, t).

    Only of neighbouring frames that are usable.
    """
    links = unlinked if links is None else links
    found = {}
    for r in range(len(video)):
        for t in (r + 1, r - 1):
            if r not in holes and sigmas[r] > 0 and usable(r, t, sigmas, links, holes):
                link = links(r, t)
                noise = sigmas[t] * link.scale
                other = video[t] * link.scale + link.shift
                found[r, t] = block_motion(video[r], other, window, LEAN * noise**2)
    return found


def block_motion(frame: np.ndarray, other: np.ndarray, window: int, lean: float) -> np.ndarray:
    """Return where the blocks of a frame are in another: (dy, dx), of shape (rows, columns, 2).

    Least is the mean squared difference over those of 3 x 3 blocks that lie in both frames, plus
    `lean` for each pixel of displacement along each axis. Conventions: a third of the blocks that
    lie in this frame must lie in the other, too; of equals, the smallest dx and then the smallest
    dy.
    """
    far = window // 2
    ny, nx = frame.shape
    rows, columns = (-(-n // BLOCK) for n in frame.shape)
    own = np.full((rows * BLOCK, columns * BLOCK), np.nan)
    own[:ny, :nx] = frame
    padded = np.full((own.shape[0] + 2 * far, own.shape[1] + 2 * far), np.nan)
    padded[far : far + ny, far : far + nx] = other
    least = np.full((rows, columns), np.inf)
    best = np.zeros((rows, columns, 2), dtype=int)
    there = around(np.isfinite(in_blocks(own)).astype(float))
    for dx in range(-far, far + 1):
        for dy in range(-far, far + 1):
            moved = padded[far + dy :, far + dx :][: own.shape[0], : own.shape[1]]
            cost = in_blocks((own - moved) ** 2)
            count = around(np.isfinite(cost).astype(float))
            mean = around(np.nan_to_num(cost)) / np.maximum(count, 1) / BLOCK**2
            mean += lean * (abs(dy) + abs(dx))
            better = (count > 0) & (3 * count >= there) & (mean < least)
            least[better] = mean[better]
            best[better] = dy, dx
    return best


def in_blocks(values: np.ndarray) -> np.ndarray:
    """Return the sum over each block."""
    rows, columns = (n // BLOCK for n in values.shape)
    return values.reshape(rows, BLOCK, columns, BLOCK).sum(axis=(1, 3))


def around(blocks: np.ndarray) -> np.ndarray:
    """Return the sum over each block and its neighbours."""
    rows, columns = blocks.shape
    padded = np.zeros((rows + 2, columns + 2))
    padded[1:-1, 1:-1] = blocks
    return sum(padded[i : i + rows, j : j + columns] for i in range(3) for j in range(3))
