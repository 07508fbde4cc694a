"""Arrays that are not in memory: what is read of them, how often, and where the result goes."""

from __future__ import annotations

import weakref

import dask.array as da
import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.errors import ImageError, NonFiniteError
from napari_gpu_denoise.run.denoise import denoise_steps
from napari_gpu_denoise.run.record import COMPILING, Progress
from napari_gpu_denoise.run.request import Run
from scenes import bytes_per_pixel, noisy, small

VIDEO = small(gd.VBM3D, frames_before=2, frames_after=1)
ALL = {
    "vbm3d": VIDEO,
    "nl_means over time": small(gd.NLMeans, frames_before=1, frames_after=1),
    "nl_means": small(gd.NLMeans),
    "bm3d": small(gd.BM3D),
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


@pytest.mark.parametrize("axes", ["TYX", "CTYX"])
@pytest.mark.parametrize(("dtype", "times"), [("uint16", 1), ("uint8", 1), ("float32", 2)])
@pytest.mark.parametrize("name", ALL)
def test_each_frame_is_read_once_and_written_once(device, name, dtype, times, axes):
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
    # Of floats the range is needed first.
    assert frames_of(source.read, t) == list(range(9)) * times
    assert frames_of(sink.written, t) == list(range(9))


@pytest.mark.parametrize("name", ["vbm3d", "nl_means over time", "bm3d"])
def test_few_frames_are_in_memory(device, name, monkeypatch):
    source = Stored(noisy(70, 33, 37, dtype="uint16"))
    sink = Stored(np.zeros(source.shape, "uint16"))
    gd.denoise(source, ALL[name], 20.0, axes="TYX", out=sink, device=device)
    # As many as are taken at once, and those before and after: however long the series is.
    assert 0 < source.most <= 16 + 16 + 4


def test_noise_is_measured_in_few_frames(device):
    source = Stored(noisy(200, 64, 72, dtype="uint16"))
    sink = np.zeros(source.shape, "uint16")
    result = gd.denoise(source, ALL["nl_means"], axes="TYX", out=sink, device=device)
    assert result.record.sigma_source.startswith("estimated")
    assert len(source.read) <= 200 + 24 + 64


def test_dask_and_memory_maps(device, tmp_path):
    image = noisy(8, 33, 37, dtype="uint16")
    expected = gd.denoise(image, VIDEO, 20.0, axes="TYX", device=device).image
    mapped = np.lib.format.open_memmap(tmp_path / "out.npy", "w+", "uint16", image.shape)
    lazy = da.from_array(image, chunks=(3, 20, 37))
    result = gd.denoise(lazy, VIDEO, 20.0, axes="TYX", out=mapped, device=device)
    assert result.image is mapped
    mapped.flush()
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected)
    # From a map into a map, in memory both.
    given = np.load(tmp_path / "out.npy", mmap_mode="r")
    again = np.lib.format.open_memmap(tmp_path / "again.npy", "w+", "uint16", image.shape)
    gd.denoise(given, VIDEO, 20.0, axes="TYX", out=again, device=device)
    np.testing.assert_array_equal(
        again, gd.denoise(expected, VIDEO, 20.0, axes="TYX", device=device).image
    )


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("axes", ["ZYX", "YX"])
def test_results_go_where_they_are_wanted_also_without_time(device, axes, lazy):
    image = noisy(*(3, 33, 37)[-len(axes) :], dtype="uint16")
    expected = gd.denoise(image, ALL["bm3d"], 20.0, axes=axes, device=device).image
    for out in (np.zeros_like(image), Stored(np.zeros_like(image))):
        source = Stored(image) if lazy else image
        result = gd.denoise(source, ALL["bm3d"], 20.0, axes=axes, device=device, out=out)
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
    steps = denoise_steps(source, Run(VIDEO, 20.0, axes="TYX", device=device), out=sink)
    told = list(steps)
    assert told[:6] == [Progress(k, 6, "frame read") for k in range(6)]
    assert told[6] == COMPILING
    assert told[7:] == [Progress(k, 6, "frame") for k in range(7)]
    sink.written.clear()
    steps = denoise_steps(source, Run(VIDEO, 20.0, axes="TYX", device=device), out=sink)
    while next(steps) != Progress(2, 6, "frame"):
        pass
    steps.close()
    assert frames_of(sink.written, 0) == [0, 1]


def test_what_is_not_finite_is_refused_or_kept(device):
    image = noisy(5, 33, 37)
    image[3, 4:6, 7] = np.nan
    options = {"axes": "TYX", "device": device}
    sink = np.zeros_like(image)
    with pytest.raises(NonFiniteError, match="2 of 6105 pixels"):
        gd.denoise(Stored(image), VIDEO, 20.0, out=sink, **options)
    kept = gd.denoise(Stored(image), VIDEO, 20.0, out=sink, nonfinite="keep", **options)
    expected = gd.denoise(image, VIDEO, 20.0, nonfinite="keep", **options)
    np.testing.assert_array_equal(sink, expected.image)
    assert kept.record.nonfinite == 2


def test_an_image_may_be_the_place_of_its_result(device):
    """Also in tiles, which read what others have written by then."""
    image, settings = noisy(3, 90, 94, dtype="uint16"), ALL["nl_means"]
    options = {
        "axes": "TYX",
        "device": device,
        "memory_limit": int(8192 * bytes_per_pixel(settings)),
    }
    expected = gd.denoise(image, settings, 20.0, **options).image
    gd.denoise(image, settings, 20.0, out=image, **options)
    np.testing.assert_array_equal(image, expected)


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
            gd.denoise(
                *(source, VIDEO, 20.0),
                axes="TYX",
                frames=frames,
                dtype="same",
                out=out,
                device=device,
            )
    swapped = np.zeros(image.shape, ">u2")
    gd.denoise(source, VIDEO, 20.0, axes="TYX", out=swapped, device=device)
    expected = gd.denoise(image, VIDEO, 20.0, axes="TYX", device=device).image
    np.testing.assert_array_equal(swapped, expected)
