"""The advice on images whose kind is known, and what it is based on."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import ndimage

import napari_gpu_denoise as gd
from _napari.noise_records import estimate
from napari_gpu_denoise import errors
from napari_gpu_denoise.assessment.recommend import (
    image_in_words,
    noise_in_words,
    recommend,
    time_in_words,
)
from napari_gpu_denoise.filters.search.likeness import likeness
from napari_gpu_denoise.noise.models import Correlated, Gaussian, PoissonGaussian, Speckle
from scenes import prepared

SIGMA, SIZE = 10.0, ", 5 by 6 pixels"
CORRELATED = Correlated(SIGMA, tuple(tuple(0.5 ** (y + x) for x in range(5)) for y in range(5)))


def scene(step: int, frames: int = 4, rows: int = 128) -> np.ndarray:
    """Structures that move along x by so many pixels a frame, with noise, (t, rows, rows + 16)."""
    rng = np.random.default_rng(3)
    wide = 900 * ndimage.gaussian_filter(rng.normal(size=(rows, 900)), 4)
    clean = np.stack([wide[:, t * step : t * step + rows + 16] for t in range(frames)])
    return clean + rng.normal(0, SIGMA, clean.shape)


def advise(image, axes=None, model=None, **options):
    """Recommend with the noise known, which takes no time to measure."""
    axes = axes or "." * (image.ndim - 2) + "YX"
    known = estimate((model or Gaussian(SIGMA),), sigma=(SIGMA,), axes=axes)
    return recommend(image, axes, noise=known, **options)


@pytest.mark.parametrize(
    ("step", "moved", "filter", "said"),
    [
        (0, 0, "vbm3d", "hardly move"),
        (3, 3, "vbm3d", "about 3 pixels a frame"),
        (12, 12, "vbm3d", "a wider search"),
        (240, None, "bm3d", "show different structures"),
    ],
)
def test_frames_are_used_where_they_show_the_same(step, moved, filter, said):
    movie = scene(step)
    found = likeness([(movie[0], movie[1]), (movie[1], movie[2])], SIGMA)
    advice = advise(movie, "TYX")
    assert advice.filter.name == filter and said in advice.reason
    if moved is None:
        assert found.found < 0.2
    else:
        assert found.found > 0.9 and abs(found.moved - moved) <= 1
    if step == 12:
        assert advice.filter.window_nearest == 31 and "window nearest 31" in advice.choice


@pytest.mark.parametrize(
    ("step", "width", "said"),
    [
        (4, 0, ""),
        (8, 19, "about 8 pixels a frame: they are searched with window_nearest=19"),
        (17, 39, "they are searched with window_nearest=39"),
        (24, 0, "about 24 pixels a frame, too far to follow: BM3D may be better"),
    ],
)
def test_vbm3d_searches_as_wide_as_is_recommended(step, width, said):
    movie = scene(step, 3, 192 if step == 24 else 128)
    movie[1, 5, 5], movie[2] = np.inf, movie[2] * 1.02
    fitting = prepared(gd.VBM3D(), "TYX", movie.shape, image=movie)
    assert fitting == prepared(gd.VBM3D(window_nearest=width), "TYX")
    assert len(fitting.notes) == bool(said) and said in "".join(fitting.notes)
    past = prepared(gd.VBM3D(frames_after=0), "TYX", movie.shape, image=movie)
    assert past.window_nearest == fitting.window_nearest
    told = gd.VBM3D(window_nearest=15)
    assert prepared(told, "TYX", movie.shape, image=movie).notes == ()


def test_noise_that_stays_is_not_filtered_over_time():
    movie = np.repeat(scene(0, 1), 4, axis=0)
    advice = advise(movie, "TYX")
    assert advice.filter.name == "bm3d"
    assert "stays the same from frame to frame, so averaging frames" in advice.reason


@pytest.mark.parametrize("blank", [np.s_[10:15], np.s_[:, :40]], ids=["frames", "rows"])
def test_noise_is_compared_where_frames_are_not_blank(blank):
    movie = scene(0, 25, 64)
    movie[blank] = 0
    assert advise(movie.astype(np.float32), "TYX").filter.name == "vbm3d"


def test_nothing_is_said_of_frames_without_structure():
    flat = np.random.default_rng(0).normal(100, SIGMA, (3, 64, 64))
    found = likeness([(flat[0], flat[1])], SIGMA)
    assert math.isnan(found.found) and math.isnan(found.moved) and found.repeated < 0.3
    assert math.isnan(likeness([(flat[0, :9], flat[1, :9])], SIGMA).found)
    assert advise(flat, "TYX").filter.name == "vbm3d"


@pytest.mark.parametrize(
    ("shape", "axes", "model", "expected"),
    [
        ((48, 48, 3), "YXS", Gaussian(SIGMA), gd.BM3D()),
        ((4, 48, 48), "ZYX", Gaussian(SIGMA), gd.BM4D()),
        ((3, 48, 48), "ZYX", Gaussian(SIGMA), gd.BM3D()),
        ((6, 48, 48), "ZYX", CORRELATED, gd.BM4D()),
        ((3, 6, 48, 48), "TZYX", Gaussian(SIGMA), gd.BM4D(frames_before=1, frames_after=1)),
        ((2, 6, 48, 48), "CZYX", PoissonGaussian(2.0, 1.0), gd.BM4D()),
        ((48, 48), "YX", Speckle(3.0), gd.Isoline()),
    ],
)
def test_the_axes_and_the_noise_decide(shape, axes, model, expected):
    image = np.random.default_rng(1).normal(100, SIGMA, shape)
    assert advise(image, axes, model).filter == expected


def test_axes_without_names():
    advice = advise(scene(0))
    assert advice.filter.name == "bm3d"
    (hint,) = advice.hints
    assert hint.startswith("The 4 planes") and "name it T if they are frames, Z if" in hint


def test_efforts():
    movie = scene(12)
    fast = gd.VBM3D.of(profile="fast", window_nearest=31)
    assert advise(movie, "TYX", effort="fast").filter == fast
    best = advise(movie, "TYX", effort="best")
    assert best.filter == gd.VBM3D(refine="chain", window_nearest=31)
    normal = advise(movie, "TYX", effort="normal")
    assert normal.filter == gd.VBM3D(window_nearest=31) and normal.seconds < best.seconds
    # Which would not refine a single image of photons.
    photons = gd.PoissonGaussian(1.0, 0.0)
    assert advise(movie[0], model=photons, effort="best").profile == "high"
    with pytest.raises(errors.SettingsError, match="effort='quick' is unknown"):
        advise(movie, effort="quick")


def test_what_would_take_too_long_gets_a_quick_profile():
    advice = advise(np.broadcast_to(np.float32(5), (1 << 18, 1 << 18)))
    assert advice.profile == "fast" and "Profile fast was chosen" in advice.hints[-1]


def test_it_measures_the_noise_and_says_it():
    advice = recommend(np.zeros((64, 64)))
    assert "returned unchanged" in advice.reason and advice.noise == "no noise"
    noisy = np.random.default_rng(2).normal(100, 5, (64, 64)).astype(np.float32)
    advice = gd.recommend(noisy)
    assert abs(advice.estimate.sigma[0] - 5) < 0.5
    text = advice.summary()
    assert text.startswith("image       Image, 64 by 64 pixels\nnoise       noise of one")
    assert "because     it is the best filter" in text
    assert json.loads(json.dumps(advice.as_dict()))["filter"] == "bm3d"


def test_photon_noise_that_does_not_matter_is_not_named():
    assert noise_in_words(estimate((PoissonGaussian(0.001, 10.0),))) == "noise of one strength"
    assert noise_in_words(estimate((PoissonGaussian(2.0, 10.0),))) == "photon noise"


@pytest.mark.parametrize(
    ("axes", "shape", "text"),
    [
        ("TYXS", (8, 5, 6, 3), f"Colour time-lapse of 8 frames{SIZE}"),
        ("TZCYX", (8, 4, 2, 5, 6), f"Time-lapse of 8 volumes of 4 slices{SIZE}, 2 channels"),
        (".ZYX", (3, 4, 5, 6), f"Volume of 4 slices{SIZE}, 3 times"),
        ("DZYX", (9, 4, 5, 6), f"Volume of 4 slices{SIZE}, 9 measurements"),
        (".YX", (3, 5, 6), f"3 planes{SIZE}"),
    ],
)
def test_images_in_words(axes, shape, text):
    assert image_in_words(axes, shape) == text


def test_times_in_words():
    words = {1: "a few seconds", 31: "about 30 seconds", 60: "about a minute"}
    words |= {700: "about 10 minutes", 4000: "about an hour", 10000: "about 3 hours"}
    assert {seconds: time_in_words(seconds) for seconds in words} == words
