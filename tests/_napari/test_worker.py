"""The run as a generator, driven by hand."""

import dask.array as da
import numpy as np
import pytest

from napari_gpu_denoise import run as runs
from napari_gpu_denoise._napari import worker
from napari_gpu_denoise.filters import NLMeans

pytestmark = pytest.mark.gui


class Sliced:
    """An array that can only be sliced, as a file's; it counts what is read of it."""

    def __init__(self, array, chunks=None):
        self.array, self.shape, self.dtype, self.ndim = array, array.shape, array.dtype, array.ndim
        self.read = []
        if chunks is not None:
            self.chunks = chunks

    def __getitem__(self, index):
        self.read.append(index)
        return self.array[index]


def request(data, **changes):
    given = {
        "settings": NLMeans(),
        "sigma": 5.0,
        "axes": "." * (data.ndim - 2) + "YX",
        "dtype": None,
        "nonfinite": "raise",
        "device": None,
        "memory_limit": None,
    }
    return worker.Request(data=data, **{**given, **changes})


def drive(steps):
    stages = []
    while True:
        try:
            stages.append(next(steps))
        except StopIteration as end:
            return stages, end.value


@pytest.fixture
def stack():
    return np.random.default_rng(0).normal(100, 5, (5, 30, 40)).astype(np.float32)


@pytest.mark.parametrize("chunks", [None, (2, 30, 25), ((3, 2), (30,), (25, 15))])
def test_every_chunk_is_read_once(stack, chunks):
    data = Sliced(stack, chunks)
    stages, image = drive(worker._load(data))
    np.testing.assert_array_equal(image, stack)
    covered = np.zeros(stack.shape, int)
    for index in data.read:
        covered[index] += 1
    assert (covered == 1).all()
    assert len(stages) == len(data.read) == {None: 1, (2, 30, 25): 6}.get(chunks, 4)


def test_large_arrays_without_chunks_are_read_in_slabs(stack, monkeypatch):
    monkeypatch.setattr(worker, "_SLAB", 2 * stack[0].nbytes)
    stages, image = drive(worker._load(Sliced(stack)))
    assert len(stages) == 3
    np.testing.assert_array_equal(image, stack)


def test_numpy_is_taken_as_it_is(stack):
    stages, image = drive(worker._load(stack))
    assert not stages and image is stack


def test_outcome_is_that_of_the_filter(stack):
    stages, outcome = drive(worker.steps(request(da.from_array(stack, chunks=(2, 30, 40)))))
    np.testing.assert_array_equal(outcome.result.image, runs.denoise(stack, NLMeans(), 5.0).image)
    assert outcome.error is None and outcome.seconds > 0
    texts = [stage.text for stage in stages]
    assert texts[0].startswith("Reading") and texts[-1].startswith("Denoising")
    assert stages[-1].done == stages[-1].total > 0


def test_errors_are_returned(stack):
    _, outcome = drive(worker.steps(request(stack, sigma=-1.0)))
    assert outcome.result is None
    assert "sigma=-1" in str(outcome.error)


def test_closing_closes_the_filter(stack, monkeypatch):
    closed = []

    def endless(*args, **kwargs):
        try:
            while True:
                yield runs.Progress(0, 1)
        finally:
            closed.append(True)

    monkeypatch.setattr(runs, "denoise_steps", endless)
    steps = worker.steps(request(stack))
    for _ in range(4):
        next(steps)
    steps.close()
    assert closed == [True]
