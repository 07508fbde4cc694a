"""One filter over one array: what does not depend on the filter, nor on the device."""

from __future__ import annotations

import dataclasses
import json
import threading

import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.errors import AxesError, Cancelled, ImageError
from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.noise.sigma_estimate import estimate_sigma
from napari_gpu_denoise.prepare import (
    convert,
    extend,
    extend_sigma,
    fill_nonfinite,
    keep_noiseless,
    settings_for,
)
from scenes import joining, noisy, small

KIND = FILTERS[0]


def test_the_record_says_that_noise_grows_with_brightness():
    level = np.linspace(20, 400, 128) * np.ones((128, 1))
    image = np.random.default_rng(0).poisson(level).astype(np.float32)
    (note,) = gd.denoise(image, small(KIND), noise="gaussian").record.notes
    assert note == estimate_sigma(image).notes[0]
    assert gd.denoise(image, small(KIND), 10).record.notes == ()


def test_settings_along_an_axis_of_length_one_do_not_apply():
    joined = joining(KIND, "TZ")
    assert settings_for(joined, "TZYX", (3, 2, 5, 6)) == joined
    assert settings_for(joined, "TZYX", (3, 1, 5, 6)) == joining(KIND, "T")
    assert settings_for(joined, "TZYX", (1, 1, 5, 6)) == small(KIND)
    with pytest.raises(AxesError, match="needs an axis Z"):
        settings_for(joined, "TYX", (3, 5, 6))


def test_nonfinite_pixels_see_the_nearest_of_their_plane():
    image = np.arange(2 * 4 * 5, dtype=float).reshape(2, 4, 5)
    image[0, :, 0] = np.nan
    image[1, 3, 4] = -np.inf
    before = image.copy()
    filled, odd = fill_nonfinite(image, "TYX", "keep")
    np.testing.assert_array_equal(image, before)
    np.testing.assert_array_equal(odd, ~np.isfinite(image))
    np.testing.assert_array_equal(filled[~odd], image[~odd])
    np.testing.assert_array_equal(filled[0, :, 0], image[0, :, 1])
    assert filled[1, 3, 4] in (image[1, 2, 4], image[1, 3, 3])
    across, _ = fill_nonfinite(np.moveaxis(image, 0, -1), "YXT", "keep")
    np.testing.assert_array_equal(np.moveaxis(across, -1, 0), filled)


@pytest.mark.parametrize("policy", ["raise", "keep"])
def test_finite_and_integer_arrays_are_not_copied(policy):
    for image in (np.ones((3, 3)), np.ones((3, 3), int)):
        filled, odd = fill_nonfinite(image, "YX", policy)
        assert filled is image
        assert odd is None


def test_unknown_policies_are_refused():
    with pytest.raises(ImageError, match="ignore"):
        fill_nonfinite(np.ones((3, 3)), "YX", "ignore")


def test_short_axes_are_extended_by_mirroring_at_their_end():
    image = np.arange(6).reshape(2, 3)
    wide = extend(image, "YX", image.shape, 4)
    np.testing.assert_array_equal(wide, [[0, 1, 2, 2], [3, 4, 5, 5], [3, 4, 5, 5], [0, 1, 2, 2]])
    assert extend(image, "YX", (2, 3), 2) is image
    assert extend(np.ones((2, 9, 9)), "TYX", (2, 9, 9), 4).shape == (2, 9, 9)


@pytest.mark.parametrize(
    ("given", "dtype", "expected", "clipped"),
    [
        ([0.4, 0.6, 255.6, -3], "uint8", [0, 1, 255, 0], 2),
        ([0, 255], "int32", [0, 255], 0),
        (np.array([0, 300], np.uint16), "uint8", [0, 255], 1),
        (np.array([-5, 5], np.int8), "uint64", [0, 5], 1),
        (np.array([2**64 - 1, 7], np.uint64), "int64", [2**63 - 1, 7], 1),
        (np.array([2**63 - 1, -1], np.int64), "uint64", [2**63 - 1, 0], 1),
        ([1e30, 7.0], "uint64", [2**64 - 1, 7], 1),
        ([1e30, 7.0], "int64", [2**63 - 1, 7], 1),
        (np.array([2.0**31, 5], np.float32), "int32", [2**31 - 1, 5], 1),
        (np.array([65504, -1], np.float16), "uint16", [65504, 0], 1),
        ([1.25, -2.5], "float32", [1.25, -2.5], 0),
    ],
)
def test_unfiltered_pixels_are_rounded_clipped_and_counted(given, dtype, expected, clipped):
    out = np.empty(len(given), dtype)
    assert convert(np.asarray(given), out) == clipped
    assert out.tolist() == expected


