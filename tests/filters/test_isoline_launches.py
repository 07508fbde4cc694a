"""How the kernels of the isoline filter are launched, and what they hold."""

from __future__ import annotations

import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.filters.isoline.filter import Isoline
from napari_gpu_denoise.filters.isoline.launches import TileLaunches
from napari_gpu_denoise.opencl.memory import Arena
from scenes import noisy

pytestmark = pytest.mark.usefixtures("quickly_built")

SIGMA = 20.37
PAPER = {"choice": "hard", "thickness": 1, "staircase": 0}


@pytest.mark.parametrize("changes", [{}, {**PAPER}, {"method": "pi-ld", "max_length": 10}], ids=str)
def test_work_groups_of_a_gpu_give_the_same(device, monkeypatch, changes):
    """Groups of 32 x 8 reach beyond what is wanted: what they find there goes nowhere."""
    image, settings = noisy(3, 43, 37, sigma=SIGMA), Isoline(**changes)
    expected = gd.denoise(image, settings, SIGMA, device=device).image
    groups = []
    kept = TileLaunches.__init__

    def begin(run, *given):
        kept(run, *given[:-1], False)
        groups.append(run)

    monkeypatch.setattr(TileLaunches, "__init__", begin)
    out = gd.denoise(image, settings, SIGMA, device=device).image
    assert groups
    assert groups[0].grid(33, 9, 1) == ((64, 16, 1), (32, 8, 1))
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("changes", [{}, {"choice": "hard"}, {"method": "pi-ld"}], ids=str)
@pytest.mark.parametrize("staircase", [0, 5])
@pytest.mark.parametrize("show", ["image", "directions"])
def test_no_more_images_are_held_than_are_made(device, monkeypatch, changes, staircase, show):
    asked, buffer = set(), Arena.buffer

    def ask(arena, name, nbytes):
        asked.add(name)
        return buffer(arena, name, nbytes)

    monkeypatch.setattr(Arena, "buffer", ask)
    settings = Isoline(staircase=staircase, show=show, **changes)
    gd.denoise(noisy(40, 45, sigma=SIGMA), settings, SIGMA, device=device)
    # Weighted lines always begin with a pilot, chosen ones where planes are fitted to it.
    assert ("isoline pilot" in asked) == (settings.soft or (staircase > 0 and show == "image"))
    assert ("isoline fitted" in asked) == (settings.soft and staircase > 0 and show == "image")
