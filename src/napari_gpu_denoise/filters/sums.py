"""Sums of whole numbers, which do not depend on order: how fine they are, and who adds when."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from napari_gpu_denoise.filters.pixels import Launcher

LARGEST_SIGMAS = 12.0  # of a number that is summed, where nothing else is known


def sum_arguments(
    added: int, matched: int, largest: float = LARGEST_SIGMAS
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the kernel arguments of sums of weights, and of what is added up with these.

    Whole numbers per sigma are as many as 31 bits allow where `added` numbers of at most `largest`
    sigma are summed: if all patches around a pixel matched, they would be less. Those per weight of
    1 suit patches that are matched at most `matched` times.
    """
    scale = 2.0 ** (31 - math.ceil(math.log2(largest * added)))
    joining = {"scale": scale, "units": 2.0 ** min(31 - math.ceil(math.log2(matched)), 24)}
    return joining, {**joining, "largest": 2.0**31 / added}


def blocks_in_turns(
    counts: Sequence[int], sizes: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield turns that take every second block along each axis, since neighbours share pixels.

    There are `counts` references, in blocks of `sizes`. A turn is the first block along each axis;
    returned, too, is how many blocks it takes.
    """
    blocks = [-(-count // size) for count, size in zip(counts, sizes, strict=True)]
    for turn in np.ndindex(*(min(2, count) for count in blocks)):
        pairs = zip(blocks, turn, strict=True)
        yield turn, tuple((count - first + 1) // 2 for count, first in pairs)


def block_constants(
    windows: Sequence[int], sides: Sequence[int], steps: Sequence[int]
) -> dict[str, int]:
    """Return constants of blocks so wide that every second one shares no pixel with the next."""
    lengths = zip("ZYX", windows, sides, steps, strict=True)
    return {f"BLOCK_{axis}": -(-(window + side) // step) for axis, window, side, step in lengths}


def over_groups(
    run: Launcher,
    kernel: tuple[str, Any],
    constants: dict[str, int],
    counts: Sequence[int],
    volumes: int,
    team: int,
    video: bool = False,
    **arguments: Any,
) -> None:
    """Enqueue a kernel, after its name, for `counts` references along z, y and x of each volume.

    An item takes a block of them in its turn, if the `constants` have blocks, else a `team` takes
    each. The first axis is time in a `video`, whose frames come one after another.
    """
    layers, rows, columns = counts
    if "BLOCK_Z" not in constants:
        run.run(*kernel, (team, rows * columns, volumes * layers), (team, 1, 1), **arguments)
        return
    sizes = [constants[f"BLOCK_{axis}"] for axis in "ZYX"]
    for frame in range(layers if video else 1):
        turns = blocks_in_turns((1 if video else layers, rows, columns), sizes)
        for (z, y, x), (deep, down, across) in turns:
            place = {"first_block_z": frame + z, "first_block_y": y, "first_block_x": x}
            size = across, down, deep * volumes
            place["deep"] = layers if video else deep
            run.run(*kernel, size, (1, 1, 1), **arguments, **place)
