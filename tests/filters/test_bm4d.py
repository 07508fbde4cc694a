"""BM4D against NumPy, on a CPU and with the kernels of a GPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import napari_gpu_denoise as gd
from flows import filtered
from napari_gpu_denoise import errors
from napari_gpu_denoise.filters.bm3d.groups import transform_matrix
from napari_gpu_denoise.filters.bm4d.cubes import choose_search, local_bytes, shared_noise
from napari_gpu_denoise.filters.volumes import CUBES, choose_cube, slice_distance
from reference import bm4d as reference
from scenes import noisy, psnr, scene

SIGMA = 20.37  # no coefficient of whole numbers is exactly at the threshold
SMALL = {"window_basic": 5, "window_final": 5, "neighbours_basic": 4, "neighbours_final": 8}


def assert_close(found, expected) -> None:
    """Compare; a coefficient near the threshold goes otherwise in float32, in few voxels."""
    error = np.abs(found - expected)
    assert np.mean(error > 0.002 * SIGMA) < 0.02
    assert error.max() < 2


def whole_numbers(*shape: int) -> np.ndarray:
    """Return a noisy volume whose distances have no rounding."""
    return np.rint(noisy(*shape)).astype(np.float32)


MANY = {"neighbours_basic": 16, "neighbours_final": 32, "similar_final": 400.0}


@pytest.mark.parametrize(
    ("cube", "changes"),
    [
        ("4x4x4", {"stages": "basic"}),
        ("2x4x8", {"stages": "basic", "transform_basic": "dct", "stack_basic": "hadamard"}),
        ("1x8x8", {"transform_final": "haar", "shared_noise": False, "stack_final": "dct"}),
        ("4x4x4", MANY),
        ("2x4x8", {**MANY, "stages": "basic"}),
    ],
    ids=["basic", "hadamard", "haar", "many", "flat"],
)
def test_it_is_the_reference(flowing, cube, changes):
    image = whole_numbers(6, 13, 15)
    settings = gd.BM4D(**{**SMALL, "cube": cube, **changes})
    out = filtered(image, settings, flowing, SIGMA, "ZYX")
    expected = reference.bm4d(image, SIGMA, settings, exact=False)
    if settings.stages == "basic":
        assert_close(out, expected)
    else:  # what the second pass matches on was rounded: here and there it takes another cube
        error = np.abs(out - expected)
        assert np.median(error) < 0.01
        assert error.max() < 4


def test_a_wide_window_ends_at_its_edge(flowing):
    """It is searched in pieces along x; what is most similar repeats just outside."""
    rng = np.random.default_rng(0)
    image = np.tile(rng.integers(0, 60, (5, 9, 8)), 3) + rng.integers(0, 20, (5, 9, 24))
    settings = gd.BM4D(**{**SMALL, "window_basic": 15}, cube="4x4x4", stages="basic")
    out = filtered(image.astype(np.float32), settings, flowing, SIGMA, "ZYX")
    assert_close(out, reference.bm4d(image, SIGMA, settings, exact=False))


def test_the_filter_is_that_of_the_reference(optimised, device):
    image, settings = whole_numbers(6, 13, 15), gd.BM4D(**SMALL, cube="4x4x4")
    out = gd.denoise(image, settings, SIGMA, axes="ZYX", device=device).image
    error = np.abs(out - reference.bm4d(image, SIGMA, settings, exact=False))
    assert np.median(error) < 0.01
    assert error.max() < 4


@pytest.mark.parametrize("shape", [(5, 9, 30), (1, 8, 11), (3, 20, 8)])
def test_small_volumes_are_the_reference(flowing, shape):
    image = whole_numbers(*shape)
    cube = "4x4x4" if shape[0] >= 4 else "1x8x8"
    settings = gd.BM4D(**SMALL, cube=cube, stages="basic")
    out = filtered(image, settings, flowing, SIGMA, "ZYX")
    assert_close(out, reference.bm4d(image, SIGMA, settings, exact=False))


def sigmas(shape) -> dict[str, np.ndarray]:
    """Return sigma as it may be given: one for each slice, and a map."""
    slices = np.linspace(5.1, 30.3, shape[0])[:, None, None]
    y, x = np.mgrid[: shape[1], : shape[2]]
    return {"slices": slices, "map": (5 + 15 * x / shape[2] + 10 * (y > 7))[None]}


@pytest.mark.parametrize("given", ["slices", "map"])
def test_it_follows_sigma(flowing, given):
    image = whole_numbers(9, 16, 18)
    sigma = sigmas(image.shape)[given]
    settings = gd.BM4D(**SMALL, cube="4x4x4", stages="basic")
    out = filtered(image, settings, flowing, sigma, "ZYX")
    assert_close(out, reference.bm4d(image, sigma, settings, exact=False))


@pytest.mark.parametrize("cube", CUBES)
def test_tiles_in_three_axes_change_nothing(flowing, cube):
    image = noisy(9, 34, 52)
    small = {"window_basic": 3, "window_final": 3, "neighbours_basic": 4, "neighbours_final": 4}
    settings = gd.BM4D(**small, cube=cube)
    sigma = sigmas(image.shape)["map"]
    whole = filtered(image, settings, flowing, sigma, "ZYX")
    cut = filtered(image, settings, flowing, sigma, "ZYX", pixels=12000)
    np.testing.assert_array_equal(cut, whole)


def test_volumes_gain_from_their_slices(device):
    """More than BM3D gains from each slice alone."""
    clean = np.stack([scene(56, 60)] * 8)
    image = clean + np.random.default_rng(0).normal(0, 20, clean.shape)
    options = {"sigma": 20, "axes": "ZYX", "device": device}
    out, slices = gd.bm4d(image, **options), gd.bm3d(image, **options)
    assert psnr(out, clean) > psnr(slices, clean) + 2


@pytest.mark.parametrize("name", ["bior1.5", "dct", "haar"])
@pytest.mark.parametrize("length", [1, 2, 4, 8])
def test_noise_tables_are_of_the_transforms_of_the_reference(name, length):
    np.testing.assert_allclose(
        transform_matrix(name, length), reference.line_matrix(name, length), atol=1e-7
    )


def test_covariances_are_those_of_noise():
    """Shift noise by some voxels, transform two cubes, and compare."""
    rng, cube = np.random.default_rng(0), (2, 4, 8)
    noise = rng.normal(size=(20000, 4, 7, 12))
    matrices = [transform_matrix("bior1.5", side) for side in cube]
    dz, dy, dx = 1, 2, 3
    one = noise[:, :2, :4, :8]
    other = noise[:, dz : dz + 2, dy : dy + 4, dx : dx + 8]
    spectra = [np.einsum("nzyx,az,by,cx->nabc", part, *matrices) for part in (one, other)]
    found = np.mean(spectra[0] * spectra[1], axis=0).ravel()
    (table,) = shared_noise("bior1.5", cube)
    np.testing.assert_allclose(found, table[(dz * 4 + dy) * 8 + dx], atol=0.03)
    np.testing.assert_allclose(table[0], 1)
    np.testing.assert_array_equal(table[-1], 0)


def test_work_groups_fit_the_device(device):
    gpu = replace(device, float_lanes=1, local_memory=49152, max_group=1024)
    for cube in CUBES:
        for profile in gd.BM4D.presets:
            for one in gd.BM4D.of(profile=profile, cube=cube).passes.values():
                variant = choose_search(one, gpu)
                assert variant.kernel == "search_cubes"
                assert local_bytes(one, variant) <= 49152
                assert choose_search(one, replace(gpu, local_memory=1)).constants["LANES"] == 1


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
