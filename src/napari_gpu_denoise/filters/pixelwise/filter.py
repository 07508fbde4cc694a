"""Exact pixelwise NL-means (Goossens et al. 2010; Buades et al. 2005)."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from napari_gpu_denoise.filters.channels import decide_channels, guide_setting
from napari_gpu_denoise.filters.pixelwise.plan import Plan
from napari_gpu_denoise.filters.search.frame_links import (
    FrameSearch,
    RingPlan,
    flicker_setting,
    frames_setting,
    slices_setting,
)
from napari_gpu_denoise.filters.volumes import distance_of, voxel_setting, voxel_text
from napari_gpu_denoise.image.axes import channel_axis
from napari_gpu_denoise.noise.correlation import channel_covariance
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.protocol.settings import setting
from napari_gpu_denoise.protocol.tiles import Reach
from napari_gpu_denoise.run.denoise import filter_function, shown_maps, with_settings
from napari_gpu_denoise.run.part import finish
from napari_gpu_denoise.run.record import Progress
from napari_gpu_denoise.run.request import Run

# Least variance of a mixture, relative to that of the channels: less would be guesswork.
_LEAST = 0.02

Mixing = tuple[tuple[float, ...], ...]
"""A matrix that channels are multiplied by before they are compared."""


def measured_mixing(image: Any, names: str) -> tuple[Mixing, str] | None:
    """Return what whitens the noise of an image, and why, in words; None if a channel has no noise.

    The image may be lazy: one plane is read, in the middle of all axes but channels, Y and X.
    """
    axis = channel_axis(names)
    kept = (axis, names.index("Y"), names.index("X"))
    index = tuple(slice(None) if i in kept else n // 2 for i, n in enumerate(image.shape))
    order = [sorted(kept).index(i) for i in kept]
    found = channel_covariance(np.transpose(np.asarray(image[index]), order))
    covariance = np.array(found.covariance)
    if not np.all(np.diag(covariance) > 0):
        return None
    words = f"{found.summary()}: channels are compared after whitening"
    return tuple(map(tuple, mixing_of(covariance).tolist())), words


def mixing_of(covariance: np.ndarray) -> np.ndarray:
    """Return the inverse square root of a covariance between channels.

    It is scaled so that the noise of the mixtures has the mean variance of the channels.
    """
    values, vectors = np.linalg.eigh(covariance)
    mean = np.trace(covariance) / len(covariance)
    return (vectors * np.sqrt(mean / np.maximum(values, _LEAST * mean))) @ vectors.T


@dataclass(frozen=True)
class NLMeansPixelwise(FrameSearch):
    """Settings of exact pixelwise NL-means.

    Every pixel is replaced by the weighted mean of all pixels in a search window, weighted by the
    similarity of the patches around them.
    """

    name: ClassVar[str] = "nl_means_pixelwise"
    title: ClassVar[str] = "NL-means, pixelwise"
    summary: ClassVar[str] = "Exact pixelwise non-local means: weighted means of single pixels"
    presets: ClassVar[dict[str, dict]] = {
        "exact": {},
        "conventional": {
            **{"patch": 7, "window": 21, "strength": 1.0, "weights": "plain"},
            **{"patch_shape": "gaussian", "deviation": 1.0},
        },
        "goossens": {"patch": 9, "window": 21, "strength": 2.1, "weights": "bisquare"},
        "volume": {
            **{"patch": 3, "patch_slices": 1, "window": 7, "slices": 3, "spacing": "auto"},
        },
    }

    mixing: ClassVar[Mixing | None] = None  # channels are compared as they are

    patch: int = setting(5, "Patch width (odd)", bounds=(1, 31), unit="pixels", odd=True)
    window: int = setting(13, "Search window width (odd)", bounds=(1, 101), unit="pixels", odd=True)
    strength: float = setting(
        0.75, "Filtering strength h: decay of the weights", bounds=(0.05, 10.0), unit="sigma"
    )
    weights: str = setting(
        "exp",
        "Weights by the distance d of patches: exp(-max(d - 2 sigma^2, 0) / h^2), plain exp(-d / "
        "h^2), or bisquare (1 - d / h^2)^2 up to h",
        choices=("exp", "plain", "bisquare"),
    )
    own_weight: str = setting(
        "one",
        "Weight of the pixel itself: 1 (one), or that of the most similar other pixel (max)",
        choices=("one", "max"),
        advanced=True,
    )
    patch_shape: str = setting(
        "box",
        "Weights of the pixels within a patch: all equal (box), or Gaussian",
        choices=("box", "gaussian"),
    )
    deviation: float = setting(
        1.0,
        "Standard deviation of Gaussian patches",
        bounds=(0.2, 20.0),
        unit="pixels",
        advanced=True,
    )
    frames_before: int = frames_setting(0, "Earlier frames to search")
    frames_after: int = frames_setting(0, "Later frames to search; 0 filters without delay")
    flicker: bool = flicker_setting()
    slices: int = slices_setting()
    patch_slices: int = setting(
        0,
        "Slices above and below that belong to a patch",
        bounds=(0, 8),
        unit="slices",
        needs_axis="Z",
    )
    spacing: str = setting(
        "off",
        "Whether slices and patch_slices are lengths in pixels (auto: fewer slices if they are far "
        "apart, as measured in the image or given by the voxel size) or numbers of slices (off)",
        choices=("off", "auto"),
        advanced=True,
    )
    voxel: str = voxel_setting("the distance of slices")
    channels: str = setting(
        "auto",
        "Filter channels separately, or all with the same weights (joint); auto is joint for RGB "
        "and separate otherwise",
        choices=("auto", "separate", "joint"),
    )
    guide: int = guide_setting("from which the weights of joint channels are computed")
    whiten: bool = setting(
        False,
        "Mix joint channels so that their noise is independent before patches are compared, for "
        "noise that is correlated between channels",
        advanced=True,
    )
    show: str = setting(
        "image",
        "Output: the denoised image, or the number of pixels averaged",
        choices=("image", "pixels"),
        advanced=True,
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "voxel", voxel_text(self.voxel))
        super().__post_init__()

    def spaced(self, image: Any, names: str) -> tuple[Self, tuple[str, ...]]:
        """Return the settings with as many slices as they are long in pixels, and why."""
        deep = self.slices or self.patch_slices
        if self.spacing == "off" or not deep or image.shape[names.index("Z")] < 2:
            return self, ()
        ratio, why = distance_of(image, names, self.voxel)
        slices = max(round(self.slices / ratio), 1) if self.slices else 0
        around = round(self.patch_slices / ratio)
        if (slices, around) == (self.slices, self.patch_slices):
            return self, ()
        # Patches keep about as many voxels: their distances would be the less certain.
        wide = self.patch * math.sqrt((2 * self.patch_slices + 1) / (2 * around + 1))
        patch = min(2 * round((wide - 1) / 2) + 1, 31)
        fitting = replace(self, slices=slices, patch_slices=around, patch=patch, spacing="off")
        shape = f"{2 * around + 1}x{patch}x{patch}"
        return fitting, (f"{why}: slices={slices}, patches of {shape} voxels",)

    def for_array(self, names: str, shape: tuple[int, ...]) -> Self:
        """Return the settings for an array, with ``channels="auto"`` decided by its axes."""
        fitting = super().for_array(names, shape)
        if self.channels == "auto":
            axis = channel_axis(names)
            colours = axis is not None and names[axis] == "S" and shape[axis] == 3
            fitting = replace(fitting, channels="joint" if colours else "separate")
        return decide_channels(fitting, names, shape)

    @property
    def joint(self) -> str:
        """Channels that share weights; T and Z, if other frames or slices are looked at."""
        deep = self.slices or self.patch_slices
        return "C" * (self.channels == "joint") + "T" * self.over_time + "Z" * bool(deep)

    @property
    def yields_map(self) -> bool:
        """Whether the number of pixels averaged is returned."""
        return self.show != "image"

    @property
    def reach(self) -> Reach:
        """The search window and half a patch."""
        around = (self.window // 2 + self.patch // 2,) * 2
        deep = (self.slices + self.patch_slices,) * 2
        return Reach((self.frames_before, self.frames_after), deep, around, around)

    @property
    def offsets(self) -> int:
        """Number of pixels in the search window."""
        frames = self.frames_before + 1 + self.frames_after
        return self.window**2 * (2 * self.slices + 1) * frames

    @property
    def operations_per_pixel(self) -> float:
        """Those of all offsets: sums over patches, weights, and sums."""
        sums = 4.0 * self.patch if self.patch_shape == "gaussian" else 8.0 + self.patch
        return self.offsets * (12.0 + sums * (2 * self.patch_slices + 1))

    def for_pixels(self, image: Any, names: str) -> tuple[NLMeansPixelwise, tuple[str, ...]]:
        """Return settings for the distance of slices; another filter if channels are whitened."""
        fitting, words = self.spaced(image, names)
        if not (self.whiten and self.channels == "joint" and self.guide < 0):
            return fitting, words
        measured = measured_mixing(image, names)
        if measured is None:
            return fitting, words
        mixing, why = measured
        return WhitenedPixelwise(**vars(fitting), mixing=mixing), (*words, why)

    def plan(self, arena: Arena) -> Plan | RingPlan:
        """Return the plan for one device."""
        tiles = Plan(self, arena, self.mixing)
        return RingPlan(tiles, self.reach.t) if self.over_time else tiles


@dataclass(frozen=True)
class WhitenedPixelwise(NLMeansPixelwise):
    """The filter with channels mixed before they are compared, made by `for_pixels`."""

    # Not a setting: what the channels are multiplied by.
    mixing: Mixing = field(kw_only=True)

    def for_pixels(self, image: Any, names: str) -> tuple[NLMeansPixelwise, tuple[str, ...]]:
        """Return itself."""
        return self, ()


@filter_function(NLMeansPixelwise)
def nl_means_pixelwise() -> np.ndarray:
    """Denoise by exact pixelwise NL-means.

    Parameters
    ----------
    {inputs}
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

    {outcome}

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


