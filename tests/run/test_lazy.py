"""Filters over dask arrays: chunks of any shape, no device sent anywhere."""

from __future__ import annotations

import dataclasses
import pickle
import threading

import dask
import dask.array as da
import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.errors import (
    AxesError,
    ImageError,
    NoDeviceError,
    NonFiniteError,
    SettingsError,
    SigmaError,
)
from napari_gpu_denoise.filters import FILTERS, VBM3D
from napari_gpu_denoise.run import lazy
from napari_gpu_denoise.run import lazy as module
from scenes import joining, noisy, small

KIND = FILTERS[0]


def both(image, chunks, settings, sigma=20.0, **options):
    """Return the lazy result, computed, and the plain one."""
    lazy = gd.denoise_lazy(da.from_array(image, chunks=chunks), settings, sigma, **options)
    assert lazy.shape == image.shape
    out = lazy.compute()
    assert out.dtype == lazy.dtype
    return out, gd.denoise(image, settings, sigma, **options).image


@pytest.mark.parametrize(
    "chunks",
    [(1, 1), (7, 61), (61, 5), (13, 17), (50, 1), ((1, 30, 30), (3, 50, 4)), (61, 57)],
    ids=str,
)
def test_chunks_of_any_size(device, chunks):
    image = noisy(*((61, 57) if chunks != (1, 1) else (23, 21)), dtype="uint8")
    for settings in (small(KIND), small(KIND, patch=5, step=3)):
        out, expected = both(image, chunks, settings, device=device)
        np.testing.assert_array_equal(out, expected)


def test_chunks_stay_as_they_are_where_they_can(device):
    array = da.from_array(noisy(4, 60, 57), chunks=(1, 30, 31))
    settings = small(KIND)
    assert gd.denoise_lazy(array, settings, 20, device=device).chunks == array.chunks
    tall = array.rechunk((1, 2, 57))
    chunks = gd.denoise_lazy(tall, settings, 20, device=device).chunks
    assert chunks[0] == tall.chunks[0]
    assert chunks[2] == tall.chunks[2]
    assert min(chunks[1]) >= max(settings.reach.y)


@pytest.mark.parametrize("axes", ["TZYX", "TCYX", "ZTYX", "QRYX"])
@pytest.mark.parametrize("chunks", [(1, 1, 20, 57), (2, 2, 61, 19), (3, 1, 30, 30)])
def test_joined_and_independent_axes(device, axes, chunks):
    image = noisy(5, 3, 61, 57, dtype="uint16")
    out, expected = both(image, chunks, joining(KIND, axes), axes=axes, device=device)
    np.testing.assert_array_equal(out, expected)


def test_one_sided_windows_in_time(device):
    image = noisy(6, 30, 30, dtype="uint8")
    for before, after in ((2, 0), (0, 2), (2, 1)):
        settings = small(KIND, frames_before=before, frames_after=after)
        out, expected = both(image, (1, 30, 30), settings, axes="TYX", device=device)
        np.testing.assert_array_equal(out, expected)


# Filters over time, whose frames may change in brightness or be dropped.
OVER_TIME = {
    "nl_means": joining(KIND, "T"),
    "vbm3d": joining(VBM3D, "T"),
    "vbm3d causal": small(VBM3D, frames_before=1, frames_after=0),
}


@pytest.mark.parametrize("chunks", [(4, 120, 130), (12, 60, 130), (3, 60, 65)], ids=str)
@pytest.mark.parametrize("name", OVER_TIME)
def test_brightness_that_changes_is_that_of_whole_frames(device, name, chunks):
    gain = np.linspace(1, 0.6, 12)[:, None, None]
    image = np.rint(noisy(12, 120, 130, sigma=10) * gain).astype(np.uint8)
    settings, options = OVER_TIME[name], {"axes": "TYX", "device": device}
    out, expected = both(image, chunks, settings, 10, **options)
    plain = gd.denoise(image, dataclasses.replace(settings, flicker=False), 10, **options).image
    assert not np.array_equal(plain, expected)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("chunks", [(4, 120, 130), (12, 60, 130), (3, 60, 65)], ids=str)
@pytest.mark.parametrize("part", ["a frame", "a part of a frame"])
@pytest.mark.parametrize("name", OVER_TIME)
def test_frames_of_one_level_are_told_by_the_whole(device, name, part, chunks):
    image = noisy(12, 120, 130, dtype="uint8")
    image[5, :, : None if part == "a frame" else 110] = 7
    out, expected = both(image, chunks, OVER_TIME[name], axes="TYX", device=device)
    np.testing.assert_array_equal(out, expected)
    if part == "a frame":
        np.testing.assert_array_equal(out[5], image[5])


