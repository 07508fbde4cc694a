"""Exact pixelwise NL-means (Goossens et al. 2010; Buades et al. 2005)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from napari_gpu_denoise.filters.pixelwise.plan import Plan
from napari_gpu_denoise.filters.pixelwise.settings import PixelwiseSettings
from napari_gpu_denoise.filters.search.ring_plan import RingPlan
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.run.call import filter_function


@dataclass(frozen=True)
class NLMeansPixelwise(PixelwiseSettings):
    """Settings of exact pixelwise NL-means.

    Every pixel is replaced by the weighted mean of all pixels of a search window; the weight of one
    is the similarity of the patches around both.
    """

    def plan(self, arena: Arena) -> Plan | RingPlan:
        """Return the plan for one device."""
        tiles = Plan(self, arena)
        return RingPlan(tiles, self.reach.t) if self.over_time else tiles


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
