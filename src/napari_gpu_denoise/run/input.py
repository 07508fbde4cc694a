"""The image of a run: checked, made finite, and without structured noise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from napari_gpu_denoise.image import levels
from napari_gpu_denoise.image.axes import arrange, check_axes
from napari_gpu_denoise.run.record import Record
from napari_gpu_denoise.run.request import Run

if TYPE_CHECKING:
    from napari_gpu_denoise.noise.structure.remove import Correction


_WINDOW = 512  # pixels along Y and X that the levels of an image are chosen from


@dataclass(frozen=True)
class Block:
    """A part of an image in memory, as it is and with only `finite` pixels.

    Fill values, NaN and infinity are replaced by the nearest other pixel of the plane where
    `nonfinite_mask` is True. `ends` are the smallest and the largest pixel that are left, at most.
    """

    given: np.ndarray
    finite: np.ndarray
    nonfinite_mask: np.ndarray | None
    ends: np.ndarray | None = None

    @classmethod
    def of(cls, array: np.ndarray, names: str, nonfinite: str, known: Any = None) -> Block:
        """Return a block of an image whose levels are `known`; with "raise", NaN is left in it."""
        ends = None if levels.is_plain(array.dtype) else np.array(levels.value_range(array))
        inner = None if known is None else known.inner
        block = cls(array, *levels.fill_nonfinite(array, names, nonfinite, inner, ends))
        return replace(block, ends=block.range if block.finite is not array else ends)

    @property
    def range(self) -> np.ndarray:
        """`ends`, read from the pixels if they are not known."""
        return np.array(levels.value_range(self.finite)) if self.ends is None else self.ends

    @property
    def nonfinite(self) -> int:
        """Number of pixels that are NaN or infinite."""
        mask = self.nonfinite_mask
        return 0 if mask is None else int(np.count_nonzero(mask)) - self.fill

    @property
    def fill(self) -> int:
        """Number of fill values."""
        mask = self.nonfinite_mask
        return 0 if mask is None else int(np.count_nonzero(np.isfinite(self.given[mask])))

    def __getitem__(self, region: tuple[slice, ...]) -> Block:
        mask = None if self.nonfinite_mask is None else self.nonfinite_mask[region]
        return Block(self.given[region], self.finite[region], mask, self.ends)

    def restore(self, out: np.ndarray) -> None:
        """Copy fill values, NaN and infinity to a result of this block."""
        if self.nonfinite_mask is not None:
            _copy(self.given, out, self.nonfinite_mask)


def _copy(image: np.ndarray, out: np.ndarray, where: np.ndarray) -> None:
    values = np.empty(int(np.count_nonzero(where)), out.dtype)
    levels.convert(image[where], values)
    out[where] = values


def extend(array: np.ndarray, names: str, lengths: Iterable[int], smallest: int) -> np.ndarray:
    """Extend Y and X by mirroring their end if they are too short for the filter."""
    missing = [
        (0, max(smallest - n, 0) if a in "YX" else 0) for a, n in zip(names, lengths, strict=True)
    ]
    if not any(after for _, after in missing):
        return array
    return np.pad(array, missing, mode="symmetric")


def extend_sigma(
    sigma: np.ndarray, names: str, lengths: Iterable[int], smallest: int
) -> np.ndarray:
    """Extend a map of sigma as `extend` does the pixels; axes of length 1 stay as they are."""
    extended = [n if m > 1 else smallest for n, m in zip(lengths, sigma.shape, strict=True)]
    return extend(sigma, names, extended, smallest)


def keep_noiseless(image: np.ndarray, out: np.ndarray, names: str, sigma: np.ndarray) -> None:
    """Copy the pixels whose sigma, as ``Sigma.array``, is 0 to the output: they have no noise."""
    if not sigma.all():
        _copy(image, out, np.broadcast_to(sigma == 0, image.shape))


def keep_blank(
    image: np.ndarray, out: np.ndarray, inner: tuple[slice, ...], names: str, width: int
) -> None:
    """Copy pixels in constant squares of a width, if above 0, to the output: they are not image.

    `out` is for the region `inner` of the image. Squares are found as in the whole image if at
    least `width` - 1 pixels around that region are given, where there are as many.
    """
    if not width:
        return
    from napari_gpu_denoise.noise.patches.selection import constant_squares

    results = arrange(out, names)
    y, x = (inner[names.index(axis)] for axis in "YX")
    both = zip(names, inner, strict=True)
    others = tuple(slice(None) if axis in "YX" else one for axis, one in both)
    planes = arrange(image[others], names)
    for t in range(planes.shape[1]):
        plane, result = planes.frame(0, t)[0], results.frame(0, t)[0]
        squares = constant_squares(plane, width)
        if squares is not None:
            _copy(plane[y, x], result, squares[y, x])


@dataclass(frozen=True)
class Input:
    """An image that was checked, with named axes; what a run removes first has been measured."""

    given: Any  # by the user: in memory, or with ``shape``, ``dtype`` and NumPy indexing
    names: str  # of the axes
    correction: Correction | None = None  # structured noise to remove, if the run asks for that

    @classmethod
    def of(cls, image: Any, run: Run, known: Correction | None = None) -> Input:
        """Check the image of a run and look for structured noise, unless that is `known`."""
        if isinstance(image, Input):
            return image
        given = levels.readable(image)
        names = check_axes(run.axes, given.shape)
        request: Any = run.correct  # which is parsed
        if request is not None and known is None:
            # Here, as SciPy takes long to load.
            from napari_gpu_denoise.noise.structure.remove import prepare_correction

            known = prepare_correction(given, names, request)
        return cls(given, names, None if request is None else known)

    @property
    def lazy(self) -> bool:
        """Whether the pixels are read part by part."""
        return levels.is_lazy(self.given)

    @cached_property
    def array(self) -> Any:
        """The pixels to filter; if something is removed, it is removed as they are read."""
        return self.corrected(self.given)

    def corrected(self, image: Any) -> Any:
        """Return an image like this one without what is removed from this one."""
        return self.correction.of(image) if self.correction else image

    def corrected_frame(self, frame: Any) -> np.ndarray:
        """Return a frame of the stream that began with this image without structured noise.

        One of another shape or type stays as it is: the stream refuses it.
        """
        array = levels.as_array(frame)
        fits = (array.shape, array.dtype) == (self.given.shape, self.given.dtype)
        return self.correction.applied(array) if fits and self.correction else array

    def block(self, nonfinite: str, region: Any = ...) -> Block:
        """Read the pixels to filter, or a region of them, into memory."""
        known = self.window_levels
        return Block.of(levels.as_array(self.array[region]), self.names, nonfinite, known)

    @cached_property
    def window_levels(self) -> levels.Levels | None:
        """Levels for all parts; None if each part has to choose its own."""
        return levels.levels_of_windows(self.windows())

    def windows(self) -> Iterator[Any]:
        """Yield pixels that levels are chosen from; none if all values pass unchanged.

        Those of the first frame, as a stream has them, then of one in the middle.
        """
        if levels.is_plain(self.array.dtype):
            return
        shape = self.array.shape
        frames = shape[self.names.index("T")] if "T" in self.names else 1
        for frame in dict.fromkeys((0, frames // 2)):
            place = {"C": slice(None), "S": slice(None), "T": frame}
            middles = (slice(max(n - _WINDOW, 0) // 2, (n + _WINDOW) // 2) for n in shape)
            both = zip(self.names, shape, middles, strict=True)
            where = (middle if a in "YX" else place.get(a, n // 2) for a, n, middle in both)
            yield self.array[tuple(where)]

    def adapted(self, run: Run) -> Run:
        """Return a run for `array`: with named axes, and nothing left to remove."""
        if run.correct is None:
            return run.but(axes=self.names)
        # The type of the result follows from that of the pixels as they were given.
        dtype = levels.output_dtype(run.dtype, np.dtype(self.given.dtype))
        return replace(run, axes=self.names, dtype=dtype, correct=None)

    def noted(self, record: Record) -> Record:
        """Return the record of a run on `array` with what was removed."""
        if self.correction is None:
            return record
        words = self.correction.words() or ("nothing was found",)
        return replace(record, input_dtype=str(self.given.dtype), corrected=words)
