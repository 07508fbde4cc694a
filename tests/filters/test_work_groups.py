"""Groups of work-items: of one shape for images of all sizes, and of any shape for one result."""

from __future__ import annotations

import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.opencl import work_items
from napari_gpu_denoise.opencl.memory import Arena, release_memory
from scenes import noisy

SIGMA = 20.37
CASES = {
    "nl_means": (gd.NLMeans(window=9), "YX"),
    "nl_means over time": (gd.NLMeans(window=5, frames_before=1, frames_after=1), "TYX"),
    "bm3d": (gd.BM3D.of(profile="fast"), "YX"),
    "bm3d of colours": (gd.BM3D.of(profile="fast", channels="opponent"), "YXS"),
    "vbm3d": (gd.VBM3D.of(profile="fast"), "TYX"),
    "isoline": (gd.Isoline(max_length=6, segment_length=2), "YX"),
    "isoline of colours": (
        gd.Isoline(max_length=6, segment_length=2, channels="joint", choice="hard"),
        "YXS",
    ),
}
OTHERS = {
    "nl_means_pixelwise": (gd.NLMeansPixelwise(window=5), "YX"),
    "swnlm": (gd.SWNLM(window=5), "YX"),
    "bm4d": (gd.BM4D.of(profile="fast"), "ZYX"),
    "dct3d": (gd.DCT3D(), "ZYX"),
    "pri_nlm": (gd.PRINLM(window=3, window_z=3), "ZYX"),
}
every_case = pytest.mark.parametrize("settings, axes", CASES.values(), ids=CASES)


def image_of(axes: str, ny: int, nx: int) -> np.ndarray:
    lengths = {"T": 3, "Z": 9, "Y": ny, "X": nx, "S": 3}
    return noisy(*(lengths[axis] for axis in axes), sigma=SIGMA)


@pytest.fixture
def launched(monkeypatch) -> list:
    """Return name, constants and group of each kernel that filters launch from here on."""
    made, plain = [], Arena.kernel

    def kernel(arena, name, constants, standard="CL1.2"):
        run = plain(arena, name, constants, standard)

        def launch(queue, work_items, group, *arguments):
            made.append((name, tuple(sorted(constants.items())), group))
            return run(queue, work_items, group, *arguments)

        return launch

    release_memory()
    monkeypatch.setattr(Arena, "kernel", kernel)
    yield made
    release_memory()


@pytest.mark.parametrize(
    "settings, axes", [*CASES.values(), *OTHERS.values()], ids=[*CASES, *OTHERS]
)
def test_a_new_size_compiles_nothing(device, launched, settings, axes):
    """PoCL compiles for every shape of groups, and for the constants of a program."""
    gd.denoise(image_of(axes, 48, 64), settings, SIGMA, axes=axes, device=device)
    first = set(launched)
    launched.clear()
    gd.denoise(image_of(axes, 61, 43), settings, SIGMA, axes=axes, device=device)
    assert launched and all(group is not None for *_, group in launched)
    assert set(launched) == first


@every_case
def test_groups_of_another_shape_give_the_same(device, monkeypatch, settings, axes):
    """Groups reach beyond what is wanted: what they find there goes nowhere."""
    image = image_of(axes, 43, 37)
    expected = gd.denoise(image, settings, SIGMA, axes=axes, device=device).image
    monkeypatch.setattr(work_items, "_TILE", (10, 6))
    out = gd.denoise(image, settings, SIGMA, axes=axes, device=device).image
    np.testing.assert_array_equal(out, expected)
