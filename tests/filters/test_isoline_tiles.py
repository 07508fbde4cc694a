"""Tiles of the isoline filter: margins, buffers, and equal results however an image is cut."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import napari_gpu_denoise as gd
from flows import run_work, work_of
from napari_gpu_denoise.filters.isoline import Isoline
from napari_gpu_denoise.opencl.program import session
from napari_gpu_denoise.protocol.tiles import Span, Tile, split_span
from scenes import noisy

SIGMA = 20.37
PAPER = {"choice": "hard", "thickness": 1, "staircase": 0}


def cut(image, settings: Isoline, sigma, device, size: int) -> np.ndarray:
    """Filter in tiles of less than `size` x `size` pixels, of which some begin at odd ones."""
    out = np.empty_like(image)
    reach, frames = settings.reach, [Span.whole(1), Span.whole(1)]
    rows, columns = (
        list(split_span(Span.whole(n), size, each))
        for n, each in zip(image.shape, (reach.y, reach.x), strict=True)
    )
    for spans in (rows, columns):
        assert {span.start % 2 for span in spans} == {0, 1}
    tiles = [Tile(0, *frames, *places) for places in product(rows, columns)]
    run_work(work_of(image, out, settings, session(device), sigma), tiles=tiles)
    return out


TILED = [
    {},
    {"max_length": 15, "segment_length": 3, "staircase": 5},
    {"staircase": 0},
    {**PAPER},
    {"max_length": 5, "choice": "hard", "thickness": 3},
    {"max_length": 6, "segment_length": 3, "staircase": 3, "method": "pi-ld"},
    {"show": "classes"},
    {"show": "directions"},
    {"show": "directions", "choice": "hard"},
    {"criterion": "multiplicative", "looks": 0.5, "max_length": 5, "staircase": 3},
]


@pytest.mark.parametrize("changes", TILED, ids=str)
def test_tiles_that_begin_anywhere_are_parts_of_the_whole(device, changes):
    settings, image = Isoline(**changes), noisy(83, 91, sigma=SIGMA)
    if settings.criterion == "multiplicative":
        # Dark pixels count as more than they are, which those around tell.
        image *= np.random.default_rng(1).gamma(0.5, 2, image.shape).astype(np.float32)
    sigma = 5 + 30 * np.random.default_rng(0).random(image.shape)
    whole = gd.denoise(image, settings, sigma, device=device).image
    for size in (29, 24):
        np.testing.assert_array_equal(cut(image, settings, sigma, device, size), whole)
