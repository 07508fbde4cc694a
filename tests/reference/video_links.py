"""Which frames of a video are compared, and what their grey levels mean in each other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Link:
    """A value of one frame is ``value * scale + shift`` in the grey levels of another."""

    scale: float = 1.0
    shift: float = 0.0


Links = Callable[[int, int], Link]  # of (r, t): from the grey levels of frame t to those of r


def unlinked(r: int, t: int) -> Link:
    """Return the link of frames whose brightness is the same."""
    return Link()


def usable(r: int, t: int, sigmas: Sequence[float], links: Links, holes: Collection[int]) -> bool:
    """Return whether frame t exists, and has about as much noise as frame r in the levels of r."""
    if not 0 <= t < len(sigmas) or t in holes:
        return False
    return sigmas[r] / 2 <= sigmas[t] * links(r, t).scale <= sigmas[r] * 2
