"""Parts of the patches, such as levels of brightness, as lists of patches one after another."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from napari_gpu_denoise.noise.patches.coefficients import ranked

LEVELS = 16  # of brightness, at most
MEMBERS = 64  # patches a level needs
SAMPLE = 4096  # patches whose brightness the limits of levels are taken from, about


class Parts(NamedTuple):
    """Patches of several parts; none is empty."""

    members: np.ndarray  # indices of patches, those of one part after another
    count: np.ndarray  # (part,), how many each has

    @property
    def first(self) -> np.ndarray:
        """Where each part begins in `members`, (part,)."""
        return np.cumsum(self.count) - self.count

    def each(self) -> list[np.ndarray]:
        """Return the members of each part."""
        return np.split(self.members, self.first[1:])

    def kept(self, which: np.ndarray) -> Parts:
        """Return the parts that a mask (part,) selects."""
        if which.all():
            return self
        return Parts(self.members[np.repeat(which, self.count)], self.count[which])

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Return the sums of values (patch,) over each part."""
        return np.add.reduceat(values[self.members], self.first)

    def by_rank(self, rank: np.ndarray) -> Parts:
        """Return the same parts, the members of each from the lowest rank (patch,) on."""
        group = np.repeat(np.arange(len(self.count), dtype=np.uint8), self.count)
        order = ranked(rank[self.members], group, len(self.count))
        return self._replace(members=self.members[order])


def grouped(part: np.ndarray, number: int, order: np.ndarray | None = None) -> Parts:
    """Return so many parts, given the number of that of each patch, (patch,), uint8.

    Members stand in the `order` in which patches are listed there, by default in their own. Empty
    parts are left out.
    """
    listed = part if order is None else part[order]
    members = np.argsort(listed, kind="stable")
    count = np.searchsorted(listed[members], np.arange(number, dtype=np.uint8), "right")
    count[1:] -= count[:-1].copy()
    return Parts(members if order is None else order[members], count[count > 0])


def brightness_levels(
    mean: np.ndarray,
    members: int = MEMBERS,
    most: int = LEVELS,
    order: np.ndarray | None = None,
) -> Parts:
    """Return the patches of each level of brightness, from dark to bright.

    There are at most `most` levels, and fewer where they would have less than twice `members`
    patches. The limits lie halfway between those of equal numbers and those of equal widths, so
    that a few bright cells on a dark background have levels of their own. `order` is as in
    `grouped`.
    """
    # Where there are many patches, some of them tell well enough where the limits are.
    ordered = np.sort(mean[:: max(1, len(mean) // SAMPLE)])
    edge = min(round(members * len(ordered) / len(mean)), (len(ordered) - 1) // 2)
    first, last = ordered[edge], ordered[-1 - edge]
    levels = min(most, max(len(mean) // (2 * members), 1))
    steps = np.arange(1, levels) / levels
    numbers = ordered[(steps * len(ordered)).astype(int)]
    limits = (numbers + first + steps * (last - first)) / 2
    level = np.zeros(len(mean), np.uint8)
    above = np.empty(len(mean), bool)
    for limit in limits:
        np.greater_equal(mean, limit, out=above)
        level += above.view(np.uint8)
    return grouped(level, levels, order)
