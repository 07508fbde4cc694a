"""The shape of the cubes that volumes are filtered in: 64 voxels, thin where slices are few."""

from __future__ import annotations

from napari_gpu_denoise.run.settings import setting

AUTO = "auto"
CUBES = {"4x4x4": (4, 4, 4), "2x4x8": (2, 4, 8), "1x8x8": (1, 8, 8)}
"""Lengths along z, y and x, by name."""
FLAT = "1x8x8"


def cube_setting():
    """Return the setting for the shape of a cube."""
    return setting(
        AUTO,
        "Shape of cubes in Z, Y and X; auto takes 4x4x4, or 1x8x8 for fewer than 4 slices",
        choices=(AUTO, *CUBES),
        unit="voxels",
    )


def choose_cube(wanted: str, slices: int) -> str:
    """Return the name of the cubes for a volume of so many slices.

    Cubes that are thicker than the volume are replaced by flat ones.
    """
    name = "4x4x4" if wanted == AUTO else wanted
    return name if CUBES[name][0] <= slices else FLAT