@pytest.mark.parametrize("shape", [(1, 1), (3, 40), (40, 2), (4, 4), (5, 5)])
def test_images_smaller_than_a_patch(device, shape):
    image = noisy(*shape)
    out, expected = both(image, (1, 2), small(KIND), device=device)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("chunks", [(1, 30, 30), (2, 61, 57)])
def test_each_channel_has_its_sigma(device, chunks):
    image = noisy(3, 61, 57)
    for sigma in ((5, 20, 40), (0, 20, 0)):
        out, expected = both(image, chunks, small(KIND), sigma, axes="CYX", device=device)
        np.testing.assert_array_equal(out, expected)


def test_sigma_is_estimated_once_from_few_planes(device):
    read = []

    def plane(block_info=None):
        index = block_info[None]["chunk-location"][0]
        read.append(index)
        return noisy(1, 64, 64, seed=index)

    array = da.map_blocks(plane, chunks=((1,) * 40, 64, 64), dtype="float32")
    result = gd.denoise_lazy(array, small(KIND), axes="TYX", device=device)
    # Frames that follow each other are looked at as well, for noise that changes with brightness.
    # So are three in a row at four places, for its spectrum, and 32, for noise that changes.
    assert 0 < len(read) <= 68
    read.clear()
    with dask.config.set(scheduler="synchronous"):
        out = result[7].compute()
    assert read == [7]
    sigma = gd.estimate_noise(array, "TYX").sigma
    expected = gd.denoise(noisy(64, 64, seed=7), small(KIND), sigma, device=device).image
    np.testing.assert_array_equal(out, expected)


def test_nothing_is_computed_before_it_is_asked_for(device):
    def fail():
        raise AssertionError("computed too early")

    array = da.from_delayed(dask.delayed(fail)(), (2, 50, 50), "float32")
    lazy = gd.denoise_lazy(array, small(KIND), 20, device=device)
    with pytest.raises(AssertionError, match="too early"):
        lazy.compute()


@pytest.mark.parametrize("kind", [gd.NLMeans, gd.BM3D, gd.VBM3D], ids=lambda k: k.name)
def test_the_function_of_a_filter_makes_a_dask_array_of_one(device, kind):
    image, call = noisy(6, 30, 34, dtype="uint8"), getattr(gd, kind.name)
    options = {"settings": small(kind), "axes": "TYX", "device": device, "memory_limit": "100M"}
    read = []

    def chunk(block):
        read.append(block.shape)
        return block

    array = da.from_array(image, chunks=(3, 30, 17)).map_blocks(chunk, meta=image[:0])
    lazy = call(array, 20.0, **options)
    assert (type(lazy), lazy.shape, lazy.dtype, read) == (da.Array, image.shape, image.dtype, [])
    np.testing.assert_array_equal(lazy.compute(), call(image, 20.0, **options))


def test_what_dask_does_itself_is_refused(device):
    array = da.from_array(noisy(30, 34), chunks=17)
    for name, value in (("progress", print), ("cancel", threading.Event())):
        with pytest.raises(SettingsError, match="leave out progress= and cancel="):
            gd.nl_means(array, 20, device=device, **{name: value})


@pytest.mark.parametrize("scheduler", ["threads", "processes", "synchronous"])
def test_schedulers(device, scheduler):
    image = noisy(2, 50, 44, dtype="uint8")
    lazy = gd.denoise_lazy(da.from_array(image, chunks=(1, 25, 44)), small(KIND), 20, device=device)
    out = lazy.compute(scheduler=scheduler, num_workers=2)
    np.testing.assert_array_equal(out, gd.denoise(image, small(KIND), 20, device=device).image)


def test_no_handle_of_a_device_is_sent(device):
    array = da.from_array(noisy(50, 44), chunks=(25, 44))
    lazy = gd.denoise_lazy(array, small(KIND), 20, device=device)
    sent = pickle.dumps(lazy.__dask_graph__())
    assert device.name.encode() in sent
    assert b"pyopencl" not in sent
    assert lazy.name == gd.denoise_lazy(array, small(KIND), 20, device=device).name


