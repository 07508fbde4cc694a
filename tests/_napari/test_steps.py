"""The run as a generator, driven by hand."""

from dataclasses import replace

import dask.array as da
import numpy as np
import pytest

from _napari.lazy_data import Sliced, drive
from napari_gpu_denoise._napari.denoise.run import Request, steps
from napari_gpu_denoise._napari.layers import arrays
from napari_gpu_denoise._napari.layers.source import Source
from napari_gpu_denoise._napari.tasks import to_outcome
from napari_gpu_denoise.errors import Cancelled, DeviceMemoryError, NonFiniteError
from napari_gpu_denoise.filters import VBM3D, NLMeans
from napari_gpu_denoise.run import denoise as runs
from napari_gpu_denoise.run import part as parts_of_images
from napari_gpu_denoise.run import stream as streaming
from napari_gpu_denoise.run.record import Progress
from napari_gpu_denoise.run.request import Run
from scenes import IMAGE_FILTERS

pytestmark = pytest.mark.gui


def request(data, *, settings=None, sigma=5.0, axes=None, alpha=False, frame=None, **given):
    axes = axes or "." * (data.ndim - 2) + "YX"
    run = Run(settings or NLMeans(), sigma, axes=axes, **given)
    return Request(Source("stack", data, alpha=alpha), run, frame)


def with_data(given, data):
    """The request with other data."""
    return replace(given, source=replace(given.source, data=data))


def test_outcome_is_that_of_the_filter(stack):
    stages, outcome = drive(steps(request(da.from_array(stack, chunks=(2, 30, 40)))))
    np.testing.assert_array_equal(outcome.result.image, runs.denoise(stack, NLMeans(), 5.0).image)
    texts = [stage.text for stage in stages]
    assert texts[0].startswith("Reading") and texts[-1].startswith("Denoising")
    assert stages[-1].done == stages[-1].total > 0


def test_errors_are_returned(stack):
    _, outcome = drive(to_outcome(steps, request(stack, sigma=-1.0), lambda: False))
    assert outcome.value is None
    assert "sigma=-1" in str(outcome.error)


def test_an_outcome_has_value_and_time(stack):
    given = request(stack)
    _, outcome = drive(to_outcome(steps, given, lambda: False))
    assert outcome.error is None and outcome.seconds > 0 and outcome.request is given
    expected = runs.denoise(stack, NLMeans(), 5.0).image
    np.testing.assert_array_equal(outcome.value.result.image, expected)


def test_closing_closes_the_filter(stack, monkeypatch):
    closed = []

    def endless(*args, **kwargs):
        try:
            while True:
                yield Progress(0, 1)
        finally:
            closed.append(True)

    monkeypatch.setattr(runs, "denoise_steps", endless)
    running = steps(request(stack))
    for _ in range(4):
        next(running)
    running.close()
    assert closed == [True]


def settings_of(kind):
    """Settings that look along time where the filter can."""
    return NLMeans(frames_before=2, frames_after=1) if kind is NLMeans else kind()


@pytest.mark.parametrize("kind", IMAGE_FILTERS)
@pytest.mark.parametrize("sigma", [None, 8.0])
def test_lazy_frames_give_the_pixels_of_the_array(movie, kind, sigma):
    settings = settings_of(kind)
    expected = runs.denoise(movie, settings, sigma, axes="TYX")
    data = Sliced(movie)
    given = request(data, settings=settings, sigma=sigma, axes="TYX")
    stages, outcome = drive(steps(given))
    assert outcome.folder is None
    np.testing.assert_array_equal(outcome.result.image, expected.image)
    assert outcome.result.image.dtype == expected.image.dtype
    record, wanted = outcome.result.record.as_dict(), expected.record.as_dict()
    record.pop("date"), wanted.pop("date")
    assert record == wanted
    for first, *_ in data.read:
        assert isinstance(first, int) or first.stop - first.start == 1
    told = [(stage.done, stage.total) for stage in stages if stage.text == "Denoising: frame"]
    assert told == [(k, 6) for k in range(7)]


@pytest.fixture
def in_parts(monkeypatch):
    """Take all data for large, and make parts of one chunk."""
    monkeypatch.setattr(arrays, "_LOADED", 0)
    monkeypatch.setattr(parts_of_images, "PART_BYTES", 1)


@pytest.mark.parametrize("chunks", [(2, 30, 40), ((2, 2, 2), (30, 30), (40, 40)), None])
@pytest.mark.parametrize("sigma", [None, 8.0])
def test_large_data_without_time_are_filtered_part_by_part(movie, in_parts, chunks, sigma):
    data = Sliced(movie, chunks)
    stages, outcome = drive(steps(request(data, sigma=sigma, axes="ZYX")))
    expected = runs.denoise(movie, NLMeans(), sigma, axes="ZYX")
    np.testing.assert_array_equal(outcome.result.image, expected.image)
    assert outcome.result.record.sigma == expected.record.sigma
    assert max(movie[index].size for index in data.read) < movie.size / 2
    count = 6 if chunks is None else 3 * 2 * 2
    assert (stages[-1].done, stages[-1].total) == (count, count)


