"""The type of a result where none is asked for."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
import tifffile

import napari_gpu_denoise as gd
from scenes import noisy

SETTINGS = gd.NLMeans(window=5, neighbours=4)


def counts(mean: float, shape=(40, 50), seed=0) -> np.ndarray:
    ramp = np.linspace(0.5, 1.5, shape[-1])
    return np.random.default_rng(seed).poisson(mean * ramp, shape).astype(np.uint16)


def ways(image, folder, device, **options):
    """Yield the result of each way in, for a stack of two frames."""
    stack = np.stack([image, image])
    options = {"device": device, **options}
    yield gd.denoise(image, SETTINGS, **options).image
    lazy = da.from_array(stack, chunks=(1, 40, 50))
    yield gd.denoise_lazy(lazy, SETTINGS, axes="TYX", **options).compute()[0]
    yield next(iter(gd.stream(SETTINGS, stack, **options)))
    tifffile.imwrite(folder / "in.tif", image, photometric="minisblack")
    report = gd.run_batch(folder / "in.tif", SETTINGS, output=folder / "out.tif", **options)
    assert not report.failed, report.failed[0].error
    yield tifffile.imread(folder / "out.tif")


@pytest.mark.parametrize("sigma", [3.0, 30.0])
def test_integers_become_floats_where_noise_is_weak(tmp_path, device, sigma):
    image = noisy(40, 50, dtype="uint8")
    for result in ways(image, tmp_path, device, sigma=sigma):
        assert result.dtype == ("float32" if sigma < 8 else "uint8")


@pytest.mark.parametrize("given", ["auto", None, "same", "uint16"])
def test_few_photons_keep_their_fractions(tmp_path, device, given):
    model, image = gd.PoissonGaussian(1.0, 0.0), counts(4)
    made = list(ways(image, tmp_path, device, noise=model, dtype=given))
    (tmp_path / "out.tif").unlink()
    exact = list(ways(image, tmp_path, device, noise=model, dtype="float32"))
    for result, full in zip(made, exact, strict=True):
        if given in ("auto", None):
            np.testing.assert_array_equal(result, full)
        assert result.dtype == ("float32" if given in ("auto", None) else "uint16")


def test_the_record_says_why(device):
    result = gd.denoise(counts(4), SETTINGS, noise=gd.PoissonGaussian(1.0, 0.0), device=device)
    (note,) = (note for note in result.record.notes if "float32" in note)
    assert "rounding to uint16" in note and "dtype='same'" in note
    assert result.record.output_dtype == "float32"
    bright = gd.denoise(counts(4000), SETTINGS, noise=gd.PoissonGaussian(1.0, 0.0), device=device)
    assert bright.image.dtype == np.uint16
    assert not [note for note in bright.record.notes if "float32" in note]


def test_what_keeps_its_type(device):
    image = noisy(40, 50, 3, dtype="uint8")
    assert gd.nl_means(image, 2, axes="YXS", device=device).dtype == np.uint8
    assert gd.nl_means(image[..., 0], 0, device=device).dtype == np.uint8
    assert gd.nl_means(image[..., 0].astype(np.int32), 2, device=device).dtype == np.int32
    assert gd.nl_means(image[..., 0].astype(np.float64), 2, device=device).dtype == np.float64


def test_the_weakest_channel_decides(device):
    image = noisy(2, 40, 50, dtype="uint8")
    options = {"axes": "CYX", "device": device}
    assert gd.nl_means(image, (20, 2), **options).dtype == np.float32
    assert gd.nl_means(image, (20, 20), **options).dtype == np.uint8


def test_a_place_for_the_result_decides(device):
    image = noisy(40, 50, dtype="uint8")
    out = np.zeros(image.shape, np.uint8)
    assert gd.denoise(image, SETTINGS, 2, out=out, device=device).image is out
    rounded = np.rint(gd.nl_means(image, 2, settings=SETTINGS, device=device))
    np.testing.assert_array_equal(out, rounded)
    made = []

    def place(shape, dtype):
        made.append(np.zeros(shape, dtype))
        return made[0]

    assert gd.denoise(image, SETTINGS, 2, out=place, device=device).image is made[0]
    assert made[0].dtype == np.float32