@pytest.mark.parametrize("dtype", ["float64", "int32", "uint64"])
def test_wide_types_agree_to_the_rounding_of_float32(device, dtype):
    image = (noisy(61, 57) * 7).astype(dtype)
    image += image.dtype.type(10**9)
    out, expected = both(image, (20, 30), small(KIND), 140, device=device)
    error = np.abs(out.astype(np.float64) - expected.astype(np.float64))
    # Rounding may turn which of two all but equal patches is averaged.
    assert np.mean(error > 1e-3 * 140) < 0.01
    assert error.max() < 140
    joined = gd.denoise_lazy(da.from_array(image, chunks=-1), small(KIND), 140, device=device)
    np.testing.assert_array_equal(joined.compute(), expected)


def test_nonfinite_pixels_stay_and_do_not_spread(device):
    image = noisy(3, 61, 57)
    image[0, 19:22, 28:32] = np.nan
    image[1, 20, 30] = np.inf
    image[2, :6, :6] = -np.inf
    out, expected = both(image, (1, 20, 30), small(KIND), nonfinite="keep", device=device)
    np.testing.assert_array_equal(out, expected)
    with pytest.raises(NonFiniteError, match="float32"):
        both(image, (1, 20, 30), small(KIND), nonfinite="keep", dtype="uint8", device=device)
    for sigma in (20, 0):
        with pytest.raises(NonFiniteError, match="nonfinite='keep'"):
            both(image, (1, 20, 30), small(KIND), sigma, device=device)


def test_a_large_hole_is_filled_from_what_a_chunk_sees(device):
    image = noisy(150, 160)
    image[40:110, 40:110] = np.nan
    out, expected = both(image, (50, 50), small(KIND), nonfinite="keep", device=device)
    np.testing.assert_array_equal(np.isnan(out), np.isnan(image))
    error = np.abs(out - expected)
    y, x = np.mgrid[:150, :160]
    away = np.maximum(np.abs(y - 74.5), np.abs(x - 74.5)) > 35 + max(KIND().reach.y)
    assert np.nanmax(error[away]) == 0
    assert np.nanmax(error) < 60


def test_results_in_another_type(device):
    image = noisy(3, 30, 30, dtype="uint8")
    out, expected = both(image, (1, 30, 30), small(KIND), dtype="float32", device=device)
    assert out.dtype == np.float32
    np.testing.assert_array_equal(out, expected)


def test_arrays_of_numpy_are_taken_too(device):
    image = noisy(30, 30)
    lazy = gd.denoise_lazy(image, small(KIND), 20, device=device)
    assert isinstance(lazy, da.Array)
    np.testing.assert_array_equal(
        lazy.compute(), gd.denoise(image, small(KIND), 20, device=device).image
    )


@pytest.mark.parametrize("sigma", [20.0, None])
@pytest.mark.parametrize("made", [(30, 30), (24, 30), (40, 30), (1, 30, 30)])
def test_chunks_are_of_the_shape_declared(device, made, sigma):
    """Pixels of a larger one were left out, and a smaller one failed somewhere in NumPy."""
    array = da.from_array(noisy(90, 30), chunks=(30, 30))
    array = array.map_blocks(lambda _: noisy(*made), dtype=np.float64, chunks=array.chunks)

    def computed():
        return gd.denoise_lazy(array, small(KIND), sigma, device=device).compute()

    if made == (30, 30):
        assert computed().shape == (90, 30)
        return
    with pytest.raises(ImageError, match=r"A chunk of the dask array has the shape .* declared"):
        computed()


def test_a_shape_that_is_not_known_is_refused():
    array = da.ones((40, 30), chunks=(20, 30))
    array = array[array[:, 0] > 0]
    with pytest.raises(ImageError, match="compute_chunk_sizes"):
        gd.denoise_lazy(array, small(KIND), 20)
    with pytest.raises(ImageError, match="compute_chunk_sizes"):
        gd.propose_chunks(array, small(KIND))


def test_bad_input_is_refused_at_once(device):
    array = da.ones((3, 30, 30), chunks=(1, 30, 30))
    with pytest.raises(SigmaError):
        gd.denoise_lazy(array, small(KIND), -1)
    with pytest.raises(AxesError):
        gd.denoise_lazy(array, small(KIND), 1, axes="TY")
    with pytest.raises(AxesError, match="needs an axis T"):
        gd.denoise_lazy(array, joining(KIND, "T"), 1)
    with pytest.raises(NoDeviceError, match="No device given"):
        gd.denoise_lazy(array, small(KIND), 1, device=[])
    with pytest.raises(ImageError, match="convert"):
        gd.denoise_lazy(array.astype(bool), small(KIND), 1)
    with pytest.raises(ImageError, match="nonfinite"):
        gd.denoise_lazy(array, small(KIND), 1, nonfinite="drop")
    with pytest.raises(ImageError, match="no pixels"):
        gd.denoise_lazy(array[:0], small(KIND), 1)
    with pytest.raises(ImageError, match="compute_chunk_sizes"):
        gd.denoise_lazy(array[array[:, 0, 0] > 0], small(KIND), 1)


