"""BM4D: over time, noise that cubes share, and what is chosen.

test_gpu_kernels compares it with NumPy.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import napari_gpu_denoise as gd
from filters.correlated_noise import LAG, SIGMA, blur, line, model
from flows import filtered
from napari_gpu_denoise import errors
from napari_gpu_denoise.filters.bm4d.cubes import CubeSpectrum, share_sides, shared_noise
from napari_gpu_denoise.filters.volumes import choose_cube, slice_distance
from napari_gpu_denoise.noise.models import Correlated, CorrelatedPhotons
from reference.shared_noise import Spectrum, shared
from scenes import altered, noisy, psnr, scene

SMALL = {
    **{"window_basic": 5, "window_final": 5, "cube": "4x4x4"},
    **{"neighbours_basic": 4, "neighbours_final": 8},
}
OVER_TIME = {"frames_before": 1, "frames_after": 1}
PLANE, DEEP = model(0.7, 1.0), model(0.7, 1.0, 0.5)


def volumes(*shape: int, seed: int = 0) -> np.ndarray:
    """Return a noisy volume, or several of a scene that moves along x by a voxel each."""
    times = shape[0] if len(shape) > 3 else 1
    wide = scene(*shape[-3:-1], shape[-1] + times)
    clean = np.stack([wide[..., t : t + shape[-1]] for t in range(times)])
    noise = np.random.default_rng(seed).normal(0, SIGMA, clean.shape)
    return np.rint(clean + noise).astype(np.float32).reshape(shape)


def correlated(*shape: int, seed: int = 0) -> np.ndarray:
    """Return volumes in which neighbours share noise."""
    clean = scene(*shape[-2:])
    return np.rint(clean + blur(shape, (0.5, 0.7, 1.0), seed=seed)).astype(np.float32)


# Over time


def test_volumes_without_others_are_filtered_alone(flowing):
    """One volume in time; and one between others that are dropped, or far noisier."""
    image = volumes(3, 5, 12, 13)
    settings = gd.BM4D(**SMALL, **OVER_TIME)
    alone = replace(settings, frames_before=0, frames_after=0)
    expected = filtered(image[1:2], alone, flowing, SIGMA, "TZYX")
    sigma = np.reshape([SIGMA, SIGMA, SIGMA], (3, 1, 1, 1))
    dropped = image.copy()
    dropped[[0, 2]] = 17.0
    for found in (
        filtered(image[1:2], settings, flowing, SIGMA, "TZYX"),
        filtered(dropped, settings, flowing, SIGMA, "TZYX")[1:2],
        filtered(image, settings, flowing, sigma * np.reshape([3, 1, 3], sigma.shape), "TZYX")[1:2],
    ):
        np.testing.assert_allclose(found, expected, atol=0.02)


def test_other_volumes_help(device):
    """Where nothing moves, where all moves by three voxels, and not where another scene follows."""
    rng = np.random.default_rng(0)
    wide = scene(8, 48, 60) + 25 * rng.normal(size=(8, 12, 15)).repeat(4, 1).repeat(4, 2)
    still, other = wide[..., :48], 255 - wide[:, ::-1, 8:56]
    moving = np.stack([wide[..., 3 * t : 3 * t + 48] for t in range(3)])
    small = {"window_basic": 7, "window_final": 7, "neighbours_basic": 16, "neighbours_final": 16}
    options = {"sigma": 20, "axes": "TZYX", "cube": "4x4x4", "device": device, **small}
    gains = []
    for clean in (np.stack([still] * 3), moving, np.stack([other, still, other])):
        image = clean + rng.normal(0, 20, clean.shape)
        joined = gd.bm4d(image, frames_before=1, frames_after=1, **options)
        alone = gd.bm4d(image, **options)
        gains.append(psnr(joined[1], clean[1]) - psnr(alone[1], clean[1]))
    assert gains[0] > 1.5
    assert gains[1] > 1.2
    assert gains[2] > -0.1


def test_brightness_is_followed_and_kept(device):
    """Other volumes help although their brightness differs, which is kept."""
    rng = np.random.default_rng(0)
    still = scene(6, 64, 64)
    gain = np.reshape([1.25, 1.0, 0.8], (3, 1, 1, 1))
    clean = gain * still
    image = clean + rng.normal(0, 10, clean.shape)
    followed = gd.BM4D(**SMALL, **OVER_TIME)
    found, other = (
        gd.denoise(image, one, 10, axes="TZYX", device=device).image
        for one in (followed, altered(followed, compares_brightness=False))
    )
    assert psnr(found, clean) > psnr(other, clean) + 0.5
    np.testing.assert_allclose(found.mean(axis=(1, 2, 3)), image.mean(axis=(1, 2, 3)), rtol=0.003)


# Noise that cubes share


@pytest.mark.parametrize("name", ["bior1.5", "dct"])
def test_covariances_are_those_of_all_pairs_of_voxels(name):
    for cube, given in (((4, 4, 4), DEEP), ((2, 4, 8), PLANE)):
        spectrum = CubeSpectrum(given.autocorrelation, given.along_z)
        sides = share_sides(cube, (spectrum,))
        assert sides == (cube[0] + 4 * (given is DEEP), cube[1] + 4, cube[2] + 4)
        (table,) = shared_noise(name, cube, (spectrum,))
        assert not table[-1].any()
        for apart in ((0, 0, 0), (1, 2, 3), (1, 7, 0), tuple(side - 1 for side in sides)):
            expected = shared(Spectrum(spectrum.plane, spectrum.along_z), name, cube, apart).ravel()
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
    image = np.stack([correlated(5, 20, 22, seed=k) for k in range(2)])
    models = model(0.7, 1.0, sigma=12.4), model(0.8, 0.2, 0.5, sigma=21.3)
    options = {"axes": "CZYX", "device": device}
    settings = gd.BM4D(**SMALL)
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
        with pytest.raises(errors.SettingsError, match="along_z"):
            replace(PLANE, along_z=wrong)


# What is chosen


@pytest.mark.parametrize("slices", [1, 3, 4])
def test_few_slices(slices, device):
    image, options = noisy(slices, 40, 44), {"axes": "ZYX", "device": device}
    small = {name: value for name, value in SMALL.items() if name != "cube"}
    result = gd.denoise(image, gd.BM4D(**small), 20, **options)
    assert psnr(result.image, scene(*image.shape)) > psnr(image, scene(*image.shape)) + 4
    told = [note for note in result.record.notes if "too few for cubes" in note]
    assert bool(told) == (slices < 4)
    cube = "1x8x8" if slices < 4 else "4x4x4"
    expected = gd.denoise(image, gd.BM4D(**small, cube=cube), 20, **options)
    np.testing.assert_array_equal(result.image, expected.image)
    assert not [note for note in expected.record.notes if "too few" in note]
    thick = gd.denoise(image, gd.BM4D(**small, cube="4x4x4"), 20, **options)
    np.testing.assert_array_equal(thick.image, expected.image)


@pytest.mark.parametrize(
    ("shape", "axes", "sentence"),
    [
        ((9, 20, 22), None, "name the axes, as axes='ZYX'"),
        ((2, 9, 20, 22), None, "name the axes, as axes='TZYX'"),
        ((2, 9, 20, 22), "C.YX", "name the axes, as axes='CZYX'"),
        ((20, 22), None, "use bm3d for images"),
        ((3, 20, 22), "CYX", "use bm3d for images"),
        ((9, 20, 22), "TYX", "use bm3d for images"),
        ((1, 20, 22), None, "use bm3d for images"),
    ],
)
def test_what_is_no_volume_is_refused(shape, axes, sentence, device):
    with pytest.raises(errors.AxesError, match=f"BM4D filters volumes.*{sentence}"):
        gd.denoise(noisy(*shape), gd.BM4D(), 20, axes=axes, device=device)


@pytest.mark.parametrize("step,cube", [(1, "4x4x4"), (3, "2x4x8"), (6, "1x8x8")])
@pytest.mark.parametrize("sigma", [0, 10, 40])
def test_cubes_are_chosen_by_how_the_image_changes(step, cube, sigma):
    rng = np.random.default_rng(0)
    spectrum = np.fft.rfftn(rng.normal(size=(96, 96, 96)))
    waves = np.meshgrid(np.fft.fftfreq(96), np.fft.fftfreq(96), np.fft.rfftfreq(96), indexing="ij")
    spectrum *= np.exp(-60 * sum(wave**2 for wave in waves))
    volume = np.fft.irfftn(spectrum, (96, 96, 96))
    image = 40 * volume[::step] / volume.std()
    image = image + rng.normal(0, sigma, image.shape)
    assert slice_distance(image, "ZYX") == pytest.approx(step, rel=0.25)
    assert choose_cube(image, "ZYX", "")[0] == cube
    assert choose_cube(image.transpose(2, 0, 1), "XZY", "9 1 1")[0] == cube
    # What is not finite is left out.
    image[::2, 5:9, 40:44] = np.nan
    assert slice_distance(image, "ZYX") == pytest.approx(step, rel=0.25)


def test_voxels_decide_where_the_image_does_not():
    image = np.random.default_rng(0).normal(size=(8, 40, 40))
    for voxel, cube in {"": "4x4x4", "2, 1, 1": "2x4x8", "5, 1, 1": "1x8x8"}.items():
        name, why = choose_cube(image, "ZYX", voxel)
        assert name == cube
        assert ("voxel size" in why) and cube in why
    assert gd.BM4D(voxel=(2, 0.5, 0.5)).voxel == gd.BM4D(voxel="2 0.5,0.5").voxel == "2, 0.5, 0.5"
    assert gd.BM4D(voxel=None).voxel == ""
    for wrong in ("1, 2", (1, 2, -1), "a b c", 5):
        with pytest.raises(errors.SettingsError, match="three positive numbers"):
            gd.BM4D(voxel=wrong)
