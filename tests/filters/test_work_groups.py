"""Groups of work-items: of one shape for images of all sizes, and of any shape for one result."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import napari_gpu_denoise as gd
from filters.cases import CUBES, EITHER, FAST, HARD, IN_SPACE, LINES, VIDEO
from filters.sessions import as_gpu
from napari_gpu_denoise.filters import FILTERS, volumes
from napari_gpu_denoise.filters.bm4d.cubes import choose_search, local_bytes
from napari_gpu_denoise.filters.vbm3d import choose_video_group_variant
from napari_gpu_denoise.opencl import program
from napari_gpu_denoise.opencl.memory import Arena, release_memory
from napari_gpu_denoise.run.job import start
from napari_gpu_denoise.run.part import programs_of
from napari_gpu_denoise.run.request import Run
from scenes import noisy, small

SIGMA = 20.37
# Settings of cases.py, whose kernels other tests build.
CASES = {
    "nl_means": (gd.NLMeans(window=9), "YX"),
    "nl_means over time": (gd.NLMeans(**IN_SPACE, **EITHER), "TYX"),
    "bm3d": (FAST, "YX"),
    "bm3d of colours": (replace(FAST, channels="opponent"), "YXS"),
    "vbm3d": (small(gd.VBM3D, **VIDEO), "TYX"),
    "isoline": (gd.Isoline(**LINES), "YX"),
    "isoline of colours": (gd.Isoline(**HARD, channels="joint"), "YXS"),
}
OTHERS = {
    "nl_means_pixelwise": (gd.NLMeansPixelwise(window=9), "YX"),
    "swnlm": (gd.SWNLM(window=5), "YX"),
    "bm4d": (gd.BM4D(**CUBES), "ZYX"),
}
SIZES = [(9 + 7 * k % 29, 8 + 5 * k % 31) for k in range(8)]
every_case = pytest.mark.parametrize("settings, axes", CASES.values(), ids=CASES)


def image_of(axes: str, ny: int, nx: int) -> np.ndarray:
    lengths = {"T": 3, "Z": 9, "Y": ny, "X": nx, "S": 3}
    return noisy(*(lengths[axis] for axis in axes), sigma=SIGMA)


@pytest.fixture
def launched(monkeypatch) -> list:
    """Return name, constants and group of each kernel that filters launch; none is built."""
    import pyopencl as cl

    made = []

    def kernel(arena, name, constants):
        def launch(queue, work_items, group, **arguments):
            made.append((name, tuple(sorted(constants.items())), group))
            return cl.enqueue_marker(queue)

        return launch

    release_memory()
    monkeypatch.setattr(Arena, "kernel", kernel)
    yield made
    release_memory()


def test_every_filter_is_among_the_cases():
    assert {type(settings) for settings, _ in (CASES | OTHERS).values()} == {*FILTERS}


@pytest.mark.parametrize(
    "settings, axes", [*CASES.values(), *OTHERS.values()], ids=[*CASES, *OTHERS]
)
def test_new_sizes_compile_nothing(device, launched, settings, axes):
    """PoCL compiles for every shape of groups, and for the constants of a program."""
    image = image_of(axes, 48, 64)
    gd.denoise(image, settings, SIGMA, axes=axes, device=device)
    first = set(launched)
    assert launched and all(group is not None for *_, group in launched)
    for ny, nx in SIZES:
        launched.clear()
        gd.denoise(image_of(axes, ny, nx), settings, SIGMA, axes=axes, device=device)
        assert launched and set(launched) <= first, f"{ny} x {nx}"

    # Programs to be built at the same time are known from a few pixels.
    job = start(Run(settings, SIGMA, axes=axes, device=device), image)
    rehearsed = programs_of(job, image.dtype, job.dtypes[1])
    assert set(rehearsed) == {each[:2] for each in first}


@every_case
def test_groups_of_another_shape_give_the_same(device, monkeypatch, settings, axes):
    """Groups reach beyond what is wanted: what they find there goes nowhere."""
    image = image_of(axes, 43, 37)
    expected = gd.denoise(image, settings, SIGMA, axes=axes, device=device).image
    monkeypatch.setattr(program, "_TILE", (10, 6))
    out = gd.denoise(image, settings, SIGMA, axes=axes, device=device).image
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("local_memory", [8192, 32768, 49152])
@pytest.mark.parametrize("neighbours", [1, 2, 4, 8, 16, 32])
def test_wide_teams_fit_the_device_and_the_kernel(device, neighbours, local_memory):
    gpu = as_gpu(device, local_memory)
    settings = gd.VBM3D(neighbours_basic=neighbours, neighbours_final=neighbours)
    for given in settings.passes.values():
        constants = choose_video_group_variant(given, gpu).constants
        if constants["WIDE"]:
            assert constants["DEPTH"] in (2, 4)
            assert neighbours % 4 == 0
            assert neighbours > constants["DEPTH"]
            assert constants["TEAMS"] * 64 * (neighbours + 4) * 4 <= local_memory
        elif neighbours == 8 and not given.wiener:
            assert constants["DEPTH"] == 8  # there is nothing to exchange
        else:
            assert neighbours not in (8, 16) or local_memory < 32768


@pytest.mark.parametrize("cube", volumes.CUBES)
@pytest.mark.parametrize("profile", gd.BM4D.presets)
def test_searches_of_cubes_fit_the_device(device, cube, profile):
    gpu = as_gpu(device)
    for one in gd.BM4D.of(profile=profile, cube=cube).passes.values():
        variant = choose_search(one, gpu)
        assert variant.kernel == "search_cubes"
        assert local_bytes(one, variant) <= 49152
        assert choose_search(one, as_gpu(device, 1)).constants["LANES"] == 1
