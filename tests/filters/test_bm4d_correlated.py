"""BM4D of correlated noise: against NumPy, on a CPU and with the kernels of a GPU; its worth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import napari_gpu_denoise as gd
from filters.correlated_noise import LAG, SIGMA, blur, line, model
from flows import filtered
from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.filters.bm4d.cubes import CubeSpectrum, share_sides, shared_noise
from napari_gpu_denoise.noise.models import Correlated, CorrelatedPhotons
from reference import bm4d as reference
from reference import bm4d_correlated, bm4d_series
from scenes import scene


def volume(*shape: int, seed: int = 0) -> np.ndarray:
    """Return a volume of whole numbers with correlated noise."""
    clean = scene(*shape[-2:])
    return np.rint(clean + blur(shape, (0.5, 0.7, 1.0), seed=seed)).astype(np.float32)


SMALL = {"window_basic": 5, "window_final": 5, "neighbours_basic": 4, "neighbours_final": 8}
PLANE, DEEP, NEAR = model(0.7, 1.0), model(0.7, 1.0, 0.5), model(0.6, 0.6)


@pytest.mark.parametrize(
    ("changes", "given"),
    [
        ({"cube": "4x4x4", "stages": "basic"}, PLANE),
        ({"cube": "2x4x8", "stages": "basic", "neighbours_basic": 16}, DEEP),
        ({"cube": "1x8x8", "stages": "basic", "stack_basic": "dct"}, DEEP),
        ({"cube": "4x4x4", "stages": "basic", "neighbours_basic": 1}, NEAR),
        ({"cube": "4x4x4", "neighbours_final": 32, "similar_final": 400.0}, DEEP),
    ],
    ids=["plane", "flat", "dct", "alone", "both"],
)
def test_it_is_the_reference(flowing, changes, given):
    image, settings = volume(6, 13, 15), gd.BM4D(**{**SMALL, **changes}).for_noise((given,))
    error = np.abs(
        filtered(image, settings, flowing, SIGMA, "ZYX")
        - reference.bm4d(image, SIGMA, settings, exact=False)
    )
    if settings.stages == "basic":  # a coefficient near the threshold goes otherwise in float32
        assert np.mean(error > 0.002 * SIGMA) < 0.02
        assert error.max() < 2
    else:  # what the second pass matches on was rounded: here and there it takes another cube
        assert np.median(error) < 0.02
        assert error.max() < 4


def test_over_time_it_is_the_reference(flowing):
    image = volume(3, 5, 12, 13)
    changes = {"cube": "4x4x4", "stages": "basic", "window_next": 3}
    settings = gd.BM4D(**SMALL, **changes, frames_before=1, frames_after=1).for_noise((DEEP,))
    out = filtered(image, settings, flowing, SIGMA, "TZYX")
    error = np.abs(out - bm4d_series.bm4d(image, SIGMA, settings, exact=False))
    assert np.mean(error > 0.002 * SIGMA) < 0.02
    assert error.max() < 2


def test_tiles_in_three_axes_change_nothing(flowing):
    changes = {"window_basic": 3, "window_final": 3, "neighbours_basic": 4, "neighbours_final": 4}
    settings = gd.BM4D(**changes, cube="4x4x4").for_noise((DEEP,))
    image, sigma = volume(9, 34, 52), (15 + 0.2 * np.arange(52))[None, None]
    whole = filtered(image, settings, flowing, sigma, "ZYX")
    cut = filtered(image, settings, flowing, sigma, "ZYX", pixels=12000)
    np.testing.assert_array_equal(cut, whole)


@pytest.mark.parametrize("name", ["bior1.5", "dct", "haar"])
def test_covariances_are_those_of_all_pairs_of_voxels(name):
    for cube, given in (((4, 4, 4), DEEP), ((2, 4, 8), PLANE)):
        spectrum = CubeSpectrum(given.autocorrelation, given.along_z)
        sides = share_sides(cube, (spectrum,))
        assert sides == (cube[0] + 4 * (given is DEEP), cube[1] + 4, cube[2] + 4)
        (table,) = shared_noise(name, cube, (spectrum,))
        assert not table[-1].any()
        for apart in ((0, 0, 0), (1, 2, 3), (1, 7, 0), tuple(side - 1 for side in sides)):
            expected = bm4d_correlated.shared(spectrum, name, cube, apart).ravel()
            found = table[np.ravel_multi_index(apart, sides)]
            np.testing.assert_allclose(found, expected, atol=1e-12)


def test_a_white_spectrum_has_the_covariances_of_white_noise():
    cube, table = (2, 4, 8), np.outer(LAG == 0, LAG == 0).astype(float)
    white = CubeSpectrum(tuple(map(tuple, table.tolist())), line(0))
    (told,), (plain,) = (shared_noise("dct", cube, given) for given in ((white,), ()))
    told = told[:-1].reshape(*share_sides(cube, (white,)), 64)
    np.testing.assert_allclose(told[:2, :4, :8].reshape(64, 64), plain[:-1], atol=1e-12)
    for beyond in (told[:, 4:], told[:, :, 8:]):
        np.testing.assert_allclose(beyond, 0, atol=1e-12)


def test_channels_have_spectra_of_their_own(device):
    image = np.stack([volume(5, 20, 22, seed=k) for k in range(2)])
    models = model(0.7, 1.0, sigma=12.4), model(0.8, 0.2, 0.5, sigma=21.3)
    options = {"axes": "CZYX", "device": device}
    settings = gd.BM4D(**SMALL, cube="4x4x4")
    out = gd.denoise(image, settings, noise=models, **options).image
    for channel, one in enumerate(models):
        options["axes"] = "ZYX"
        alone = gd.denoise(image[channel], settings, noise=one, **options).image
        # Tables reach as far as the furthest of all channels does.
        np.testing.assert_allclose(out[channel], alone, atol=1e-3)


def test_noise_of_slices_that_share_it():
    assert Correlated(3.0, PLANE.autocorrelation).along_z == (1, 0, 0, 0, 0)
    assert replace(PLANE, along_z=(1, 0.5)).along_z == (1, 0.5, 0, 0, 0)
    table = {"autocorrelation": PLANE.autocorrelation, "along_z": [1, 0.25]}
    assert CorrelatedPhotons(2.0, 3.0, **table).spectral.along_z == (1, 0.25, 0, 0, 0)
    for wrong in ((0.5,), (), (1, 2), (1, 0, 0, 0, 0, 0.1), 1.0, (1, np.nan)):
        with pytest.raises(SettingsError, match="along_z"):
            replace(PLANE, along_z=wrong)
