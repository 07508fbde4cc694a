"""Grey levels back to the values that a scaled NIfTI file stores for them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from napari_gpu_denoise.files.tiff.picture import Picture
from napari_gpu_denoise.run.record import Record


@dataclass(frozen=True)
class StoredValues:
    """An array of grey levels as the values that a slope and an intercept make them of.

    Integers are rounded to nearest and saturated. Indexing converts what it reads.
    """

    levels: Any
    dtype: np.dtype
    slope: float
    inter: float

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self.levels.shape

    def __getitem__(self, index: Any) -> np.ndarray:
        return self._converted(index)[0]

    @property
    def clipped(self) -> int:
        """Number of values beyond the range of the type."""
        return sum(self._converted(place)[1] for place in np.ndindex(self.shape[:-2]))

    def _converted(self, index: Any) -> tuple[np.ndarray, int]:
        levels = np.asarray(self.levels[index], np.float64)
        with np.errstate(over="ignore"):
            values = (levels - self.inter) / self.slope
            if self.dtype.kind == "f":
                return values.astype(self.dtype), 0
        limits = np.iinfo(self.dtype)
        whole = np.rint(np.nan_to_num(values, nan=0.0))
        # The float next to the largest 64-bit integer is already out of range.
        past = float(limits.max) > limits.max
        below, above = whole < limits.min, whole >= limits.max if past else whole > limits.max
        out = np.where(below | above, 0, whole).astype(self.dtype)
        out[below], out[above] = limits.min, limits.max
        return out, int(np.count_nonzero(below | above))


def as_stored(image: Any, like: Picture, record: Record) -> tuple[Any, Picture, Record]:
    """Return a result in the stored type of its input, with its slope and intercept.

    All three are as they came if the input is not scaled, of whatever format.
    """
    scaling = like.metadata.get("scaling")
    if scaling is None:
        return image, like, record
    values = StoredValues(image, np.dtype(like.metadata["dtype"]), *scaling)
    like = replace(like, metadata={**like.metadata, "as_stored": True})
    saturated = record.saturated + values.clipped
    return values, like, replace(record, output_dtype=values.dtype.name, saturated=saturated)
