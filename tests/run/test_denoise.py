"""One filter over one array: what does not depend on the filter, nor on the device."""

from __future__ import annotations

import dataclasses
import json
import threading

import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.errors import Cancelled
from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.noise.patches.white import estimate_sigma
from scenes import noisy, small

KIND = FILTERS[0]


def test_the_record_says_that_noise_grows_with_brightness():
    level = np.linspace(20, 400, 128) * np.ones((128, 1))
    image = np.random.default_rng(0).poisson(level).astype(np.float32)
    (note,) = gd.denoise(image, small(KIND), noise="gaussian").record.notes
    assert note == estimate_sigma(image).notes[0]
    assert gd.denoise(image, small(KIND), 10).record.notes == ()


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
