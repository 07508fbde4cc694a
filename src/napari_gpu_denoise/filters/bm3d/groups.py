"""The passes of BM3D and its kin: settings, and how kernels suit a device."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

from napari_gpu_denoise.filters.channels import JOINED, decide_channels
from napari_gpu_denoise.filters.search.patch_search import SearchSettings, Variant
from napari_gpu_denoise.opencl.device import Device
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.protocol.settings import setting

PATCH = 8
TRANSFORMS = ("bior1.5", "dct", "haar", "dft")
STACK_TRANSFORMS = ("haar", "hadamard", "dct")


@dataclass(frozen=True)
class GroupSettings:
    """One pass: what is searched, and how groups are filtered.

    `search` may be a `VideoSearch`. `threshold` is in sigma: the hard threshold of coefficients, or
    the noise level assumed by a Wiener filter. `common` is the same for what the patches of a group
    have in common, if it is another one. `spectra` are the autocorrelations of the noise,
    (5, 5) each: one for all channels, or one for each; none for white noise. `kalman` filters from
    patch to patch instead, guided like a Wiener filter, and changes the reference alone.
    """

    search: SearchSettings
    transform: str
    stack: str
    similar: float
    threshold: float = 0.0
    common: float | None = None
    wiener: bool = False
    kalman: bool = False
    kaiser: float = 2.0
    reproducible: bool = True
    shared_noise: bool = False
    spectra: tuple[tuple[tuple[float, ...], ...], ...] = ()

    @property
    def limits(self) -> tuple[float, float]:
        """Squares of the threshold, and of that of what patches have in common."""
        common = self.threshold if self.common is None else self.common
        return self.threshold**2, common**2

    @property
    def reach(self) -> int:
        """Reach in pixels: to a reference patch, and from there to its matches."""
        return 2 * (self.search.window // 2) + PATCH - 1 + self.search.beyond

    @property
    def operations_per_pixel(self) -> tuple[float, float]:
        """Operations of the search, and of the filtering of groups."""
        search = self.search
        images = 3 if self.wiener else 2
        compared = 2.0 * search.candidates * PATCH**2
        transformed = images * search.neighbours * PATCH**2 * (10.0 + 2 * math.log2(PATCH))
        return compared / search.step**2, transformed / search.step**2


def choose_group_variant(settings: GroupSettings, device: Device) -> Variant:
    """Choose the kernel: whole groups as vectors on a CPU, a team of work-items a group on a GPU.

    Images are copied to local memory as far as it goes, the noisy one first. Where it is too small
    for a work-group, the work-group is made smaller.
    """
    if device.float_lanes >= 4:
        return Variant("shrink_lanes", {"GROUP_X": 8, "GROUP_Y": 4})
    limit = min(device.local_memory, 48 * 1024)
    neighbours, shared_noise = settings.search.neighbours, settings.shared_noise
    # Two spectra, or one and its variances: fewer patches per item leave registers for more items.
    few = neighbours == 8 if settings.wiener else neighbours == 16 and shared_noise
    depth = 4 if few else min(neighbours, 8)
    # Large groups with shared noise are bound by the fetching of instructions: many items that run
    # the same ones gain more than copies do.
    large = settings.wiener and shared_noise and neighbours == 32 and not settings.spectra
    copied = 0 if large else 1 + settings.wiener
    most = 256 if few or large else 128
    # Otherwise copies gain more than many items, and neighbours that share a slab the most.
    shapes = ((8, 4, (most, 64)), (4, 4, (64,)), (2, 2, (32,)), (1, 1, (8,)))
    choices = [((8, 8), copied, most)]
    for group_x, group_y, sizes in shapes:
        for copies in range(copied, -1, -1):
            choices += [((group_x, group_y), copies, items) for items in sizes]
    for group, copies, items in choices:
        teams = max(1, min(items * depth // (8 * neighbours), group[0] * group[1]))
        variant = team_variant(device, group, depth, teams, copies)
        if local_bytes(settings, variant) <= limit and items <= device.max_group:
            return variant
    return variant


def team_variant(
    device: Device,
    group: tuple[int, int],
    depth: int,
    teams: int,
    copies: int = 0,
    wide: bool = False,
) -> Variant:
    """Return the kernel for a GPU whose work-groups serve `group` references along x and y.

    `wide` spends local memory to exchange all values of an item at once.
    """
    constants = {
        "GROUP_X": group[0],
        "GROUP_Y": group[1],
        "DEPTH": depth,
        "TEAMS": teams,
        "LOCAL_TILE": copies,
        "WARP_SYNC": int("nvidia" in device.vendor.lower()),
        # Row length of a transposition in local memory, padded for 32 banks.
        "LINE": 9,
        "WIDE": int(wide),
    }
    return Variant("shrink_shared", constants)


def local_bytes(settings: GroupSettings, variant: Variant) -> int:
    """Return the local memory that a work-group of `shrink_shared` needs, with a sigma map."""
    search, constants = settings.search, variant.constants
    parts = search.neighbours // constants["DEPTH"]
    each = 4 * (8 * constants["LINE"] * parts + 2 * search.neighbours)
    if settings.shared_noise:
        each += search.neighbours * (search.neighbours - 1) // 2 + 80
    images = 1 + constants["LOCAL_TILE"]
    return constants["TEAMS"] * each + 4 * images * math.prod(slab_shape(search, variant))


def slab_shape(search: SearchSettings, variant: Variant) -> tuple[int, int]:
    """Return height and width of the region that the groups of one work-group can reach."""
    around = PATCH + search.window - 1
    return tuple(
        (variant.constants[name] - 1) * search.step + around for name in ("GROUP_Y", "GROUP_X")
    )


def float_atomics(device: Device) -> int:
    """Return how a device adds floats atomically, numbered as in kernels/common/atomic_float.h."""
    if "nvidia" in device.vendor.lower():
        return 1
    return 2 if "cl_ext_float_atomics" in device.handle.extensions else 0


GROUPS = (1, 2, 4, 8, 16, 32)

BASIC, FINAL = "in the first pass", "in the second pass"


# Settings that BM3D and its kin have in common: a function declares the one of its name.


def stages() -> Any:
    help = "Run both passes, or only the first one (faster, lower quality)"
    return setting("both", help, choices=("both", "basic"))


def threshold(default: float) -> Any:
    help = "Hard threshold for transform coefficients in the first pass"
    return setting(default, help, bounds=(0.0, 10.0), unit="sigma")


def wiener_sigma(default: float) -> Any:
    help = "Noise level assumed by the Wiener filter in the second pass"
    return setting(default, help, bounds=(0.0, 10.0), unit="sigma")


def neighbours(default: int, of: str, what: str = "patches") -> Any:
    help = f"Maximum number of {what} in a group {of}"
    return setting(default, help, choices=GROUPS, unit=what, advanced=True)


def transform(default: str, of: str) -> Any:
    return setting(default, f"2D transform of a patch {of}", choices=TRANSFORMS, advanced=True)


def stack(default: str, of: str, what: str = "patches") -> Any:
    help = f"Transform along the stack of {what} {of}"
    return setting(default, help, choices=STACK_TRANSFORMS, advanced=True)


def similar(default: float, of: str, what: str = "patches") -> Any:
    help = f"Maximum mean squared difference between {what} of a group {of}"
    return setting(default, help, bounds=(0.0, 1000.0), unit="sigma squared", advanced=True)


def kaiser(default: float = 2.0, what: str = "patches") -> Any:
    help = f"Beta of the Kaiser window that weights overlapping {what}"
    return setting(default, help, bounds=(0.0, 4.0), advanced=True)


def shared_noise(default: bool, what: str = "patches") -> Any:
    help = f"Account for noise that overlapping {what} of a group share (Haar stacks only)"
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
