"""Settings that both passes of BM4D have, each with its own default."""

from __future__ import annotations

from typing import Any

from napari_gpu_denoise.filters.bm3d.group_settings import STACK_TRANSFORMS, TRANSFORMS
from napari_gpu_denoise.filters.bm3d.pass_fields import GROUPS
from napari_gpu_denoise.protocol.settings import setting


def step(default: int, of: str) -> Any:
    help = f"Spacing of reference cubes {of}, along an axis of four voxels (1 is slowest and best)"
    return setting(default, help, bounds=(1, 4), unit="voxels", advanced=True)


def window(default: int, of: str) -> Any:
    help = f"Search window width {of} (odd), along an axis of four voxels"
    return setting(default, help, bounds=(1, 21), unit="voxels", advanced=True, odd=True)


def neighbours(default: int, of: str) -> Any:
    help = f"Maximum number of cubes in a group {of}"
    return setting(default, help, choices=GROUPS, unit="cubes", advanced=True)


def transform(default: str, of: str) -> Any:
    return setting(default, f"3D transform of a cube {of}", choices=TRANSFORMS[:3], advanced=True)


def stack(default: str, of: str) -> Any:
    help = f"Transform along the stack of cubes {of}"
    return setting(default, help, choices=STACK_TRANSFORMS, advanced=True)


def similar(default: float, of: str) -> Any:
    help = f"Maximum mean squared difference between cubes of a group {of}"
    return setting(default, help, bounds=(0.0, 1000.0), unit="sigma squared", advanced=True)
