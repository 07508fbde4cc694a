"""Filters that join channels: what their plans are given, shown on one whose kernel mixes them."""

from __future__ import annotations

import dataclasses
import shutil
from dataclasses import dataclass
from typing import ClassVar

import dask.array as da
import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.opencl import source
from napari_gpu_denoise.protocol.filter import Context, Filter
from napari_gpu_denoise.protocol.plan import TilePlan
from napari_gpu_denoise.protocol.settings import setting
from napari_gpu_denoise.protocol.tiles import Reach
from scenes import bytes_per_pixel, noisy

KERNEL = """
// Mean of the pixels around in all channels; the more of it the more noise a channel has.
__kernel void mix_channels(__global const float *tile, int channels,
                           int tile_nt, int tile_nz, int tile_ny, int tile_nx,
                           int t0, int z0, int y0, int x0, int nt, int nz, int ny, int nx,
                           __global const float *levels, __global const float *variation,
                           int is_map, __global float *out)
{
    const int x = get_global_id(0);
    const int y = get_global_id(1);
    const int c = get_global_id(2) / (nt * nz);
    const int frame = get_global_id(2) % (nt * nz);
    const int t = frame / nz + t0;
    const int z = frame % nz + z0;
    float total = 0.0f;
    int count = 0;
    for (int k = 0; k < channels; ++k)
        for (int h = max(t - TIME, 0); h <= min(t + TIME, tile_nt - 1); ++h)
            for (int j = max(y + y0 - RADIUS, 0); j <= min(y + y0 + RADIUS, tile_ny - 1); ++j)
                for (int i = max(x + x0 - RADIUS, 0); i <= min(x + x0 + RADIUS, tile_nx - 1); ++i) {
                    total += tile[(((k * tile_nt + h) * tile_nz + z) * tile_ny + j) * tile_nx + i];
                    ++count;
                }
    const int row = ((c * tile_nt + t) * tile_nz + z) * tile_ny + y + y0;
    const float level = tile[row * tile_nx + x + x0];
    float sigma = levels[c * nt * nz + frame];
    if (is_map)
        sigma *= variation[(y + y0) * tile_nx + x + x0];
    const float share = sigma / (sigma + 10.0f);
    out[((c * nt * nz + frame) * ny + y) * nx + x] = level + share * (total / count - level);
}
"""


@dataclass(frozen=True)
class Mix(Filter):
    """Settings of the filter."""

    name: ClassVar[str] = "mix"
    title: ClassVar[str] = "Mix"
    summary: ClassVar[str] = "Mean over channels"

    radius: int = setting(2, "Half-width of the window", bounds=(0, 9), unit="pixels")
    time: int = setting(0, "Frames to each side", bounds=(0, 9), needs_axis="T")
    channels: str = setting("auto", "How channels are seen", choices=("auto", "alone", "joined"))

    def prepare(self, context: Context) -> Mix:
        """Join channels where there are three of them."""
        fitting, three = super().prepare(context), context.channels == 3
        if self.channels != "auto":
            return fitting
        return dataclasses.replace(fitting, channels="joined" if three else "alone")

    @property
    def joint(self) -> str:
        """Which axes it looks along."""
        return "C" * (self.channels == "joined") + "T" * (self.time > 0)

    @property
    def reach(self) -> Reach:
        """How far it looks."""
        around = (self.radius, self.radius)
        return Reach((self.time, self.time), y=around, x=around)

    @property
    def operations_per_pixel(self) -> float:
        """Arithmetic it takes."""
        return 4.0 * (2 * self.radius + 1) ** 2

    def plan(self, arena):
        """Return what runs it."""
        return Plan(self, arena)


class Plan(TilePlan):
    """Kernels of the filter; keeps the tiles it was given."""

    tiles: ClassVar[list] = []

    def __init__(self, settings: Mix, arena):
        self.arena = arena
        assert settings.channels != "auto"
        constants = {"RADIUS": settings.radius, "TIME": settings.time}
        self.kernel = arena.session.kernel("mix/mix_channels", constants)

    def enqueue(self, queue, tile, source, out, sigma) -> list:
        """Enqueue the kernel for one tile."""
        self.tiles.append(tile)
        nt, nz, ny, nx = tile.shape
        tile_nt, tile_nz, tile_ny, tile_nx = tile.source_shape
        event = self.kernel(
            queue,
            (nx, ny, tile.channels * nt * nz),
            None,
            **{"tile": source, "channels": tile.channels, "tile_nt": tile_nt, "tile_nz": tile_nz},
            **{"tile_ny": tile_ny, "tile_nx": tile_nx, "nt": nt, "nz": nz, "ny": ny, "nx": nx},
            **{"t0": tile.t.margin, "z0": tile.z.margin, "y0": tile.y.margin, "x0": tile.x.margin},
            **{"levels": sigma.levels, "variation": sigma.variation or sigma.levels},
            **{"is_map": sigma.variation is not None, "out": out},
        )
        return [("mix", event)]


def slow(image, sigma, settings: Mix) -> np.ndarray:
    """Return the result for an image (channels, t, y, x) and a sigma that broadcasts to it."""
    image = np.asarray(image, np.float64)
    _, nt, ny, nx = image.shape
    r, k = settings.radius, settings.time
    mean = np.empty((nt, ny, nx))
    for t, y, x in np.ndindex(nt, ny, nx):
        mean[t, y, x] = image[
            :,
            max(t - k, 0) : t + k + 1,
            max(y - r, 0) : y + r + 1,
            max(x - r, 0) : x + r + 1,
        ].mean()
    return image + np.asarray(sigma) / (np.asarray(sigma) + 10) * (mean - image)


