"""Filters over dask arrays: chunks of any shape, no device sent anywhere."""

from __future__ import annotations

import math
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
    NonFiniteError,
    SettingsError,
    SigmaError,
)
from napari_gpu_denoise.filters import FILTERS
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


# Others: tests/test_ways.py and test_metamorphic.py.
CUTS = {
    "pixels": ((23, 21), (1, 1), {}),
    "empty": ((61, 57), ((0, 30, 31, 0), (57, 0)), {}),
    "uneven": ((61, 57), ((1, 30, 30), (3, 50, 4)), {"settings": small(KIND, patch=5, step=3)}),
    "slices before frames": ((5, 3, 61, 57), (2, 2, 61, 19), {"axes": "ZTYX"}),
    "one pixel": ((1, 1), (1, 2), {}),
    "rows": ((3, 40), (1, 2), {}),
    "smaller than a patch": ((5, 5), (1, 2), {}),
}


@pytest.mark.parametrize("name", CUTS)
def test_chunks_of_any_size(device, name):
    shape, chunks, options = CUTS[name]
    options = {"settings": joining(KIND, options.get("axes", "")), "device": device} | options
    out, expected = both(noisy(*shape, dtype="uint8"), chunks, **options)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("chunks", [(4, 120, 130), (3, 60, 65)], ids=str)
@pytest.mark.parametrize("kind", [KIND, gd.VBM3D], ids=lambda kind: kind.name)
def test_frames_of_one_level_are_told_by_the_whole(device, kind, chunks):
    image = noisy(12, 120, 130, dtype="uint8")
    image[5, :, :110] = image[8] = 7
    out, expected = both(image, chunks, joining(kind, "T"), axes="TYX", device=device)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(out[8], image[8])


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
    # The first is read once more, for the mapping of grey levels.
    assert 0 < len(read) <= 69
    read.clear()
    with dask.config.set(scheduler="synchronous"):
        out = result[7].compute()
    assert read == [7]
    sigma = gd.estimate_noise(array, "TYX").sigma
    expected = gd.denoise(noisy(64, 64, seed=7), small(KIND), sigma, device=device).image
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("kind", [gd.NLMeans, gd.BM3D, gd.VBM3D], ids=lambda k: k.name)
def test_the_function_of_a_filter_makes_a_dask_array_of_one(device, kind):
    """Nothing is computed before it is asked for."""
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
    of_numpy = gd.denoise_lazy(image, small(kind), 20.0, axes="TYX", device=device)
    assert isinstance(of_numpy, da.Array)


@pytest.mark.parametrize("scheduler", ["threads", "processes", "synchronous"])
def test_schedulers(device, scheduler):
    image = noisy(2, 50, 44, dtype="uint8")
    array = da.from_array(image, chunks=(1, 25, 44))
    lazy = gd.denoise_lazy(array, small(KIND), 20, device=device)
    sent = pickle.dumps(lazy.__dask_graph__())
    assert device.name.encode() in sent and b"pyopencl" not in sent
    assert lazy.name == gd.denoise_lazy(array, small(KIND), 20, device=device).name
    out = lazy.compute(scheduler=scheduler, num_workers=2)
    np.testing.assert_array_equal(out, gd.denoise(image, small(KIND), 20, device=device).image)


def test_nonfinite_pixels_stay_and_do_not_spread(device):
    image = noisy(3, 61, 57)
    image[0, 19:22, 28:32] = np.nan
    image[1, 20, 30] = np.inf
    image[2, :6, :6] = -np.inf
    # What fills the last rows that a chunk reads lies beyond them.
    image[2, 21:26, 5:50] = np.nan
    options = {"axes": ".YX", "device": device}
    out, expected = both(image, (1, 20, 30), small(KIND), nonfinite="keep", **options)
    np.testing.assert_array_equal(out, expected)
    with pytest.raises(NonFiniteError, match="float32"):
        both(image, (1, 20, 30), small(KIND), nonfinite="keep", dtype="uint8", **options)
    array = da.from_array(image, chunks=(1, 20, 30))
    for noise in ({"sigma": 20}, {"sigma": 0}, {"sigma": None, "noise": gd.PoissonGaussian(2, 3)}):
        with pytest.raises(NonFiniteError, match="nonfinite='keep'"):
            gd.denoise_lazy(array, small(KIND), **noise, **options).compute()


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


