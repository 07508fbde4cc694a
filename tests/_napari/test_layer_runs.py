"""What a panel runs on a layer, called by hand."""

import dask.array as da
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from _napari.inputs import Sliced, drive
from napari_gpu_denoise._napari.layers import arrays
from napari_gpu_denoise._napari.layers.source import Source
from napari_gpu_denoise._napari.run import Request, denoise_layer
from napari_gpu_denoise._napari.tasks import words_of
from napari_gpu_denoise.filters import VBM3D, NLMeans
from napari_gpu_denoise.run import denoise as runs
from napari_gpu_denoise.run.request import Run

AROUND = NLMeans(frames_before=2, frames_after=1, window=5)
FAST = VBM3D.of(profile="fast")


def request(data, axes, settings=AROUND, sigma=8.0, *, alpha=False, dtype=None, **cut):
    run = Run(settings, sigma, axes=axes, dtype=dtype)
    return Request(Source("stack", data, alpha=alpha), run, cut)


@pytest.fixture
def in_parts(monkeypatch, limits):
    """Take all data that are not in memory for large, and make parts of one chunk."""
    monkeypatch.setattr(arrays, "is_read_by_parts", lambda data, _: arrays.is_lazy(data))
    limits(part_bytes=1)


@pytest.mark.parametrize(
    ("axes", "settings", "sigma", "cut", "planes", "chunks"),
    [
        ("TYX", AROUND, None, {}, 6, None),
        ("TYX", AROUND, None, {}, 6, (2, 40, 48)),
        ("TYX", AROUND, 8.0, {"frames": 3}, 4, None),
        ("YTX", AROUND, None, {"frames": 0}, 6, None),
        ("TYX", FAST, None, {}, 6, None),
        ("TYX", FAST, None, {"frames": 5}, 6, None),
        ("ZYX", NLMeans(), None, {}, 6, None),
        ("ZYX", NLMeans(), 8.0, {}, 6, (2, 30, 40)),
        ("ZYX", NLMeans(), 8.0, {"slices": 3}, 1, None),
    ],
)
def test_what_is_not_in_memory_is_filtered_as_if_it_were(
    movie, in_parts, axes, settings, sigma, cut, planes, chunks
):
    along = max(axes.find("T"), 0)
    image = np.moveaxis(movie, 0, along)
    data = Sliced(image, chunks)
    given = request(data, axes, settings, sigma, **cut)
    steps, outcome = drive(denoise_layer, given)
    expected = runs.denoise(image, settings, sigma, axes=axes)
    assert outcome.folder is None and outcome.result.image.dtype == expected.image.dtype
    assert_array_equal(outcome.result.image, expected.image[given.index])
    found, wanted = outcome.result.record, expected.record
    assert (found.sigma, found.sigma_source) == (wanted.sigma, wanted.sigma_source)
    # Never much of it at a time, but for chunks of frames with those around them: here all.
    most = planes if cut or (chunks and "T" in axes) else 2
    assert max(image[index].size for index in data.read) <= image.size * most / 6
    places = np.arange(6)
    assert len({p for index in data.read for p in np.ravel(places[index[along]])}) == planes
    assert steps[-1].done == steps[-1].total > 0


@pytest.mark.parametrize(
    ("axes", "sigma", "given"),
    [
        ("TYXS", None, {}),
        ("TYXS", 8.0, {"frames": 2, "dtype": "float32"}),
        ("YXS", 8.0, {}),
    ],
)
def test_alpha_passes_as_it_is(movie, in_parts, axes, sigma, given):
    colours = (movie, movie // 2, movie[:, ::-1], movie[::-1])
    data = np.stack(colours, axis=-1)[0 if axes == "YXS" else ...]
    dtype, settings = given.get("dtype"), AROUND if "T" in axes else NLMeans()
    expected = runs.denoise(data[..., :3], settings, sigma, axes=axes, dtype=dtype)
    for source in (data, Sliced(data, (30, 40, 4) if axes == "YXS" else None)):
        asked = request(source, axes, settings, sigma, alpha=True, **given)
        result = drive(denoise_layer, asked)[1].result
        assert_array_equal(result.image[..., :3], expected.image[asked.index[:-1]])
        assert_array_equal(result.image[..., 3], data[asked.index][..., 3])
        assert result.record.sigma == expected.record.sigma


@pytest.mark.parametrize("lazy", [False, True])
def test_steps_say_what_is_done(movie, lazy):
    around, planes = NLMeans(frames_before=1, window=5), movie[:, None, :24, :24].repeat(2, axis=1)
    for data, axes, settings, sigma, first, last in (
        (movie, "TYX", FAST, None, "frame 0 of 6", "frame 6 of 6"),
        (movie, "TYX", FAST, 9.0, "frame 0 of 6", "frame 6 of 6"),
        (planes, "TZYX", around, 9.0, "", "plane 12 of 12"),  # which are not called frames
    ):
        given = request(Sliced(data) if lazy and first else data, axes, settings, sigma)
        words = list(map(words_of, drive(denoise_layer, given)[0]))
        assert ("Measuring noise …" in words) == (sigma is None)
        if first:
            assert words.index("Compiling …") < words.index(f"Denoising: {first}")
        assert words[-1] == f"Denoising: {last}"


def test_small_data_are_read_first(stack):
    lazy = da.from_array(stack, (2, 30, 40))
    steps, outcome = drive(denoise_layer, request(lazy, "ZYX", NLMeans()))
    assert words_of(steps[0]) == "Reading …"
    assert_array_equal(outcome.result.image, runs.denoise(stack, NLMeans(), 8.0).image)
