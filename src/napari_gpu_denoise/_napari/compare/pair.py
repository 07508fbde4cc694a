"""Two image layers of one scene: the same part of both, and profiles along a line."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral
from typing import Any

import numpy as np
from napari.layers import Image, Layer

from napari_gpu_denoise._napari.layers import provenance
from napari_gpu_denoise._napari.layers.arrays import is_lazy
from napari_gpu_denoise._napari.layers.source import finest, pixel_sizes
from napari_gpu_denoise._napari.noise.plots import Series
from napari_gpu_denoise.errors import DenoiseError
from napari_gpu_denoise.image.axes import channel_axis, index_parts
from napari_gpu_denoise.noise.models import NoiseModel, Rician
from napari_gpu_denoise.noise.models.base import channel_correlations, pointwise

_LUMINANCE = (0.2126, 0.7152, 0.0722)  # of red, green and blue, as in BT.709
_PLANE = 2  # axes of what is read at once of data that are not in memory

_MOST = 2000  # points of a curve


def results_in(layers: Iterable[Layer]) -> list[Layer]:
    """Return the results among layers whose image is there, topmost first."""
    found = [each for each in layers if provenance.is_result(each) and isinstance(each, Image)]
    return [each for each in reversed(found) if partners(each, layers)]


def partners(after: Image, layers: Iterable[Layer]) -> list[Image]:
    """Return the layers that a result can be compared with, its source first.

    Of results read from files, images of the same channel are next, and other results last.
    """
    layers = list(layers)
    fitting = [each for each in layers if each is not after and fits(each, after)]
    origin, channel = provenance.origin_of(after, layers), provenance.place_in_file(after)

    def rank(each: Image) -> tuple[bool, bool, bool, int]:
        other = provenance.place_in_file(each) != channel
        return each is not origin, provenance.is_result(each), other, -layers.index(each)

    return sorted(fitting, key=rank)


def channels_with(result: Image, layers: Iterable[Layer]) -> tuple[Image, ...]:
    """Return a result beside those of the other channels of its file by the same filter, in order.

    They can be compared at once.
    """
    origin, name = provenance.file_origin(result.metadata), _filter(result)
    if origin is None or origin.split is None:
        return (result,)
    found = {origin.place: result}
    for each in results_in(layers):
        other = provenance.file_origin(each.metadata)
        if other is None or (other.path, other.shape) != (origin.path, origin.shape):
            continue
        if _filter(each) == name and finest(each).shape == finest(result).shape:
            found.setdefault(other.place, each)
    return tuple(found[place] for place in sorted(found))


def counterpart(before: Image, result: Image, layers: Iterable[Layer]) -> Image | None:
    """Return the layer to compare a result with, where `before` is that of another channel."""
    found = partners(result, layers)
    if before in found and provenance.place_in_file(before) == provenance.place_in_file(result):
        return before
    alike = (each for each in found if _filter(each) == _filter(before))
    return next(alike, None)


def _filter(layer: Layer) -> str:
    return str(provenance.record_of(layer).get("filter", ""))


def fits(before: Layer, after: Image) -> bool:
    """Return whether an image has the field of view of a result, and all its frames and slices."""
    if not isinstance(before, Image) or provenance.is_temporary(before):
        return False
    if before.rgb != after.rgb:
        return False
    one, other = finest(before).shape, finest(after).shape
    same = one[-2 - after.rgb :] == other[-2 - after.rgb :]
    records = provenance.records_of(after)
    cut = any(word in each for each in records for word in ("rows", "columns"))
    if len(one) != len(other) or not (same or cut):
        return False
    found = zip(first_places(before), first_places(after), one, other, strict=True)
    return all(b >= a and b - a + n <= m for a, b, m, n in found)


def first_places(layer: Image) -> list[int]:
    """Return where the first pixel of a layer lies in the whole stack: runs of parts differ."""
    places = [0] * finest(layer).ndim
    for each in provenance.records_of(layer):
        for word, letter in (("frame", "T"), ("slice", "Z"), ("rows", "Y"), ("columns", "X")):
            axis = str(each.get("axes", "")).upper().find(letter)
            place = each.get(word)
            place = place[0] if isinstance(place, list) else place
            if isinstance(place, Integral) and 0 <= axis < len(places):
                places[axis] += int(place)
    return places


class Pair:
    """An image and its result; `read` returns the same part of both.

    Of data that are not in memory the last plane read is kept.
    """

    def __init__(self, before: Image, after: Image):
        self.before, self.after = before, after
        self._shift = [
            b - a for a, b in zip(first_places(before), first_places(after), strict=True)
        ]
        self._kept: dict[str, tuple[Any, np.ndarray]] = {}
        self.reads = 0  # times that the pixels may have changed

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result, with the colours of RGB."""
        return tuple(finest(self.after).shape)

    @property
    def is_lazy(self) -> bool:
        """Whether either is not in memory."""
        return is_lazy(finest(self.before)) or is_lazy(finest(self.after))

    def read(self, index: tuple[int | slice, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Return the same part of both; `index` is in terms of the result."""
        there = tuple(map(_shifted, index, self._shift, self.shape))
        return self._part("before", there), self._part("after", index)

    def forget(self) -> None:
        """Forget the planes kept in memory."""
        self._kept.clear()
        self.reads += 1

    def _part(self, which: str, index: tuple[int | slice, ...]) -> np.ndarray:
        data = finest(getattr(self, which))
        if not is_lazy(data):
            return data[index]
        key = str(index)
        known = self._kept.get(which)
        if known is None or known[0] != key:
            self._kept.pop(which, None)  # not two at a time
            known = self._kept[which] = key, np.asarray(data[index])
        return known[1]


def _shifted(index: int | slice, shift: int, length: int) -> int | slice:
    if not isinstance(index, slice):
        return index + shift
    start, stop, step = index.indices(length)
    return slice(start + shift, stop + shift, step)


def luminance(pixels: np.ndarray) -> np.ndarray:
    """Return the luminance of RGB or RGBA pixels, as float32."""
    weights = np.array(_LUMINANCE, np.float32)
    return pixels[..., :3].astype(np.float32) @ weights


class _Shown:
    """What napari draws of a pair: an array of which it takes the slice that it shows.

    The last slice is kept: of a new layer napari takes it three times.
    """

    dtype: np.dtype
    at: int = 0  # where a line parts the two, if one does
    line: float | None = None

    def __init__(self, pair: Pair):
        self.pair = pair
        self._last: tuple[Any, np.ndarray] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.pair.shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self._made((slice(None),) * self.ndim), dtype)

    def __getitem__(self, index: Any) -> np.ndarray:
        index = tuple(index_parts(index, self.shape))
        spans = [
            len(range(*i.indices(n))) if isinstance(i, slice) else None
            for i, n in zip(index, self.shape, strict=True)
        ]
        if sum((n or 0) > 1 for n in spans[: self._axes]) > _PLANE and self.pair.is_lazy:
            # A view in 3D: a stack that is not in memory is never read as a whole.
            return np.zeros([n for n in spans if n is not None], self.dtype)
        key = str(index), self.pair.reads, self.at, self.line
        last = self._last
        if last is None or last[0] != key:
            self._last = last = None  # not two at a time
            self._last = last = key, self._made(index)
        return last[1]

    @property
    def _axes(self) -> int:
        """The number of axes without colours."""
        return self.pair.after.ndim

    def _made(self, index: tuple[int | slice, ...]) -> np.ndarray:
        raise NotImplementedError


class Curtain(_Shown):
    """The image before the place `at` along an axis, the result from there on.

    Between the two is a line of the grey level `line`, in place of the first pixels of the result.
    """

    def __init__(self, pair: Pair, axis: int, at: int):
        super().__init__(pair)
        self.axis, self.at = axis, at
        before, after = finest(pair.before).dtype, finest(pair.after).dtype
        whole = [each for each in (before, after) if np.issubdtype(each, np.integer)]
        #: Colours of whole numbers reach to 255, those of fractions to 1: napari tells by the type.
        found = whole[0] if pair.after.rgb and whole else np.result_type(before, after)
        self.dtype = np.dtype(np.float32 if found.kind == "f" else found)

    def _made(self, index: tuple[int | slice, ...]) -> np.ndarray:
        before, after = self.pair.read(index)
        place = index[self.axis]
        if not isinstance(place, slice):
            return np.asarray(self._typed(before if place < self.at else after), self.dtype)
        start, stop, step = place.indices(self.shape[self.axis])
        cut = len(range(start, min(max(self.at, start), stop), step))
        along = sum(isinstance(each, slice) for each in index[: self.axis])
        first, rest = (slice(None),) * along, np.empty(before.shape, self.dtype)
        for part, which in ((slice(0, cut), before), (slice(cut, None), after)):
            rest[(*first, part)] = self._typed(which[(*first, part)])
        if self.line is not None and 0 < cut < rest.shape[along]:
            rest[(*first, cut)] = self._typed(np.asarray(self.line))
        return rest

    def _typed(self, pixels: np.ndarray) -> np.ndarray:
        if self.dtype.kind in "iu" and pixels.dtype.kind == "f":
            known = np.iinfo(self.dtype)
            return np.clip(np.rint(pixels), known.min, known.max)
        return pixels


class Residual(_Shown):
    """The image minus the result, in float32; of RGB the luminance.

    Where the noise depends on brightness it is divided by the standard deviation of the noise that
    is expected at the result: else bright parts would show.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, pair: Pair):
        super().__init__(pair)
        self._models, self._channels = _noise_models(pair)

    @property
    def in_sigmas(self) -> bool:
        """Whether it is in standard deviations of the noise, not in grey levels."""
        return bool(self._models)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.pair.shape[: self._axes]

    def _made(self, index: tuple[int | slice, ...]) -> np.ndarray:
        rgb = self.pair.after.rgb
        index = (*index, slice(3)) if rgb else index
        before, after = self.pair.read(index)
        expected, sigma = self._noise(after, index) if self.in_sigmas else (after, None)
        # The difference of large whole numbers is exact only before they are rounded to float32.
        types = before.dtype, expected.dtype
        exact = all(each.itemsize <= (4 if each.kind == "f" else 2) for each in types)
        kind = np.float32 if exact else np.float64
        residual = np.subtract(before, expected, dtype=kind, casting="unsafe")
        residual = luminance(residual) if rgb else residual.astype(np.float32, copy=False)
        if sigma is None:
            return residual
        if rgb:
            each = sigma * np.array(_LUMINANCE, np.float32)
            shared = channel_correlations(self._models, 3).astype(np.float32)
            sigma = np.sqrt(((each @ shared) * each).sum(axis=-1))
        return residual / sigma

    def _noise(
        self, after: np.ndarray, index: tuple[int | slice, ...]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the image that is expected at a part of the result, and the sigma of its noise."""
        if self._channels is None:
            return _expected(self._models[0], after)
        numbers = np.arange(self.pair.shape[self._channels])[index[self._channels]]
        if not numbers.ndim:
            return _expected(self._models[numbers], after)
        along = sum(isinstance(each, slice) for each in index[: self._channels])
        planes = zip(numbers, np.moveaxis(after, along, 0), strict=True)
        found = [_expected(self._models[number], plane) for number, plane in planes]
        means, sigmas = (np.stack(each, along) for each in zip(*found, strict=True))
        return means, sigmas


def _noise_models(pair: Pair) -> tuple[tuple[NoiseModel, ...], int | None]:
    """Return models of the noise of an image that depends on brightness; none if it does not.

    With those of several channels, the axis of these; else None.
    """
    before, after = map(provenance.records_of, (pair.before, pair.after))
    try:  # what a file says may be anything
        record = after[len(before)]
        models = tuple(map(NoiseModel.from_dict, record["noise"]))
    except (LookupError, TypeError, DenoiseError):
        return (), None
    place = provenance.place_in_file(pair.after)
    if place is not None and len(models) > 1:
        models = models[place : place + 1]
    axis = channel_axis(record["axes"]) if len(models) > 1 else None
    if axis is not None and len(models) != (3 if pair.after.rgb else pair.shape[axis]):
        return (), None
    return (() if all(each.additive for each in models) else models), axis


def _expected(model: NoiseModel, result: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of noisy pixels where a result is right, and their standard deviation."""
    variance = pointwise(model.variance, result)
    least = 1e-3 * np.mean(variance, where=np.isfinite(variance))
    sigma = np.sqrt(np.maximum(variance, max(float(least), np.finfo(np.float32).tiny)))
    return (model.expected(result) if isinstance(model, Rician) else result), sigma


def along(plane: np.ndarray, corners: np.ndarray, *, rgb: bool = False) -> np.ndarray:
    """Return grey levels between corners (rows of y, x), interpolated, one each half pixel or so.

    Points outside the plane have the value at its edge.
    """
    from scipy.ndimage import map_coordinates  # slow to import

    values = luminance(plane) if rgb else plane
    return map_coordinates(values.astype(np.float64), _points(corners), order=1, mode="nearest")


def _points(corners: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return points from corner to corner."""
    lengths = np.hypot(*np.diff(corners, axis=0).T)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    count = int(np.clip(np.ceil(2 * ends[-1]) + 1, 2, _MOST))
    at = np.linspace(0, ends[-1], count)
    return tuple(np.interp(at, ends, corners[:, k]) for k in range(2))


def profile(
    pair: Pair, corners: np.ndarray, index: tuple[int | slice, ...], axes: tuple[int, int]
) -> tuple[list[Series], str]:
    """Return the curves along a line in a plane of a pair, and the label of distances.

    `corners` have a place for each axis of the result; `index` takes the plane, which has `axes`
    of the result as rows and columns.
    """
    rgb = pair.after.rgb
    planes = pair.read((*index, slice(None)) if rgb else index)
    if axes[0] > axes[1]:
        planes = [np.swapaxes(each, 0, 1) for each in planes]
    curves = [along(each, corners[:, axes], rgb=rgb).tolist() for each in planes]
    sizes, unit = pixel_sizes(pair.after, axes[::-1])  # in the unit of the columns
    unit = "pixels" if sizes is None or str(unit) == "pixel" else f"{unit:~P}"
    points = np.array(_points(corners[:, axes])).T * (sizes or [1.0, 1.0])[::-1]
    steps = np.hypot(*np.diff(points, axis=0).T)
    distance = np.concatenate([[0], np.cumsum(steps)]).tolist()
    names = ("before", "after")
    series = [
        Series(distance, curve, name, "line", k)
        for k, (curve, name) in enumerate(zip(curves, names, strict=True))
    ]
    return series, f"Distance ({unit})"
