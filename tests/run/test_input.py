"""Pixels in memory: NaN and infinity filled, few ones mirrored, padding left alone."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import napari_gpu_denoise as gd
from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.image.levels import fill_nonfinite
from napari_gpu_denoise.run.input import extend
from napari_gpu_denoise.run.job import start
from napari_gpu_denoise.run.request import Run


def test_nonfinite_pixels_see_the_nearest_of_their_plane():
    image = np.arange(2 * 4 * 5, dtype=float).reshape(2, 4, 5)
    image[0, :, 0] = np.nan
    image[1, 3, 4] = -np.inf
    before = image.copy()
    filled, mask = fill_nonfinite(image, "TYX", "keep")
    np.testing.assert_array_equal(image, before)
    np.testing.assert_array_equal(mask, ~np.isfinite(image))
    np.testing.assert_array_equal(filled[~mask], image[~mask])
    np.testing.assert_array_equal(filled[0, :, 0], image[0, :, 1])
    assert filled[1, 3, 4] in (image[1, 2, 4], image[1, 3, 3])
    across, _ = fill_nonfinite(np.moveaxis(image, 0, -1), "YXT", "keep")
    np.testing.assert_array_equal(np.moveaxis(across, -1, 0), filled)


def test_finite_and_integer_arrays_are_not_copied_and_other_policies_refused():
    for image in (np.ones((3, 3)), np.ones((3, 3), int)):
        for policy in ("raise", "keep"):
            filled, mask = fill_nonfinite(image, "YX", policy)
            assert filled is image
            assert mask is None
    with pytest.raises(SettingsError, match="ignore"):
        fill_nonfinite(np.ones((3, 3)), "YX", "ignore")


def test_short_axes_are_extended_by_mirroring_at_their_end():
    image = np.arange(6).reshape(2, 3)
    wide = extend(image, "YX", image.shape, 4)
    np.testing.assert_array_equal(wide, [[0, 1, 2, 2], [3, 4, 5, 5], [3, 4, 5, 5], [0, 1, 2, 2]])
    assert extend(image, "YX", (2, 3), 2) is image
    assert extend(np.ones((2, 9, 9)), "TYX", (2, 9, 9), 4).shape == (2, 9, 9)


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


@pytest.mark.filterwarnings("ignore::napari_gpu_denoise.errors.SaturationWarning")
@pytest.mark.parametrize(
    ("filter", "limit"), [(gd.NLMeans(window=11), "1 MiB"), (gd.VBM3D.of(profile="fast"), "5 MiB")]
)
def test_the_same_whichever_way_an_image_takes(device, filter, limit):
    image = padded(frames=3)
    options = {"noise": gd.estimate_noise(image[0]), "device": device}
    whole = gd.denoise(image, filter, axes="TYX", **options).image
    np.testing.assert_array_equal(whole[image == 0], 0)
    array = da.from_array(image, chunks=(2, 65, 40))
    lazy = gd.denoise_lazy(array, filter, axes="TYX", **options).compute(scheduler="synchronous")
    frames = np.stack(list(gd.stream(filter, image, **options)))
    options |= {"axes": "TYX"}
    series = gd.denoise(array, filter, out=np.empty_like(whole), **options).image
    tiles = gd.denoise(image, filter, memory_limit=limit, **options).image
    for made in (lazy, frames, series, tiles):
        np.testing.assert_array_equal(made, whole)


def test_nothing_is_kept_if_the_noise_is_given():
    image = padded(frames=1)[0]
    for noise in ({"sigma": SIGMA}, {"noise": gd.Gaussian(SIGMA)}, {"noise": SIGMA}):
        assert start(Run(gd.BM3D(), **noise), image).blank_width == 0
    assert start(Run(gd.BM3D()), image).blank_width == 8


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
