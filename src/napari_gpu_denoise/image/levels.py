"""Convert grey levels of any data type to float32 and back."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import ImageError, NonFiniteError, SettingsError
from napari_gpu_denoise.image.axes import arrange
from napari_gpu_denoise.image.threads import in_bands, quiet

# Values within these bounds can be squared and summed in float32; others are scaled first.
_LARGEST = 2.0**20
_SMALLEST_RANGE = 2.0**-20

#: The largest value, and the largest sigma, that kernels take: sums of their squares fit a float32.
LARGEST_VALUE = 2.0**40

# Values this many spreads from the middle are fill values: beside them, float32 loses the others.
_FAR = 2.0**18
_FEW, _GAP = 16, 256.0  # if there are at most so many, so many times as far as all others
_OFF = 512  # half ranges from 0 at which an offset is removed from float32 values
_SAMPLE = 1 << 14  # pixels that spread and middle are taken from, about


def nonfinite_error(problem: str) -> NonFiniteError:
    """Return an error that says how NaN and infinity can be kept."""
    return NonFiniteError(
        problem,
        "pass nonfinite='keep' to leave them as they are and filter the others",
        code="nonfinite",
    )


@dataclass(frozen=True)
class Levels:
    """Map from grey levels to the float32 values in kernels: value = (level - offset) / scale.

    8- and 16-bit integers and ordinary float32 data pass unchanged (offset 0, scale 1). float64,
    wide integers and extreme float32 ranges have an offset and a power-of-two scale removed, so
    that small differences on a large level keep their precision. Values out of the range `inner`
    are fill values: far from all others.
    """

    offset: int | float
    scale: float
    inner: tuple[float, float] = field(default=(-math.inf, math.inf), compare=False)

    @classmethod
    def of(cls, array: np.ndarray, keep_zero: bool = False) -> Levels:
        """Choose the mapping from an array of finite values; with `keep_zero` the offset is 0."""
        check_numbers(array)
        if is_plain(array.dtype):
            return cls(0, 1.0)
        low, high = value_range(array)
        if array.dtype.kind == "f" and not (np.isfinite(low) and np.isfinite(high)):
            count = array.size - int(np.count_nonzero(np.isfinite(array)))
            raise nonfinite_error(f"{count} of {array.size} pixels are NaN or infinite")
        inner = usual_range(array, (low, high))
        far = far_values(array, inner, (low, high))
        low, high = (low, high) if far is None else value_range(array[~far])
        return replace(cls.spanning(low, high, keep_zero), inner=inner)

    @classmethod
    def spanning(cls, low: np.generic, high: np.generic, keep_zero: bool = False) -> Levels:
        """Choose the mapping from the smallest and the largest value; `keep_zero` as in `of`."""
        dtype, first, last = low.dtype, float(low), float(high)
        offset: int | float = 0
        if keep_zero:
            half = max(abs(first), abs(last))
        elif dtype.kind in "iu":
            offset, half = int(low), (int(high) - int(low)) / 2
        else:
            half = last / 2 - first / 2  # the whole range may overflow
            wide = dtype.itemsize > 4 or max(abs(first), abs(last)) > _OFF * half
            offset = first + half if wide or half == 0 else 0.0
        scale = 1.0
        if half > _LARGEST / 2 or 0 < half < _SMALLEST_RANGE / 2:
            scale = math.ldexp(1.0, min(max(math.frexp(half)[1] + 1, -1000), 1000))
        return cls(offset, scale)

    @cached_property
    def plain(self) -> bool:
        """Whether values pass unchanged."""
        return self.offset == 0 and self.scale == 1.0

    def takes(self, ends: np.ndarray) -> bool:
        """Return whether values between both are finite, and neither too large nor small mapped.

        Levels that were chosen from the same values take them, but for fill values.
        """
        low, high = map(float, ends)
        if self.inner[0] > -math.inf:
            return self.inner[0] <= low and high <= self.inner[1]
        half, reach = high / 2 - low / 2, max(abs(low - self.offset), abs(high - self.offset))
        near = half == 0 or (reach <= _FAR * half and half >= _SMALLEST_RANGE / 2 * self.scale)
        return near and reach <= LARGEST_VALUE * self.scale

    @quiet()
    def load(self, levels: np.ndarray, out: np.ndarray) -> None:
        """Convert grey levels to kernel values in `out`, a float32 array of the same shape."""
        if self.plain:
            np.copyto(out, levels, casting="unsafe")
            return
        if levels.dtype.kind in "iu" and levels.dtype.itemsize == 8:
            # Modulo 2**64 each difference is right, though no type holds all of both signs.
            above = levels.astype(np.uint64) - np.uint64(self.offset % 2**64)
            below = (np.uint64(0) - above).astype(np.float64)
            shifted = np.where(levels < self.offset, -below, above)
        else:
            shifted = levels.astype(np.float64) - self.offset
        np.multiply(shifted, 1.0 / self.scale, out=out, casting="unsafe")

    @quiet()
    def store(self, values: np.ndarray, out: np.ndarray, *, spare: bool = False) -> int:
        """Convert kernel values to grey levels in `out`; return how many values were clipped.

        Integers are rounded to nearest and saturated. With `spare`, `values` may be overwritten.
        """
        if out.dtype.kind == "f":
            levels = values if self.plain else values.astype(np.float64) * self.scale
            levels = levels if self.plain else levels + self.offset
            np.copyto(out, levels, casting="same_kind")
            largest = LARGEST_VALUE * self.scale + abs(self.offset)
            return _clip_overflow(values, out) if largest > float(np.finfo(out.dtype).max) else 0
        limits = np.iinfo(out.dtype)
        if self.plain and out.dtype.itemsize <= 2:
            # In float32, which is exact for these, and without checking each value if all fit.
            levels = np.rint(values, out=values if spare else None)
            if limits.min <= levels.min() and levels.max() <= limits.max:
                np.copyto(out, levels, casting="unsafe")
                return 0
        if out.dtype.itemsize <= 4 and abs(self.offset) < 2**32:
            levels = np.rint(values.astype(np.float64) * self.scale + self.offset)
            clipped = int(np.count_nonzero((levels < limits.min) | (levels > limits.max)))
            np.copyto(out, np.clip(levels, limits.min, limits.max), casting="unsafe")
            return clipped
        # 64 bits: the offset is added as an integer, which is exact.
        offset = round(self.offset)
        steps = np.rint(values.astype(np.float64) * self.scale + (self.offset - offset))
        low, high = float(limits.min - offset), float(limits.max - offset)
        below, above = steps < low, steps >= high
        inner = np.where(below | above, 0.0, steps)
        # Modulo 2**64 the sum is right for signed and unsigned types.
        size = np.abs(inner).astype(np.uint64)
        whole = np.where(inner < 0, np.uint64(0) - size, size) + np.uint64(offset % 2**64)
        np.copyto(out, whole.astype(out.dtype), casting="unsafe")
        out[below] = limits.min
        out[above] = limits.max
        return int(np.count_nonzero(below | (steps > high)))


def convert(array: np.ndarray, out: np.ndarray) -> int:
    """Copy unfiltered pixels to `out` in its type; return how many values were clipped."""
    if array.dtype.newbyteorder("=") == out.dtype or out.dtype.kind == "f":
        with np.errstate(over="ignore"):
            np.copyto(out, array, casting="unsafe")
        # float32 holds all integers.
        fits = out.dtype.itemsize >= (array.dtype.itemsize if array.dtype.kind == "f" else 4)
        return 0 if fits or out.dtype.kind != "f" else _clip_overflow(array, out)
    limits = np.iinfo(out.dtype)
    whole = np.rint(array.astype(np.float64)) if array.dtype.kind == "f" else array
    # The float next to the largest 64-bit integer is already out of range.
    past = whole.dtype.kind == "f" and float(limits.max) > limits.max
    below, above = whole < limits.min, whole >= limits.max if past else whole > limits.max
    np.copyto(out, whole, casting="unsafe", where=~(below | above))
    out[below] = limits.min
    out[above] = limits.max
    return int(np.count_nonzero(below | above))


def _clip_overflow(values: np.ndarray, out: np.ndarray) -> int:
    """Replace infinity in `out`, of a float type, where `values` are finite; return how often."""
    past = np.isinf(out) & np.isfinite(values)
    out[past] = np.copysign(np.finfo(out.dtype).max, out[past])
    return int(np.count_nonzero(past))


def is_plain(dtype: np.dtype) -> bool:
    """Return whether all values of a type pass to the kernels unchanged."""
    return dtype.itemsize <= 2 and dtype.kind in "iu"


def value_range(array: np.ndarray) -> tuple[np.generic, np.generic]:
    """Return the smallest and the largest value; NaN where the array holds one."""
    ends = in_bands(lambda band: (band.min(), band.max()), array)
    return np.min([low for low, _ in ends]), np.max([high for _, high in ends])


def usual_range(array: np.ndarray, ends: Sequence[np.generic] | np.ndarray) -> tuple[float, float]:
    """Return the range beyond which values are fill values: few ones, beyond a gap.

    The spread is that of the different values of a sample. Values farther than `_FAR` spreads are
    image too, if they are many or others lie between: as a specimen on a black background. `ends`
    are the smallest and the largest value.
    """
    step = max(1, round((array.size / _SAMPLE) ** (1 / array.ndim))) | 1
    values = np.unique(array[(slice(None, None, step),) * array.ndim]).astype(np.float64)
    values = values[np.isfinite(values)]
    if len(values) < 2:
        return -math.inf, math.inf
    low, middle, high = (float(values[len(values) * k // 4]) for k in (1, 2, 3))
    held = 2.0**24 if array.dtype.kind in "iu" else 0.0  # float32 holds these integers
    reach = max(_FAR * (high - low), held)
    least, most = map(float, ends)
    if not (middle - reach <= least and most <= middle + reach):
        away = np.abs(array[np.isfinite(array)].astype(np.float64) - middle)
        far = np.unique(away[away > reach])
        lengths = np.append(away[away <= reach].max(), far)
        few = max(len(far) - _FEW, 0)
        gaps = few + np.flatnonzero(far[few:] > _GAP * lengths[few:-1])
        reach = max(reach, _GAP * float(lengths[gaps[0] if gaps.size else -1]))
    return middle - reach, middle + reach


@quiet()
def far_values(
    array: np.ndarray,
    inner: tuple[float, float] | None = None,
    ends: Sequence[np.generic] | np.ndarray | None = None,
) -> np.ndarray | None:
    """Return where there are fill values; None if nowhere.

    `inner` is the range of all others in the image, if that is known, and `ends` are the smallest
    and the largest value.
    """
    if is_plain(array.dtype):
        return None
    ends = value_range(array) if ends is None else ends
    low, high = map(float, ends)
    if inner is not None and inner[0] <= low and high <= inner[1]:
        return None
    own = usual_range(array, ends)
    inner = own if inner is None else (min(inner[0], own[0]), max(inner[1], own[1]))
    if inner[0] <= low and high <= inner[1]:
        return None
    far = ((array < inner[0]) | (array > inner[1])) & np.isfinite(array)
    return far if far.any() else None


def levels_of_windows(windows: Iterable[Any], keep_zero: bool = False) -> Levels | None:
    """Choose the mapping for all parts of an image; None if each part has to choose its own.

    The first window with different values decides.
    """
    for window in windows:
        known = np.ravel(as_array(window))
        finite = np.isfinite(known)
        known = known if finite.all() else known[finite]
        levels = Levels.of(known, keep_zero) if known.size else Levels(0, 1.0)
        if levels.inner[0] > -math.inf:
            return levels
    return None


def as_array(image: Any) -> np.ndarray:
    """Return an image as a NumPy array, but for rows of different lengths and masked pixels."""
    if isinstance(image, str | os.PathLike):
        name = f"{os.fspath(image)!r}"
        raise ImageError(f"{name} is the name of a file", f"read it, as gd.read({name}).data")
    if type(image).__module__.startswith("napari.layers"):
        raise ImageError(f"{image} is a layer of napari", "give its pixels, layer.data")
    if not hasattr(image, "__array__") and hasattr(image, "data"):  # such as what gd.read returns
        raise ImageError(f"{type(image).__name__} is not an array", "give its pixels, .data")
    # NumPy drops the mask of a dask array.
    computed = image.compute() if hasattr(image, "dask") else image
    try:
        array: np.ndarray = np.asanyarray(computed)
    except (ValueError, TypeError, RuntimeError) as error:  # the latter two of other libraries
        raise ImageError(f"The image is not an array ({error}): give a NumPy array.") from error
    # numpy.ma is slow to import, and there is no masked array without it.
    if type(array) is np.ndarray:
        return array
    masked = np.count_nonzero(array.mask) if isinstance(array, np.ma.MaskedArray) else 0
    if masked:
        raise ImageError(
            f"{masked} pixels of the array are masked, and a result has no mask: pass "
            "array.filled(numpy.nan), of a float type, with nonfinite='keep', or array.data to "
            "filter all pixels."
        )
    return np.asarray(array)


def is_lazy(image: Any) -> bool:
    """Return whether an array is not in memory, but can be read part by part by NumPy indexing."""
    known = isinstance(getattr(image, "dtype", None), np.dtype)  # as that of torch is not
    indexed = known and hasattr(image, "shape") and hasattr(image, "__getitem__")
    return indexed and not isinstance(image, (np.ndarray, np.generic))


def readable(image: Any) -> Any:
    """Return an image that was checked to hold real numbers; what is not lazy as an array."""
    image = image if is_lazy(image) else as_array(image)
    check_numbers(image)
    return image


def as_numbers(given: Any) -> np.ndarray:
    """Return a setting as float64; TypeError for truth values, text and what is masked."""
    if type(given) is float:  # as nearly always
        return np.array(given)
    array = given if hasattr(given, "dtype") else np.array(given, object)
    each: Any = (given, *np.ravel(array)) if array.dtype == object else (array,)
    kinds = {np.dtype(getattr(one, "dtype", one.__class__)).kind for one in each}
    masked = type(array) is not np.ndarray and np.ma.is_masked(array)  # numpy.ma is slow to import
    if masked or not kinds <= set("iufO") or any(isinstance(one, bytearray) for one in each):
        raise TypeError(f"{given!r} is not a number")
    return np.array(array, np.float64)


def as_number(given: Any) -> float:
    """Return one number, NaN for all else."""
    try:
        number = as_numbers(given)
    except (TypeError, ValueError, OverflowError):
        return math.nan
    return float(number) if number.ndim == 0 else math.nan


def check_numbers(array: Any) -> None:
    """Refuse arrays that are empty or do not hold real numbers."""
    if 0 in array.shape:
        raise ImageError(f"The array of shape {array.shape} has no pixels: give a non-empty array.")
    if array.dtype.kind not in "iuf" or array.dtype.itemsize > 8:
        raise ImageError(
            f"Arrays of type {array.dtype} are not supported: convert to an integer type of up to "
            "64 bits, float32 or float64 first."
        )


def output_dtype(dtype: Any, given: np.dtype) -> np.dtype | None:
    """Return the type of a result; None for ``"auto"``, if it depends on the noise.

    That is so for integers, as rounding may cost more than it should. ``"same"`` is the type of the
    input, `given`.
    """
    wanted = parse_dtype(dtype)
    if isinstance(wanted, np.dtype):
        return wanted
    # In memory, always native byte order.
    return None if wanted is None and given.kind in "iu" else given.newbyteorder("=")


def parse_dtype(dtype: Any) -> np.dtype | str | None:
    """Return the type of a result, of real numbers; ``"same"``, or None for ``"auto"``."""
    if dtype is None or (isinstance(dtype, str) and dtype in ("auto", "same")):
        return None if dtype == "auto" else dtype
    try:
        wanted = np.dtype(dtype)
    except TypeError:
        wanted = np.dtype(object)  # which holds none either
    if wanted.kind in "iuf" and wanted.itemsize <= 8:
        return wanted
    problem = f"dtype={dtype!r} is no data type that can hold grey levels"
    raise SettingsError(problem, "use 'auto', 'same' or 'float32'")


def put_together(filtered: np.ndarray, where: Any, given: np.ndarray, rest: Any) -> np.ndarray:
    """Return ``given`` with ``given[where]`` filtered and ``given[rest]``, such as alpha, as it is.

    The result has the type of `filtered`.
    """
    whole = np.empty(given.shape, filtered.dtype)
    whole[where] = filtered
    convert(given[rest], whole[rest])
    return whole


# NaN and infinity: refused, or replaced by the nearest finite pixel.
def check_policy(nonfinite: str) -> None:
    """Refuse an unknown choice of what to do with NaN and infinity."""
    if not isinstance(nonfinite, str) or nonfinite not in ("raise", "keep"):  # pyright: ignore[reportUnnecessaryIsInstance] untyped callers
        raise SettingsError(f"nonfinite={nonfinite!r} is unknown: choose 'raise' or 'keep'.")


def fill_nonfinite(
    array: np.ndarray,
    names: str,
    nonfinite: str,
    inner: tuple[float, float] | None = None,
    ends: Sequence[np.generic] | np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the array with fill values replaced by the nearest other pixel, and a mask.

    So are NaN and infinity, unless they are to be refused. `inner` and `ends` are as in
    `far_values`. The mask is None if nothing was replaced. A plane without any other pixel becomes
    0.
    """
    check_policy(nonfinite)
    mask = far_values(array, inner, ends)
    all_finite = ends is not None and np.isfinite(ends).all()
    if nonfinite == "keep" and array.dtype.kind == "f" and not all_finite:
        bad = ~np.isfinite(array)
        mask = bad if mask is None else mask | bad
    if mask is None or not mask.any():
        return array, None
    from scipy.ndimage import distance_transform_edt

    filled = array.copy()
    planes, holes = arrange(filled, names), arrange(mask, names)
    for t in range(planes.shape[1]):
        plane, hole = planes.frame(0, t)[0], holes.frame(0, t)[0]
        if hole.all():
            plane[...] = 0
        elif hole.any():
            nearest = distance_transform_edt(hole, return_distances=False, return_indices=True)
            plane[hole] = plane[tuple(nearest)][hole]
    return filled, mask
