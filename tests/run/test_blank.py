"""Areas that are not image come back as they are, and do not hide the noise of the rest."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import napari_gpu_denoise as gd
from napari_gpu_denoise.run.input import keep_blank
from napari_gpu_denoise.run.job import prepare
from napari_gpu_denoise.run.request import Run

SIGMA = 12.0
FILTERS = {"nl_means": gd.NLMeans(window=11), "bm3d": gd.BM3D.of(profile="fast")}


def padded(dtype: str = "uint16", fill: float = 0, frames: int = 2) -> np.ndarray:
    rng = np.random.default_rng(3)
    scene = 120 + 60 * gaussian_filter(rng.normal(size=(80, 90)), 8) * 15
    stack = scene + rng.normal(0, SIGMA, (frames, *scene.shape))
    stack = stack.astype(dtype) if dtype == "float32" else np.rint(stack).astype(dtype)
    return np.pad(stack, ((0, 0), (20, 30), (12, 26)), constant_values=fill)


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize(("dtype", "fill"), [("uint16", 0), ("float32", 0.1), ("float32", -1)])
def test_padding_comes_back_and_the_rest_is_filtered(name, dtype, fill, device):
    image = padded(dtype, fill, 1)[0]
    area = image == np.dtype(dtype).type(fill)
    result = gd.denoise(image, FILTERS[name], device=device)
    assert result.record.sigma[0] == pytest.approx(SIGMA, rel=0.06)
    np.testing.assert_array_equal(result.image[area], image[area])
    assert result.image[~area].std() < 0.95 * image[~area].std()
    told = gd.denoise(image, FILTERS[name], result.record.sigma[0], device=device).image
    np.testing.assert_array_equal(result.image[~area], told[~area])


def test_the_same_whichever_way_an_image_takes(device):
    image = padded()
    filter = FILTERS["nl_means"]
    noise = gd.estimate_noise(image[0])
    whole = gd.denoise(image, filter, noise=noise, device=device, axes="TYX").image
    np.testing.assert_array_equal(whole[image == 0], 0)
    for chunks in ((1, 65, 64), (2, 130, 40)):
        lazy = gd.denoise_lazy(
            da.from_array(image, chunks=chunks), filter, noise=noise, device=device, axes="TYX"
        )
        np.testing.assert_array_equal(lazy.compute(scheduler="synchronous"), whole)
    frames = gd.stream(filter, image, noise=noise, device=device)
    np.testing.assert_array_equal(np.stack(list(frames)), whole)
    out = np.empty_like(whole)
    video = {"axes": "TYX", "device": device, "noise": noise}
    series = gd.denoise(da.from_array(image), filter, out=out, **video).image
    np.testing.assert_array_equal(series, whole)
    tiles = gd.denoise(image, filter, memory_limit="1 MiB", **video).image
    np.testing.assert_array_equal(tiles, whole)


def test_video_by_frames(device):
    image = padded("float32", 5, frames=4)
    filter = gd.VBM3D.of(profile="fast")
    result = gd.denoise(image, filter, axes="TYX", device=device).image
    np.testing.assert_array_equal(result[image == 5], 5)
    out = np.empty_like(image)
    gd.denoise(da.from_array(image), filter, axes="TYX", device=device, out=out)
    np.testing.assert_array_equal(out[image == 5], 5)


def test_squares_do_not_depend_on_the_part():
    image = padded(frames=1)[0]
    whole = np.ones_like(image)
    keep_blank(image, whole, (slice(0, 130), slice(0, 128)), "YX", 8)
    assert (whole == 0).mean() > 0.3
    for y in range(0, 130, 26):
        first, last = max(y - 7, 0), min(y + 26 + 7, 130)
        part = np.ones_like(image[y : y + 26])
        inner = slice(y - first, y - first + 26), slice(0, 128)
        keep_blank(image[first:last], part, inner, "YX", 8)
        np.testing.assert_array_equal(part, whole[y : y + 26])


def test_nothing_is_kept_if_the_noise_is_given():
    image = padded(frames=1)[0]
    for noise in ({"sigma": SIGMA}, {"noise": gd.Gaussian(SIGMA)}, {"noise": SIGMA}):
        assert prepare(Run(gd.BM3D(), **noise), image).blank_width == 0
    assert prepare(Run(gd.BM3D()), image).blank_width == 8


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("noise", [None, "auto", "gaussian"])
def test_pixels_that_are_filled_in_do_not_count_as_noise_free(value, noise, device):
    image = padded("float32", value, 1)[0]
    result = gd.denoise(image, FILTERS["nl_means"], noise=noise, nonfinite="keep", device=device)
    assert result.record.sigma[0] == pytest.approx(gd.estimate_noise(image).sigma[0])
    assert result.record.sigma[0] == pytest.approx(SIGMA, rel=0.06)
    np.testing.assert_array_equal(np.isfinite(result.image), np.isfinite(image))


def test_a_channel_without_a_finite_pixel(device):
    image = np.stack([padded("float32", np.nan, 1)[0], np.full((130, 128), np.nan, np.float32)])
    result = gd.denoise(image, FILTERS["nl_means"], axes="CYX", nonfinite="keep", device=device)
    assert result.record.sigma[1] == 0
    assert result.record.sigma[0] == pytest.approx(SIGMA, rel=0.1)
