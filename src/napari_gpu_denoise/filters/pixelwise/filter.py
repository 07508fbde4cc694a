"""Exact pixelwise NL-means (Goossens et al. 2010; Buades et al. 2005)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from napari_gpu_denoise.filters.pixelwise.plan import Plan
from napari_gpu_denoise.filters.pixelwise.settings import PixelwiseSettings
from napari_gpu_denoise.filters.pixelwise.whitening import measured_mixing
from napari_gpu_denoise.filters.search.frame_links import RingPlan
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.run.denoise import filter_function


@dataclass(frozen=True)
class NLMeansPixelwise(PixelwiseSettings):
    """Settings of exact pixelwise NL-means.

    Every pixel is replaced by the weighted mean of all pixels in a search window, weighted by the
    similarity of the patches around them.
    """

    def for_pixels(self, image: Any, names: str) -> tuple[NLMeansPixelwise, tuple[str, ...]]:
        """Return settings for the distance of slices; another filter if channels are whitened."""
        fitting, words = self.spaced(image, names)
        if not (self.whiten and self.channels == "joint" and self.guide < 0):
            return fitting, words
        found = measured_mixing(image, names)
        if found is None:
            return fitting, words
        return WhitenedPixelwise(**vars(fitting), mixing=found.mixing), (*words, found.words)

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
        ``"conventional"`` has Gaussian patches of 7 x 7 pixels, a window of 21 and plain weights
        with h = sigma; ``"goossens"`` patches of 9, a window of 21 and bisquare weights;
        ``"volume"`` patches of 3 x 3 x 3 and a window of 7 x 7 x 7 voxels, with fewer slices where
        these are far apart (needs an axis Z).
    axes : str, optional
        Names of the axes, such as ``"TYX"``, ``"ZYX"``, ``"CYX"`` or ``"YXS"``. Y and X are
        filtered; T and Z join with `frames_before`, `frames_after`, `slices` or `patch_slices`,
        channels by `channels`; every other axis is independent. By default the last two are Y and
        X, the rest independent planes.
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
    nl_means : Averages whole patches: 0.2 to 0.5 dB better, and as fast.
    pixels_averaged : The number of pixels averaged for each pixel.
    denoise : The same with a record of the run, or for some of the frames.
    stream : The same for frames that arrive one by one.

    Notes
    -----
    The distance d of two patches is the mean of their squared differences over pixels and channels,
    each divided by its noise. Results are means of pixels: they never leave the range of the
    window, and joint channels are averaged by the same weights. Patches are mirrored at the
    borders; pixels outside are not averaged. Other filters have a better PSNR.

    Noise that is correlated between channels is whitened before they are compared (`whiten`); for
    noise that is correlated between pixels use `bm3d`. Other frames and slices are searched at the
    same place; motion is not followed. The work is about ``window**2 * (20 + patch)`` operations a
    pixel, times frames and slices. Repeated runs on one device are bit-identical, with any tiles.

    References
    ----------
    B. Goossens, H. Luong, J. Aelterman, A. Pižurica and W. Philips, "A GPU-accelerated real-time
    NLMeans algorithm for denoising color video sequences", ACIVS 2010, 46-57,
    :doi:`10.1007/978-3-642-17691-3_5`.

    A. Buades, B. Coll and J.-M. Morel, "A review of image denoising algorithms, with a new one",
    Multiscale Modeling & Simulation 4 (2005), 490-530, :doi:`10.1137/040616024`.

    Examples
    --------
    >>> out = nl_means_pixelwise(image, sigma=20)                        # doctest: +SKIP
    >>> out = nl_means_pixelwise(video, axes="TYX", frames_before=2)     # doctest: +SKIP
    >>> out = nl_means_pixelwise(series, axes="CZYX", channels="joint")  # doctest: +SKIP
    """
