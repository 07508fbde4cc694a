"""What is known of the noise of frames as they come, and frames that do not fit."""

from __future__ import annotations

import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.errors import (
    AxesError,
    DeviceMemoryError,
    ImageError,
    NonFiniteError,
    SettingsError,
    SigmaError,
)
from napari_gpu_denoise.filters import BM3D, VBM3D, NLMeans
from scenes import noisy, small
from streams import SETTINGS, streamed, whole

# Noise


@pytest.mark.parametrize("name", ["vbm3d 4+4", "vbm3d causal", "bm3d", "nl_means 2+1"])
def test_sigma_of_every_kind(streaming_device, name):
    settings, frames = SETTINGS[name], noisy(6, 2, 40, 44, dtype="uint8")
    plain, options = frames[:, 0], {"device": streaming_device}
    found = gd.estimate_noise(plain[0]).sigma
    y, x = np.mgrid[:40, :44]
    map_of = (5 + 0.4 * x) * (y != 7)
    # What `stream` is given, and what `denoise` is.
    cases = [
        (None, found, plain, "YX"),
        (12.5, 12.5, plain, "YX"),
        (0, 0, plain, "YX"),
        ((10, 25), (10, 25), frames, "CYX"),
        ((0, 25), (0, 25), frames, "CYX"),
        (np.array([10, 25.0]), np.full((6, 2), (10, 25.0)), frames, "ZYX"),
        (map_of, map_of, plain, "YX"),
        (lambda k: 10 + 2 * k, 10.0 + 2 * np.arange(6), plain, "YX"),
        (lambda k: 20 * (k != 2), 20.0 * (np.arange(6) != 2), plain, "YX"),
        (
            lambda k: (10 + k, 20 - k),
            np.array([(10 + k, 20.0 - k) for k in range(6)]),
            frames,
            "CYX",
        ),
    ]
    for given, known, stack, axes in cases:
        expected = whole(settings, stack, known, axes=axes, **options)
        for live in (False, True):
            out = streamed(settings, stack, given, axes=axes, live=live, **options)
            np.testing.assert_array_equal(out, expected)


def test_sigma_is_asked_for_once_a_frame_in_order(device):
    asked = []
    streamed(SETTINGS["vbm3d 2+1"], noisy(5, 40, 44), lambda k: asked.append(k) or 20.0)
    assert asked == list(range(5))


def test_a_function_may_give_each_frame_a_map_of_its_own(device):
    settings = small(BM3D)
    frames = noisy(4, 40, 44)
    left = np.where(np.arange(44) < 22, 8.0, 24.0) * np.ones((40, 1))
    for maps in ([left, left[:, ::-1]] * 2, [np.full((40, 44), 24.0), left] * 2):
        out = streamed(settings, frames, lambda k, maps=maps: maps[k], device=device)
        for k in range(4):
            expected = streamed(settings, frames, maps[k], device=device)[k]
            np.testing.assert_array_equal(out[k], expected)


def test_frames_that_are_filtered_together_share_a_map(device):
    settings = small(VBM3D, frames_before=1, frames_after=1)
    maps = np.full((4, 40, 44), 8.0) * np.linspace(1, 2, 44)
    with pytest.raises(SigmaError, match="one map for all frames"):
        streamed(settings, noisy(4, 40, 44), lambda k: maps[k], device=device)


@pytest.mark.parametrize("wrong", [-1, "much", (1, 2, 3), lambda k: -1, lambda k: (1, 2)[k:]])
def test_sigma_that_does_not_fit_is_refused(device, wrong):
    with pytest.raises(SigmaError):
        streamed(SETTINGS["vbm3d 2+1"], noisy(3, 40, 44), wrong, device=device)


# Frames that do not fit


@pytest.mark.parametrize("name", ["vbm3d causal", "bm3d", "nl_means"])
@pytest.mark.parametrize("change", ["shape", "type"])
def test_frames_unlike_the_first_one_are_refused_by_number(device, arenas, name, change):
    frames = list(noisy(5, 40, 44))
    frames[3] = frames[3].T if change == "shape" else frames[3].astype(np.float64)
    steps = gd.stream(SETTINGS[name], frames, 20.0, live=True, device=device)
    for _ in range(3):
        next(steps)
    said = r"Frame 3 has.*\(44, 40\)" if change == "shape" else "Frame 3 has.*float64.*float32"
    with pytest.raises(ImageError, match=said):
        next(steps)
    assert next(steps, None) is None


def test_nonfinite_pixels_are_refused_by_number_or_kept(streaming_device):
    clean = noisy(6, 90, 100)
    frames = clean.copy()
    frames[3, 40:43, 50:54] = (np.nan, np.inf, -np.inf, np.nan)
    odd = ~np.isfinite(frames)
    for name in ("vbm3d 2+1", "bm3d", "nl_means 2+1"):
        settings = SETTINGS[name]
        with pytest.raises(NonFiniteError, match=r"Frame 3 .*keep"):
            streamed(settings, frames, device=streaming_device)
        with pytest.raises(NonFiniteError, match="keep"):
            streamed(settings, frames[3:], device=streaming_device)
        expected = whole(settings, frames, nonfinite="keep", device=streaming_device)
        for live in (False, True):
            out = streamed(settings, frames, nonfinite="keep", live=live, device=streaming_device)
            np.testing.assert_array_equal(out, expected)
            np.testing.assert_array_equal(out[odd], frames[odd])
            assert np.all(np.isfinite(out[~odd]))
        with pytest.raises(NonFiniteError, match="float32"):
            streamed(settings, frames, nonfinite="keep", dtype="uint8", device=streaming_device)


def test_a_frame_of_nothing_but_nan_changes_no_other(streaming_device):
    frames = noisy(5, 40, 44)
    frames[2] = np.nan
    out = streamed(SETTINGS["vbm3d 2+1"], frames, nonfinite="keep", device=streaming_device)
    assert np.all(np.isnan(out[2]))
    expected = whole(SETTINGS["vbm3d 2+1"], frames, nonfinite="keep", device=streaming_device)
    np.testing.assert_array_equal(out, expected)


BAD = {
    "no letters": ({"axes": "TY1"}, AxesError, "letter"),
    "too few axes": ({"axes": "X"}, AxesError, "letter"),
    "time within a frame": ({"frames": noisy(2, 3, 20, 20), "axes": "TYX"}, AxesError, "T"),
    "no slices": ({"filter": small(NLMeans, slices=1)}, AxesError, "needs an axis Z"),
    "no colours": ({"filter": small(VBM3D, channels="opponent")}, SettingsError, "channels"),
    "text": ({"frames": [np.array([["a"]])]}, ImageError, "convert"),
    "no pixels": ({"frames": np.ones((2, 0, 5))}, ImageError, "no pixels"),
    "unknown policy": ({"nonfinite": "drop"}, ImageError, "drop.*keep"),
    "unknown type": ({"dtype": "float33"}, ImageError, "float33"),
    "no memory": ({"memory_limit": 1}, DeviceMemoryError, "at least"),
    "little memory": ({"memory_limit": 6 << 20}, DeviceMemoryError, "frame"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_a_sentence(device, case):
    changes, error, sentence = BAD[case]
    size = 300 if case == "little memory" else 20
    options = {"filter": SETTINGS["vbm3d 2+1"], "frames": noisy(3, size, size), "sigma": 20.0}
    with pytest.raises(error, match=sentence):
        list(gd.stream(**{**options, "device": device, **changes}))
