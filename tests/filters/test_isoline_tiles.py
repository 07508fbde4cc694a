"""Tiles of the isoline filter: margins, buffers, and equal results however an image is cut."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import napari_gpu_denoise as gd
from flows import run_work, work_of
from napari_gpu_denoise.filters.isoline import Isoline, Margins
from napari_gpu_denoise.opencl.program import session
from napari_gpu_denoise.protocol.tiles import Span, Tile, split_span
from scenes import noisy

SETTINGS = {
    "weighted": Isoline(),
    "no planes": Isoline(staircase=0, max_length=5),
    "speckle": Isoline(criterion="multiplicative"),
    "chosen": Isoline(choice="hard", staircase=9),
    "searched": Isoline(method="pi-ld", staircase=0, segment_length=3, max_length=12),
}


def test_margins_of_some_settings_by_hand():
    # Two segments of 5 each way, planes of 11 x 11, blocks, lines of 5 and their thickness.
    assert Margins.of(SETTINGS["weighted"]) == Margins(10, 15, 26, 26)
    assert Margins.of(SETTINGS["no planes"]) == Margins(0, 0, 11, 11)
    assert Margins.of(SETTINGS["speckle"]) == Margins(10, 15, 26, 28)
    # Five segments of 5, a pixel, and planes of 9 x 9.
    assert Margins.of(SETTINGS["chosen"]) == Margins(0, 4, 30, 30)
    assert Margins.of(SETTINGS["searched"]) == Margins(0, 0, 13, 13)
    for settings in SETTINGS.values():
        margins = Margins.of(settings)
        # Room for blocks, which begin at even pixels.
        assert settings.reach == margins.reach
        assert margins.reach.y == margins.reach.x == (margins.read + 1, margins.read + 1)


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
