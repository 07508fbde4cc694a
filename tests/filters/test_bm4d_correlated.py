"""BM4D of correlated noise: against NumPy, on a CPU and with the kernels of a GPU; its worth."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import napari_gpu_denoise as gd
from flows import filtered
from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.filters.bm4d.cubes import CubeSpectrum, share_sides, shared_noise
from napari_gpu_denoise.filters.bm4d.filter import CorrelatedBM4D
from napari_gpu_denoise.noise.models import Correlated, CorrelatedPhotons, Gaussian, Rician
from reference import bm4d as reference
from reference import bm4d_correlated, bm4d_series
from scenes import psnr, scene

SIGMA = 20.37
LAG = np.arange(5.0)


def line(width: float) -> tuple[float, ...]:
    """Return the autocorrelation of white noise blurred with a Gaussian of this width, pixels."""
    return tuple(np.exp(-(LAG**2) / (4 * max(width, 1e-3) ** 2)).tolist())


def model(y: float, x: float, z: float = 0.0, sigma: float = SIGMA) -> Correlated:
    return Correlated(sigma, np.outer(line(y), line(x)), along_z=line(z))


def blurred(shape, widths, sigma: float = SIGMA, seed: int = 0) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(size=shape)
    noise = gaussian_filter(noise, widths, axes=(-3, -2, -1), mode="wrap")
    return sigma * noise / noise.std()


def volume(*shape: int, seed: int = 0) -> np.ndarray:
    """Return a volume of whole numbers with correlated noise."""
    clean = scene(*shape[-2:])
    return np.rint(clean + blurred(shape, (0.5, 0.7, 1.0), seed=seed)).astype(np.float32)


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


def test_the_filter_is_that_of_the_reference(optimised, device):
    image, settings = volume(6, 13, 15), gd.BM4D(**SMALL, cube="4x4x4")
    out = gd.denoise(image, settings, noise=DEEP, axes="ZYX", device=device).image
    expected = reference.bm4d(image, SIGMA, settings.for_noise((DEEP,)), exact=False)
    error = np.abs(out - expected)
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


@pytest.mark.parametrize("cube", ["4x4x4", "1x8x8"])
def test_tiles_in_three_axes_change_nothing(flowing, cube):
    changes = {"window_basic": 3, "window_final": 3, "neighbours_basic": 4, "neighbours_final": 4}
    settings = gd.BM4D(**changes, cube=cube).for_noise((DEEP,))
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


def test_models_decide_what_runs():
    settings = gd.BM4D(cube="4x4x4")
    white = Correlated(3.0, np.outer(LAG == 0, LAG == 0))
    assert settings.for_noise((Gaussian(3.0),)) is None
    assert settings.for_noise((Rician(3.0),)) is None
    assert settings.for_noise((white,)) is settings
    along = settings.for_noise((replace(white, along_z=(1, 0.4)),))
    assert isinstance(along, CorrelatedBM4D)
    assert gd.BM3D().for_noise((replace(white, along_z=(1, 0.4)),)) == gd.BM3D()
    one = settings.for_noise((PLANE,))
    assert one.joint == "Z" and one.reach.y[0] == settings.reach.y[0] + 3
    assert list(one.passes) == ["prefilter", "basic", "final"]
    assert "prefilter" not in settings.for_noise((NEAR,)).passes
    assert pickle.loads(pickle.dumps(one)) == one
    several = settings.for_noise((PLANE, DEEP))
    assert several.joint == "ZC"
    assert [len(stage.spectra) for stage in several.passes.values()] == [2, 2, 2]
    moving = replace(settings, frames_before=1).for_noise((PLANE, DEEP))
    (mean,) = moving.passes["basic"].spectra
    assert mean.along_z[1] == pytest.approx(DEEP.along_z[1] / 2)
    with pytest.raises(SettingsError, match="2 noise models were given for 3 channels"):
        several.for_array("CZYX", (3, 8, 30, 30))


def test_noise_of_slices_that_share_it():
    assert Correlated(3.0, PLANE.autocorrelation).along_z == (1, 0, 0, 0, 0)
    assert replace(PLANE, along_z=(1, 0.5)).along_z == (1, 0.5, 0, 0, 0)
    table = {"autocorrelation": PLANE.autocorrelation, "along_z": [1, 0.25]}
    assert CorrelatedPhotons(2.0, 3.0, **table).spectral.along_z == (1, 0.25, 0, 0, 0)
    for wrong in ((0.5,), (), (1, 2), (1, 0, 0, 0, 0, 0.1), 1.0, (1, np.nan)):
        with pytest.raises(SettingsError, match="along_z"):
            replace(PLANE, along_z=wrong)


@pytest.mark.parametrize("along_z", [0.0, 0.7], ids=["plane", "deep"])
def test_a_spectrum_beats_a_larger_sigma(device, along_z):
    clean = np.stack([scene(48, 56)] * 10)
    image = (clean + blurred(clean.shape, (along_z, 1.0, 1.0), 10.0)).astype(np.float32)
    options = {"cube": "4x4x4", "axes": "ZYX", "device": device}
    given = model(1.0, 1.0, along_z, 10.0)
    told = psnr(gd.bm4d(image, noise=given, **options), clean)
    larger = (10.0, given.white_sigma, 20.0, 26.0)
    assert told > max(psnr(gd.bm4d(image, s, **options), clean) for s in larger)
