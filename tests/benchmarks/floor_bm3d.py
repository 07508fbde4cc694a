"""Work that BM3D cannot save, kernel by kernel, and how long a device needs for it at the least."""

from __future__ import annotations

import math
from dataclasses import dataclass

from napari_gpu_denoise.filters.bm3d.filter import BM3D
from napari_gpu_denoise.filters.search.patch_search import Grid
from napari_gpu_denoise.protocol.tiles import Span

PATCH = 8
# Instructions a transform of eight values takes in its quickest common form.
TRANSFORM_COST = {"haar": 22, "dct": 40, "dft": 34, "bior1.5": 38}


@dataclass(frozen=True)
class Ceilings:
    """What a device was measured to do a second, in 1e9."""

    bytes: float
    instructions: float
    additions: float


# Copying; arithmetic, where a fused multiply-add is one instruction; int32 atomic additions to
# local memory, in the pattern of overlapping patches.
CEILINGS = {"H200": Ceilings(bytes=4200, instructions=63600 / 2, additions=3450)}


@dataclass(frozen=True)
class Work:
    """What a kernel moves, computes and adds up, in bytes, instructions and additions."""

    bytes: float = 0
    instructions: float = 0
    additions: float = 0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.bytes + other.bytes,
            self.instructions + other.instructions,
            self.additions + other.additions,
        )

    def least(self, ceilings: Ceilings) -> tuple[float, str]:
        """Return the shortest possible time in seconds, and which ceiling sets it."""
        names = ("bytes", "instructions", "additions")
        times = {name: 1e-9 * getattr(self, name) / getattr(ceilings, name) for name in names}
        longest = max(times, key=times.get)
        return times[longest], longest


def stack_cost(stack: str, patches: int) -> float:
    """Return the instructions that one transform of `patches` values along a stack takes."""
    stages = math.log2(patches)
    return {
        "haar": 2 * (patches - 1) + patches,
        "hadamard": patches * stages + patches,
        "dct": patches * (1.5 * stages + 1),
    }[stack]


def count(settings: BM3D, shape: tuple[int, int]) -> dict[tuple[str, str], Work]:
    """Return the work by (kernel, pass), as if every group were full."""
    pixels = shape[0] * shape[1]
    found: dict[tuple[str, str], Work] = {}
    for name in ("basic", "final")[: 2 if settings.stages == "both" else 1]:
        own = {
            key: getattr(settings, f"{key}_{name}")
            for key in ("step", "window", "neighbours", "transform", "stack")
        }
        final = name == "final"
        patches = own["neighbours"]
        rows, columns = (Grid.of(Span.whole(n), PATCH, own["step"]).count for n in shape)
        groups = rows * columns
        found["pad", name] = Work(bytes=8 * pixels)
        # Every pixel and its partner at every offset: one subtraction, one square added.
        found["search", name] = Work(
            bytes=4 * pixels + 4 * groups * patches,
            instructions=2 * pixels * own["window"] ** 2,
        )
        # There and back; the second pass transforms the basic estimate as well.
        times = 3 if final else 2
        in_patches = times * 2 * PATCH * patches * TRANSFORM_COST[own["transform"]]
        along_stacks = times * PATCH**2 * stack_cost(own["stack"], patches)
        # Difference to the level, scaled, for what is read; a few for each coefficient shrunk.
        rest = PATCH**2 * patches * (4 * (times - 1) + 2)
        if settings.shared_noise and own["stack"] == "haar":
            # Every pair of patches, in every coefficient.
            rest += PATCH**2 * patches * (patches - 1) / 2
        found["shrink", name] = Work(
            bytes=4 * pixels * (3 if final else 2) + 4 * groups * patches,
            instructions=groups * (in_patches + along_stacks + rest),
            additions=groups * patches * PATCH**2,
        )
        # Two separable convolutions would do for the weights.
        found["join", name] = Work(bytes=16 * pixels, instructions=(2 * PATCH + 4) * pixels)
    return found


def work_of(event: str, work: dict[tuple[str, str], Work]) -> Work | None:
    """Return the work of the launches with a name such as "search" or "final search"."""
    parts = [
        one
        for (kernel, name), one in work.items()
        if kernel in event.split()
        and (name in event or not any(other in event for other in ("basic", "final")))
    ]
    return sum(parts, Work()) if parts else None
