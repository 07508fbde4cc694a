"""Sums over nested sets of patches of one brightness, from the smoothest few to all."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

from napari_gpu_denoise.noise.patches.coefficients import Squares, nested, range_moments, range_sums
from napari_gpu_denoise.noise.patches.parts import Parts
from napari_gpu_denoise.noise.patches.products import times
from napari_gpu_denoise.noise.patches.spectra import (
    SETS,
    PatchSpectra,
    frequency_sets,
    weights,
)
from napari_gpu_denoise.noise.patches.white import PATCH, frequency_order

COEFFICIENTS = PATCH**2 - 1  # of a patch, without its mean
TOP = 11  # this and what is above are one band

SHARES = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1)  # of a level, from the smoothest on
LEAST = 48  # patches by which a set is larger than the one before
WEAKEST = 1e-24  # variance from which float32 holds what is relative to it


class Readings(NamedTuple):
    """Nested sets of the smoothest patches of levels of brightness."""

    level: np.ndarray  # (set,), number of the level
    count: np.ndarray  # (set,), patches
    mean: np.ndarray  # (set,), grey level
    power: np.ndarray  # (set, frequency), at each frequency that is read
    added: np.ndarray  # (set,), patches that the previous set does not have
    own: np.ndarray  # (set, frequency), the power of these
    seen: np.ndarray  # (set, frequency), grey level as each frequency that is read sees it
    own_seen: np.ndarray  # (set, frequency), the same of the added patches
    rank: np.ndarray  # (set,), mean power at the frequencies that rank, relative to the line


def read_levels(
    spectra: PatchSpectra, line: np.ndarray, levels: Parts, relative: bool = False
) -> Readings:
    """Sum up nested sets of the smoothest patches of each level of brightness.

    `line` (patch,) is about the noise variance of each patch. If `relative`, all is divided by it.
    """
    ranks, read, *_ = frequency_bands()
    sight = weights()[read]
    # The mean power at the frequencies that rank, relative to the line.
    rank = spectra.relative("ranks", len(ranks) * line)
    limits, level = [0], []
    for number, size in enumerate(levels.count.tolist()):
        stops = [0]
        for share in SHARES:
            stop = int(share * size)
            if stop - stops[-1] >= LEAST or stop == size:
                stops.append(stop)
        start = limits[-1]
        limits += [start + stop for stop in stops[1:]]
        level += [number] * (len(stops) - 1)
    order = levels.by_rank(rank).members
    first = np.array(limits[:-1])
    if relative:
        # What is relative to its own line sees no more of the brightness than the mean does.
        weight, mean, sums = 1 / line, spectra.seen, np.zeros((len(first), COEFFICIENTS))
        weak = weight.max() > 1 / WEAKEST
        coefficients = spectra.coefficients
        if weak:
            coefficients = np.asarray(coefficients, np.float64)
        squares = range_sums(Squares(coefficients), order, limits, weight)
    else:
        mean = spectra.mean
        sums, squares = range_moments(spectra.coefficients, order, limits)
    added, level = np.diff(limits), np.array(level)

    inside = partial(nested, sizes=np.bincount(level))
    own = squares[:, read]
    bright = np.add.reduceat(mean[order], first)
    seen = times(sums, sight.T) + bright[:, None]
    count = inside(added)
    return Readings(
        level,
        count,
        inside(bright) / count,
        inside(own) / count[:, None],
        added,
        own / added[:, None],
        inside(seen) / count[:, None],
        seen / added[:, None],
        inside(np.add.reduceat(rank[order].astype(np.float64), first)) / count,
    )


@lru_cache(maxsize=1)
def frequency_bands() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return which coefficients rank the patches, and which are read, by rising frequency.

    Then the frequencies j + k of those that are read, and where in these each band begins.
    """
    total = sum(np.divmod(np.concatenate(frequency_order((PATCH, PATCH))), PATCH))
    low, _ = frequency_order((PATCH, PATCH))
    ranks = frequency_sets(len(low), COEFFICIENTS)[SETS.index("ranks")]
    read = np.flatnonzero(~ranks)
    read = read[np.argsort(total[read], kind="stable")]
    first = np.append(True, np.diff(np.minimum(total[read], TOP)) > 0)
    return np.flatnonzero(ranks), read, total[read], np.flatnonzero(first)
