"""BM3D of correlated noise: covariances, channels, and scales."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import napari_gpu_denoise as gd
from filters.correlated_noise import BLURRED, CUT, OPPOSED, SIGMA, STREAKS, WHITE, blur
from napari_gpu_denoise.filters.bm3d.filter import BM3D
from napari_gpu_denoise.filters.bm3d.groups import (
    TRANSFORMS,
    covariances,
    extended_autocorrelation,
    halved,
)
from napari_gpu_denoise.noise.models import Correlated
from reference.groups import ONE
from reference.shared_noise import Spectrum, shared
from reference.transforms import transform_matrix
from scenes import prepared, scene

# Covariances


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_covariances_are_those_of_all_pairs_of_pixels(transform):
    for given in (WHITE, BLURRED, STREAKS, CUT, OPPOSED):
        found = covariances(transform, given)
        for dy, dx in ((0, 0), (1, 0), (0, 3), (7, 2), (11, 11), (4, 9)):
            expected = shared(Spectrum(given), transform, ONE, (0, dy, dx))[0]
            np.testing.assert_allclose(found[dy, dx], expected, atol=1e-12)
            np.testing.assert_allclose(
                shared(Spectrum(given), transform, ONE, (0, -dy, dx))[0], expected, atol=1e-12
            )


def test_variances_are_those_of_noise_that_is_drawn():
    noise = blur((2048, 2048), sigma=1.0)
    patches = noise.reshape(256, 8, 256, 8).swapaxes(1, 2)
    matrix = transform_matrix("dct")
    drawn = np.square(matrix @ patches @ matrix.T).mean(axis=(0, 1))
    np.testing.assert_allclose(covariances("dct", BLURRED)[0, 0], drawn, rtol=0.02, atol=0.02)


def test_a_table_that_is_cut_off_is_extended():
    np.testing.assert_allclose(extended_autocorrelation(BLURRED)[:5, :5], BLURRED, atol=1e-3)
    y, x = np.indices((10, 10))
    whole = np.exp(-(y**2 + x**2) / (4 * 2.0**2))
    found = extended_autocorrelation(whole[:5, :5])
    assert whole[0, 5] > 0.2
    np.testing.assert_allclose(found[:10, :10], whole, atol=0.07)
    found = extended_autocorrelation(CUT)
    lag = np.arange(33)
    cosines = np.cos(2 * np.pi * np.outer(lag, lag) / 64) * np.where(lag % 32, 2, 1)
    assert (cosines @ np.pad(CUT, (0, 28)) @ cosines.T).min() < -1
    assert (cosines @ found @ cosines.T).min() > 0
    assert found[0, 0] == 1
    assert np.all(covariances("dct", CUT)[0, 0] > 0)


# The filter


SMALL = {"window_basic": 15, "window_final": 15, "neighbours_basic": 8, "neighbours_final": 8}
SMALL |= {"scales": 1}


THREE = tuple(map(Correlated, (12.4, 20.37, 31.1), (BLURRED, STREAKS, WHITE)))


@pytest.mark.parametrize("prefiltered", [False, True])
@pytest.mark.parametrize("channels", ["separate", "opponent", "joint"])
def test_channels_have_a_spectrum_each(channels, prefiltered):
    settings = BM3D(**SMALL, channels=channels, prefiltered=prefiltered)
    filter = prepared(settings, "CYX", noise=THREE)
    for name, each in filter.passes.items():  # joined channels are searched in one image
        one = channels != "separate" and name == "prefilter"
        assert len(each.spectra) == (1 if one else 3)


# Scales


def halve(image: np.ndarray) -> np.ndarray:
    even = np.pad(image, [(0, n % 2) for n in image.shape], mode="edge")
    return even.reshape(len(even) // 2, 2, -1, 2).mean(axis=(1, 3))


def enlarge(image: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Smooth an image by 1/4, 1/2, 1/4 and enlarge it linearly, with its ends repeated."""
    for axis, length in enumerate(shape):
        ends = [(3, 3) if k == axis else (0, 0) for k in range(2)]
        image = np.apply_along_axis(
            np.convolve, axis, np.pad(image, ends, mode="edge"), [0.25, 0.5, 0.25], "valid"
        )
        at = (np.arange(length) - 0.5) / 2 + 2  # two more pixels come before the first one
        share = np.expand_dims(at % 1, 1 - axis)
        low, high = (np.take(image, at.astype(int) + k, axis) for k in (0, 1))
        image = (1 - share) * low + share * high
    return image


def test_two_scales_replace_the_coarse_part(device):
    model = Correlated(SIGMA, BLURRED)
    image = np.rint(scene(75, 95) + blur((75, 95))).astype(np.float32)
    one = prepared(BM3D(**SMALL), noise=(model,))
    fine = gd.denoise(image, one, SIGMA, device=device).image.astype(float)
    half = replace(one, noise=(halved(model),))
    coarse = gd.denoise(halve(image).astype(np.float32), half, halved(model).sigma, device=device)
    expected = fine + enlarge(coarse.image - halve(fine), image.shape)
    two = replace(one, scales=2)
    # A pixel of the halved image is two wide, and smoothing and enlarging it look further.
    assert two.reach.y[0] >= 2 * one.reach.y[0] + 4
    told = gd.denoise(image, two, SIGMA, device=device).image
    np.testing.assert_allclose(told, expected, atol=2e-3 * SIGMA)
    assert np.abs(told - fine).mean() > 0.05 * SIGMA


def test_noise_of_halved_images():
    noise = blur((2048, 2048))
    half = halved(Correlated(SIGMA, BLURRED))
    drawn = halve(noise)
    assert half.sigma == pytest.approx(drawn.std(), rel=0.02)
    for dy, dx in ((0, 1), (1, 0), (1, 2)):
        product = drawn[: 1024 - dy, : 1024 - dx] * drawn[dy:, dx:]
        assert half.autocorrelation[dy][dx] == pytest.approx(product.mean() / drawn.var(), abs=0.02)
    assert halved(Correlated(3.0, WHITE)).sigma == pytest.approx(1.5, rel=0.01)


def test_only_noise_of_long_range_is_filtered_on_several_scales():
    def scales(given, shape=(512, 512)):
        return prepared(BM3D(), "YX", shape, (Correlated(3.0, given),)).scales

    weak = tuple(map(tuple, np.outer(*2 * [[1, 0.15, 0, 0, 0]]).tolist()))
    assert scales(weak) == scales(OPPOSED) == 1
    assert scales(CUT) == 3
    assert scales(CUT, (512, 127)) == 2
    assert scales(CUT, (64, 512)) == 2
    assert scales(CUT, (63, 512)) == 1
