"""Settings that BM3D and VBM3D have in common, and the passes made of them."""

from __future__ import annotations

from typing import Any

from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.filters.bm3d.group_settings import (
    STACK_TRANSFORMS,
    TRANSFORMS,
    GroupSettings,
)
from napari_gpu_denoise.run.settings import setting

GROUPS = (1, 2, 4, 8, 16, 32)

# Which pass a field is for, as its help says.
BASIC, FINAL = "in the first pass", "in the second pass"


def stages() -> Any:
    """Declare which passes are run."""
    help = "Run both passes, or only the first one (faster, lower quality)"
    return setting("both", help, choices=("both", "basic"))


def threshold(default: float) -> Any:
    """Declare the threshold of the first pass."""
    help = "Hard threshold for transform coefficients in the first pass"
    return setting(default, help, bounds=(0.0, 10.0), unit="sigma")


def wiener_sigma(default: float) -> Any:
    """Declare the noise of the second pass."""
    help = "Noise level assumed by the Wiener filter in the second pass"
    return setting(default, help, bounds=(0.0, 10.0), unit="sigma")


def neighbours(default: int, of: str) -> Any:
    """Declare how many patches a group has at most."""
    help = f"Maximum number of patches in a group {of}"
    return setting(default, help, choices=GROUPS, unit="patches", advanced=True)


def transform(default: str, of: str) -> Any:
    """Declare the transform of a patch."""
    return setting(default, f"2D transform of a patch {of}", choices=TRANSFORMS, advanced=True)


def stack(default: str, of: str) -> Any:
    """Declare the transform along the stack of patches of a group."""
    help = f"Transform along the stack of patches {of}"
    return setting(default, help, choices=STACK_TRANSFORMS, advanced=True)


def similar(default: float, of: str) -> Any:
    """Declare how much a patch may differ from the reference of its group."""
    help = f"Maximum mean squared difference between patches of a group {of}"
    return setting(default, help, bounds=(0.0, 1000.0), unit="sigma squared", advanced=True)


def kaiser() -> Any:
    """Declare the window that overlapping patches are joined with."""
    help = "Beta of the Kaiser window that weights overlapping patches"
    return setting(2.0, help, bounds=(0.0, 4.0), advanced=True)


def shared_noise(default: bool) -> Any:
    """Declare whether the variance of a coefficient allows for patches that overlap."""
    help = "Account for noise that overlapping patches of a group share (Haar stacks only)"
    return setting(default, help, advanced=True)


def check_odd(settings: Any, *names: str) -> None:
    """Refuse even widths of search windows.

    Raises
    ------
    SettingsError
    """
    for name in names:
        if getattr(settings, name) % 2 == 0:
            raise SettingsError(
                f"{name}={getattr(settings, name)} has no centre: choose an odd width."
            )


def pass_names(settings: Any) -> tuple[str, ...]:
    """Return the names of the passes that are run."""
    return ("basic", "final") if settings.stages == "both" else ("basic",)


def group_settings(settings: Any, name: str, search: Any, **more: Any) -> GroupSettings:
    """Return one pass: its search, and how its groups are filtered.

    Parameters
    ----------
    settings : BM3D or VBM3D
        The filter.
    name : {"basic", "final"}
        The pass.
    search : SearchSettings or VideoSearch
        What is searched.
    **more
        Other fields of `GroupSettings`.
    """
    stack = getattr(settings, f"stack_{name}")
    return GroupSettings(
        search,
        getattr(settings, f"transform_{name}"),
        stack,
        similar=getattr(settings, f"similar_{name}"),
        threshold=settings.threshold if name == "basic" else settings.wiener_sigma,
        wiener=name == "final",
        kaiser=settings.kaiser,
        shared_noise=settings.shared_noise and stack == "haar",
        **more,
    )
