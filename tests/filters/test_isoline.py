"""The isoline filter on a device against the slow ones in NumPy, and what it gives."""

from __future__ import annotations

import numpy as np
import pytest

import napari_gpu_denoise as gd
from filters.slow_isoline import slow
from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.filters.isoline import Isoline
from reference import isoline as literal
from reference import isoline_soft as reference
from scenes import noisy, psnr, scene

SIGMA = 20.37
PAPER = {"choice": "hard", "thickness": 1, "staircase": 0}


def agree(out, expected, sigma=SIGMA) -> None:
    """Check an image of the device against that of a reference.

    Grey levels in float32 are 1e-5 off. Now and then the last bit of a float decides which of two
    directions is taken, or whether an isoline goes on: that is seen in a pixel or two.
    """
    error = np.abs(np.asarray(out, np.float64) - expected) / sigma
    assert np.mean(error > 5e-5) <= 0.002, (np.mean(error > 5e-5), error.max())
    assert error.max() < 3


def run(image, sigma=SIGMA, **changes) -> np.ndarray:
    options = {k: changes.pop(k) for k in ("device", "axes", "memory_limit") if k in changes}
    return gd.denoise(image, Isoline(**changes), sigma, **options).image


@pytest.mark.parametrize("sigma", [1e-38, 1e-30, 1e-17, 1e-9])
def test_next_to_no_noise_leaves_the_pixels(device, sigma):
    """Squares of what is missed, in units of it, are beyond float32."""
    image = noisy(40, 45, sigma=SIGMA)
    for changes in ({}, {"staircase": 0}, {"method": "pi-pd"}):
        out = run(image, sigma, device=device, **changes)
        np.testing.assert_allclose(out, image, rtol=1e-6)


def test_pixels_without_noise_stay_and_others_see_them(device):
    image = noisy(44, 60, sigma=SIGMA)
    sigma = np.where(np.indices(image.shape)[1] < 30, SIGMA, 0.0)
    out = run(image, sigma, device=device)
    np.testing.assert_array_equal(out[:, 30:], image[:, 30:])
    assert np.all(np.isfinite(out))
    # Where a pixel without noise makes every direction a bad one, rounding chooses it.
    agree(out[:, :18], reference.isoline_soft(image, sigma, Isoline())[:, :18])
    assert np.std(out[:, :30] - image[:, :30]) > 0.5 * SIGMA


@pytest.mark.parametrize(
    "changes", [{}, {"method": "pi-pd"}, {"segment_length": 3}, {"thickness": 1}]
)
def test_what_it_saw_is_what_the_reference_saw(device, changes):
    image = noisy(41, 46, sigma=SIGMA)
    image[:, 25:] += 90
    maps = reference.maps(image, SIGMA, Isoline(**changes))
    for show, expected in (("classes", maps.classes), ("directions", maps.directions)):
        out = run(image, device=device, show=show, **changes)
        assert np.mean(out != expected) <= 0.003
    assert set(np.unique(maps.classes)) == ({0, 1, 2} if "method" not in changes else {2})


# The literal methods


def test_edges_to_the_letter(device):
    image = noisy(40, 45, sigma=SIGMA)
    image[:, 25:] += 90
    classes = run(image, device=device, **PAPER, show="classes")
    edges, *_ = literal.edge_tests(image, literal.Lines())
    assert np.mean(classes != literal.classes(edges)) <= 0.003
    assert len(np.unique(classes)) == 3


def test_directions_to_the_letter(device):
    image = noisy(40, 45, sigma=SIGMA)
    for method, found in (
        ("pi-pd", literal.precomputed_isolines(image, literal.Lines()).directions),
        ("pi-ld", literal.searched_isolines(image, literal.Lines()).directions),
    ):
        out = run(image, device=device, **PAPER, method=method, show="directions")
        assert np.mean(out != found) <= 0.003
    assert (run(image, device=device, **PAPER, method="pi-pd", show="classes") == 2).all()


def test_the_profile_of_the_paper_is_the_paper(device):
    image = noisy(40, 45, sigma=SIGMA)
    out = gd.isoline(image, SIGMA, profile="paper", device=device)
    agree(out, literal.pi_pd_hybrid(image))
    # Nor does sigma matter to it.
    np.testing.assert_array_equal(gd.isoline(image, 3.0, profile="paper", device=device), out)


# Shapes, planes


@pytest.mark.parametrize("shape", [(1, 1), (1, 50), (3, 2)])
@pytest.mark.parametrize(
    "changes", [{}, {**PAPER}, {**PAPER, "method": "pi-ld"}, {"staircase": 0}], ids=str
)
def test_images_smaller_than_an_isoline(device, shape, changes):
    image = noisy(*shape, sigma=SIGMA)
    out, expected = run(image, device=device, **changes), slow(image, Isoline(**changes), SIGMA)
    if Isoline(**changes).soft:
        agree(out, expected)
    else:
        # Mirrored over and over, directions repeat: equal ones may be told apart by a rounding.
        assert np.mean(np.abs(out - expected) > 1e-3) <= 0.1


# Settings


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"staircase": 8}, "staircase=8 must be odd"),
        ({"max_length": 4}, "max_length=4 is less than one segment of 5"),
        ({"method": "pi-ld", "show": "classes"}, "no classes"),
        ({"method": "pi-pf"}, "pi-pf"),
    ],
)
def test_settings_that_make_no_sense_say_so(changes, sentence):
    with pytest.raises(SettingsError, match=sentence):
        Isoline(**changes)


# What it gives


def test_it_gains_by_every_step(device):
    clean = scene(128, 160)
    image = clean + np.random.default_rng(1).normal(0, 25, clean.shape)

    def gain(**changes) -> float:
        return psnr(gd.isoline(image, 25, device=device, **changes), clean)

    wide = np.pad(image, 2, mode="reflect")
    mean = np.lib.stride_tricks.sliding_window_view(wide, (5, 5)).mean((2, 3))
    default = gain()
    assert default > gain(profile="paper") + 2
    assert default > psnr(mean, clean) + 1
    assert gain(profile="fine") > default - 0.3
    assert default > gain(choice="hard") + 0.5
    assert default > gain(staircase=0) + 0.1
    assert default > gain(staircase=0, max_length=5) + 0.3
    # A step of five sigma: a pixel beside it keeps its side.
    clean = np.where(np.indices((90, 90))[1] < 45, 100.0, 200.0)
    image = clean + np.random.default_rng(0).normal(0, 20, clean.shape)
    out = gd.isoline(image, 20, device=device)
    assert abs(out[:, 44].mean() - 100) < 4
    assert abs(out[:, 45].mean() - 200) < 4
    assert np.std(out[:, 5:40] - 100) < 20 / 5
