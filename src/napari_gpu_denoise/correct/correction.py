"""A correction of structured noise, prepared once for an image and applied to any of its planes."""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from napari_gpu_denoise.correct.request import CorrectionRequest
from napari_gpu_denoise.image.axes import arrange, channel_axis, check_axes
from napari_gpu_denoise.image.levels import as_array, fill_nonfinite
from napari_gpu_denoise.noise.patches.blank import constant_squares
from napari_gpu_denoise.noise.sampling import PlaneReader
from napari_gpu_denoise.noise.structure import hum, outliers, rows
from napari_gpu_denoise.noise.structure.find import few, finite_plane, structure_of
from napari_gpu_denoise.noise.structure.offsets import plane_offsets
from napari_gpu_denoise.noise.structure.record import Finding

_CONSTANT = 16  # width of the smallest square whose equal levels are no chance


@dataclass(frozen=True)
class ChannelCorrection:
    """What is removed from the planes of one channel.

    `rows` and `columns` are offsets that are the same in all planes; ``"each"`` has each plane
    measured, None leaves them. `pixels` are outliers in all planes, `sides` those looked for in
    each plane: hot (0), dead (1).
    """

    rows: np.ndarray | str | None = None
    columns: np.ndarray | str | None = None
    hum: bool = False
    pixels: np.ndarray | None = None
    sides: tuple[int, ...] = ()
    threshold: float | None = None

    def __bool__(self) -> bool:
        return self.rows is not None or self.columns is not None or self.hum or bool(self.sides)

    def applied(self, plane: np.ndarray) -> np.ndarray:
        """Return a plane (y, x), float32 and finite, without its structured noise."""
        given = plane
        if self.sides:
            mask = np.zeros(plane.shape, bool) if self.pixels is None else self.pixels.copy()
            found = outliers.find_outliers(plane, self.threshold)
            for side in self.sides:
                mask |= found[side].mask
            plane = outliers.replaced(plane, mask)
        if self.hum:
            plane = hum.without(plane, hum.find_waves(plane))
        plane = _without_rows(plane, self.rows)
        plane = _without_rows(plane.T, self.columns).T
        return _with_constant(plane, given)


@dataclass(frozen=True)
class Correction:
    """The correction of an image: one for each channel, and what was found.

    `names` are the axes of the image.
    """

    names: str
    channels: tuple[ChannelCorrection, ...]
    findings: tuple[Finding, ...]

    def __bool__(self) -> bool:
        return any(map(bool, self.channels))

    def applied(self, block: np.ndarray, names: str | None = None) -> np.ndarray:
        """Return pixels without structured noise, float32; NaN and infinity stay as they are.

        `block` has all of the axes Y, X and of the channels, and any part of the others; `names`
        are its axes, if they are not those of the image.
        """
        names = names or self.names
        out = np.array(block, np.float32)
        filled, mask = fill_nonfinite(out, names, "keep")
        axis = channel_axis(names)
        work = []
        for number, channel in enumerate(self.channels):
            where = (slice(None),) * (axis or 0) + (number,) if axis is not None else ...
            part, rest = filled[where], out[where]
            left = names if axis is None else names[:axis] + names[axis + 1 :]
            read, write = arrange(part, left), arrange(rest, left)
            count = read.shape[1]
            work += [(channel, read.frame(0, t)[0], write.frame(0, t)[0]) for t in range(count)]

        def one(job: tuple) -> None:
            channel, given, result = job
            result[...] = channel.applied(np.ascontiguousarray(given))

        with ThreadPoolExecutor(min(len(work), os.cpu_count() or 1)) as pool:
            list(pool.map(one, work))
        if mask is not None:
            out[mask] = np.asarray(block)[mask]
        return out

    def words(self) -> tuple[str, ...]:
        """Return what is removed, in words."""
        return tuple(each.words() for each in self.findings)


def prepare_correction(image: Any, names: str, request: CorrectionRequest) -> Correction:
    """Look for structured noise in some planes of an image, and decide what is removed."""
    names = check_axes(names, image.shape)
    reader = PlaneReader(image, names)
    channels, findings = [], []
    for number, channel in enumerate(reader.channels):
        planes = [finite_plane(plane) for plane in reader.sampled(channel)]
        made, found = _for_channel(planes, request, None if channel is None else number)
        channels.append(made)
        findings += found
    return Correction(names, tuple(channels), tuple(findings))


