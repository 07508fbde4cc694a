"""Sigma and grey levels that leave the range of float32: by every way in, a result or an error."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.errors import ImageError, NonFiniteError
from napari_gpu_denoise.image.levels import LARGEST_VALUE, Levels
from scenes import IMAGE_FILTERS, noisy, small

SETTINGS = {kind.name: small(kind) for kind in IMAGE_FILTERS}


def whole(frames, settings, sigma, device):
    return gd.denoise(frames, settings, sigma, axes="TYX", device=device).image


def streamed(frames, settings, sigma, device):
    return np.array(list(gd.stream(settings, iter(frames), sigma, device=device)))


def lazily(frames, settings, sigma, device):
    chunks = da.from_array(frames, chunks=(-1, 24, 24))
    return np.asarray(gd.denoise_lazy(chunks, settings, sigma, axes="TYX", device=device))


def in_series(frames, settings, sigma, device):
    out = np.empty_like(frames)
    source = da.from_array(frames, chunks=(1, -1, -1))
    gd.denoise(source, settings, sigma, axes="TYX", out=out, device=device)
    return out


WAYS = {one.__name__: one for one in (whole, streamed, lazily, in_series)}
every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
every_filter = pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)


@every_way
@every_filter
def test_any_sigma(device, way, settings):
    frames = noisy(3, 40, 44, dtype="uint8")
    for sigma in (1e-300, 1e6, 1e40, 1e300):
        out = way(frames, settings, sigma, device)
        assert out.dtype == frames.dtype
        if sigma < 1:
            np.testing.assert_array_equal(out, frames)
        elif way is not lazily:  # a chunk does not know the range of the whole
            assert out.std() < frames.std()
    for factor in (1e-44, 1e-30, 1e30):
        floats = noisy(3, 40, 44, dtype="float32") * np.float32(factor)
        for sigma in (10.0, 10 * factor, 1e300):
            assert np.isfinite(way(floats, settings, sigma, device)).all()


@every_filter
def test_later_frames_of_a_stream_that_do_not_fit(device, settings):
    frames = noisy(3, 40, 44, dtype="float32")
    frames[2, 5, 6] = np.nan
    with pytest.raises(NonFiniteError, match=r"Frame 2 holds NaN"):
        streamed(frames, settings, 10.0, device)
    for factor in (1e-42, 1e-25):
        tiny = noisy(3, 40, 44, dtype="float32")
        tiny[0] *= factor
        with pytest.raises(ImageError, match=r"Frame 1 has grey levels far beyond"):
            streamed(tiny, settings, 10.0, device)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "uint64"])
def test_levels_take_the_values_they_were_chosen_from(dtype):
    rng = np.random.default_rng(0)
    limits = np.finfo(dtype) if dtype.startswith("f") else np.iinfo(dtype)
    for low, high in ((0, 1), (10, 20), (100, float(limits.max) / 4)):
        values = rng.uniform(low, high, (9, 11)).astype(dtype)
        assert Levels.of(values).takes(values)
    beyond = np.array([0.0, 2 * LARGEST_VALUE])
    assert not Levels(0, 1.0).takes(beyond)
    assert Levels(0, 4.0).takes(beyond)
    assert not Levels(0, 4.0).takes(np.array([0.0, np.nan]))
