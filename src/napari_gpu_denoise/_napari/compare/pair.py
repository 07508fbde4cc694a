"""Two image layers of one scene: the same part of both, and profiles along a line."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral
from typing import Any

import numpy as np
from napari.layers import Image, Layer

from napari_gpu_denoise._napari.layers import provenance
from napari_gpu_denoise._napari.layers.source import finest, pixel_sizes
from napari_gpu_denoise._napari.noise.plots import Series
from napari_gpu_denoise._napari.resolve import channels_of
from napari_gpu_denoise.errors import DenoiseError
from napari_gpu_denoise.image.axes import channel_axis
from napari_gpu_denoise.image.levels import convert
from napari_gpu_denoise.noise.models import NoiseModel
from napari_gpu_denoise.noise.models.base import channel_correlations, pointwise

_LUMINANCE = (0.2126, 0.7152, 0.0722)  # of red, green and blue, as in BT.709
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
    layers = list(layers)
    source = provenance.first_origin(result, layers)
    found = {source: result}
    for each in results_in(layers):
        if _filter(each) == _filter(result) and finest(each).shape == finest(result).shape:
            found.setdefault(provenance.first_origin(each, layers), each)
    return tuple(found[each] for each in channels_of(source, layers) if each in found) or (result,)


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
    """An image and its result, the same planes of both, and what they differ in."""

    def __init__(self, before: Image, after: Image):
        self.before, self.after = before, after
        self._shift = [
            b - a for a, b in zip(first_places(before), first_places(after), strict=True)
        ]
        self.forget()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result, with the colours of RGB."""
        return tuple(finest(self.after).shape)

    @property
    def dtype(self) -> np.dtype:
        """The type of numbers that shows both."""
        types = [np.dtype(finest(each).dtype) for each in (self.before, self.after)]
        # Colours of whole numbers reach to 255, those of fractions to 1: napari tells by the type.
        whole = [each for each in types if self.after.rgb and each.kind in "iu"]
        found = whole[0] if whole else np.result_type(*types)
        return np.dtype(np.float32) if found.kind == "f" else found

    @property
    def in_sigmas(self) -> bool:
        """Whether the residual is in standard deviations of the noise, not in grey levels."""
        return bool(self._models)

    def read(self, index: tuple[int | slice, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Return the same part of both, at an index of the result; the last one read is kept."""
        if self._kept is None or self._kept[0] != index:
            self._kept = None  # not two at a time
            there = tuple(map(_shifted, index, self._shift, self.shape))
            both = (finest(self.before), there), (finest(self.after), index)
            before, after = (np.asarray(data[part]) for data, part in both)
            self._kept = index, (before, after)
        return self._kept[1]

    def forget(self) -> None:
        """Forget what is known of the pixels, which may have changed."""
        self._kept: tuple[Any, tuple[np.ndarray, np.ndarray]] | None = None
        self._models, self._channels = _noise_models(self)

    def draw_curtain(
        self, index: tuple[int | slice, ...], out: np.ndarray, along: int, at: int, line: float
    ) -> None:
        """Draw the image before the place `at` along an axis of a plane, the result from there on.

        Between the two is a line of a grey level, in place of the first pixels of the result.
        """
        before, after, out = (np.moveaxis(each, along, 0) for each in (*self.read(index), out))
        for part, which in ((slice(0, at), before), (slice(at, None), after)):
            convert(which[part], out[part])
        if 0 < at < len(out):
            convert(np.full(out[at].shape, line), out[at])

    def residual(self, index: tuple[int | slice, ...]) -> np.ndarray:
        """Return the image minus the result, in float32; of RGB the luminance.

        Where the noise depends on brightness it is divided by the standard deviation of the noise
        that is expected at the result: else bright parts would show.
        """
        rgb = self.after.rgb
        before, after = (each[..., :3] if rgb else each for each in self.read(index))
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
        axis = self._channels
        at = slice(None) if axis is None or axis >= len(index) else index[axis]
        models = self._models if isinstance(at, slice) else (self._models[at],)
        along = sum(isinstance(each, slice) for each in index[: axis or 0])
        parts = zip(models, np.split(after, len(models), along), strict=True)
        means, sigmas = zip(*(_expected(*each) for each in parts), strict=True)
        return np.concatenate(means, along), np.concatenate(sigmas, along)


def _shifted(index: int | slice, shift: int, length: int) -> int | slice:
    if not isinstance(index, slice):
        return index + shift
    start, stop, step = index.indices(length)
    return slice(start + shift, stop + shift, step)


def luminance(pixels: np.ndarray) -> np.ndarray:
    """Return the luminance of RGB or RGBA pixels, as float32."""
    weights = np.array(_LUMINANCE, np.float32)
    return pixels[..., :3].astype(np.float32) @ weights


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
    return model.expected(result), sigma


def profile(
    pair: Pair, ends: np.ndarray, index: tuple[int | slice, ...], axes: tuple[int, int]
) -> tuple[list[Series], str]:
    """Return the curves along a line in a plane of a pair, and the label of distances.

    They are interpolated, one value each half pixel or so; beyond the plane they have the value at
    its edge. `ends` have a place for each axis of the result; `index` takes the plane, which has
    `axes` of the result as rows and columns.
    """
    from scipy.ndimage import map_coordinates  # slow to import

    planes = [luminance(each) if pair.after.rgb else each for each in pair.read(index)]
    if axes[0] > axes[1]:
        planes = [each.T for each in planes]
    ends = ends[:, axes]
    count = int(np.clip(np.ceil(2 * np.hypot(*(ends[1] - ends[0]))) + 1, 2, _MOST))
    points = np.linspace(ends[0], ends[1], count)
    sizes, unit = pixel_sizes(pair.after, axes[::-1])  # in the unit of the columns
    unit = "pixels" if sizes is None or str(unit) == "pixel" else f"{unit:~P}"
    distance = np.hypot(*((points - ends[0]) * (sizes or [1.0, 1.0])[::-1]).T).tolist()
    series = []
    for colour, (plane, name) in enumerate(zip(planes, ("before", "after"), strict=True)):
        values = map_coordinates(plane.astype(np.float64), points.T, order=1, mode="nearest")
        series.append(Series(distance, values.tolist(), name, "line", colour))
    return series, f"Distance ({unit})"
