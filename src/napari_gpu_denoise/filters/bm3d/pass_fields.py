"""Settings that BM3D and VBM3D have in common, and the passes made of them.

The functions named like a setting declare it.
"""

from __future__ import annotations

from typing import Any, Self

from napari_gpu_denoise.filters.bm3d.group_settings import (
    PATCH,
    STACK_TRANSFORMS,
    TRANSFORMS,
    GroupSettings,
)
from napari_gpu_denoise.filters.channels import JOINED, decide_channels
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.protocol.settings import setting

GROUPS = (1, 2, 4, 8, 16, 32)

BASIC, FINAL = "in the first pass", "in the second pass"


def stages() -> Any:
    help = "Run both passes, or only the first one (faster, lower quality)"
    return setting("both", help, choices=("both", "basic"))


def threshold(default: float) -> Any:
    help = "Hard threshold for transform coefficients in the first pass"
    return setting(default, help, bounds=(0.0, 10.0), unit="sigma")


def wiener_sigma(default: float) -> Any:
    help = "Noise level assumed by the Wiener filter in the second pass"
    return setting(default, help, bounds=(0.0, 10.0), unit="sigma")


def neighbours(default: int, of: str) -> Any:
    help = f"Maximum number of patches in a group {of}"
    return setting(default, help, choices=GROUPS, unit="patches", advanced=True)


def transform(default: str, of: str) -> Any:
    return setting(default, f"2D transform of a patch {of}", choices=TRANSFORMS, advanced=True)


def stack(default: str, of: str) -> Any:
    help = f"Transform along the stack of patches {of}"
    return setting(default, help, choices=STACK_TRANSFORMS, advanced=True)


def similar(default: float, of: str) -> Any:
    help = f"Maximum mean squared difference between patches of a group {of}"
    return setting(default, help, bounds=(0.0, 1000.0), unit="sigma squared", advanced=True)


def kaiser(default: float = 2.0) -> Any:
    help = "Beta of the Kaiser window that weights overlapping patches"
    return setting(default, help, bounds=(0.0, 4.0), advanced=True)


def shared_noise(default: bool) -> Any:
    help = "Account for noise that overlapping patches of a group share (Haar stacks only)"
    return setting(default, help, advanced=True)


class TwoPasses(Filter):
    """Base of BM3D and its kin: one or two passes that filter groups of what is similar."""

    stages: str
    threshold: float
    wiener_sigma: float
    kaiser: float
    shared_noise: bool

    @property
    def passes(self) -> dict[str, Any]:
        """The passes by name, in order."""
        raise NotImplementedError(f"{type(self).__name__} has no passes")

    @property
    def operations_per_pixel(self) -> float:
        """Estimate for the searches and the transforms."""
        return sum(sum(one.operations_per_pixel) for one in self.passes.values())

    @property
    def operations_per_launch(self) -> float:
        """The longest search, or the longest filtering of groups, at a quarter of its pace."""
        works = (one.operations_per_pixel for one in self.passes.values())
        return max(max(search, 4 * groups) for search, groups in works)

    def _pass_names(self) -> tuple[str, ...]:
        return ("basic", "final") if self.stages == "both" else ("basic",)

    def _shrinkage(self, name: str) -> dict[str, Any]:
        """Return the fields of a pass that say how its groups are filtered."""
        stack = getattr(self, f"stack_{name}")
        return {
            "transform": getattr(self, f"transform_{name}"),
            "stack": stack,
            "similar": getattr(self, f"similar_{name}"),
            "threshold": self.threshold if name == "basic" else self.wiener_sigma,
            "wiener": name == "final",
            "kaiser": self.kaiser,
            "shared_noise": self.shared_noise and stack == "haar",
        }


class CollaborativeFilter(TwoPasses):
    """Base of BM3D and VBM3D: groups of similar patches."""

    channels: str

    @property
    def smallest(self) -> int:
        """One patch."""
        return PATCH

    @property
    def joint(self) -> str:
        """Channels that share matches."""
        return "C" if self.channels in JOINED else ""

    def for_array(self, names: str, shape: tuple[int, ...]) -> Self:
        """Return the settings for an array, with ``channels="auto"`` decided by its axes."""
        return decide_channels(super().for_array(names, shape), names, shape)

    def _pass(self, name: str, search: Any, **more: Any) -> GroupSettings:
        """Return the pass of that name; `more` are other fields of `GroupSettings`."""
        return GroupSettings(search, **{**self._shrinkage(name), **more})