STACK = da.ones((3, 30, 30), chunks=(1, 30, 30))
UNKNOWN = STACK[STACK[:, 0, 0] > 0]
REFUSED = [
    (gd.denoise_lazy, (STACK, small(KIND), -1), {}, SigmaError, ""),
    (gd.denoise_lazy, (STACK, joining(KIND, "T"), 1), {}, AxesError, "needs an axis T"),
    (gd.denoise_lazy, (STACK.astype(bool), small(KIND), 1), {}, ImageError, "convert"),
    (gd.denoise_lazy, (STACK[:0], small(KIND), 1), {}, ImageError, "no pixels"),
    (gd.denoise_lazy, (UNKNOWN, small(KIND), 1), {}, ImageError, "compute_chunk_sizes"),
    # What dask does itself.
    (gd.nl_means, (STACK, 20), {"progress": print}, SettingsError, "leave out progress="),
    (gd.nl_means, (STACK, 20), {"cancel": threading.Event()}, SettingsError, "and cancel="),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_bad_input_is_refused_at_once(number):
    function, given, options, error, said = REFUSED[number]
    with pytest.raises(error, match=said):
        function(*given, **options)


@pytest.fixture
def filtered(monkeypatch):
    """Return the shapes of the blocks that are filtered from here on, with their margins."""
    read, plain = [], module.filter_part

    def filter_part(job, part, block, out):
        read.append(block.given.shape)
        return plain(job, part, block, out)

    monkeypatch.setattr(module, "filter_part", filter_part)
    return read


def test_chunks_bound_the_memory(device, filtered):
    image = noisy(2, 90, 70)
    array, filter = da.from_array(image, chunks=(1, (40, 40, 10), 35)), small(gd.NLMeans)
    # Chunks smaller than the margin are joined; here none is.
    assert max(filter.reach.y) <= 10
    gd.nl_means(array, 20, settings=filter, device=device).compute()
    assert len(filtered) == 12
    most = (40 + sum(filter.reach.y)) * (35 + sum(filter.reach.x))
    assert max(map(math.prod, filtered)) <= most


@pytest.mark.parametrize("frames", [1, 2])
def test_chunks_are_filtered_together_where_all_are_wanted(device, filtered, frames):
    """So few frames are filtered twice; of a single one no more than its chunk is filtered."""
    image, settings = noisy(40, 30, 34, dtype="uint8"), joining(KIND, "TYX")
    told = {"axes": "TYX", "device": device}
    out, expected = both(image, (frames, 30, 34), settings, **told)
    np.testing.assert_array_equal(out, expected)
    # Blocks of eight times the margin of a frame on each side, instead of 20 or 40 chunks.
    assert sorted(frames for frames, *_ in filtered) == [9, 17, 18]
    array = da.from_array(image, chunks=(frames, 30, 34))
    lazy = gd.denoise_lazy(array, settings, 20.0, **told)
    assert lazy.chunks == array.chunks
    for k in (38, 0, 17, 14):
        filtered.clear()
        np.testing.assert_array_equal(lazy[k, 3:, ::2], expected[k, 3:, ::2])
        first = k // frames * frames
        assert [frames for frames, *_ in filtered] == [
            min(first + frames + 1, 40) - max(first - 1, 0)
        ]
    filtered.clear()
    some = [lazy.blocks[k] for k in (0, 1, 2, -1)]
    for one, first in zip(dask.compute(*some), (0, 1, 2, 40 // frames - 1), strict=True):
        np.testing.assert_array_equal(one, expected[frames * first :][:frames])
    assert sorted(frames for frames, *_ in filtered) == [frames + 1, 3 * frames + 1]
    # Of large frames no more than memory allows.
    wide = gd.denoise_lazy(da.ones((40, 4096, 4096), chunks=(2, -1, -1)), settings, 20.0, **told)
    (layer,) = (one for one in wide.dask.layers.values() if isinstance(one, module.Blocks))
    assert layer.cull(set(layer), None)[1].keys() == set(layer)
    assert len(layer) == 40