@with_settings(NLMeansPixelwise, without=("dtype",))
def pixels_averaged(
    image: ArrayLike,
    sigma: ArrayLike | None = None,
    *,
    frames: int | slice | None = None,
    progress: Callable[[int, int], None] | None = None,
    cancel: Any = None,
    **given: Any,
) -> np.ndarray:
    """Return how many pixels pixelwise NL-means averages for each pixel of an image.

    Parameters
    ----------
    {inputs}
    profile : {"exact", "conventional", "goossens", "volume"}, optional
        Settings to start from, as `nl_means_pixelwise` takes it.
    axes : str, optional
        Names of the axes, as `nl_means_pixelwise` takes them.
    {settings}
    frames : int or slice, optional
        Frames along the axis T to return, by default all. The axis T stays.
    {run}
    {fields}

    Returns
    -------
    ndarray of float32
        Of the shape of `image`, without the channel axis where channels share their weights:
        ``(sum of weights)**2 / (sum of squared weights)``, from 1 to the pixels of the window; 0
        where the image has no noise or is not finite.

    Raises
    ------
    {errors}

    See Also
    --------
    nl_means_pixelwise : The filter.

    Notes
    -----
    The map shows where the filter finds similar pixels. It is not an error bar: sigma divided by
    its square root was 0.6 of the true standard deviation of the result, and the bias of the
    filter, which it does not include, exceeds both.

    Examples
    --------
    >>> count = pixels_averaged(image, sigma=20)                           # doctest: +SKIP
    """
    steps = count_steps(image, Run.of(NLMeansPixelwise, sigma, given, without=("dtype",)), frames)
    return finish(steps, progress, cancel, lost="no map was")


def count_steps(
    image: Any, run: Run, frames: int | slice | None = None, slices: int | slice | None = None
) -> Generator[Progress, None, np.ndarray]:
    """Count step by step, with progress after each tile; closing this stops the work."""
    _, maps = yield from shown_maps(image, run, lambda settings: ["pixels"], frames, slices)
    return maps["pixels"]
