"""The base class of filters that need an axis Z, and filter cubes of voxels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

from napari_gpu_denoise.errors import AxesError
from napari_gpu_denoise.filters.volumes.cube import AUTO, CUBES, choose_cube, voxel_text
from napari_gpu_denoise.image.axes import UNNAMED
from napari_gpu_denoise.run.filter import Filter


class VolumeFilter(Filter):
    """A filter of volumes, with settings made by `cube_setting` and `voxel_setting`."""

    cube: str
    voxel: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "voxel", voxel_text(self.voxel))
        super().__post_init__()

    @property
    def joint(self) -> str:
        """Slices, always."""
        return "Z"

    def for_array(self, names: str, shape: tuple[int, ...]) -> Self:
        """Return the settings for an array, without cubes thicker than it; refuse one without Z."""
        fitting = super().for_array(names, shape)
        if "Z" not in names:
            raise no_volume(self.title, names, shape)
        thick = self.cube != AUTO and CUBES[self.cube][0] > shape[names.index("Z")]
        return replace(fitting, cube=AUTO) if thick else fitting

    def for_pixels(self, image: Any, names: str) -> tuple[Self, tuple[str, ...]]:
        """Return the settings with cubes that suit an image, and why."""
        if self.cube != AUTO:
            return self, ()
        name, why = choose_cube(image, names, self.voxel)
        return replace(self, cube=name), (why,)

    @property
    def cube_around(self) -> tuple[int, int, int]:
        """How far a voxel's cubes reach along z, y and x; the furthest if none are chosen yet."""
        shapes = CUBES.values() if self.cube == AUTO else (CUBES[self.cube],)
        return tuple(max(lengths) - 1 for lengths in zip(*shapes, strict=True))

    @property
    def cube_shape(self) -> tuple[int, int, int]:
        """Lengths of a cube along z, y and x."""
        return CUBES["4x4x4" if self.cube == AUTO else self.cube]


def no_volume(title: str, names: str, shape: tuple[int, ...]) -> AxesError:
    """Return an error that says how to name the axes, or what to use instead."""
    unnamed = [i for i, a in enumerate(names) if a == UNNAMED and shape[i] > 1]
    if unnamed:
        slices = unnamed[-1]
        named = names[:slices] + "Z" + names[slices + 1 :]
        if "T" not in named and named.count(UNNAMED) == 1:
            named = named.replace(UNNAMED, "T")
        return AxesError(
            f"{title} filters volumes, but no axis is named Z",
            f"name the axes, as axes={named!r}",
            code="axis-needed",
            axis="Z",
        )
    return AxesError(
        f"{title} filters volumes, but the axes are {names!r}",
        "use bm3d for images, or name the axis of slices, as axes='ZYX'",
        code="volume-needed",
    )
