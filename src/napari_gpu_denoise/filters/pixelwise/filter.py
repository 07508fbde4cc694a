"""Exact pixelwise NL-means (Goossens et al. 2010; Buades et al. 2005)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from napari_gpu_denoise.filters.pixelwise.plan import Plan
from napari_gpu_denoise.filters.pixelwise.settings import PixelwiseSettings
from napari_gpu_denoise.filters.pixelwise.whitening import measured_mixing
from napari_gpu_denoise.filters.search.ring_plan import RingPlan
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.run.call import filter_function


@dataclass(frozen=True)
class NLMeansPixelwise(PixelwiseSettings):
    """Settings of exact pixelwise NL-means.

    Every pixel is replaced by the weighted mean of all pixels of a search window; the weight of one
    is the similarity of the patches around both.
    """

    def for_pixels(self, image: Any, names: str) -> tuple[NLMeansPixelwise, tuple[str, ...]]:
        """Return a `WhitenedPixelwise` if channels are to be whitened and have noise."""
        if not (self.whiten and self.channels == "joint" and self.guide < 0):
            return self, ()
        found = measured_mixing(image, names)
        if found is None:
            return self, ()
        return WhitenedPixelwise(**vars(self), mixing=found.mixing), (found.words,)

    def plan(self, arena: Arena) -> Plan | RingPlan:
        """Return the plan for one device."""
        return self._over_time(Plan(self, arena))

    def _over_time(self, tiles: Plan) -> Plan | RingPlan:
        return RingPlan(tiles, self.reach.t) if self.over_time else tiles


@dataclass(frozen=True)
class WhitenedPixelwise(NLMeansPixelwise):
    """The filter with channels mixed before they are compared, made by `for_pixels`."""

    # Not a setting: what the channels are multiplied by.
    mixing: tuple[tuple[float, ...], ...] = field(kw_only=True)

    def for_pixels(self, image: Any, names: str) -> tuple[NLMeansPixelwise, tuple[str, ...]]:
        """Return itself."""
        return self, ()

    def plan(self, arena: Arena) -> Plan | RingPlan:
        """Return the plan for one device."""
        return self._over_time(Plan(self, arena, self.mixing))


@filter_function(NLMeansPixelwise)
def nl_means_pixelwise() -> np.ndarray:
    """Denoise by exact pixelwise NL-means.

    Parameters
    ----------
    {image}
    {sigma}
    {noise}
    profile : {"exact", "conventional", "goossens", "volume"}, optional
        Settings to start from, by default ``"exact"``; settings given as keywords override it.
    {settings}
    {options}
    {fields}

    Returns
    -------
    {result}
    """
