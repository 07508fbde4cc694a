"""Named axes, and any array of numbers to float32 frames and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from napari_gpu_denoise.errors import AxesError

UNNAMED = "."
CHANNEL_AXES = "CS"


def check_axes(axes: str | None, shape: Sequence[int]) -> str:
    """Check axis names against a shape.

    Parameters
    ----------
    axes : str or None
        One letter an axis, any case: T (time), Z (slice), Y, X, C (channel), S (colour sample);
        any other letter, or ``.``, is an independent axis. Y and X are needed. None: the last two
        axes are Y and X, the rest independent planes; nothing is ever guessed to be colour or time.
    shape : sequence of int
        Shape of the array.

    Returns
    -------
    str
        Upper-case names, one an axis.

    Raises
    ------
    AxesError
        If the names do not fit.
    """
    ndim = len(shape)
    if ndim < 2:
        raise AxesError(f"An image needs at least two axes, Y and X, but this array has {ndim}.")
    if axes is None:
        return UNNAMED * (ndim - 2) + "YX"
    names = axes.strip().upper()
    if len(names) != ndim:
        raise AxesError(
            f"{axes!r} names {len(names)} axes, but the array has {ndim}, of lengths "
            f"{tuple(shape)}: give one letter an axis, such as 'TZYX'."
        )
    wrong = [a for a in names if not (a == UNNAMED or (a.isascii() and a.isalpha()))]
    if wrong:
        raise AxesError(f"{axes!r} holds {wrong[0]!r}: use letters, such as 'TZYX'.")
    for letter in names:
        if letter != UNNAMED and names.count(letter) > 1:
            raise AxesError(f"{axes!r} names {letter} twice: each axis needs its own letter.")
    for letter in "YX":
        if letter not in names:
            raise AxesError(f"{axes!r} has no {letter}: both Y and X are needed.")
    return names


def channel_axis(names: str) -> int | None:
    """Return which axis holds channels: the first one named C or S; None if there is none."""
    return next((i for i, a in enumerate(names) if a in CHANNEL_AXES), None)


@dataclass(frozen=True)
class Frames:
    """An array seen as sequences of frames (nz, ny, nx): axes in the order the kernels use.

    Attributes
    ----------
    view : ndarray
        The array with its axes in the order (independent …, channel, t, z, y, x); no copy. An axis
        that is not joined has length 1 there: its positions are then independent frames.
    joint : str
        Which of C, T and Z a filter joins to Y and X.
    origin : tuple of int
        Where the first pixel lies along the whole axes (t, z, y, x), when the array is a part.
    """

    view: np.ndarray
    joint: str
    origin: tuple[int, int, int, int] = (0, 0, 0, 0)

    @property
    def independent(self) -> tuple[int, ...]:
        """Lengths of the independent axes."""
        return self.view.shape[:-5]

    @property
    def joined(self) -> int:
        """Number of channels filtered together: those of a tile; 1 where none are."""
        return self.view.shape[-5]

    @property
    def shape(self) -> tuple[int, int, int, int, int]:
        """(sequences, nt, nz, ny, nx); independent frames stand side by side along nt."""
        _, nz, ny, nx = self.view.shape[-4:]
        count = math.prod(self.independent)
        if "T" in self.joint:
            return count, self.view.shape[-4], nz, ny, nx
        return 1, count, nz, ny, nx

    def frame(self, sequence: int, t: int, channel: int = 0) -> np.ndarray:
        """Return one frame, (nz, ny, nx), as a view; `channel` counts those that are joined."""
        t -= self.origin[0]
        number, inner = (sequence, t) if "T" in self.joint else (t, 0)
        where = np.unravel_index(number, self.independent) if self.independent else ()
        return self.view[(*where, channel, inner)]

    def region(self, z: slice, y: slice, x: slice) -> tuple[slice, ...]:
        """Return positions along the whole axes as an index into a frame."""
        return tuple(
            slice(part.start - first, part.stop - first)
            for part, first in zip((z, y, x), self.origin[1:], strict=True)
        )


def arrange(
    array: np.ndarray,
    axes: str,
    joint: str = "",
    origin: tuple[int, int, int, int] = (0, 0, 0, 0),
) -> Frames:
    """See an array as frames.

    Parameters
    ----------
    array : ndarray
        Any array.
    axes : str
        Its axes, as `check_axes` returns them.
    joint : str
        Which of C, T and Z a filter joins to Y and X; the others are independent. C stands for
        the channel axis, be it named C or S.
    origin : tuple of int, optional
        Where the first pixel lies along the whole axes (t, z, y, x), when the array is a part.

    Returns
    -------
    Frames
    """
    places = {"C": channel_axis(axes), "T": axes.find("T"), "Z": axes.find("Z")}
    inner = {a: i for a, i in places.items() if a in joint and i not in (None, -1)}
    fixed = [*inner.values(), axes.index("Y"), axes.index("X")]
    outer = [i for i in range(len(axes)) if i not in fixed]
    view = np.transpose(array, outer + fixed)
    missing = [len(outer) + i for i, a in enumerate(places) if a not in inner]
    return Frames(np.expand_dims(view, tuple(missing)), "".join(inner), origin)
