"""NL-means with the Shapiro-Wilk similarity (SWNLM)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.filters.swnlm.plan import Plan, Similarity
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.run.call import filter_function
from napari_gpu_denoise.run.filter import Filter
from napari_gpu_denoise.run.settings import setting
from napari_gpu_denoise.run.tiles import Reach


@dataclass(frozen=True)
class SWNLM(Filter):
    """Settings of NL-means with the Shapiro-Wilk similarity.

    Pixels of a window are averaged if the differences of their patches have the mean, the deviation
    and the distribution of noise.
    """

    name: ClassVar[str] = "swnlm"
    title: ClassVar[str] = "Shapiro-Wilk NL-means"
    summary: ClassVar[str] = "Mean of pixels whose patches differ like noise, by statistical tests"
    presets: ClassVar = {
        "normal": {},
        "paper": {"patch": 7, "fewest": 1, "fallback": "keep"},
    }

    patch: int = setting(5, "Patch width (3, 5 or 7)", choices=(3, 5, 7), unit="pixels")
    window: int = setting(21, "Search window width (odd)", bounds=(3, 41), unit="pixels")
    alpha: float = setting(
        0.05,
        "Probability of rejecting patches that differ by noise alone, in the Shapiro-Wilk test; 0 "
        "turns the test off",
        bounds=(0.0, 0.5),
    )
    widen: float = setting(
        1.0,
        "Limits of the tests of mean and standard deviation: more averages more pixels",
        bounds=(0.5, 4.0),
        unit="standard errors",
    )
    fewest: int = setting(
        8, "Pixels that must be similar; with fewer, `fallback` applies", bounds=(1, 400)
    )
    fallback: str = setting(
        "keep",
        "What a pixel with too few similar ones becomes",
        choices=("exact", "keep"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window % 2 == 0:
            raise SettingsError(f"window={self.window} has no centre: choose an odd width.")

    @property
    def reach(self) -> Reach:
        """Half a window and half a patch."""
        each = self.window // 2 + self.patch // 2
        return Reach(y=(each, each), x=(each, each))

    @property
    def operations_per_pixel(self) -> float:
        """About 35 for each pixel of the window, and the sorting of a third of the patches."""
        exchanges = {3: 26, 5: 138, 7: 383}[self.patch]
        return self.window**2 * (35.0 + exchanges)

    def plan(self, arena: Arena) -> Plan:
        """Return the plan for one device."""
        similarity = Similarity(self.patch, self.window, self.alpha, self.widen, self.fewest)
        return Plan(similarity, self.fallback == "keep", False, arena)


@filter_function(SWNLM)
def swnlm() -> np.ndarray:
    """Denoise by averaging pixels whose patches differ like noise.

    Parameters
    ----------
    {image}
    {sigma}
    {noise}
    {settings}
    {options}
    {fields}

    Returns
    -------
    {result}
    """
