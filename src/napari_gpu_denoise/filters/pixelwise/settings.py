"""Settings of exact pixelwise NL-means."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from napari_gpu_denoise.filters.channels import decide_channels, guide_setting
from napari_gpu_denoise.filters.search.frame_links import (
    FrameSearch,
    flicker_setting,
    frames_setting,
    slices_setting,
)
from napari_gpu_denoise.filters.volumes import distance_of, voxel_setting, voxel_text
from napari_gpu_denoise.image.axes import channel_axis
from napari_gpu_denoise.protocol.settings import setting
from napari_gpu_denoise.protocol.tiles import Reach


@dataclass(frozen=True)
class PixelwiseSettings(FrameSearch):
    """What a pixelwise NL-means has to be told, and what follows from it."""

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
