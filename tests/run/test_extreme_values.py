"""Sigma and grey levels that leave the range of float32: by every way in, a result or an error."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.errors import ImageError, NonFiniteError
from scenes import noisy, small

# One of planes, and one over time: the filter hardly matters.
SETTINGS = {kind.name: small(kind) for kind in (gd.NLMeans, gd.VBM3D)}


def whole(frames, settings, sigma, device, **noise):
    return gd.denoise(frames, settings, sigma, axes="TYX", device=device, **noise).image


def streamed(frames, settings, sigma, device, **noise):
    return np.array(list(gd.stream(settings, iter(frames), sigma, device=device, **noise)))


def lazily(frames, settings, sigma, device, **noise):
    chunks = da.from_array(frames, chunks=(-1, 24, 24))
    return np.asarray(gd.denoise_lazy(chunks, settings, sigma, axes="TYX", device=device, **noise))


def in_series(frames, settings, sigma, device, **noise):
    out = np.empty_like(frames)
    source = da.from_array(frames, chunks=(1, -1, -1))
    gd.denoise(source, settings, sigma, axes="TYX", out=out, device=device, **noise)
    return out


WAYS = {one.__name__: one for one in (whole, streamed, lazily, in_series)}
every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
other_ways = pytest.mark.parametrize("way", [*WAYS.values()][1:], ids=[*WAYS][1:])
two_filters = pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)


@every_way
@two_filters
def test_any_sigma(device, way, settings):
    """Each filter: tests/test_contract.py."""
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


@two_filters
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


@other_ways
@two_filters
@pytest.mark.parametrize("dtype", ["uint64", "float64"])
def test_every_way_maps_grey_levels_as_the_whole(device, way, settings, dtype):
    """Later frames may be darker than the first, and parts of an image flat or far from 0."""
    darker = np.array([9, 3, 0, -9])[:, None, None]
    frames = np.rint(noisy(4, 60, 52).astype(np.float64)) + darker
    frames[1, :26, :26] = 20
    for base in (0, 5 * 10**6):
        image = (frames - frames.min() + base).astype(dtype)
        expected = whole(image, settings, 8.0, device, dtype="same")
        np.testing.assert_array_equal(way(image, settings, 8.0, device, dtype="same"), expected)


FILL = {"float32": (1e20, -3.4e38), "float64": (9.97e36, -1.7e308), "int32": (-(2**31), 2**31 - 1)}


@every_way
@two_filters
@pytest.mark.parametrize("dtype", FILL)
def test_fill_values_stay_and_change_nothing_else(device, way, settings, dtype):
    frames = noisy(3, 60, 52, sigma=8.0).astype(dtype)
    expected = way(frames, settings, 8.0, device, dtype="same")
    for value in FILL[dtype]:
        for where in ((0, [5, 40], [7, 30]), (slice(None), slice(None), slice(0, 20))):
            image = frames.copy()
            image[where] = value
            out = way(image, settings, 8.0, device, dtype="same")
            np.testing.assert_array_equal(out[where], image[where])
            others = image == frames
            assert np.std((out.astype(np.float64) - expected)[others]) < 3


def bright(kind: str) -> np.ndarray:
    """Return an image whose grey levels spread by far more than their quartiles: none is a fill."""
    made = np.random.default_rng(4)
    y, x = np.mgrid[:64, :64] - 32
    specimen = np.where(y**2 + x**2 < 120, 1000 + made.normal(0, 20, x.shape), 0)
    spots = 1e5 * np.exp(-(y**2 + x**2) / 18) * (1 + made.normal(0, 0.05, x.shape))
    return {
        "a specimen beside rounding errors": specimen + made.normal(0, 1e-5, x.shape),
        "a spot without background": spots,
        "a decay over decades": 10 ** made.normal(0, 2, x.shape),
        "deconvolved": np.where(specimen > 0, specimen, 10 ** made.uniform(-12, -3, x.shape)),
        "counts": np.rint(made.poisson(0.3, x.shape) + 100 * spots),
    }[kind]


BRIGHT = {
    "a specimen beside rounding errors": ("float32", "float64"),
    "a spot without background": ("float32", "float64"),
    "a decay over decades": ("float64",),
    "deconvolved": ("float32", "float64"),
    "counts": ("float32", "uint32", "int64"),
}


@every_way
@pytest.mark.parametrize("kind, dtype", [(kind, one) for kind in BRIGHT for one in BRIGHT[kind]])
def test_bright_pixels_that_are_many_or_lead_up_to_each_other_are_image(device, way, kind, dtype):
    frames = np.stack([bright(kind).astype(dtype)] * 2)
    image = frames[0]
    told = gd.denoise(image, gd.NLMeans(), 60.0, device=device).record.notes
    assert not any("fill" in note for note in told)
    top = image > 500
    assert top.sum() > 2
    for fill in (None, 1e30) if image.dtype.kind == "f" else (None,):
        given = frames.copy()
        given[:, 3, 5] = image[3, 5] if fill is None else fill
        out = way(given, gd.NLMeans(), 60.0, device)
        assert fill is None or (out[:, 3, 5] == given[:, 3, 5]).all()
        assert (out[:, top] != image[top]).any()


@pytest.mark.parametrize("dtype", FILL)
def test_fill_values_are_left_out_of_the_noise_and_noted(device, dtype):
    image = noisy(96, 104, sigma=8.0).astype(dtype)
    # Where hardly a patch is whole, nothing is proven, and a note says so.
    for share, sigma in ((0.02, 8), (0.3, 0)):
        scattered = image.copy()
        scattered[np.random.default_rng(3).random(image.shape) < share] = FILL[dtype][0]
        told = gd.denoise(scattered, SETTINGS["nl_means"], device=device).record
        assert told.sigma[0] == pytest.approx(sigma, rel=0.15)
        assert any(getattr(note, "code", "") == "unproven" for note in told.notes) == (not sigma)
    image[[5, 40], [7, 30]] = FILL[dtype]
    result = gd.denoise(image, SETTINGS["nl_means"], device=device)
    assert result.record.sigma[0] == pytest.approx(8, rel=0.15)
    assert any(note.endswith("stay as they are: 2 pixels") for note in result.record.notes)
    assert result.record.nonfinite == 0
    assert gd.estimate_noise(image, device=device).sigma[0] == pytest.approx(8, rel=0.15)


def photons(*shape: int, gain: float = 2.0, read: float = 5.0) -> tuple[np.ndarray, np.ndarray]:
    """Return an image without noise, and one with that of photons and of reading."""
    made = np.random.default_rng(8)
    clean = np.broadcast_to(100 + 60 * np.sin(np.arange(shape[-1]) / 9), shape)
    return clean, clean + made.normal(size=shape) * np.sqrt(gain * clean + read**2)


def error(result: np.ndarray, clean: np.ndarray, offset: float) -> float:
    return float(np.sqrt(np.mean((result.astype(np.float64) - offset - clean) ** 2)))


WHITE = np.eye(5) * [1, 0, 0, 0, 0]
PHOTONS = {
    "white": lambda offset: gd.PoissonGaussian(2.0, 5.0, offset),
    "correlated": lambda offset: gd.CorrelatedPhotons(2.0, 5.0, offset, autocorrelation=WHITE),
}


@every_way
@pytest.mark.parametrize("offset", [2**24, 2**31, 2**40, -(2**31) - 0.5])
@pytest.mark.parametrize("kind", PHOTONS)
def test_a_far_offset_of_the_noise_model_loses_nothing(device, way, kind, offset):
    clean, noisy = photons(3, 64, 72)
    results = [
        error(way(noisy + off, gd.NLMeans(), None, device, noise=PHOTONS[kind](off)), clean, off)
        for off in (0, offset)
    ]
    assert results[1] == pytest.approx(results[0], rel=0.01)


def test_far_offsets_of_channels(device):
    clean, noisy = photons(2, 64, 72)
    models = [gd.PoissonGaussian(2.0, 5.0, offset) for offset in (0, 2**31, 2**31 + 9.0)]
    images = [noisy[0] + model.offset for model in models]

    def denoised(*which):
        image, noise = np.stack([images[k] for k in which]), [models[k] for k in which]
        return gd.denoise(image, gd.NLMeans(), noise=noise, axes="CYX", device=device).image

    alone = error(denoised(0)[0], clean[0], 0)
    for result, model in zip(denoised(1, 2), models[1:], strict=True):
        assert error(result, clean[0], model.offset) == pytest.approx(alone, rel=0.05)
    with pytest.raises(ImageError, match="offsets of channels"):
        denoised(0, 1)


@pytest.mark.parametrize("offset", [-50, -100, -1000, -32768, -(2**31), 2**31])
@pytest.mark.parametrize("noise", ["auto", "poisson-gaussian", "correlated-photons"])
def test_what_was_added_to_an_image_with_photon_noise_changes_nothing(device, offset, noise):
    clean, noisy = photons(128, 144)
    dtypes = ("float64", "int16", "float32") if abs(offset) < 2**16 else ("float64", "int64")
    results = [
        error(gd.denoise(image, gd.NLMeans(), noise=noise, device=device).image, clean, off)
        for off, types in ((0, dtypes[:1]), (offset, dtypes))
        for image in (np.rint(noisy + off).astype(one) for one in types)
    ]
    assert max(results[1:]) < 1.1 * results[0]
