"""NL-means with the Shapiro-Wilk similarity (SWNLM)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from napari_gpu_denoise.filters.pixelwise.plan import Plan as ExactPlan
from napari_gpu_denoise.filters.pixelwise.settings import PixelwiseSettings
from napari_gpu_denoise.filters.swnlm.plan import Plan, Similarity
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.protocol.settings import setting
from napari_gpu_denoise.protocol.tiles import Reach
from napari_gpu_denoise.run.denoise import filter_function

# What lonely pixels fall back to.
_EXACT = PixelwiseSettings(channels="separate")


@dataclass(frozen=True)
class SWNLM(Filter):
    """Settings of NL-means with the Shapiro-Wilk similarity.

    Pixels of a window are averaged if the differences of their patches have the mean, the standard
    deviation and the distribution of noise.
    """

    name: ClassVar[str] = "swnlm"
    title: ClassVar[str] = "Shapiro-Wilk NL-means"
    summary: ClassVar[str] = "Mean of pixels whose patches differ like noise, by statistical tests"
    presets: ClassVar = {
        "normal": {},
        "paper": {"patch": 7, "fewest": 1, "fallback": "keep"},
    }

    patch: int = setting(5, "Patch width (3, 5 or 7)", choices=(3, 5, 7), unit="pixels")
    window: int = setting(21, "Search window width (odd)", bounds=(3, 41), unit="pixels", odd=True)
    alpha: float = setting(
        0.05,
        "Probability of rejecting patches that differ by noise alone, in the Shapiro-Wilk test; 0 "
        "turns the test off",
        bounds=(0.0, 0.5),
    )
    widen: float = setting(
        1.0,
        "Limits for the tests of mean and standard deviation: larger values average more pixels",
        bounds=(0.5, 4.0),
        unit="standard errors",
    )
    fewest: int = setting(
        8, "Minimum number of similar pixels; with fewer, the fallback applies", bounds=(1, 400)
    )
    fallback: str = setting(
        "exact",
        "Result for a pixel with too few similar ones: that of exact pixelwise NL-means with "
        "default settings (exact), or the noisy pixel (keep)",
        choices=("exact", "keep"),
    )
    show: str = setting(
        "image",
        "Output: the denoised image, or the number of pixels averaged (1 where none was similar)",
        choices=("image", "pixels"),
        advanced=True,
    )

    @property
    def reach(self) -> Reach:
        """Half a window and half a patch, or those of the fallback."""
        each = self.window // 2 + self.patch // 2
        around = (max(each, _EXACT.reach.y[0]) if self._falls_back else each,) * 2
        return Reach(y=around, x=around)

    @property
    def yields_map(self) -> bool:
        """Whether the number of pixels averaged is returned."""
        return self.show != "image"

    @property
    def _falls_back(self) -> bool:
        """Whether exact NL-means is needed."""
        return self.fallback == "exact" and not self.yields_map

    @property
    def operations_per_pixel(self) -> float:
        """About 35 for each pixel of the window; a third of the patches is sorted."""
        exchanges = {3: 26, 5: 138, 7: 383}[self.patch]
        exact = _EXACT.operations_per_pixel if self._falls_back else 0.0
        return exact + self.window**2 * (35.0 + 0.7 * exchanges)

    def plan(self, arena: Arena) -> Plan:
        """Return the plan for one device."""
        similarity = Similarity(self.patch, self.window, self.alpha, self.widen, self.fewest)
        exact = ExactPlan(_EXACT, arena) if self._falls_back else None
        return Plan(similarity, self.yields_map, exact, arena)


@filter_function(SWNLM)
def swnlm() -> np.ndarray:
    """Denoise by averaging pixels whose patches differ like noise.

    Parameters
    ----------
    {image}
    {sigma}
    {noise}
    profile : {"normal", "paper"}, optional
        Settings to start from, by default ``"normal"``; settings given as keywords override it.
        ``"paper"`` is the filter as published, ``patch=7, fewest=1, fallback="keep"``.
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
    similar_pixels : The number of pixels averaged for each pixel.
    nl_means_pixelwise : Exact NL-means, which `fallback` uses: better, and faster.
    nl_means : Averages whole patches: better.

    Notes
    -----
    The differences of two patches, divided by the standard deviation that noise alone would give
    them, are tested three times: their mean and their standard deviation must be within ``widen``
    standard errors of 0 and 1, and their Shapiro-Wilk statistic W above the limit for ``alpha``. W
    is the weight of a pixel that passes; a pixel itself has the largest weight of the others. The
    image is mirrored at its borders. Results are means of noisy pixels: they never leave the range
    of the image. Repeated runs on one device are bit-identical, with any tiles.

    W hardly matters: it rejects one in twenty of the patches that pass the other tests, as for pure
    noise, and without it (``alpha=0``) results are slightly better.

    References
    ----------
    B. van der Vuurst, "Efficient implementation of Non Local Means algorithm", University of
    Groningen, 2023, section 2.3 and algorithm 3.

    W. Yamanappa, P. V. Sudeep, M. K. Sabu and J. Rajan, "Non-local means image denoising using
    Shapiro-Wilk similarity measure", IEEE Access 6 (2018), 66914-66922.

    P. Royston, "Remark AS R94: A remark on algorithm AS 181: The W-test for normality", Applied
    Statistics 44 (1995), 547-551.

    Examples
    --------
    >>> out = swnlm(image, sigma=20)                                       # doctest: +SKIP
    >>> out = swnlm(image, profile="paper")                                # doctest: +SKIP
    """
