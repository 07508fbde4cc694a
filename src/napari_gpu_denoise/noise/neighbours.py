"""Planes that show the same, and so tell more of the noise than each alone: frames, and repeats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from napari_gpu_denoise.errors import NonFiniteError
from napari_gpu_denoise.noise.correlation.over_time import FramesInARow
from napari_gpu_denoise.noise.photon.curve import PhotonNoise
from napari_gpu_denoise.noise.photon.pairs import still_noise
from napari_gpu_denoise.noise.sampling import PlaneReader, PlaneStack, spread

REPEATS = 8  # positions along an axis from which they count as repetitions of one slice
MOST_REPEATS = 64  # repetitions read


class Comparisons(NamedTuple):
    """What is told by neighbouring frames of a time-lapse; each waits until it is known."""

    still: Callable[[], PhotonNoise | None]  # noise if hardly anything moves, else None
    in_a_row: Callable[[], FramesInARow | None]  # some frames with those that follow, else None


@contextmanager
def comparisons(source: PlaneReader, channel: tuple[int, int] | None) -> Iterator[Comparisons]:
    """Compare frames of a channel, in threads of their own where they are large."""
    each = [partial(one, source, channel) for one in (_still, _in_a_row)]
    if source.threads == 1 or "T" not in source.axes:
        yield Comparisons(*each)
        return
    with ThreadPoolExecutor(len(each)) as pool:
        yield Comparisons(*(pool.submit(one).result for one in each))


def repeated_planes(source: PlaneReader, channel: tuple[int, int] | None) -> PlaneStack | None:
    """Return the planes of a slice that was measured many times, if an axis may hold repeats."""
    taken = "ZYX" if channel is None else "ZYX" + source.axes[channel[0]]
    found = [k for k, letter in enumerate(source.axes) if letter not in taken]
    longest = max(found, key=lambda k: source.shape[k], default=None)
    if longest is None or source.shape[longest] < REPEATS:
        return None
    return source.along(longest, channel, spread(source.shape[longest], MOST_REPEATS))


def _still(source: PlaneReader, channel: tuple[int, int] | None) -> PhotonNoise | None:
    """Return the noise of a time-lapse in which hardly anything moves, else None."""
    axis = source.axes.find("T")
    if axis < 0:
        return None
    try:
        return still_noise(source.along(axis, channel, range(source.shape[axis])))
    except NonFiniteError:
        return None


def _in_a_row(source: PlaneReader, channel: tuple[int, int] | None) -> FramesInARow | None:
    """Return some frames of a time-lapse with those that follow, else None."""
    axis = source.axes.find("T")
    if axis < 0:
        return None
    found = FramesInARow.of(source.along(axis, channel, range(source.shape[axis])), source.threads)
    if found is not None and source.threads > 1:
        found.read()  # in this thread
    return found