def test_large_data_stay_unread_where_one_slice_is_wanted(movie, in_parts):
    data = Sliced(movie, (1, 60, 80))
    given = replace(request(data, axes="ZYX"), slice=3)
    _, outcome = drive(steps(given))
    expected = runs.denoise(movie, NLMeans(), 5.0, axes="ZYX").image[3:4]
    np.testing.assert_array_equal(outcome.result.image, expected)
    assert len(data.read) == 1


def test_alpha_of_large_data_passes_as_it_is(movie, in_parts):
    image = np.stack([movie[0], movie[1], movie[2], movie[3]], axis=-1)
    _, outcome = drive(steps(request(Sliced(image, (30, 40, 4)), axes="YXS", alpha=True)))
    expected = runs.denoise(image[..., :3], NLMeans(), 5.0, axes="YXS").image
    np.testing.assert_array_equal(outcome.result.image[..., :3], expected)
    np.testing.assert_array_equal(outcome.result.image[..., 3], image[..., 3])


@pytest.mark.parametrize("kind", IMAGE_FILTERS)
@pytest.mark.parametrize("frame", [0, 2, 5])
def test_one_lazy_frame_is_that_of_the_whole(movie, kind, frame):
    settings = settings_of(kind)
    expected = runs.denoise(movie, settings, axes="TYX")
    given = request(Sliced(movie), settings=settings, sigma=None, axes="TYX", frame=frame)
    _, outcome = drive(steps(given))
    np.testing.assert_array_equal(outcome.result.image, expected.image[frame : frame + 1])
    assert outcome.result.record.sigma == expected.record.sigma
    assert outcome.result.record.sigma_source == expected.record.sigma_source
    _, in_memory = drive(steps(with_data(given, movie)))
    np.testing.assert_array_equal(in_memory.result.image, outcome.result.image)


@pytest.mark.parametrize("kind", [NLMeans, VBM3D])
@pytest.mark.parametrize("before", [0, 2])
def test_the_first_and_the_last_frame_alone_are_still_those_of_a_movie(movie, kind, before):
    # Nothing may be left around them: a stack of one frame is filtered.
    settings = kind(frames_before=before, frames_after=2 - before)
    expected = runs.denoise(movie, settings, 9.0, axes="TYX").image
    for frame in (0, 5):
        given = request(Sliced(movie), settings=settings, sigma=9.0, axes="TYX", frame=frame)
        _, outcome = drive(steps(given))
        np.testing.assert_array_equal(outcome.result.image[0], expected[frame])


def test_one_frame_reads_only_what_the_filter_looks_at(movie):
    data = Sliced(np.tile(movie, (4, 1, 1)))
    settings = NLMeans(frames_before=2, frames_after=1)
    drive(steps(request(data, settings=settings, axes="TYX", frame=12)))
    assert [index[0] for index in data.read] == [slice(10, 14)]
    data.read.clear()
    drive(steps(request(data, axes="TYX", frame=12)))
    assert [index[0] for index in data.read] == [slice(12, 13)]


@pytest.mark.parametrize("kind", IMAGE_FILTERS)
@pytest.mark.parametrize(("axes", "order"), [("YXT", (1, 2, 0)), ("YTX", (1, 0, 2))])
def test_time_may_be_any_axis(movie, kind, axes, order):
    settings, turned = settings_of(kind), np.transpose(movie, order)
    expected = runs.denoise(turned, settings, 9.0, axes=axes).image
    given = request(Sliced(turned), settings=settings, sigma=9.0, axes=axes)
    np.testing.assert_array_equal(drive(steps(given))[1].result.image, expected)
    _, outcome = drive(steps(replace(given, frame=3)))
    t = axes.index("T")
    np.testing.assert_array_equal(outcome.result.image, expected.take([3], axis=t))


@pytest.mark.parametrize("kind", IMAGE_FILTERS)
@pytest.mark.parametrize("axes", ["TCYX", "CTYX", "TZYX"])
def test_frames_may_have_channels_and_slices(movie, kind, axes):
    settings = settings_of(kind)
    other = movie[:, ::-1] // 2
    stack = np.stack([movie, other], axis=axes.index("T") == 0)
    expected = runs.denoise(stack, settings, axes=axes)
    given = request(Sliced(stack), settings=settings, sigma=None, axes=axes)
    _, outcome = drive(steps(given))
    np.testing.assert_array_equal(outcome.result.image, expected.image)
    assert outcome.result.record.sigma == expected.record.sigma
    _, outcome = drive(steps(replace(given, frame=4)))
    part = expected.image.take([4], axis=axes.index("T"))
    np.testing.assert_array_equal(outcome.result.image, part)


