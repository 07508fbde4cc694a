"""Bands of arrays in several threads, and results computed in advance."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from napari_gpu_denoise.image import threads
from napari_gpu_denoise.image.levels import Levels
from napari_gpu_denoise.image.threads import ahead, in_bands


@pytest.fixture
def four_threads(monkeypatch):
    """Four threads, whatever this machine has."""
    monkeypatch.setattr(threads, "copy_threads", lambda: 4)


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


@pytest.mark.parametrize("broken", [0, 2])
def test_an_error_in_a_band_comes_through_when_all_have_ended(four_threads, broken):
    image = np.repeat(np.arange(4.0), 250)[:, None] * np.ones(1100)
    ended = []

    def fail_in_one(band):
        if band[0, 0] == broken:
            raise ZeroDivisionError
        time.sleep(0.05)
        ended.append(band[0, 0])

    with pytest.raises(ZeroDivisionError):
        in_bands(fail_in_one, image)
    assert sorted(ended) == sorted({0, 1, 2, 3} - {broken})


def test_results_are_computed_in_advance_but_not_more_than_asked_for():
    begun = []
    results = ahead(lambda item: begun.append(item) or -item, range(6), 2)
    assert next(results) == 0
    shared = [next(results), len(begun)]
    assert shared[0] == -1 and shared[1] <= 4
    assert list(results) == [-2, -3, -4, -5] and sorted(begun) == list(range(6))


def test_what_fails_in_advance_fails_when_it_is_asked_for():
    def work(item: int) -> int:
        return 6 // (3 - item)

    results = ahead(work, range(5), 3)
    assert [next(results), next(results), next(results)] == [2, 3, 6]
    with pytest.raises(ZeroDivisionError):
        next(results)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32", "float64", "int32"])
def test_levels_of_large_arrays_are_those_of_small_ones(four_threads, dtype):
    small = np.random.default_rng(0).normal(100, 20, (50, 60)).clip(0, 255).astype(dtype)
    assert Levels.of(np.tile(small, (30, 30))) == Levels.of(small)
