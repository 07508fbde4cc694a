"""The isoline filter: averages along lines of equal grey level."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from napari_gpu_denoise.filters.isoline.margins import Margins
from napari_gpu_denoise.filters.isoline.plan import Plan
from napari_gpu_denoise.filters.isoline.settings import IsolineSettings
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.protocol.tiles import Reach
from napari_gpu_denoise.run.denoise import filter_function


@dataclass(frozen=True)
class Isoline(IsolineSettings):
    """Settings of the isoline filter.

    Every pixel is averaged along the line of equal grey level through it: segments in the direction
    that fits best, each continued by the segment at its end.
    """

    @property
    def reach(self) -> Reach:
        """The margin of the isolines and of the pixels compared around them."""
        return Margins.of(self).reach

    def plan(self, arena: Arena) -> Plan:
        """Return the plan for one device."""
        return Plan(self, arena)


@filter_function(Isoline)
def isoline() -> np.ndarray:
    """Denoise by averaging along lines of equal grey level.

    Parameters
    ----------
    {image}
    {sigma}
    {noise}
    profile : {"normal", "fine", "paper"}, optional
        Settings to start from, by default ``"normal"``; settings given as keywords override it.
        ``"fine"`` is ``staircase=15``; ``"paper"`` is the hybrid filter exactly as published,
        ``choice="hard", thickness=1, staircase=0``.
    axes : str, optional
        Names of the axes, such as ``"TZYX"``, ``"CYX"`` or ``"YXS"``. Y and X are filtered, each
        plane separately. By default the last two are Y and X, the rest independent planes.
    {settings}
    {options}
    {fields}

    Returns
    -------
    {filtered}

    Raises
    ------
    {errors}

    Warns
    -----
    {warnings}

    See Also
    --------
    isoline_maps : Edge and direction maps.
    denoise : The same with a record of the run.

    Notes
    -----
    With the defaults, averages along lines of ``2 * segment_length + 1`` pixels in 16 directions,
    and over a small window for regions of low slope, are weighted by how well they predict nearby
    pixels. Planes are then fitted to the noisy pixels of a window, weighted by how similar these
    averages are (staircase correction). Isolines are followed both ways along the directions found,
    and their ends averaged. The work is about ``700 + 15 * staircase**2`` operations per pixel.

    ``choice="hard"`` is the method of the paper, except that the first pixel counts in the mean;
    sigma is then used by the staircase correction only. ``method="pi-ld"`` always picks the best
    direction; it is slow, and meant for comparison.

    References
    ----------
    G. Perrot, S. Domas, R. Couturier and N. Bertaux, "Fast GPU-based denoising filter using isoline
    levels", 2014, sections 3 to 5.

    A. Buades, B. Coll and J.-M. Morel, "The staircasing effect in neighborhood filters and its
    solution", IEEE Transactions on Image Processing 15 (2006), pages 1499 to 1505.

    Examples
    --------
    >>> out = isoline(image, sigma=20)                                     # doctest: +SKIP
    >>> out = isoline(image, criterion="multiplicative", looks=4)              # doctest: +SKIP
    >>> out = isoline(image, profile="paper")                              # doctest: +SKIP
    """