def _for_channel(
    planes: list[np.ndarray], request: CorrectionRequest, number: int | None
) -> tuple[ChannelCorrection, list[Finding]]:
    """Return the correction of a channel, and what was found of what it removes."""
    found = structure_of(few(planes))
    kinds = {"hot": "outliers", "dead": "outliers"}
    findings = [
        each for each in found.findings(number) if kinds.get(each.kind, each.kind) in request.kinds
    ]
    sides = tuple(side for side in (0, 1) if found.has_pixels(side))
    sides = (0, 1) if "outliers" in request.always else sides * ("outliers" in request.kinds)
    waves = "hum" in request.kinds and found.has_waves
    made = ChannelCorrection(hum=waves, sides=sides, threshold=request.threshold)
    if sides and len(planes) > 2:
        made = replace(made, pixels=_persistent(planes, made))
    # Rows and columns are measured without what is removed before them.
    offsets: dict[str, Any] = {}
    for kind, each in (("rows", found.rows), ("columns", found.columns)):
        if kind in request.always or (kind in request.kinds and each.found):
            fixed = each.fixed if request.fixed is None else request.fixed
            offsets[kind] = "each"
            if fixed and len(planes) > 1:
                turned = [made.applied(p) if kind == "rows" else made.applied(p).T for p in planes]
                offsets[kind] = plane_offsets(turned)
    return replace(made, **offsets), findings


def _persistent(planes: list[np.ndarray], made: ChannelCorrection) -> np.ndarray:
    """Return the pixels that are outliers in at least half of some planes."""
    count = np.zeros(planes[0].shape, np.int32)
    for plane in planes:
        found = outliers.find_outliers(plane, made.threshold)
        count += np.any([found[side].mask for side in made.sides], axis=0)
    return 2 * count >= len(planes)


def _without_rows(plane: np.ndarray, offsets: np.ndarray | str | None) -> np.ndarray:
    """Return a plane without the offsets of its rows, given or to be measured."""
    if offsets is None or len(plane) < rows.SHORTEST or plane.shape[1] < rows.NARROWEST:
        return plane
    if isinstance(offsets, str):
        offsets = plane_offsets([plane])
    return plane - offsets[:, None]


def _with_constant(plane: np.ndarray, given: np.ndarray) -> np.ndarray:
    """Return a plane with constant areas, such as padding, as they were given."""
    same = constant_squares(given, _CONSTANT)
    return plane if same is None else np.where(same, given, plane)


class CorrectedArray:
    """An array that is not in memory, corrected when it is read by NumPy indexing.

    What is read must have all of Y, X and the channels; integers may select from other axes.
    """

    def __init__(self, array: Any, correction: Correction):
        self._array, self._correction = array, correction
        self.shape, self.dtype = tuple(array.shape), np.dtype(np.float32)
        self.ndim = len(self.shape)
        self.size = math.prod(self.shape)

    def __getitem__(self, index: Any) -> np.ndarray:
        index = index if isinstance(index, tuple) else (index,)
        if Ellipsis in index:
            at = index.index(Ellipsis)
            whole = (slice(None),) * (self.ndim - len(index) + 1)
            index = (*index[:at], *whole, *index[at + 1 :])
        index = (*index, *(slice(None),) * (self.ndim - len(index)))
        names = self._correction.names
        channel = channel_axis(names)
        kept = [k for k, letter in enumerate(names) if letter in "YX" or k == channel]
        # Whole planes of all channels are corrected, then what was asked for is cut out.
        read = tuple(
            slice(None) if k in kept else slice(one, one + 1) if _is_number(one) else one
            for k, one in enumerate(index)
        )
        whole = self._correction.applied(as_array(self._array[read]))
        return whole[
            tuple(
                one if k in kept else 0 if _is_number(one) else slice(None)
                for k, one in enumerate(index)
            )
        ]


def _is_number(one: Any) -> bool:
    return isinstance(one, (int, np.integer))
