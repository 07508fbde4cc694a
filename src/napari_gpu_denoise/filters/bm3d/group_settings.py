"""A pass of BM3D: its settings, and the kernel that suits them and a device."""

from __future__ import annotations

import math
from dataclasses import dataclass

from napari_gpu_denoise.filters.search.variants import SearchSettings
from napari_gpu_denoise.opencl.device import Device

PATCH = 8
# Padded rows of a transposition in local memory: right for 32 banks, and what a device with others
# was measured to want may stand in a variant.
LINE = 9
TRANSFORMS = ("bior1.5", "dct", "haar", "dft")
STACK_TRANSFORMS = ("haar", "hadamard", "dct")


@dataclass(frozen=True)
class GroupSettings:
    """One pass: what is searched, and how groups are filtered.

    `threshold` is in sigma: where coefficients are cut, or the noise level that a Wiener filter
    assumes.
    `spectra` are the autocorrelations of the noise, (5, 5) each: one for all channels, or one a
    channel; none where it is white.
    """

    search: SearchSettings
    transform: str
    stack: str
    similar: float
    threshold: float = 0.0
    wiener: bool = False
    kaiser: float = 2.0
    reproducible: bool = True
    shared_noise: bool = False
    spectra: tuple[tuple[tuple[float, ...], ...], ...] = ()

    @property
    def reach(self) -> int:
        """How far around a pixel the pass looks: to a reference, and from there to its matches."""
        return 2 * (self.search.window // 2) + PATCH - 1

    @property
    def operations_per_pixel(self) -> tuple[float, float]:
        """Arithmetic of the search, and of the filtering of groups."""
        search = self.search
        images = 3 if self.wiener else 2
        compared = 2.0 * search.window**2 * PATCH**2
        transformed = images * search.neighbours * PATCH**2 * (10.0 + 2 * math.log2(PATCH))
        return compared / search.step**2, transformed / search.step**2


@dataclass(frozen=True)
class GroupVariant:
    """A kernel that filters groups, and the build constants that fit it to a device."""

    kernel: str
    constants: dict[str, int]

    @property
    def references(self) -> int:
        """Reference patches a work-group serves."""
        return self.constants["GROUP_X"] * self.constants["GROUP_Y"]


def choose_group_variant(settings: GroupSettings, device: Device) -> GroupVariant:
    """Choose the kernel for a device: whole groups as vectors on a CPU, teams of items elsewhere.

    Images are copied to local memory as far as it goes, the noisy one first; a device or a window
    that leaves no room for a work-group gets a smaller one.
    """
    if device.float_lanes >= 4:
        return GroupVariant("shrink_lanes", {"GROUP_X": 8, "GROUP_Y": 4})
    limit = min(device.local_memory, 48 * 1024)
    neighbours = settings.search.neighbours
    # Two spectra, or one and its variances: fewer patches an item leave registers for more items.
    few = neighbours == 8 if settings.wiener else neighbours == 16 and settings.shared_noise
    depth = 4 if few else min(neighbours, 8)
    most = 256 if few and settings.shared_noise else 128
    # Copies pay more than many items do, and neighbouring references that share a slab most of all.
    shapes = ((8, 4, (most, 64)), (4, 4, (64,)), (2, 2, (32,)), (1, 1, (8,)))
    for group_x, group_y, sizes in shapes:
        for copies in range(1 + settings.wiener, -1, -1):
            for items in sizes:
                teams = items * depth // (8 * neighbours)
                constants = {
                    "GROUP_X": group_x,
                    "GROUP_Y": group_y,
                    "DEPTH": depth,
                    "TEAMS": max(1, min(teams, group_x * group_y)),
                    "LOCAL_TILE": copies,
                    "WARP_SYNC": int("nvidia" in device.vendor.lower()),
                    "LINE": LINE,
                }
                variant = GroupVariant("shrink_shared", constants)
                if local_bytes(settings, variant) <= limit and items <= device.max_group:
                    return variant
    return variant


def local_bytes(settings: GroupSettings, variant: GroupVariant) -> int:
    """Return the local memory that a work-group of `shrink_shared` needs, with a sigma map."""
    search, constants = settings.search, variant.constants
    parts = search.neighbours // constants["DEPTH"]
    each = 4 * (8 * constants["LINE"] * parts + 2 * search.neighbours)
    if settings.shared_noise:
        each += search.neighbours * (search.neighbours - 1) // 2 + 80
    images = 1 + constants["LOCAL_TILE"]
    return constants["TEAMS"] * each + 4 * images * math.prod(slab_shape(search, variant))


def slab_shape(search: SearchSettings, variant: GroupVariant) -> tuple[int, int]:
    """Return height and width of what the groups of one work-group can reach."""
    around = PATCH + search.window - 1
    return tuple(
        (variant.constants[name] - 1) * search.step + around for name in ("GROUP_Y", "GROUP_X")
    )


def float_atomics(device: Device) -> int:
    """Return how a device adds floats in memory, as kernels/common/atomic_float.h numbers it."""
    if "nvidia" in device.vendor.lower():
        return 1
    return 2 if "cl_ext_float_atomics" in device.handle.extensions else 0
