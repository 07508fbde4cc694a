"""What a panel runs on a layer, called by hand."""

from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from _napari.inputs import Sliced, drive, over_time
from napari_gpu_denoise._napari.layers import arrays
from napari_gpu_denoise._napari.layers.source import Source
from napari_gpu_denoise._napari.run import Request, denoise_layer
from napari_gpu_denoise._napari.tasks import words_of
from napari_gpu_denoise.errors import Cancelled, SigmaError
from napari_gpu_denoise.filters import VBM3D, NLMeans
from napari_gpu_denoise.run import denoise as runs
from napari_gpu_denoise.run.request import Run
from scenes import IMAGE_FILTERS

pytestmark = pytest.mark.gui


def request(data, *, settings=None, sigma=5.0, axes=None, alpha=False, frame=None, **given):
    axes = axes or "." * (data.ndim - 2) + "YX"
    run = Run(settings or NLMeans(), sigma, axes=axes, **given)
    return Request(Source("stack", data, alpha=alpha), run, frame)


def outcome_of(given):
    return drive(denoise_layer, given)[1]


def test_an_outcome_is_that_of_the_filter(stack):
    steps, outcome = drive(denoise_layer, request(da.from_array(stack, chunks=(2, 30, 40))))
    assert_array_equal(outcome.result.image, runs.denoise(stack, NLMeans(), 5.0).image)
    words = list(map(words_of, steps))
    assert words[0].startswith("Reading: chunk 0 of ") and words[-1].startswith("Denoising: ")
    assert steps[-1].done == steps[-1].total > 0
    with pytest.raises(SigmaError, match="sigma=-1"):
        outcome_of(request(stack, sigma=-1.0))


@pytest.mark.parametrize("lazy", [False, True])
def test_steps_say_what_is_done(movie, lazy):
    fast = VBM3D.of(profile="fast")
    for sigma in (None, 9.0):
        given = request(Sliced(movie) if lazy else movie, settings=fast, sigma=sigma, axes="TYX")
        words = list(map(words_of, drive(denoise_layer, given)[0]))
        assert ("Measuring noise …" in words) == (sigma is None)
        assert words.index("Compiling …") < words.index("Denoising: frame 0 of 6")
    # Planes are not called frames.
    slices = np.stack([movie, movie], axis=1)[:, :, :24, :24]
    around = NLMeans(frames_before=1, window=5)
    for data, axes, last in ((slices, "TZYX", "plane 12 of 12"), (movie, "TYX", "frame 6 of 6")):
        steps, _ = drive(denoise_layer, request(data, settings=around, axes=axes))
        assert words_of(steps[-1]) == f"Denoising: {last}"


def settings_of(kind):
    """Settings that look along time where the filter can."""
    return NLMeans(frames_before=2, frames_after=1) if kind is NLMeans else kind()


@pytest.mark.parametrize("kind", IMAGE_FILTERS)
def test_lazy_frames_give_the_pixels_of_the_array(movie, kind):
    settings, sigma = settings_of(kind), None if kind in (NLMeans, VBM3D) else 8.0
    expected = runs.denoise(movie, settings, sigma, axes="TYX")
    data = Sliced(movie)
    given = request(data, settings=settings, sigma=sigma, axes="TYX")
    steps, outcome = drive(denoise_layer, given)
    assert outcome.folder is None
    assert_array_equal(outcome.result.image, expected.image)
    assert outcome.result.image.dtype == expected.image.dtype
    record, wanted = outcome.result.record.as_dict(), expected.record.as_dict()
    record.pop("date"), wanted.pop("date")
    assert record == wanted
    for first, *_ in data.read:
        assert isinstance(first, int) or first.stop - first.start == 1
    told = [(step.done, step.total) for step in steps if step.unit == "Denoising: frame"]
    assert told == [(k, 6) for k in range(7)]


@pytest.fixture
def in_parts(monkeypatch, limits):
    """Take all data for large, and make parts of one chunk."""
    monkeypatch.setattr(arrays, "_LOADED", 0)
    limits(part_bytes=1)


