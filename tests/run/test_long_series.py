"""Arrays that are not in memory: what is read of them, how often, and where the result goes."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

import napari_gpu_denoise as gd
from flows import Remembered
from napari_gpu_denoise.errors import Cancelled, ImageError, NonFiniteError
from napari_gpu_denoise.run.denoise import denoise_image
from napari_gpu_denoise.run.progress import COMPILING, Step
from napari_gpu_denoise.run.request import Run
from scenes import noisy, small

VIDEO = small(gd.VBM3D, frames_before=2, frames_after=1)
ALL = {
    "vbm3d": VIDEO,
    "nl_means over time": small(gd.NLMeans, frames_before=1, frames_after=1),
    "isoline": small(gd.Isoline),
}


class Stored:
    """An array that is read and written by NumPy indexing, and is nowhere in memory as a whole."""

    def __init__(self, array: np.ndarray):
        self._array, self.shape, self.dtype = array, array.shape, array.dtype
        self.read, self.written = [], []
        self.alive = weakref.WeakSet()
        self.most = 0

    def __getitem__(self, index):
        found = np.array(self._array[index]).view(Frame)
        self.read.append(index)
        self.alive.add(found)
        self.most = max(self.most, len(self.alive))
        return found

    def __setitem__(self, index, values):
        self.written.append(index)
        self._array[index] = values


class Frame(np.ndarray):
    """An array that can be referred to weakly, and compared by what it is."""

    __hash__ = object.__hash__


def frames_of(indices: list, axis: int) -> list[int]:
    return [index[axis] for index in indices]


@pytest.mark.parametrize(
    ("axes", "dtype"), [("TYX", "uint16"), ("CTYX", "uint8"), ("CTYX", "float32")]
)
@pytest.mark.parametrize("name", ALL)
def test_each_frame_is_read_once_and_written_once(device, name, dtype, axes):
    shape = (9, 33, 37) if axes == "TYX" else (2, 9, 33, 37)
    image, t = noisy(*shape, dtype=dtype), axes.index("T")
    source, sink = Stored(image), Stored(np.zeros(image.shape, dtype))
    options = {"axes": axes, "device": device}
    result = gd.denoise(source, ALL[name], 20.0, out=sink, **options)
    assert result.image is sink
    expected = gd.denoise(image, ALL[name], 20.0, **options)
    np.testing.assert_array_equal(sink._array, expected.image)
    for field in ("settings", "sigma", "sigma_source", "axes", "saturated", "notes"):
        assert getattr(result.record, field) == getattr(expected.record, field), field
    # Of floats a window of the first frame is needed first.
    assert frames_of(source.read, t) == [0] * (dtype == "float32") + list(range(9))
    assert frames_of(sink.written, t) == list(range(9))


@pytest.mark.parametrize("name", ALL)
def test_few_frames_are_in_memory(device, name):
    source = Stored(noisy(70, 33, 37, dtype="uint16"))
    sink = Stored(np.zeros(source.shape, "uint16"))
    gd.denoise(source, ALL[name], 20.0, axes="TYX", out=sink, device=device)
    # As many as are taken at once, and those before and after: however long the series is.
    assert 0 < source.most <= 16 + 16 + 4


def test_noise_is_measured_in_few_frames(device):
    source = Stored(noisy(200, 64, 72, dtype="uint16"))
    sink = np.zeros(source.shape, "uint16")
    result = gd.denoise(source, small(gd.NLMeans), axes="TYX", out=sink, device=device)
    assert result.record.sigma_source.startswith("estimated")
    assert len(source.read) <= 200 + 24 + 64


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("axes", ["ZYX", "YX", "TYX"])
def test_results_go_where_they_are_wanted(device, tmp_path, axes, lazy):
    """In memory, stored, in a memory map, in another byte order."""
    image = noisy(*(8, 33, 37)[-len(axes) :], dtype="uint16")
    settings, options = VIDEO if axes == "TYX" else small(gd.BM3D), {"axes": axes, "device": device}
    expected = gd.denoise(image, settings, 20.0, **options).image
    mapped = np.lib.format.open_memmap(tmp_path / "out.npy", "w+", "uint16", image.shape)
    swapped = np.zeros(image.shape, ">u2")
    for out in (np.zeros_like(image), Stored(np.zeros_like(image)), mapped, swapped):
        source = Stored(image) if lazy else image
        result = gd.denoise(source, settings, 20.0, out=out, **options)
        assert result.image is out
        np.testing.assert_array_equal(out[...], expected)


@pytest.mark.parametrize("name", ALL)
def test_a_wanted_frame_reads_no_more_than_it_looks_at(device, name):
    image, settings = noisy(30, 33, 37, dtype="uint16"), ALL[name]
    source, options = Stored(image), {"axes": "TYX", "device": device}
    expected = gd.denoise(image, settings, 20.0, **options).image
    before, after = settings.reach.t if "T" in settings.joint else (0, 0)
    for frames, start, stop in ((12, 12, 13), (slice(0, 2), 0, 2), (-1, 29, 30)):
        source.read.clear()
        out = gd.denoise(source, settings, 20.0, frames=frames, **options).image
        np.testing.assert_array_equal(out, expected[start:stop])
        (index,) = source.read
        assert index[0] == slice(max(start - before, 0), min(stop + after, 30))
    sink = Stored(np.zeros((1, 33, 37), "uint16"))
    gd.denoise(source, settings, 20.0, frames=5, out=sink, **options)
    np.testing.assert_array_equal(sink._array, expected[5:6])


def test_progress_counts_frames_and_can_stop_anywhere(device):
    source = Stored(noisy(6, 33, 37, dtype="float32"))
    sink = Stored(np.zeros(source.shape, "float32"))
    run, told = Run(VIDEO, 20.0, axes="TYX", device=device), Remembered()
    denoise_image(source, run, sink, progress=told)
    every = [Step(0, 0, COMPILING), *(Step(k, 6, "frame") for k in range(7))]
    assert told.steps == every
    sink.written.clear()
    with pytest.raises(Cancelled):
        denoise_image(source, run, sink, progress=Remembered(every.index(Step(2, 6, "frame")) + 1))
    assert frames_of(sink.written, 0) == [0, 1]


def test_what_is_not_finite_is_refused_or_kept(device):
    image = noisy(5, 33, 37)
    image[3, 4:6, 7] = np.nan
    options = {"axes": "TYX", "device": device, "out": np.zeros_like(image)}
    with pytest.raises(NonFiniteError, match="Frame 3 holds NaN"):
        gd.denoise(Stored(image), VIDEO, 20.0, **options)
    kept = gd.denoise(Stored(image), VIDEO, 20.0, nonfinite="keep", **options)
    np.testing.assert_array_equal(np.isnan(kept.image), np.isnan(image))
    assert kept.record.nonfinite == 2


@pytest.mark.parametrize("lazy", [False, True])
def test_a_place_that_does_not_fit_is_refused_before_any_work(device, lazy):
    image = noisy(4, 33, 37, dtype="uint16")
    source = Stored(image) if lazy else image
    for out, frames in (
        (np.zeros((4, 33, 38), "uint16"), None),
        (np.zeros((5, 33, 37), "uint16"), None),
        (np.zeros((4, 33, 37), "uint16"), 2),
        (np.zeros((4, 33, 37), "float32"), None),
        (Stored(np.zeros((4, 33, 37), "uint8")), None),
    ):
        with pytest.raises(ImageError, match="out= "):
            options = {"axes": "TYX", "frames": frames, "dtype": "same", "device": device}
            gd.denoise(source, VIDEO, 20.0, out=out, **options)
