"""The quick filters of volumes against NumPy, on a CPU and with the kernels of a GPU."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import dask.array as da
import numpy as np
import pytest

import napari_gpu_denoise as gd
from flows import filtered, run_work, work_of
from napari_gpu_denoise import errors
from napari_gpu_denoise.filters.dct3d import Group
from napari_gpu_denoise.filters.volumes import CUBES
from napari_gpu_denoise.protocol.tiles import Span, Tile
from reference import volumes
from scenes import noisy, psnr, scene, small


def suited(settings, image):
    """Return the settings as they apply to a volume."""
    return settings.for_array("ZYX", image.shape).for_pixels(image, "ZYX")[0]


def assert_close(found, expected) -> None:
    """Compare; a coefficient near the threshold goes otherwise in float32, in few voxels."""
    error = np.abs(found - expected)
    assert np.mean(error > 1e-3) < 0.02
    assert error.max() < 2


@pytest.mark.parametrize(
    ("cube", "step"),
    [("4x4x4", 1), ("4x4x4", 2), ("4x4x4", 4), ("2x4x8", 1), ("2x4x8", 3), ("1x8x8", 1)],
)
def test_dct3d_is_the_reference(flowing, cube, step):
    # More rows, columns and slices than a work-item or a work-group filters.
    image = noisy(35 if (cube, step) == ("4x4x4", 1) else 18, 21, 45)
    settings = gd.DCT3D(cube=cube, step=step)
    out = filtered(image, settings, flowing, 20.0, "ZYX")
    assert_close(out, volumes.dct3d(image, 20.0, cube, step))


@pytest.mark.parametrize("shape", [(4, 1, 1), (5, 3, 6), (3, 30, 7), (2, 5, 70)])
def test_dct3d_of_small_volumes_is_the_reference(flowing, shape):
    image = noisy(*shape)
    settings = suited(gd.DCT3D(), image)
    out = filtered(image, settings, flowing, 20.0, "ZYX")
    assert_close(out, volumes.dct3d(image, 20.0, settings.cube))


def sigmas(shape):
    """Return sigma as it may be given: one for each slice, and a map."""
    slices = np.linspace(5, 30, shape[0])[:, None, None]
    y, x = np.mgrid[: shape[1], : shape[2]]
    return {"slices": slices, "map": (5 + 15 * x / shape[2] + 10 * (y > 7))[None]}


@pytest.mark.parametrize("given", ["slices", "map"])
@pytest.mark.parametrize("cube", CUBES)
def test_dct3d_follows_sigma(flowing, given, cube):
    image = noisy(9, 20, 23)
    sigma = sigmas(image.shape)[given]
    out = filtered(image, gd.DCT3D(cube=cube), flowing, sigma, "ZYX")
    assert_close(out, volumes.dct3d(image, sigma, cube))


@pytest.mark.parametrize(
    ("shape", "windows"),
    [((9, 13, 19), (11, 11)), ((5, 11, 35), (5, 3)), ((3, 9, 10), (3, 1)), ((1, 8, 9), (1, 5))],
)
def test_pri_nlm_is_the_reference(flowing, shape, windows):
    image = noisy(*shape)
    settings = suited(gd.PRINLM(window=windows[0], window_z=windows[1]), image)
    for sigma in (20.0, *sigmas(shape).values()):
        guide = volumes.dct3d(image, sigma, settings.cube)
        out = filtered(image, settings, flowing, sigma, "ZYX")
        assert_close(out, volumes.pri_nlm(image, guide, sigma, *windows))


@pytest.mark.parametrize("kind", [gd.DCT3D, gd.PRINLM])
def test_tiles_in_three_axes_change_nothing(flowing, kind):
    image = noisy(11, 19, 26)
    out = np.empty_like(image)
    smaller = {"window": 5, "window_z": 5} if kind is gd.PRINLM else {}
    settings = suited(kind(step=2, **smaller), image)
    sigma = sigmas(image.shape)["map"]
    whole = filtered(image, settings, flowing, sigma, "ZYX")
    reach = settings.reach
    spans = [
        [Span.whole(n).part(a, b, around) for a, b in ((0, n // 3), (n // 3, n))]
        for n, around in zip(image.shape, (reach.z, reach.y, reach.x), strict=True)
    ]
    tiles = [Tile(0, Span.whole(1), *places) for places in product(*spans)]
    run_work(work_of(image, out, settings, flowing, sigma, "ZYX"), tiles=tiles)
    np.testing.assert_array_equal(out, whole)


MODELS = {
    "poisson-gaussian": gd.PoissonGaussian(2.0, 10.0),
    "rician": gd.Rician(12.0),
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kind", [gd.DCT3D, gd.PRINLM])
def test_noise_models_are_stabilised(kind, model, device):
    clean, noise = scene(6, 40, 44), MODELS[model]
    rng = np.random.default_rng(0)
    image = clean + rng.normal(0, 14, clean.shape)
    options = {"noise": noise, "axes": "ZYX", "device": device}
    whole = gd.denoise(image, kind(), **options)
    assert psnr(whole.image, clean) > psnr(image, clean) + 5
    assert whole.record.noise[0]["model"] == model
    lazy = gd.denoise_lazy(da.from_array(image, chunks=(3, 20, 44)), kind(), **options)
    np.testing.assert_array_equal(lazy.compute(), whole.image)


@pytest.mark.parametrize("kind", [gd.DCT3D, gd.PRINLM, gd.BM4D])
@pytest.mark.parametrize("slices", [1, 3, 4])
def test_few_slices(kind, slices, device):
    image = noisy(slices, 40, 44)
    result = gd.denoise(image, small(kind), 20, axes="ZYX", device=device)
    assert psnr(result.image, scene(*image.shape)) > psnr(image, scene(*image.shape)) + 4
    told = [note for note in result.record.notes if "too few for cubes" in note]
    assert bool(told) == (slices < 4)
    cube = "1x8x8" if slices < 4 else "4x4x4"
    expected = gd.denoise(image, small(kind, cube=cube), 20, axes="ZYX", device=device)
    np.testing.assert_array_equal(result.image, expected.image)
    assert not [note for note in expected.record.notes if "too few" in note]


def test_pri_nlm_is_better_than_its_guide(device):
    clean = scene(12, 48, 56)
    image = clean + np.random.default_rng(0).normal(0, 20, clean.shape)
    options = {"sigma": 20, "axes": "ZYX", "device": device}
    guide, out = gd.dct3d(image, **options), gd.pri_nlm(image, **options)
    assert psnr(guide, clean) > psnr(image, clean) + 8
    assert psnr(out, clean) > psnr(guide, clean) - 0.5
    assert image.min() <= out.min() <= out.max() <= image.max()


@pytest.mark.parametrize("kind", [gd.DCT3D, gd.PRINLM, gd.BM4D])
def test_what_is_no_volume_is_refused(kind, device):
    cases = {
        ((9, 20, 22), None): "name the axes, as axes='ZYX'",
        ((2, 9, 20, 22), None): "name the axes, as axes='TZYX'",
        ((2, 9, 20, 22), "C.YX"): "name the axes, as axes='CZYX'",
        ((20, 22), None): "use bm3d for images",
        ((3, 20, 22), "CYX"): "use bm3d for images",
        ((9, 20, 22), "TYX"): "use bm3d for images",
        ((1, 20, 22), None): "use bm3d for images",
    }
    for (shape, axes), sentence in cases.items():
        with pytest.raises(errors.AxesError, match=f"{kind.title} filters volumes.*{sentence}"):
            gd.denoise(noisy(*shape), kind(), 20, axes=axes, device=device)


def test_work_groups_fit_the_device(device):
    gpu = replace(device, float_lanes=1, local_memory=49152, max_group=1024)
    for cube in CUBES.values():
        assert Group.of(cube, gpu)
        for most in (64, 128, 256, 512):
            group = Group.of(cube, replace(gpu, max_group=most))
            assert group is None or group.across * group.down <= most
        assert Group.of(cube, replace(gpu, local_memory=1)) is None