@pytest.fixture(autouse=True)
def kernel(tmp_path, monkeypatch):
    shutil.copytree(source.kernel_folder(), tmp_path, dirs_exist_ok=True)
    (tmp_path / "mix").mkdir()
    (tmp_path / "mix" / "mix_channels.cl").write_text(KERNEL)
    monkeypatch.setattr(source, "kernel_folder", lambda: tmp_path)
    Plan.tiles.clear()


SIGMA = np.array([4.0, 10.0, 30.0])
LAYOUTS = {"CTYX": (0, 1, 2, 3), "TYXS": (1, 2, 3, 0), "XTCY": (3, 1, 0, 2)}


@pytest.mark.parametrize(("time", "dtype"), [(0, "uint8"), (1, "float32")])
@pytest.mark.parametrize("axes", LAYOUTS)
def test_a_tile_holds_all_channels_wherever_their_axis_lies(device, axes, time, dtype):
    settings, image = Mix(time=time), noisy(3, 4, 19, 23, dtype=dtype)
    given, options = np.transpose(image, LAYOUTS[axes]), {"axes": axes, "device": device}
    # A channel without noise is seen by others, and stays.
    for sigma in (SIGMA, np.array([0.0, 10, 20])):
        result = gd.denoise(given, settings, sigma, dtype="float32", **options)
        expected = np.transpose(slow(image, sigma[:, None, None, None], settings), LAYOUTS[axes])
        np.testing.assert_allclose(result.image, expected, atol=1e-3)
        assert result.record.sigma == tuple(sigma)
    assert {tile.channels for tile in Plan.tiles} == {3}
    assert result.record.settings["channels"] == "auto"


def test_channels_are_joined_only_where_the_filter_says_so(device):
    for shape, axes in (((2, 30, 34), "CYX"), ((3, 30, 34), "TYX"), ((30, 34), "YX")):
        image = noisy(*shape)
        out = gd.denoise(image, Mix(), 20, axes=axes, device=device).image
        for plane, one in zip(image.reshape(-1, 30, 34), out.reshape(-1, 30, 34), strict=True):
            np.testing.assert_allclose(one, slow(plane[None, None], 20, Mix())[0, 0], atol=1e-3)
    assert {tile.channels for tile in Plan.tiles} == {1}
    image = noisy(3, 30, 34)
    alone = gd.denoise(image, Mix(channels="alone"), 20, axes="CYX", device=device).image
    np.testing.assert_array_equal(
        alone[1], gd.denoise(image[1], Mix(channels="alone"), 20, device=device).image
    )


@pytest.mark.parametrize("time", [0, 1])
def test_sigma_of_every_kind_reaches_joined_channels(device, time):
    image = noisy(3, 4, 19, 23)
    y, x = np.mgrid[:19, :23]
    planes, places = (np.arange(12.0) + 1).reshape(3, 4), (y + x) * 0.7 * (y != 5)
    for given, spread in ((7.0, 7.0), (planes, planes[..., None, None]), (places, places)):
        out = gd.denoise(image, Mix(time=time), given, axes="CTYX", device=device).image
        np.testing.assert_allclose(out, slow(image, spread, Mix(time=time)), atol=1e-3)
        np.testing.assert_array_equal(out[..., 5, :] == image[..., 5, :], given is places)


@pytest.mark.parametrize("given", [(0, 5, 20), "map"], ids=str)
@pytest.mark.parametrize(("axes", "time"), [("CTYX", 1), ("TYXC", 1), ("TQYXC", 0)])
def test_the_result_does_not_depend_on_how_the_image_is_cut(device, axes, time, given):
    lengths = {"C": 3, "T": 4, "Q": 2, "Y": 61, "X": 57}
    image = np.resize(noisy(24, 61, 57), [lengths[a] for a in axes])
    if isinstance(given, str):
        given = 20 * np.random.default_rng(0).random((61, 57))
    settings, options = Mix(time=time), {"axes": axes, "device": device}
    whole = gd.denoise(image, settings, given, **options).image
    Plan.tiles.clear()
    joined = dataclasses.replace(settings, channels="joined")
    limit = int(4096 * bytes_per_pixel(joined, np.ndim(given) == 2))
    tiled = gd.denoise(image, settings, given, memory_limit=limit, **options).image
    assert len(Plan.tiles) > 4
    assert max(3 * np.prod(tile.source_shape) for tile in Plan.tiles) <= 4096
    np.testing.assert_array_equal(tiled, whole)
    chunks = tuple({"C": 1, "T": 2, "Q": 1, "Y": 20, "X": 33}[a] for a in axes)
    array = da.from_array(image, chunks=chunks)
    lazy = gd.denoise_lazy(array, settings, given, **options)
    assert lazy.npartitions > 4
    assert lazy.chunks[axes.index("C")] == (3,)
    np.testing.assert_array_equal(lazy.compute(), whole)
    # Channels that are not joined stay in their chunks.
    alone = gd.denoise_lazy(array, Mix(channels="alone"), given, **options)
    assert alone.chunks[axes.index("C")] == (1, 1, 1)
