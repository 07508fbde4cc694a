"""The part of an image that is assessed: a crop, small enough to be filtered nine times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import ImageError, SettingsError
from napari_gpu_denoise.image.axes import channel_axis
from napari_gpu_denoise.image.levels import as_array
from napari_gpu_denoise.run.block import Block
from napari_gpu_denoise.run.job import Job, Part, reach_along, sigma_over
from napari_gpu_denoise.run.sigma import Sigma

MOST = 1 << 20  # pixels of a channel that are filtered at once
_SLICES = 8  # of a volume that are judged
_AROUND = 32  # pixels around the region that are filtered with it
_SMALLEST = 32  # rows and columns that can be judged

Region = tuple[slice, ...]


@dataclass(frozen=True)
class Crop:
    """A crop as an image of its own.

    `reads` is its place in the whole image, `yields` that of the part that is judged, and `inner`
    the latter within the crop.
    """

    reads: Region
    yields: Region

    @property
    def inner(self) -> Region:
        """The part that is judged, as an index into the crop."""
        pairs = zip(self.yields, self.reads, strict=True)
        return tuple(slice(y.start - r.start, y.stop - r.start) for y, r in pairs)

    def job(self, job: Job, dtype: np.dtype) -> Job:
        """Return the job of the whole image for this crop, from and to pixels of a type."""
        shape = tuple(one.stop - one.start for one in self.reads)
        sigma = self.sigma(job.sigma)
        return replace(job, shape=shape, dtypes=(dtype, dtype), sigma=sigma, levels=None)

    def sigma(self, sigma: Sigma) -> Sigma:
        """Return sigma of the whole image over this crop."""
        numbers, planes = sigma.numbers, sigma.planes
        return replace(
            sigma,
            array=sigma_over(sigma.array, self.reads),
            numbers=None if numbers is None else sigma_over(numbers, self.reads),
            planes=planes and replace(planes, kinds=sigma_over(planes.kinds, self.reads)),
        )

    def part(self, job: Job) -> Part:
        """Return the part to filter of the job of this crop."""
        return Part.of(job, self.inner)

    def block(self, image: Any, names: str, nonfinite: str) -> Block:
        """Return the pixels of this crop, as floating point numbers that hold them."""
        given = as_array(image[self.reads])
        exact = given.dtype.itemsize <= 2 or given.dtype == np.float32
        return Block.of(given.astype(np.float32 if exact else np.float64), names, nonfinite)


def choose_crop(job: Job, region: Sequence[Any] | None, most: int = MOST) -> Crop:
    """Return the crop to assess: the middle of a region, or of the image.

    `region` has a slice or an index for each axis, or for Y and X. All channels are taken, one
    place of every other axis that the filter does not join, one frame with those it is filtered
    with, and some slices of a volume.
    """
    names, shape = job.names, job.shape
    wanted = _spans(region, names, shape)
    channel = channel_axis(names)
    yields: list[slice] = [slice(0, n) for n in shape]
    reads = list(yields)
    planes = 1
    for k, (axis, n) in enumerate(zip(names, shape, strict=True)):
        if axis in "YX" or k == channel:
            continue
        joined = axis in "TZ" and axis in job.filter.joint
        count = _SLICES if joined and axis == "Z" else 1
        yields[k] = _middle(wanted[k], count)
        before, after = reach_along(job.filter, axis) if joined else (0, 0)
        if axis == "Z":
            before, after = min(before, _SLICES // 2), min(after, _SLICES // 2)
        reads[k] = _wider(yields[k], before, after, n)
        planes *= reads[k].stop - reads[k].start
    y, x = names.index("Y"), names.index("X")
    height, width = (wanted[k].stop - wanted[k].start for k in (y, x))
    if min(height, width) < max(_SMALLEST, job.filter.smallest):
        raise ImageError(
            f"{height} x {width} pixels are too few to assess a result",
            f"give a region of at least {_SMALLEST} x {_SMALLEST}",
            code="assess-small",
            least=max(_SMALLEST, job.filter.smallest),
        )
    # A square, or longer where the region is narrow.
    room = max(most // planes, _SMALLEST**2)
    side = max(math.isqrt(room), room // min(height, width))
    for k in (y, x):
        yields[k] = _middle(wanted[k], side)
    height, width = (yields[k].stop - yields[k].start for k in (y, x))
    around = _AROUND if (height + 2 * _AROUND) * (width + 2 * _AROUND) <= room else 0
    for k in (y, x):
        reads[k] = _wider(yields[k], around, around, shape[k])
    return Crop(tuple(reads), tuple(yields))


def _spans(region: Sequence[Any] | None, names: str, shape: tuple[int, ...]) -> list[slice]:
    """Return a region as slices with both ends, one for each axis."""
    spans = [slice(0, n) for n in shape]
    if region is None:
        return spans
    given = tuple(region) if isinstance(region, (tuple, list)) else ()
    places = range(len(shape)) if len(given) == len(shape) else map(names.index, "YX")
    places = list(places)
    try:
        for k, one in zip(places, given, strict=True):
            whole = range(shape[k])
            found = whole[one] if isinstance(one, slice) else whole[one : one + 1 or None]
            if not found or found.step != 1:
                raise ValueError
            spans[k] = slice(found.start, found.stop)
    except (TypeError, ValueError) as error:
        raise SettingsError(
            f"region={region!r} is not a part of an image of {' x '.join(map(str, shape))} pixels: "
            f"give a slice or an index for each of the axes {names}, or slices for Y and X."
        ) from error
    return spans


def _middle(span: slice, count: int) -> slice:
    """Return at most `count` places in the middle of a span."""
    size = min(count, span.stop - span.start)
    start = (span.start + span.stop - size) // 2
    return slice(start, start + size)


def _wider(span: slice, before: int, after: int, length: int) -> slice:
    return slice(max(span.start - before, 0), min(span.stop + after, length))