def test_memory_is_bounded_by_chunks(device, monkeypatch):
    largest = []
    plain = module.filter_part

    def watch(job, part, block, out):
        largest.append(block.given.size)
        return plain(job, part, block, out)

    monkeypatch.setattr(module, "filter_part", watch)
    settings = small(KIND)
    array = da.from_array(noisy(8, 64, 64), chunks=(1, 32, 32))
    gd.denoise_lazy(array, settings, 20, device=device).compute()
    assert len(largest) == 32
    assert max(largest) <= (32 + sum(settings.reach.y)) * (32 + sum(settings.reach.x))


def test_sigma_far_above_the_range_is_bounded_as_in_an_array(device):
    image = noisy(2, 30, 34, sigma=10)
    settings = small(gd.BM3D)
    lazy, expected = both(image, (1, 30, 34), settings, sigma=1e9, axes="TYX", device=device)
    # Everything is taken for noise; without a bound, sums were too coarse and nothing was.
    for result in (lazy, expected):
        assert np.abs(result - image.mean()).max() < 0.7 * np.abs(image - image.mean()).max()
    assert np.abs(lazy - expected).max() < 0.1 * np.ptp(image)


def test_the_overhead_is_what_is_read_more_than_yielded(device, monkeypatch):
    read, plain = [], lazy.filter_part

    def filter_part(job, part, block, out):
        read.append(block.given.size)
        return plain(job, part, block, out)

    monkeypatch.setattr(lazy, "filter_part", filter_part)
    image = noisy(2, 90, 70)
    array, filter = da.from_array(image, chunks=(1, (40, 40, 10), 35)), small(gd.NLMeans)
    # Chunks smaller than the margin are joined; here none is.
    assert max(filter.reach.y) <= 10
    gd.nl_means(array, 20, settings=filter, device=device).compute()
    told = gd.propose_chunks(array, filter)
    assert told.present == pytest.approx(sum(read) / image.size - 1)
    assert told.overhead == 0
    assert told.chunks == image.shape


def test_chunks_grow_until_they_take_the_bytes():
    array = da.zeros((100, 4096, 4096), dtype="uint16", chunks=(1, 256, 256))
    filter = gd.BM3D()
    told = [gd.propose_chunks(array, filter, axes="TYX", nbytes=f"{n}M") for n in (1, 8, 64, 512)]
    assert {n % 256 for one in told for n in one.chunks[1:]} == {0}
    # Frames, which have no margin, come last.
    assert [one.chunks[0] for one in told] == [1, 1, 1, 4]
    assert [one.overhead for one in told] == sorted((one.overhead for one in told), reverse=True)
    for one, most in zip(told[1:], (8, 64, 512), strict=True):
        assert most / 4 < one.nbytes / 2**20 <= most
    assert told[0].chunks == (1, 256, 256)
    assert told[0].overhead == pytest.approx(told[0].present)
    assert f"they add {told[0].overhead:.0%} to the work" in str(told[0])


def test_axes_that_are_not_cut_stay_whole():
    array = np.empty((3, 40, 300, 400), np.uint8)
    told = gd.propose_chunks(array, gd.VBM3D(), axes="CTYX", nbytes="1M")
    assert told.chunks[2:] == (300, 400)
    assert told.chunks[1] >= max(told.margins[1])
    assert told.present is None
    assert told.margins[0] == (0, 0)
    joint = gd.propose_chunks(array, gd.BM3D(channels="joint"), axes="CTYX", nbytes="1M")
    assert joint.chunks[0] == 3


def test_what_does_not_fit_is_refused():
    with pytest.raises(SettingsError, match="is not a filter"):
        gd.propose_chunks(np.zeros((9, 9)), gd.BM3D)
    with pytest.raises(AxesError):
        gd.propose_chunks(np.zeros((9, 9)), gd.BM3D(), axes="TY")
    with pytest.raises(SettingsError):
        gd.propose_chunks(np.zeros((9, 9)), gd.BM3D(), nbytes="many")
