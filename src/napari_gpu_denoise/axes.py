"""Named axes, and any array of numbers to float32 frames and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from napari_gpu_denoise.bands import in_bands
from napari_gpu_denoise.errors import AxesError, ImageError, NonFiniteError

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
            f"axes={axes!r} names {len(names)} axes, but the array has {ndim}, of lengths "
            f"{tuple(shape)}: give one letter an axis, such as 'TZYX'."
        )
    wrong = [a for a in names if not (a == UNNAMED or (a.isascii() and a.isalpha()))]
    if wrong:
        raise AxesError(f"axes={axes!r} holds {wrong[0]!r}: use letters, such as 'TZYX'.")
    for letter in names:
        if letter != UNNAMED and names.count(letter) > 1:
            raise AxesError(f"axes={axes!r} names {letter} twice: each axis needs its own letter.")
    for letter in "YX":
        if letter not in names:
            raise AxesError(f"axes={axes!r} has no {letter}: both Y and X are needed.")
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


# Values within these bounds square and add up in float32 without loss; others are scaled first.
_LARGEST = 2.0**20
_SMALLEST_RANGE = 2.0**-20


@dataclass(frozen=True)
class Levels:
    """How grey levels map to the float32 values the kernels see: value = (level - offset) / scale.

    8- and 16-bit integers and ordinary float32 data pass unchanged (offset 0, scale 1). float64,
    wide integers and extreme float32 ranges have their offset and a power-of-two scale removed, so
    that small differences on a large level keep their precision.
    """

    offset: int | float
    scale: float

    @classmethod
    def of(cls, array: np.ndarray, from_zero: bool = False) -> Levels:
        """Choose the mapping from the values of an array; with `from_zero` the offset is 0.

        Raises
        ------
        ImageError
            If the array is empty or not of real numbers.
        NonFiniteError
            If it holds NaN or infinity.
        """
        check_numbers(array)
        if is_plain(array.dtype):
            return cls(0, 1.0)
        low, high = value_range(array)
        if array.dtype.kind == "f" and not (np.isfinite(low) and np.isfinite(high)):
            count = array.size - int(np.count_nonzero(np.isfinite(array)))
            raise NonFiniteError(
                f"{count} of {array.size} pixels are NaN or infinite: pass nonfinite='keep' "
                "(--nonfinite keep) to leave them as they are and filter the others."
            )
        return cls.spanning(low, high, from_zero)

    @classmethod
    def spanning(cls, low: np.generic, high: np.generic, from_zero: bool = False) -> Levels:
        """Choose the mapping from the smallest and the largest value, of the type of all.

        With `from_zero` the offset is 0, for filters to which a ratio of grey levels tells
        something.
        """
        dtype = low.dtype
        if from_zero:
            offset, half = 0, max(abs(float(low)), abs(float(high)))
        elif dtype.kind in "iu":
            offset: int | float = int(low)
            half = (int(high) - int(low)) / 2
        else:
            low, high = float(low), float(high)
            half = high / 2 - low / 2  # the whole range may overflow
            wide = dtype.itemsize > 4 or max(abs(low), abs(high)) > 64 * half > 0
            offset = low + half if wide and half > 0 else 0.0
            if half == 0:
                offset = low
        scale = 1.0
        if half > _LARGEST / 2 or 0 < half < _SMALLEST_RANGE / 2:
            scale = math.ldexp(1.0, min(max(math.frexp(half)[1] + 1, -1000), 1000))
        return cls(offset, scale)

    @property
    def plain(self) -> bool:
        """Whether values pass unchanged."""
        return self.offset == 0 and self.scale == 1.0

    def load(self, levels: np.ndarray, out: np.ndarray) -> None:
        """Write grey levels into a float32 array of the same shape as kernel values."""
        if self.plain:
            np.copyto(out, levels, casting="unsafe")
        elif levels.dtype.kind in "iu" and self.offset != 0:
            # Modulo 2**64 the difference is right even where a signed one would overflow.
            shifted = levels.astype(np.uint64) - np.uint64(self.offset % 2**64)
            np.multiply(shifted, 1.0 / self.scale, out=out, casting="unsafe")
        else:
            shifted = levels.astype(np.float64) - self.offset
            np.multiply(shifted, 1.0 / self.scale, out=out, casting="unsafe")

    def store(self, values: np.ndarray, out: np.ndarray, *, spare: bool = False) -> int:
        """Write kernel values into `out` as grey levels; return how many were clipped to its range.

        Integer results are rounded to nearest and saturated. `spare` values may be overwritten.
        """
        if out.dtype.kind == "f":
            if self.plain:
                np.copyto(out, values, casting="same_kind")
            else:
                np.copyto(
                    out, values.astype(np.float64) * self.scale + self.offset, casting="same_kind"
                )
            return 0
        limits = np.iinfo(out.dtype)
        if self.plain and out.dtype.itemsize <= 2:
            # In float32, where these are exact, and without a look at each value if all fit.
            levels = np.rint(values, out=values if spare else None)
            if limits.min <= levels.min() and levels.max() <= limits.max:
                np.copyto(out, levels, casting="unsafe")
                return 0
        if out.dtype.itemsize <= 4 and abs(self.offset) < 2**32:
            levels = np.rint(values.astype(np.float64) * self.scale + self.offset)
            clipped = int(np.count_nonzero((levels < limits.min) | (levels > limits.max)))
            np.copyto(out, np.clip(levels, limits.min, limits.max), casting="unsafe")
            return clipped
        # 64 bit: the offset is added in integers, where it is exact.
        offset = round(self.offset)
        steps = np.rint(values.astype(np.float64) * self.scale + (self.offset - offset))
        low, high = float(limits.min - offset), float(limits.max - offset)
        below, above = steps < low, steps >= high
        inner = np.where(below | above, 0.0, steps)
        # Modulo 2**64 the sum is right, be it of a signed or of an unsigned type.
        size = np.abs(inner).astype(np.uint64)
        whole = np.where(inner < 0, np.uint64(0) - size, size) + np.uint64(offset % 2**64)
        np.copyto(out, whole.astype(out.dtype), casting="unsafe")
        out[below] = limits.min
        out[above] = limits.max
        return int(np.count_nonzero(below | (steps > high)))


def convert(array: np.ndarray, out: np.ndarray) -> int:
    """Copy unfiltered pixels to the output type; return how many were clipped."""
    if array.dtype.newbyteorder("=") == out.dtype or out.dtype.kind == "f":
        np.copyto(out, array, casting="unsafe")
        return 0
    limits = np.iinfo(out.dtype)
    whole = np.rint(array.astype(np.float64)) if array.dtype.kind == "f" else array
    # The next float above the largest 64-bit integers is the first one out of range.
    past = whole.dtype.kind == "f" and float(limits.max) > limits.max
    below, above = whole < limits.min, whole >= limits.max if past else whole > limits.max
    np.copyto(out, whole, casting="unsafe", where=~(below | above))
    out[below] = limits.min
    out[above] = limits.max
    return int(np.count_nonzero(below | above))


def is_plain(dtype: np.dtype) -> bool:
    """Return whether all values of a type are passed to the kernels unchanged."""
    return dtype.itemsize <= 2 and dtype.kind in "iu"


def value_range(array: np.ndarray) -> tuple[np.generic, np.generic]:
    """Return the smallest and the largest value; NaN where the array holds one."""
    ends = in_bands(lambda band: (band.min(), band.max()), array)
    return np.min([low for low, _ in ends]), np.max([high for _, high in ends])


def check_numbers(array: np.ndarray) -> None:
    """Refuse arrays that are empty or not of real numbers.

    Raises
    ------
    ImageError
    """
    if array.size == 0:
        raise ImageError(f"The array of shape {array.shape} has no pixels: give one that has.")
    if array.dtype.kind not in "iuf" or array.dtype.itemsize > 8:
        raise ImageError(
            f"Arrays of type {array.dtype} are not filtered: convert to an integer type of up to "
            "64 bits, float32 or float64 first."
        )


def output_dtype(dtype, default: np.dtype) -> np.dtype:
    """Return the type of a result.

    Parameters
    ----------
    dtype : data type, str or None
        What the caller asked for; None or ``"same"`` means the type of the input.
    default : dtype
        Type of the input.

    Raises
    ------
    ImageError
        If it is not a type of real numbers.
    """
    if dtype is None or (isinstance(dtype, str) and dtype == "same"):
        # Native byte order: files store their own, memory needs none but the machine's.
        return default.newbyteorder("=")
    try:
        wanted = np.dtype(dtype)
    except TypeError as error:
        raise ImageError(f"dtype={dtype!r} is not a data type: use 'same' or 'float32'.") from error
    if wanted.kind not in "iuf" or wanted.itemsize > 8:
        raise ImageError(f"dtype={dtype!r} cannot hold grey levels: use 'same' or 'float32'.")
    return wanted
