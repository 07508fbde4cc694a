"""A region of a layer, filtered as a run of the whole layer filters it; no Qt."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from napari_gpu_denoise._napari.layers.arrays import is_lazy
from napari_gpu_denoise._napari.layers.regions import Region
from napari_gpu_denoise._napari.layers.source import Source
from napari_gpu_denoise.errors import LayerError, SettingsError
from napari_gpu_denoise.image.levels import put_together
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.protocol.settings import setting_fields
from napari_gpu_denoise.run.input import Block, Input
from napari_gpu_denoise.run.job import start
from napari_gpu_denoise.run.noise import NoiseMemory
from napari_gpu_denoise.run.part import Part, filter_part, with_uncut_axes, within
from napari_gpu_denoise.run.progress import Progress
from napari_gpu_denoise.run.request import Run

_MOST = 1 << 28  # pixels read at once
_MOST_CORRECTED = 1 << 24  # pixels in memory that are corrected at once, not where they are read

_QUICK = "fast"  # profile, where a filter has it


class Pixels:
    """A layer without alpha, corrected, its NaN filled: in memory, or read where it is needed."""

    def __init__(self, data: Any, run: Run):
        self.input, self._nonfinite = Input.of(data, run), run.nonfinite
        self._read: tuple[tuple[slice, ...], Block] | None = None
        large = self.input.correction and math.prod(data.shape) > _MOST_CORRECTED
        in_memory = not (is_lazy(data) or large)
        self.block = self.input.block(run.nonfinite) if in_memory else None

    def read(self, region: tuple[slice, ...]) -> Block:
        """Return a region; one that is not in memory is kept until another one is read."""
        if self.block is not None:
            return self.block[region]
        if self._read is None or self._read[0] != region:
            self._read = None  # not two at a time
            if math.prod(one.stop - one.start for one in region) > _MOST:
                raise LayerError(
                    "The preview would read too much of the layer: this filter compares whole "
                    "frames. Crop the layer to try settings."
                )
            self._read = region, self.input.block(self._nonfinite, region)
        return self._read[1]


def quick_settings(chosen: Filter, axes: str) -> Filter:
    """Return settings in the quick profile of the filter, with what differs from their own profile.

    Of a filter without such a profile, and where the differences do not go with it, these; so are
    those that need an axis that is not there.
    """
    profile, changes = chosen.nearest_profile()
    default = next(iter(chosen.presets))
    slower = {"fine": default}  # where there is no quick one
    name = _QUICK if _QUICK in chosen.presets else slower.get(profile)
    if name is None:
        return chosen
    changes |= {
        spec.name: getattr(chosen, spec.name)
        for spec in setting_fields(type(chosen))
        if spec.metadata["needs_axis"] not in (None, *axes)
    }
    try:
        return type(chosen).of(profile=name, **changes)
    except SettingsError:
        return chosen


@dataclass(frozen=True)
class PreviewRequest:
    """All that a preview needs: the run as it would be for the whole layer, and a region.

    It holds no napari or Qt objects. `memory` is what is known of the noise of the layer. `final`
    says that the settings are those of the panel, not quicker ones; `stoppable` that there are
    quicker ones, which it may be stopped for. With `strengths` the region is filtered with each of
    them in place of that of the run, and the results lie side by side.
    """

    source: Source
    run: Run
    memory: NoiseMemory
    region: Region
    final: bool
    stoppable: bool
    strengths: tuple[float, ...] = ()
    # Pixels of layers, by the memory of their noise, which goes when they change.
    kept: WeakKeyDictionary[NoiseMemory, Pixels] = field(
        default_factory=WeakKeyDictionary, repr=False, compare=False
    )

    @property
    def pixels(self) -> Pixels:
        """The pixels of the layer."""
        if self.memory not in self.kept:
            data = self.source.pixels() if self.source.alpha else self.source.data
            self.kept[self.memory] = Pixels(data, self.run)
        return self.kept[self.memory]

    def strength_at(self, place: np.ndarray) -> float | None:
        """Return the strength of the picture at a place in the result; None beside all."""
        down, across = self.region.plane
        number = int(round(place[across]) // (self.region.shape[across] + self.region.gap))
        inside = 0 <= round(place[down]) < self.region.shape[down]
        return self.strengths[number] if inside and 0 <= number < len(self.strengths) else None

    def quick(self) -> PreviewRequest:
        """Return the same with quicker settings."""
        run = replace(self.run, filter=quick_settings(self.run.filter, self.run.axes or ""))
        return replace(self, run=run, final=False, stoppable=False)

    @property
    def key(self) -> tuple[Any, ...]:
        """What the result depends on, to be compared with that of a request that is there."""
        noise, run = id(self.run.noise), replace(self.run, noise=None)
        return id(self.memory), self.region, self.strengths, noise, run


def filter_regions(requests: Sequence[PreviewRequest], progress: Progress) -> list[np.ndarray]:
    """Filter regions of several layers."""
    return [filter_region(each, progress) for each in requests]


def filter_region(request: PreviewRequest, progress: Progress) -> np.ndarray:
    """Filter a region; every pixel is that of a run of the whole layer."""
    made = []
    for strength in request.strengths or (request.run.sigma_factor,):
        run = replace(request.run, sigma_factor=strength)
        made.append(_filtered(replace(request, run=run), progress))
    return _side_by_side(made, request) if request.strengths else made[0]


def _side_by_side(made: Sequence[np.ndarray], request: PreviewRequest) -> np.ndarray:
    """Put results beside each other, with dark gaps between them."""
    region, dtype = request.region, made[0].dtype
    known = np.iinfo(dtype) if dtype.kind in "iu" else np.finfo(dtype)
    dark = np.clip(request.source.attributes.get("contrast_limits", (0,))[0], known.min, known.max)
    gap = [(0, region.gap if axis == region.across else 0) for axis in range(made[0].ndim)]
    *others, last = made
    padded = [np.pad(each, gap, constant_values=dark) for each in others]
    return np.concatenate([*padded, last], axis=region.across)


def _filtered(request: PreviewRequest, progress: Progress) -> np.ndarray:
    """Filter the region with the strength of the run."""
    pixels = request.pixels
    job = start(request.run, pixels.input, pixels.block)
    wanted = [slice(*span) for span in request.region.spans]
    wanted += [slice(0, n) for n in job.shape[len(wanted) :]]  # colours
    part = Part.of(job, with_uncut_axes(job.filter, job.names, job.shape, wanted))
    block = pixels.read(part.reads)
    out = np.empty([span.size for span in part.spans], job.dtypes[1])
    filter_part(job, part, block, out, progress)
    made = out[within(wanted, part.yields)]
    if not request.source.alpha:
        return made
    given = request.source.data[tuple(slice(*span) for span in request.region.spans)]
    return put_together(made, np.s_[..., :3], np.asarray(given), np.s_[..., 3:])
