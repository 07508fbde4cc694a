"""The image of a run, as every way to run takes it: checked, and without structured noise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from napari_gpu_denoise.image.axes import check_axes
from napari_gpu_denoise.image.levels import as_array, check_numbers, output_dtype
from napari_gpu_denoise.run.block import Block
from napari_gpu_denoise.run.record import Record
from napari_gpu_denoise.run.request import Run

if TYPE_CHECKING:
    from napari_gpu_denoise.noise.structure.remove import Correction


def is_lazy(image: Any) -> bool:
    """Return whether an array is not in memory, but can be read part by part by NumPy indexing."""
    indexed = all(hasattr(image, name) for name in ("shape", "dtype", "__getitem__"))
    return indexed and not isinstance(image, (np.ndarray, np.generic))


@dataclass(frozen=True)
class Input:
    """An image that was checked, with named axes; what a run removes first has been measured.

    Attributes
    ----------
    given : array
        As the user gave it: in memory, or anything with ``shape``, ``dtype`` and NumPy indexing.
    names : str
        Axes.
    correction : Correction or None
        Structured noise to remove; None if the run asks for none.
    """

    given: Any
    names: str
    correction: Correction | None = None

    @classmethod
    def of(cls, image: Any, run: Run, known: Correction | None = None) -> Input:
        """Check the image of a run and look for structured noise, unless that is `known`."""
        given = image if is_lazy(image) else as_array(image)
        names = check_axes(run.axes, given.shape)
        check_numbers(given)
        output_dtype(run.dtype, given.dtype)  # refuses what is no type of pixels
        if run.correct is not None and known is None:
            # Here, as SciPy takes long to load.
            from napari_gpu_denoise.noise.structure.remove import prepare_correction

            known = prepare_correction(given, names, run.correct)
        return cls(given, names, None if run.correct is None else known)

    @property
    def lazy(self) -> bool:
        """Whether the pixels are read part by part."""
        return is_lazy(self.given)

    @cached_property
    def array(self) -> Any:
        """The pixels to filter; if something is removed, it is removed as they are read."""
        return self.corrected(self.given)

    def corrected(self, image: Any) -> Any:
        """Return an image like this one without what is removed from this one."""
        if not self.correction:
            return image
        from napari_gpu_denoise.noise.structure.remove import CorrectedArray

        return CorrectedArray(image, self.correction)

    def corrected_frame(self, frame: Any) -> np.ndarray:
        """Return a frame of the stream that began with this image without structured noise.

        One of another shape or type stays as it is: the stream refuses it.
        """
        array = as_array(frame)
        fits = (array.shape, array.dtype) == (self.given.shape, self.given.dtype)
        return self.correction.applied(array) if fits and self.correction else array

    def block(self, nonfinite: str, region: Any = ...) -> Block:
        """Read the pixels to filter, or a region of them, into memory."""
        return Block.of(as_array(self.array[region]), self.names, nonfinite)

    def adapted(self, run: Run) -> Run:
        """Return a run for `array`: with named axes, and nothing left to remove."""
        if run.correct is None:
            return replace(run, axes=self.names)
        # The type of the result follows from that of the pixels as they were given.
        dtype = output_dtype(run.dtype, np.dtype(self.given.dtype))
        return replace(run, axes=self.names, dtype=dtype, correct=None)

    def noted(self, record: Record) -> Record:
        """Return the record of a run on `array` with what was removed."""
        if self.correction is None:
            return record
        words = self.correction.words() or ("nothing was found",)
        return replace(record, input_dtype=str(self.given.dtype), corrected=words)
