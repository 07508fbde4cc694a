"""Filters that join channels: what their plans are given, shown on one whose kernel mixes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.protocol.plan import TilePlan
from napari_gpu_denoise.protocol.settings import setting
from napari_gpu_denoise.protocol.tiles import Reach
from scenes import noisy

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

    @property
    def joint(self) -> str:
        """Which axes it looks along."""
        return "C" + "T" * (self.time > 0)

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
    """Kernel of the filter."""

    def __init__(self, settings: Mix, arena):
        self.arena = arena
        import pyopencl as cl

        lines = f"#define RADIUS {settings.radius}\n#define TIME {settings.time}\n{KERNEL}"
        self.kernel = cl.Kernel(cl.Program(arena.session.context, lines).build(), "mix_channels")

    def enqueue(self, queue, tile, source, out, sigma) -> list:
        """Enqueue the kernel for one tile."""
        nt, nz, ny, nx = tile.shape
        margins = (span.margin for span in (tile.t, tile.z, tile.y, tile.x))
        lengths = (tile.channels, *tile.source_shape, *margins, *tile.shape)
        variation = sigma.levels if sigma.variation is None else sigma.variation
        noise = sigma.levels, variation, np.int32(sigma.variation is not None)
        grid = nx, ny, tile.channels * nt * nz
        event = self.kernel(queue, grid, None, source, *map(np.int32, lengths), *noise, out)
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


@pytest.mark.parametrize("time", [0, 1])
def test_sigma_of_every_kind_reaches_joined_channels(device, time):
    image = noisy(3, 4, 19, 23)
    y, x = np.mgrid[:19, :23]
    planes, places = (np.arange(12.0) + 1).reshape(3, 4), (y + x) * 0.7 * (y != 5)
    for given, spread in ((7.0, 7.0), (planes, planes[..., None, None]), (places, places)):
        out = gd.denoise(image, Mix(time=time), given, axes="CTYX", device=device).image
        np.testing.assert_allclose(out, slow(image, spread, Mix(time=time)), atol=1e-3)
        np.testing.assert_array_equal(out[..., 5, :] == image[..., 5, :], given is places)