def test_a_sigma_for_each_frame(movie):
    sigma = (5.0, 9.0, 0.0, 12.0, 7.0, 3.0)
    settings = VBM3D(frames_before=1, frames_after=1)
    expected = runs.denoise(movie, settings, sigma, axes="TYX")
    given = request(Sliced(movie), settings=settings, sigma=sigma, axes="TYX")
    _, outcome = drive(steps(given))
    np.testing.assert_array_equal(outcome.result.image, expected.image)
    assert outcome.result.record.sigma == sigma
    _, outcome = drive(steps(replace(given, frame=3)))
    np.testing.assert_array_equal(outcome.result.image[0], expected.image[3])
    assert outcome.result.record.sigma == sigma


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.float32, np.float64])
def test_wide_types_are_scaled_as_the_whole(movie, dtype):
    data = movie.astype(dtype) * 1000
    data[0] = data[0].mean()
    expected = runs.denoise(data, VBM3D(), 1e4, axes="TYX").image
    given = request(Sliced(data), settings=VBM3D(), sigma=1e4, axes="TYX")
    _, outcome = drive(steps(given))
    np.testing.assert_array_equal(outcome.result.image, expected)


def test_nan_is_refused_or_kept_frame_by_frame(movie):
    data = movie.astype(np.float32)
    data[3, 4, 5] = np.nan
    given = request(Sliced(data), settings=VBM3D(), sigma=9.0, axes="TYX")
    with pytest.raises(NonFiniteError, match="1 of"):
        drive(steps(given))
    _, outcome = drive(steps(replace(given, run=replace(given.run, nonfinite="keep"))))
    assert np.flatnonzero(np.isnan(outcome.result.image)).tolist() == [(3 * 40 + 4) * 48 + 5]
    assert outcome.result.record.nonfinite == 1


@pytest.mark.parametrize("kind", IMAGE_FILTERS)
@pytest.mark.parametrize("frame", [None, 2])
@pytest.mark.parametrize("dtype", [None, "float32"])
def test_alpha_of_lazy_frames_passes_as_it_is(movie, kind, frame, dtype):
    rng = np.random.default_rng(4)
    alpha = rng.integers(0, 65536, movie.shape).astype(np.uint16)
    data = np.stack([movie, movie // 2, movie[:, ::-1], alpha], axis=-1)
    settings = settings_of(kind)
    sigma = None if dtype is None else 8.0  # what is measured does not depend on the result's type
    expected = runs.denoise(data[..., :3], settings, sigma, axes="TYXS", dtype=dtype, frames=frame)
    common = {"settings": settings, "sigma": sigma, "axes": "TYXS", "dtype": dtype}
    for given in (Sliced(data), data):
        _, outcome = drive(steps(request(given, **common, alpha=True, frame=frame)))
        result = outcome.result.image
        np.testing.assert_array_equal(result[..., :3], expected.image)
        part = slice(None) if frame is None else slice(frame, frame + 1)
        np.testing.assert_array_equal(result[..., 3], alpha[part])
        assert outcome.result.record.sigma == expected.record.sigma


@pytest.mark.parametrize("when", [3, 6])
def test_a_stop_is_heard_before_the_next_frame_is_read(movie, when):
    class Stopping(Sliced):
        def __getitem__(self, index):
            assert len(self.read) < when, "read after the stop"
            return super().__getitem__(index)

    data = Stopping(np.tile(movie, (3, 1, 1)))
    given = request(data, settings=VBM3D(), axes="TYX")
    with pytest.raises(Cancelled):
        drive(steps(given, lambda: len(data.read) >= when))
    assert len(data.read) == when


def test_frames_too_large_for_the_device_are_cut_if_the_stack_is_small(movie, monkeypatch):
    def tight(*args, **kwargs):
        raise DeviceMemoryError("A frame needs more.")
        yield

    monkeypatch.setattr(streaming.FrameStream, "__iter__", tight)
    given = request(Sliced(movie), settings=VBM3D(), axes="TYX")
    _, outcome = drive(steps(given))
    expected = runs.denoise(movie, VBM3D(), 5.0, axes="TYX").image
    np.testing.assert_array_equal(outcome.result.image, expected)
    monkeypatch.setattr(arrays, "LARGEST_IN_MEMORY", 1000)
    data = Sliced(movie)
    with pytest.raises(DeviceMemoryError):
        drive(steps(with_data(given, data)))
    assert not data.read


def test_a_large_result_is_kept_in_a_file(movie, monkeypatch, tmp_path):
    monkeypatch.setattr(arrays, "LARGEST_IN_MEMORY", 1000)
    monkeypatch.setattr(arrays, "_folder", lambda: str(tmp_path))
    given = request(Sliced(movie), settings=VBM3D(), axes="TYX")
    _, outcome = drive(steps(given))
    assert outcome.folder == str(tmp_path)
    assert arrays.is_lazy(outcome.result.image)
    expected = runs.denoise(movie, VBM3D(), 5.0, axes="TYX").image
    np.testing.assert_array_equal(outcome.result.image, expected)
    # It serves as the input of the next run.
    _, again = drive(steps(with_data(given, outcome.result.image)))
    expected = runs.denoise(expected, VBM3D(), 5.0, axes="TYX").image
    np.testing.assert_array_equal(again.result.image, expected)


def test_without_time_all_is_read(movie):
    data = Sliced(movie)
    _, outcome = drive(steps(request(data, axes="ZYX")))
    np.testing.assert_array_equal(
        outcome.result.image, runs.denoise(movie, NLMeans(), 5.0, axes="ZYX").image
    )
    assert len(data.read) == 1
