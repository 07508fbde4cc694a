"""A filter that needs no sigma: none is measured for it, wherever it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import dask.array as da
import numpy as np
import pytest
import tifffile
from scipy.ndimage import maximum_filter

import napari_gpu_denoise as gd
from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.files import one_file
from napari_gpu_denoise.noise import estimate
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.protocol.plan import TilePlan
from napari_gpu_denoise.protocol.settings import setting
from napari_gpu_denoise.protocol.tiles import Reach
from napari_gpu_denoise.run.request import Run
from napari_gpu_denoise.run.stream import FrameStream
from scenes import noisy

SOURCE = """
__kernel void brightest(__global const float *source, int sny, int snx, int y0, int x0,
                        int radius, __global float *out)
{
    const int x = get_global_id(0), y = get_global_id(1), frame = get_global_id(2);
    const size_t first = (size_t)frame * sny * snx;
    float found = -INFINITY;
    for (int j = max(y + y0 - radius, 0); j <= min(y + y0 + radius, sny - 1); ++j)
        for (int i = max(x + x0 - radius, 0); i <= min(x + x0 + radius, snx - 1); ++i)
            found = fmax(found, source[first + (size_t)j * snx + i]);
    out[((size_t)frame * get_global_size(1) + y) * get_global_size(0) + x] = found;
}
"""
TOLD = "not used"


@dataclass(frozen=True)
class Brightest(Filter):
    """The brightest pixel around each."""

    name: ClassVar[str] = "brightest"
    title: ClassVar[str] = "Brightest"
    summary: ClassVar[str] = "Maximum of a window"
    bytes_per_pixel: ClassVar[float] = 0.0
    operations_per_pixel: ClassVar[float] = 20.0
    sigma_unused: ClassVar[str] = TOLD

    radius: int = setting(1, "Half-width of the window", bounds=(0, 9), unit="pixels")

    @property
    def reach(self) -> Reach:
        around = (self.radius, self.radius)
        return Reach(y=around, x=around)

    def plan(self, arena):
        return BrightestPlan(self, arena)


class BrightestPlan(TilePlan):
    def __init__(self, settings: Brightest, arena):
        self.arena = arena
        import pyopencl as cl

        self.radius = np.int32(settings.radius)
        self.kernel = cl.Kernel(cl.Program(arena.session.context, SOURCE).build(), "brightest")

    def enqueue(self, queue, tile, source, out, sigma):
        nt, nz, ny, nx = tile.shape
        lengths = (*tile.source_shape[2:], tile.y.margin, tile.x.margin)
        given = (source, *map(np.int32, lengths), self.radius, out)
        return [("brightest", self.kernel(queue, (nx, ny, tile.channels * nt * nz), None, *given))]


@pytest.fixture(autouse=True)
def unmeasured(monkeypatch):
    def fail(*given, **options):
        pytest.fail("sigma was estimated")

    monkeypatch.setattr(estimate, "measure_noise", fail)


def expected_of(image: np.ndarray, radius: int = 1) -> np.ndarray:
    size = (1,) * (image.ndim - 2) + (2 * radius + 1,) * 2
    return maximum_filter(image, size, mode="nearest")


@pytest.mark.parametrize(
    ("axes", "dtype"), [("YX", "uint8"), ("TYX", "float32"), ("CZYX", "uint16")]
)
def test_arrays(device, axes, dtype):
    image = noisy(*(3, 2, 61, 57)[-len(axes) :], dtype=dtype)
    result = gd.denoise(image, Brightest(), axes=axes, device=device)
    np.testing.assert_array_equal(result.image, expected_of(image))
    record = result.record
    assert (record.sigma, record.sigma_source, record.noise, record.notes) == ((), TOLD, (), ())


def test_chunks_and_streams(device):
    image, options = noisy(5, 61, 57, dtype="uint16"), {"device": device}
    expected, lazy = expected_of(image, 2), da.from_array(image, chunks=(1, 20, 30))
    found = gd.denoise_lazy(lazy, Brightest(2), axes="TYX", **options)
    np.testing.assert_array_equal(found.compute(scheduler="synchronous"), expected)
    flow = FrameStream(Run(Brightest(2), **options), image)
    np.testing.assert_array_equal(list(flow), expected)
    assert (flow.record().sigma, flow.record().sigma_source) == ((), TOLD)
    result = gd.denoise(lazy, Brightest(2), axes="TYX", out=np.empty_like(image), **options)
    np.testing.assert_array_equal(result.image, expected)
    assert result.record.sigma_source == TOLD


@pytest.mark.parametrize("long", [False, True])
def test_files(device, tmp_path, monkeypatch, long):
    if long:
        monkeypatch.setattr(one_file, "STREAMED_BYTES", 0)
    image = noisy(4, 33, 37, dtype="uint16")
    tifffile.imwrite(tmp_path / "in.tif", image, imagej=True, metadata={"axes": "TYX"})
    target = tmp_path / "out.tif"
    report = gd.run_batch(tmp_path / "in.tif", Brightest(), output=target, device=device)
    assert not report.failed
    np.testing.assert_array_equal(tifffile.imread(target), expected_of(image))
    assert report.done[0].record.sigma_source == TOLD


def test_where_sigma_is_0_pixels_stay_as_they_are(device):
    image, options = noisy(2, 40, 44, dtype="uint8"), {"axes": "TYX", "device": device}
    places = np.ones((40, 44))
    places[:7] = 0
    result = gd.denoise(image, Brightest(), places, **options)
    np.testing.assert_array_equal(result.image[:, :7], image[:, :7])
    np.testing.assert_array_equal(result.image[:, 7:], expected_of(image)[:, 7:])
    assert result.record.sigma == ()
    np.testing.assert_array_equal(gd.denoise(image, Brightest(), 0, **options).image, image)
    np.testing.assert_array_equal(
        gd.denoise(image, Brightest(), 1e9, **options).image, expected_of(image)
    )


def test_noise_for_it_is_refused():
    for noise in ("auto", gd.PoissonGaussian(1, 2), 3.0):
        with pytest.raises(SettingsError, match="does not use it"):
            gd.denoise(noisy(20, 20), Brightest(), noise=noise)
