"""Arrays that are not in memory: what is read of them, how often, and where the result goes."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

import napari_gpu_denoise as gd
from flows import Remembered
from napari_gpu_denoise.errors import Cancelled
from napari_gpu_denoise.run.denoise import denoise_image
from napari_gpu_denoise.run.progress import COMPILING, Step
from napari_gpu_denoise.run.request import HostMemory, Run
from scenes import Stored, noisy, small

VIDEO = small(gd.VBM3D, frames_before=2, frames_after=1)
ALL = {
    "vbm3d": VIDEO,
    "nl_means over time": small(gd.NLMeans, frames_before=1, frames_after=1),
    "isoline": small(gd.Isoline),
}


class Watched(Stored):
    """An array that notes what is read and written, and how much of it is in memory at most."""

    def __init__(self, array: np.ndarray):
        super().__init__(array)
        self.read, self.written, self.most = [], [], 0
        self._given: list[weakref.ref] = []

    def __getitem__(self, index):
        found = np.array(self.array[index])
        self.read.append(index)
        self._given.append(weakref.ref(found))
        self.most = max(self.most, sum(one() is not None for one in self._given))
        return found

    def __setitem__(self, index, values):
        self.written.append(index)
        self.array[index] = values


def frames_of(indices: list, axis: int) -> list[int]:
    return [index[axis] for index in indices]


@pytest.mark.parametrize(
    ("axes", "dtype"), [("TYX", "uint16"), ("CTYX", "uint8"), ("CTYX", "float32")]
)
@pytest.mark.parametrize("name", ALL)
def test_each_frame_is_read_once_and_written_once(device, name, dtype, axes):
    shape = (9, 33, 37) if axes == "TYX" else (2, 9, 33, 37)
    image, t = noisy(*shape, dtype=dtype), axes.index("T")
    source, sink = Watched(image), Watched(np.zeros(image.shape, dtype))
    options = {"axes": axes, "device": device}
    result = gd.denoise(source, ALL[name], 20.0, out=sink, **options)
    assert result.image is sink
    expected = gd.denoise(image, ALL[name], 20.0, **options)
    np.testing.assert_array_equal(sink.array, expected.image)
    for field in ("settings", "sigma", "sigma_source", "axes", "saturated", "notes"):
        assert getattr(result.record, field) == getattr(expected.record, field), field
    # Of floats a window of the first frame is needed first; the one in the middle is compared.
    assert frames_of(source.read, t) == [0] * (dtype == "float32") + [*range(9), 4]
    assert frames_of(sink.written, t) == list(range(9))


@pytest.mark.parametrize("name", ALL)
def test_few_frames_are_in_memory(device, name):
    source = Watched(noisy(70, 33, 37, dtype="uint16"))
    sink = Watched(np.zeros(source.shape, "uint16"))
    gd.denoise(source, ALL[name], 20.0, axes="TYX", out=sink, device=device)
    # As many as are taken at once, and those before and after: however long the series is.
    assert 0 < source.most <= 16 + 16 + 4


@pytest.mark.parametrize("name", ALL)
def test_a_wanted_frame_reads_no_more_than_it_looks_at(device, name):
    image, settings = noisy(30, 33, 37, dtype="uint16"), ALL[name]
    source, options = Watched(image), {"axes": "TYX", "device": device}
    expected = gd.denoise(image, settings, 20.0, **options).image
    before, after = settings.reach.t if "T" in settings.joint else (0, 0)
    for frames, start, stop in ((12, 12, 13), (slice(0, 2), 0, 2), (-1, 29, 30)):
        source.read.clear()
        out = gd.denoise(source, settings, 20.0, frames=frames, **options).image
        np.testing.assert_array_equal(out, expected[start:stop])
        (index,) = source.read
        assert index[0] == slice(max(start - before, 0), min(stop + after, 30))
    sink = Watched(np.zeros((1, 33, 37), "uint16"))
    gd.denoise(source, settings, 20.0, frames=5, out=sink, **options)
    np.testing.assert_array_equal(sink.array, expected[5:6])


def test_progress_counts_frames_and_can_stop_anywhere(device):
    source = Watched(noisy(6, 33, 37, dtype="float32"))
    sink = Watched(np.zeros(source.shape, "float32"))
    every = [Step(0, 0, COMPILING), *(Step(k, 6, "frame") for k in range(7))]
    stop = every.index(Step(2, 6, "frame")) + 1
    # Where a limit leaves no memory for it, the next frame is not begun while one is written.
    for limit, kept in ((None, [0, 1, 2]), (HostMemory(1, given=False), [0, 1])):
        run, told = Run(VIDEO, 20.0, axes="TYX", device=device, host_memory=limit), Remembered()
        denoise_image(source, run, sink, progress=told)
        assert told.steps == every
        sink.written.clear()
        with pytest.raises(Cancelled):
            denoise_image(source, run, sink, progress=Remembered(stop))
        assert frames_of(sink.written, 0) == kept
