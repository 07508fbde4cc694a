"""Sliding 3D DCT of volumes (Manjón et al. 2012)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from napari_gpu_denoise.filters.dct3d.plan import Plan
from napari_gpu_denoise.filters.volumes import VolumeFilter, cube_setting, voxel_setting
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.protocol.settings import setting
from napari_gpu_denoise.protocol.tiles import Reach
from napari_gpu_denoise.run.denoise import filter_function

# Of a cube, with what is filtered twice at the borders of work-groups.
OPERATIONS = 1600.0


@dataclass(frozen=True)
class DCT3D(VolumeFilter):
    """Settings of the sliding 3D DCT.

    Every cube of 64 voxels is transformed, coefficients below a threshold are removed, and the
    results of all cubes that contain a voxel are averaged.
    """

    name: ClassVar[str] = "dct3d"
    title: ClassVar[str] = "Sliding 3D DCT"
    summary: ClassVar[str] = "Thresholds the DCT of every small cube: the fastest for volumes"

    cube: str = cube_setting()
    voxel: str = voxel_setting()
    step: int = setting(1, "Spacing of cubes (1 is slowest and best)", bounds=(1, 4), unit="voxels")
    threshold: float = setting(2.7, "Hard threshold", bounds=(0.0, 10.0), unit="sigma")

    @property
    def reach(self) -> Reach:
        """The cubes that hold a voxel."""
        return Reach((0, 0), *((n, n) for n in self.cube_around))

    @property
    def operations_per_pixel(self) -> float:
        """Those of a cube, by the spacing of cubes."""
        return OPERATIONS / math.prod(min(self.step, n) for n in self.cube_shape)

    def plan(self, arena: Arena) -> Plan:
        """Return the plan for one device."""
        return Plan(self.cube_shape, self.step, self.threshold, arena)


@filter_function(DCT3D)
def dct3d() -> np.ndarray:
    """Denoise a volume by thresholding the DCT of every small cube.

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
    pri_nlm : About 0.4 dB better and a few times slower; uses this result as a guide.
    bm3d : For images, and for slices that have little in common.

    Notes
    -----
    The mean of a cube is always kept. A cube has the weight ``1 / (coefficients kept)``. The volume
    is mirrored at its borders. If sigma differs from slice to slice, a cube gets the root mean
    square over its slices; for a map, the value in its middle. A larger `step` is faster and much
    worse: 1.6 dB for ``step=2``. Repeated runs on one device are bit-identical, with any tiles.

    References
    ----------
    J. V. Manjón, P. Coupé, A. Buades, D. L. Collins and M. Robles, "New methods for MRI denoising
    based on sparseness and self-similarity", Medical Image Analysis 16 (2012), 18-27, section 2.2,
    :doi:`10.1016/j.media.2011.04.003`.

    Examples
    --------
    >>> out = dct3d(volume, sigma=20, axes="ZYX")                      # doctest: +SKIP
    >>> out = dct3d(volumes, axes="TZYX", cube="2x4x8")                # doctest: +SKIP
    """
