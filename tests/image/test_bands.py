"""Large arrays worked on in bands give what one call gives."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from napari_gpu_denoise.image import bands
from napari_gpu_denoise.image.bands import begin_each, in_bands
from napari_gpu_denoise.image.levels import Levels


@pytest.fixture
def four_threads(monkeypatch):
    """Four threads, whatever this machine has."""
    monkeypatch.setattr(bands, "_threads", lambda: 4)


@pytest.mark.parametrize("shape", [(1100, 1000), (3, 700, 600), (700, 3, 600), (2, 2, 300_000)])
def test_bands_cover_everything_once_and_in_order(four_threads, shape):
    source, target = np.random.default_rng(0).random(shape), np.zeros(shape)
    sizes, threads = [], set()

    def add(a, b):
        threads.add(threading.current_thread().name)
        sizes.append(a.size)
        b += a
        return a.flat[0]

    first = in_bands(add, source, target)
    np.testing.assert_array_equal(target, source)
    assert sum(sizes) == source.size
    assert len(sizes) == len(first) == min(4, max(shape[:-1]))
    flat = source.ravel().tolist()
    assert [flat.index(value) for value in first] == sorted(flat.index(value) for value in first)
    threads.discard(threading.current_thread().name)
    assert threads
    assert all(name.startswith("gpu-denoise-copy") for name in threads)


def test_small_arrays_are_passed_whole(four_threads):
    array = np.ones((100, 100))
    (given,) = in_bands(lambda a: a, array)
    assert given is array


@pytest.mark.parametrize("broken", [0, 2])
def test_an_error_in_a_band_comes_through_when_all_have_ended(four_threads, broken):
    image = np.repeat(np.arange(4.0), 250)[:, None] * np.ones(1000)
    ended = []

    def fail_in_one(band):
        if band[0, 0] == broken:
            raise ZeroDivisionError
        time.sleep(0.05)
        ended.append(band[0, 0])

    with pytest.raises(ZeroDivisionError):
        in_bands(fail_in_one, image)
    assert sorted(ended) == sorted({0, 1, 2, 3} - {broken})


def test_items_are_passed_in_order_and_in_threads_if_they_are_large(four_threads):
    def name(k):
        return k, threading.current_thread().name

    for nbytes, aside in ((100, False), (1 << 22, True)):
        found = list(begin_each(name, range(30), nbytes))
        assert [k for k, _ in found] == list(range(30))
        assert all(one.startswith("gpu-denoise-copy") == aside for _, one in found)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32", "float64", "int32"])
def test_levels_of_large_arrays_are_those_of_small_ones(four_threads, dtype):
    small = np.random.default_rng(0).normal(100, 20, (50, 60)).clip(0, 255).astype(dtype)
    assert Levels.of(np.tile(small, (30, 30))) == Levels.of(small)
