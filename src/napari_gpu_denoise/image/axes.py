"""Named axes, and any array of numbers to float32 frames and back."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import AxesError

Origin = tuple[int, int, int, int]
"""Where a part of an image begins along t, z, y and x."""

UNNAMED = "."
CHANNEL_AXES = "CS"

# An image of fewer rows is not taken for a colour image whose axes were forgotten.
_NARROWEST = 16


def _example(ndim: int) -> str:
    """Guess the names of a number of axes."""
    return {2: "YX", 3: "TYX", 5: "TCZYX"}.get(ndim, "TZYX")


def check_axes(axes: str | None, shape: Sequence[int]) -> str:
    """Check axis names against a shape; return them in upper case, one letter per axis.

    T (time), Z (slice), Y, X, C (channel), S (colour sample); any other letter, or ``.``, is an
    independent axis. Y and X are required. None: the last two axes are Y and X, the rest are
    independent planes; an axis is never guessed to be colour or time, and what looks like colour
    samples along the last axis is an error.
    """
    ndim = len(shape)
    if ndim < 2:
        raise AxesError(f"An image needs at least two axes, Y and X, but this array has {ndim}.")
    if axes is None:
        if ndim > 2 and shape[-1] in (3, 4) and shape[-2] >= _NARROWEST:
            colour, planes = (UNNAMED * (ndim - n) + a for n, a in ((3, "YXS"), (2, "YX")))
            raise AxesError(
                f"The last axis of this array of shape {tuple(shape)} may be colour",
                f"pass axes={colour!r} for colour, or axes={planes!r} for planes of "
                f"{shape[-2]} x {shape[-1]} pixels",
            )
        return UNNAMED * (ndim - 2) + "YX"
    if not isinstance(axes, str):  # pyright: ignore[reportUnnecessaryIsInstance] untyped callers
        raise AxesError(
            f"axes={axes!r} is not text: give one string with a letter per axis, such as "
            f"{_example(ndim)!r}."
        )
    names = axes.strip().upper()
    if len(names) != ndim:
        raise AxesError(
            f"{axes!r} names {len(names)} axes, but the array has {ndim}, of lengths "
            f"{tuple(shape)}: give one letter per axis, such as {_example(ndim)!r}."
        )
    wrong = [a for a in names if not (a == UNNAMED or (a.isascii() and a.isalpha()))]
    if wrong:
        raise AxesError(f"{axes!r} holds {wrong[0]!r}: use letters, such as {_example(ndim)!r}.")
    twice = [a for a in names if a != UNNAMED and names.count(a) > 1]
    if twice:
        raise AxesError(f"{axes!r} names {twice[0]} twice: each axis needs its own letter.")
    missing = [a for a in "YX" if a not in names]
    if missing:
        raise AxesError(f"{axes!r} has no {missing[0]}: both Y and X are needed.")
    return names


def index_parts(index: Any, shape: tuple[int, ...]) -> list[int | slice]:
    """Return one number, not below 0, or slice for each axis."""
    parts: list[Any] = [*index] if isinstance(index, tuple) else [index]
    gaps = [i for i, part in enumerate(parts) if part is Ellipsis]
    missing = len(shape) - len(parts) + len(gaps)
    if missing < 0 or len(gaps) > 1:
        raise IndexError(f"The index {index} does not fit {len(shape)} axes.")
    gap = gaps[0] if gaps else len(parts)
    parts[gap : gap + len(gaps)] = [slice(None)] * missing
    for axis, (part, length) in enumerate(zip(parts, shape, strict=True)):
        if isinstance(part, slice):
            continue
        try:
            number = operator.index(part)
        except TypeError:
            number = None
        if number is None or isinstance(part, bool):
            raise IndexError(f"Indices must be integers or slices, got {part!r}.")
        if not -length <= number < length:
            raise IndexError(f"Index {number} is outside of axis {axis} of length {length}.")
        parts[axis] = number % length
    return parts


def chosen_range(part: int | slice, length: int) -> range:
    """Return the range of an axis that a part of an index selects."""
    return range(length)[part] if isinstance(part, slice) else range(part, part + 1)


def channel_axis(names: str) -> int | None:
    """Return the index of the channel axis, the first one named C or S; None if there is none."""
    return next((i for i, a in enumerate(names) if a in CHANNEL_AXES), None)


@dataclass(frozen=True)
class Frames:
    """An array viewed as sequences of frames (nz, ny, nx), with axes in the order of the kernels.

    The axes of `view` are (independent …, channel, t, z, y, x). `joint` tells which of C, T and Z
    the filter joins to Y and X; the others have length 1 there, and their positions are independent
    frames. `origin` is where a part begins along the whole axes (t, z, y, x).
    """

    view: np.ndarray
    joint: str
    origin: Origin = (0, 0, 0, 0)

    @cached_property
    def independent(self) -> tuple[int, ...]:
        """Lengths of the independent axes."""
        return self.view.shape[:-5]

    @cached_property
    def joined(self) -> int:
        """Number of channels filtered together; 1 if none are."""
        return self.view.shape[-5]

    @cached_property
    def shape(self) -> tuple[int, int, int, int, int]:
        """(sequences, nt, nz, ny, nx); without time, independent frames count along nt."""
        _, nz, ny, nx = self.view.shape[-4:]
        count = math.prod(self.independent)
        if "T" in self.joint:
            return count, self.view.shape[-4], nz, ny, nx
        return 1, count, nz, ny, nx

    def frame(self, sequence: int, t: int, channel: int = 0) -> np.ndarray:
        """Return a view of one frame, (nz, ny, nx); `channel` counts the joined channels."""
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


def arrange(array: np.ndarray, axes: str, joint: str = "", origin: Origin = (0, 0, 0, 0)) -> Frames:
    """View an array as frames; in `joint`, C is the channel axis, whether it is named C or S."""
    places = {"C": channel_axis(axes), "T": axes.find("T"), "Z": axes.find("Z")}
    inner = {a: i for a, i in places.items() if a in joint and i not in (None, -1)}
    fixed = [*inner.values(), axes.index("Y"), axes.index("X")]
    outer = [i for i in range(len(axes)) if i not in fixed]
    view = np.transpose(array, outer + fixed)
    missing = [len(outer) + i for i, a in enumerate(places) if a not in inner]
    return Frames(np.expand_dims(view, tuple(missing)), "".join(inner), origin)