@pytest.mark.parametrize("chunks", [(2, 30, 40), ((2, 2, 2), (30, 30), (40, 40)), None])
@pytest.mark.parametrize("sigma", [None, 8.0])
def test_large_data_without_time_are_filtered_part_by_part(movie, in_parts, chunks, sigma):
    data = Sliced(movie, chunks)
    steps, outcome = drive(denoise_layer, request(data, sigma=sigma, axes="ZYX"))
    expected = runs.denoise(movie, NLMeans(), sigma, axes="ZYX")
    assert_array_equal(outcome.result.image, expected.image)
    assert outcome.result.record.sigma == expected.record.sigma
    assert max(movie[index].size for index in data.read) < movie.size / 2
    count = 6 if chunks is None else 3 * 2 * 2
    assert (steps[-1].done, steps[-1].total) == (count, count)


def test_large_data_stay_unread_where_one_slice_is_wanted(movie, in_parts):
    data = Sliced(movie, (1, 60, 80))
    outcome = outcome_of(replace(request(data, axes="ZYX"), slice=3))
    expected = runs.denoise(movie, NLMeans(), 5.0, axes="ZYX").image[3:4]
    assert_array_equal(outcome.result.image, expected)
    assert len(data.read) == 1


def test_alpha_of_large_data_passes_as_it_is(movie, in_parts):
    image = np.stack(movie[:4], axis=-1)
    outcome = outcome_of(request(Sliced(image, (30, 40, 4)), axes="YXS", alpha=True))
    expected = runs.denoise(image[..., :3], NLMeans(), 5.0, axes="YXS").image
    assert_array_equal(outcome.result.image[..., :3], expected)
    assert_array_equal(outcome.result.image[..., 3], image[..., 3])


@over_time
@pytest.mark.parametrize(("axes", "order"), [("TYX", (0, 1, 2)), ("YTX", (1, 0, 2))])
def test_one_lazy_frame_is_that_of_the_whole(movie, kind, axes, order):
    settings, turned = settings_of(kind), np.transpose(movie, order)
    expected = runs.denoise(turned, settings, axes=axes)
    for frame in (None, 0, 2, 5):
        given = request(Sliced(turned), settings=settings, sigma=None, axes=axes, frame=frame)
        result = outcome_of(given).result
        chosen = range(6) if frame is None else [frame]
        assert_array_equal(result.image, expected.image.take(chosen, axes.index("T")))
        assert result.record.sigma == expected.record.sigma
        assert result.record.sigma_source == expected.record.sigma_source


def test_one_frame_reads_only_what_the_filter_looks_at(movie):
    data = Sliced(np.tile(movie, (4, 1, 1)))
    settings = NLMeans(frames_before=2, frames_after=1)
    outcome_of(request(data, settings=settings, axes="TYX", frame=12))
    assert [index[0] for index in data.read] == [slice(10, 14)]
    data.read.clear()
    outcome_of(request(data, axes="TYX", frame=12))
    assert [index[0] for index in data.read] == [slice(12, 13)]


@over_time
@pytest.mark.parametrize(("frame", "dtype"), [(None, None), (2, "float32")])
def test_alpha_of_lazy_frames_passes_as_it_is(movie, kind, frame, dtype):
    rng = np.random.default_rng(4)
    alpha = rng.integers(0, 65536, movie.shape).astype(np.uint16)
    data = np.stack([movie, movie // 2, movie[:, ::-1], alpha], axis=-1)
    settings = settings_of(kind)
    sigma = None if dtype is None else 8.0  # what is measured does not depend on the result's type
    expected = runs.denoise(data[..., :3], settings, sigma, axes="TYXS", dtype=dtype, frames=frame)
    common = {"settings": settings, "sigma": sigma, "axes": "TYXS", "dtype": dtype}
    for given in (Sliced(data), data):
        result = outcome_of(request(given, **common, alpha=True, frame=frame)).result
        assert_array_equal(result.image[..., :3], expected.image)
        part = slice(None) if frame is None else slice(frame, frame + 1)
        assert_array_equal(result.image[..., 3], alpha[part])
        assert result.record.sigma == expected.record.sigma


@pytest.mark.parametrize("when", [3, 6])
def test_a_stop_is_heard_before_the_next_frame_is_read(movie, when):
    data = Sliced(np.tile(movie, (3, 1, 1)))
    given = request(data, settings=VBM3D(), axes="TYX")
    with pytest.raises(Cancelled):
        drive(denoise_layer, given, lambda: len(data.read) >= when)
    assert len(data.read) == when
