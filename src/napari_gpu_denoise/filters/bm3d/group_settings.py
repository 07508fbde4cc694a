"""Settings of a pass of BM3D or VBM3D, and the kernel that suits BM3D and a device."""

from __future__ import annotations

import math
from dataclasses import dataclass

from napari_gpu_denoise.filters.search.patch_search import SearchSettings, Variant
from napari_gpu_denoise.opencl.device import Device

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
