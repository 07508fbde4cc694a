"""How the kernels of the isoline filter are launched, and what they hold."""

from __future__ import annotations

import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.filters.isoline.filter import Isoline
from napari_gpu_denoise.opencl.memory import Arena
from scenes import noisy

SIGMA = 20.37


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
