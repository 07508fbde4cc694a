"""Chunked arrays, filtered part by part: as in memory, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.errors import NonFiniteError
from napari_gpu_denoise.run import by_parts
from napari_gpu_denoise.run.by_parts import regions_of
from napari_gpu_denoise.run.job import Run, prepare
from scenes import noisy, small


class Chunked:
    """An array that is not in memory, stored in chunks; it notes what is read and written."""

    def __init__(self, data, chunks, shards=None):
        self._data, self.chunks, self.shards = data, chunks, shards
        self.shape, self.dtype, self.ndim = data.shape, data.dtype, data.ndim
        self.written = np.zeros(data.shape, int)
        self.largest = 0

    def __getitem__(self, index):
        found = self._data[index]
        self.largest = max(self.largest, found.size)
        return found.copy()

    def __setitem__(self, index, values):
        self._data[index] = values
        self.written[index] += 1


@pytest.fixture(autouse=True)
def many_parts(monkeypatch):
    """Divide even the smallest image."""
    monkeypatch.setattr(by_parts, "PART_BYTES", 1)


VIDEO = small(gd.VBM3D, frames_before=1, frames_after=1)
CASES = {
    "planes": (small(gd.NLMeans), "TCYX", (2, 2, 70, 90), (1, 1, 32, 48)),
    "one plane": (small(gd.BM3D), "YX", (90, 110), (40, 64)),
    "joint channels": (small(gd.BM3D, channels="joint"), "CZYX", (3, 2, 60, 60), (1, 1, 60, 60)),
    "volumes": (small(gd.BM4D), "ZYX", (14, 60, 60), (5, 32, 32)),
    "slices": (small(gd.NLMeans, slices=1), "ZYX", (5, 40, 40), (2, 40, 40)),
    "video": (VIDEO, "TCYX", (12, 2, 40, 40), (1, 1, 40, 40)),
    "uneven": (small(gd.NLMeans), "ZYX", (3, 45, 47), (2, 20, 30)),
}


@pytest.mark.parametrize("name", CASES)
def test_parts_are_as_the_whole(name):
    settings, axes, shape, chunks = CASES[name]
    image = noisy(*shape, dtype="uint16")
    out = Chunked(np.zeros(shape, np.uint16), chunks)
    given = Chunked(image, chunks)
    result = gd.denoise(given, settings, 20.0, axes=axes, out=out)
    expected = gd.denoise(image, settings, 20.0, axes=axes, dtype="uint16")
    np.testing.assert_array_equal(out[...], expected.image)
    assert (out.written == 1).all()
    assert result.image is out
    for field in ("settings", "sigma", "axes", "saturated", "device"):
        assert getattr(result.record, field) == getattr(expected.record, field), field


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_the_range_of_all_parts_counts(dtype):
    image = (noisy(3, 40, 50) * np.array([1, 30, 900])[:, None, None] + 1e6).astype(dtype)
    out = Chunked(np.zeros_like(image), (1, 40, 50))
    gd.denoise(Chunked(image, (1, 40, 50)), small(gd.NLMeans), 20.0, axes="ZYX", out=out)
    expected = gd.denoise(image, small(gd.NLMeans), 20.0, axes="ZYX", dtype=dtype)
    np.testing.assert_array_equal(out[...], expected.image)


def test_noise_is_measured_once_and_the_same():
    image = noisy(3, 64, 64, dtype="uint16")
    out = Chunked(np.zeros_like(image), (1, 64, 64))
    given = Chunked(image, (1, 64, 64))
    found = gd.denoise(given, small(gd.NLMeans), axes="ZYX", out=out, dtype="same")
    expected = gd.denoise(image, small(gd.NLMeans), axes="ZYX", dtype="same")
    assert found.record.sigma == expected.record.sigma
    np.testing.assert_array_equal(out[...], expected.image)


def test_nan_is_refused_or_kept():
    image = noisy(3, 40, 50)
    image[1, 3:5, 7] = np.nan
    out = Chunked(np.zeros_like(image), (1, 20, 50))
    given = Chunked(image, (1, 20, 50))
    with pytest.raises(NonFiniteError):
        gd.denoise(given, small(gd.NLMeans), 20.0, axes="ZYX", out=out)
    found = gd.denoise(given, small(gd.NLMeans), 20.0, axes="ZYX", out=out, nonfinite="keep")
    expected = gd.denoise(image, small(gd.NLMeans), 20.0, axes="ZYX", nonfinite="keep")
    np.testing.assert_array_equal(out[...], expected.image)
    assert found.record.nonfinite == 2


def job_of(settings, shape, axes):
    return prepare(Run(settings, 20.0, axes=axes), Chunked(np.zeros(shape, np.uint16), shape))


def test_parts_are_whole_chunks_as_many_as_fit(monkeypatch):
    job = job_of(small(gd.NLMeans), (4, 3, 256, 256), "TCYX")
    assert len(regions_of(job, (1, 1, 128, 128))) == 4 * 3 * 4
    monkeypatch.setattr(by_parts, "PART_BYTES", 4 * 256 * 256)  # a plane and its result
    assert len(regions_of(job, (1, 1, 128, 128))) == 4 * 3
    monkeypatch.setattr(by_parts, "PART_BYTES", 1 << 40)
    assert regions_of(job, (1, 1, 128, 128)) == [tuple(slice(0, n) for n in job.shape)]


def test_frames_of_a_video_stay_together():
    job = job_of(VIDEO, (400, 2, 40, 40), "TCYX")
    regions = regions_of(job, (1, 2, 20, 20))
    assert all((one[2], one[3]) == (slice(0, 40), slice(0, 40)) for one in regions)
    frames = {one[0].stop - one[0].start for one in regions}
    assert max(frames) >= 8 * sum(job.margin_along("T"))
