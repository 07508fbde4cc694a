"""Fields that the settings of BM3D and VBM3D have for each of their passes."""

from __future__ import annotations

from typing import Any

from napari_gpu_denoise.filters.group_settings import STACK_TRANSFORMS, TRANSFORMS
from napari_gpu_denoise.filters.settings import setting

GROUPS = (1, 2, 4, 8, 16, 32)

# Which pass a field is for, as its help says.
BASIC, FINAL = "in the first pass", "in the second pass"


def neighbours(default: int, of: str) -> Any:
    """Declare how many patches a group has at most."""
    return setting(
        default, f"Most patches in a group {of}", choices=GROUPS, unit="patches", advanced=True
    )


def transform(default: str, of: str) -> Any:
    """Declare the transform of a patch."""
    return setting(default, f"Transform of a patch {of}", choices=TRANSFORMS, advanced=True)


def stack(default: str, of: str) -> Any:
    """Declare the transform along the stack of patches of a group."""
    help = f"Transform along the stack of patches {of}"
    return setting(default, help, choices=STACK_TRANSFORMS, advanced=True)


def similar(default: float, of: str) -> Any:
    """Declare how much a patch may differ from the reference of its group."""
    return setting(
        default,
        f"Largest mean squared difference of patches in a group {of}",
        bounds=(0.0, 1000.0),
        unit="sigma squared",
        advanced=True,
    )
