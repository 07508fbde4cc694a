"""Prefiltered, rotationally invariant NL-means of volumes (Manjón et al. 2012)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from napari_gpu_denoise.filters.dct3d.filter import OPERATIONS
from napari_gpu_denoise.filters.dct3d.plan import Plan as GuidePlan
from napari_gpu_denoise.filters.pri_nlm.plan import DEPTH, MEAN_RADIUS, Plan, Window
from napari_gpu_denoise.filters.volumes import VolumeFilter, cube_setting, voxel_setting
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.protocol.settings import setting
from napari_gpu_denoise.protocol.tiles import Reach
from napari_gpu_denoise.run.denoise import filter_function


@dataclass(frozen=True)
class PRINLM(VolumeFilter):
    """Settings of PRI-NLM.

    Noisy voxels of a window are averaged; weights compare the result of the sliding 3D DCT, and its
    mean over 3 x 3 x 3 voxels.
    """

    name: ClassVar[str] = "pri_nlm"
    title: ClassVar[str] = "PRI-NLM"
    summary: ClassVar[str] = "NL-means guided by the sliding 3D DCT: fast and good for volumes"

    window: int = setting(
        11, "Search window width in Y and X (odd)", bounds=(1, 31), unit="pixels", odd=True
    )
    window_z: int = setting(
        11, "Search window width in Z (odd)", bounds=(1, 31), unit="slices", odd=True
    )
    strength: float = setting(
        0.4, "Filtering strength h: decay of the weights", bounds=(0.05, 10.0), unit="sigma"
    )
    cube: str = cube_setting()
    voxel: str = voxel_setting()
    step: int = setting(
        1,
        "Spacing of the cubes of the guide (1 is slowest and best)",
        bounds=(1, 4),
        unit="voxels",
        advanced=True,
    )
    threshold: float = setting(
        2.7, "Hard threshold of the guide", bounds=(0.0, 10.0), unit="sigma", advanced=True
    )

    @property
    def reach(self) -> Reach:
        """The window, the mean of the guide or a block of voxels, and the cubes of the guide."""
        deep = max(self.window_z // 2 + MEAN_RADIUS, DEPTH - 1)
        wide = self.window // 2 + MEAN_RADIUS
        pairs = zip((deep, wide, wide), self.cube_around, strict=True)
        return Reach((0, 0), *((a + b,) * 2 for a, b in pairs))

    @property
    def operations_per_pixel(self) -> float:
        """About 12 for each voxel of the window, and those of the guide."""
        return 12.0 * self.window**2 * self.window_z + OPERATIONS

    def plan(self, arena: Arena) -> Plan:
        """Return the plan for one device."""
        guide = GuidePlan(self.cube_shape, self.step, self.threshold, arena)
        return Plan(guide, Window(self.window_z // 2, self.window // 2, self.strength), arena)


@filter_function(PRINLM)
def pri_nlm() -> np.ndarray:
    """Denoise a volume by PRI-NLM, prefiltered rotationally invariant NL-means.

    Parameters
    ----------
    {image}
    {sigma}
    {noise}
    profile : {"normal"}, optional
        Settings to start from, by default ``"normal"``.
    axes : str
        Names of the axes, such as ``"ZYX"``, ``"TZYX"`` or ``"CZYX"``. Z, Y and X are required and
        filtered together; volumes along every other axis are independent.
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
    dct3d : The guide alone, a few times faster.
    bm3d : For images, and for slices that have little in common.

    Notes
    -----
    The weights are ``exp(-((g - g')**2 + 3 * (m - m')**2) / (4 * h**2))`` with
    ``h = strength * sigma``, where g is the result of `dct3d` and m its mean over 3 x 3 x 3 voxels;
    a voxel itself has the weight 1. The window is cut off at the borders of the volume. Results are
    means of noisy voxels: they never leave the range of the volume. Repeated runs on one device are
    bit-identical, with any tiles.

    References
    ----------
    J. V. Manjón, P. Coupé, A. Buades, D. L. Collins and M. Robles, "New methods for MRI denoising
    based on sparseness and self-similarity", Medical Image Analysis 16 (2012), 18-27,
    :doi:`10.1016/j.media.2011.04.003`.

    Examples
    --------
    >>> out = pri_nlm(volume, sigma=20, axes="ZYX")                    # doctest: +SKIP
    >>> out = pri_nlm(volume, axes="ZYX", window_z=5)                  # doctest: +SKIP
    """