def test_planes_without_noise_are_kept():
    image, out = noisy(2, 3, 5, 6), np.zeros((2, 3, 5, 6), np.float32)
    sigma = np.array([[1, 2, 0], [0, 3, 4.0]])
    keep_noiseless(image, out, "TCYX", sigma[..., None, None])
    np.testing.assert_array_equal(out[sigma == 0], image[sigma == 0])
    np.testing.assert_array_equal(out[sigma > 0], 0)
    last = np.zeros((5, 2, 6, 3), np.float32)
    turned = np.transpose(image, (2, 0, 3, 1))
    keep_noiseless(turned, last, "YTXC", np.array([0, 1, 1.0])[None, None, None])
    np.testing.assert_array_equal(last[..., 0], turned[..., 0])
    np.testing.assert_array_equal(last[..., 1:], 0)


@pytest.mark.parametrize(
    ("axes", "order"), [("TCYX", (0, 1, 2, 3)), ("XTYC", (3, 0, 2, 1)), ("YXTC", (2, 3, 0, 1))]
)
def test_pixels_without_noise_are_kept(axes, order):
    sigma = np.ones((5, 6))
    sigma[1, 2:4] = sigma[4, 5] = 0
    image, out = noisy(2, 3, 5, 6) + 0.3, np.zeros((2, 3, 5, 6), np.uint8)
    keep_noiseless(
        np.transpose(image, order),
        np.transpose(out, order),
        axes,
        np.transpose(sigma[None, None], order),
    )
    np.testing.assert_array_equal(out[..., sigma == 0], np.rint(image[..., sigma == 0]))
    np.testing.assert_array_equal(out[..., sigma > 0], 0)


def test_a_map_is_mirrored_as_the_pixels_are():
    image = np.arange(12.0).reshape(1, 2, 6)
    wide = extend(image, "TYX", image.shape, 4)
    np.testing.assert_array_equal(extend_sigma(image, "TYX", image.shape, 4), wide)
    for sigma in (np.ones((1, 1, 1)), np.ones((3, 1, 1))):
        assert extend_sigma(sigma, "TYX", (3, 2, 6), 4) is sigma


def test_a_filter_may_depend_on_the_array():
    @dataclasses.dataclass(frozen=True)
    class Colours(KIND):
        def for_array(self, names, shape):
            return dataclasses.replace(self, neighbours=shape[names.index("C")])

    settings = small(Colours, frames_after=1)
    applied = settings_for(settings, "TCYX", (1, 3, 5, 6))
    assert applied == small(Colours, neighbours=3)


def test_the_record_tells_the_settings_as_they_were_given(device):
    @dataclasses.dataclass(frozen=True)
    class Doubled(KIND):
        def for_array(self, names, shape):
            return dataclasses.replace(self, window=11)

    image = noisy(40, 44)
    result = gd.denoise(image, small(Doubled, window=5), 20, device=device)
    assert result.record.settings["window"] == 5
    expected = gd.denoise(image, small(KIND, window=11), 20, device=device).image
    np.testing.assert_array_equal(result.image, expected)
    lazy = gd.denoise_lazy(image, small(Doubled, window=5), 20, device=device)
    np.testing.assert_array_equal(lazy.compute(scheduler="synchronous"), expected)


def test_a_record_is_plain_json(device):
    record = gd.denoise(noisy(2, 20, 20), small(KIND), (3, 4), axes="CYX", device=device).record
    plain = json.loads(json.dumps(record.as_dict()))
    assert plain == record.as_dict()
    assert plain["sigma"] == [3.0, 4.0]
    assert plain["settings"]["patch"] == 4
    with pytest.raises(AttributeError):
        record.sigma = (1.0,)


def test_anything_with_is_set_cancels(device):
    class Always:
        def is_set(self):
            return True

    for cancel in (Always(), threading.Event()):
        if isinstance(cancel, threading.Event):
            cancel.set()
        with pytest.raises(Cancelled):
            gd.denoise(noisy(20, 20), small(KIND), 20, device=device, cancel=cancel)


def test_an_error_in_progress_stops_the_run_and_comes_through(device):
    def progress(done, total):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        gd.denoise(noisy(20, 20), small(KIND), 20, device=device, progress=progress)
    gd.denoise(noisy(20, 20), small(KIND), 20, device=device)


def test_the_estimate_of_a_noiseless_image_is_zero_and_returns_it(device):
    image = np.full((40, 40), 7, np.uint8)
    result = gd.denoise(image, small(KIND), device=device)
    assert result.record.sigma == (0.0,)
    np.testing.assert_array_equal(result.image, image)
