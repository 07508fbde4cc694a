"""Chunked arrays, filtered part by part: as in memory, to the bit."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.errors import DeviceMemoryError, HostMemoryError
from napari_gpu_denoise.run.job import start
from napari_gpu_denoise.run.part import regions_of, size_of
from napari_gpu_denoise.run.request import BASE, HostMemory, Limits, Run
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
def many_parts(limits):
    """Divide even the smallest image."""
    limits(part_bytes=1)


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
# The range of all parts counts, where it is needed.
TYPES = {"planes": "float32", "slices": "float64", "uneven": "int32"}


@pytest.mark.parametrize("sigma", [20.0, None])
@pytest.mark.parametrize("name", CASES)
def test_parts_are_as_the_whole(name, sigma):
    settings, axes, shape, chunks = CASES[name]
    image = noisy(*shape, dtype=TYPES.get(name, "uint16"))
    if name in TYPES:
        gains = np.geomspace(1, 900, shape[0]).reshape(-1, *(1,) * (len(shape) - 1))
        image = (image * gains + 1e6).astype(image.dtype)
    out, given = Chunked(np.zeros_like(image), chunks), Chunked(image, chunks)
    result = gd.denoise(given, settings, sigma, axes=axes, out=out)
    expected = gd.denoise(image, settings, sigma, axes=axes, dtype=image.dtype)
    np.testing.assert_array_equal(out[...], expected.image)
    assert (out.written == 1).all()
    assert result.image is out
    for field in ("settings", "sigma", "axes", "saturated", "device"):
        assert getattr(result.record, field) == getattr(expected.record, field), field


def test_nan_at_the_end_of_what_a_part_reads_is_filled_as_in_the_whole():
    """What is nearest to it may lie beyond: the part reads further."""
    settings = gd.SWNLM(patch=3, window=7)
    for gap in range(14):
        image = noisy(40, 70)
        image[8:12, 34 - gap] = np.nan
        out = Chunked(np.zeros_like(image), (40, 35))
        options = {"nonfinite": "keep", "axes": "YX"}
        gd.denoise(Chunked(image, (40, 35)), settings, 20.0, out=out, **options)
        expected = gd.denoise(image, settings, 20.0, **options).image
        np.testing.assert_array_equal(out[...], expected, err_msg=str(gap))


def job_of(settings, shape, axes):
    return start(Run(settings, 20.0, axes=axes), Chunked(np.zeros(shape, np.uint16), shape))


def of_parts(job, nbytes: int):
    return replace(job, run=replace(job.run, limits=Limits(part_bytes=nbytes)))


def regions(job, unit, shares_cores=True):
    device = SimpleNamespace(shares_cores=shares_cores)
    return regions_of(job, size_of(job, unit, [device]))


def test_parts_are_whole_chunks_as_many_as_fit():
    job = job_of(small(gd.NLMeans), (4, 3, 256, 256), "TCYX")
    assert len(regions(job, (1, 1, 128, 128))) == 4 * 3 * 4
    job = of_parts(job, 4 * 256 * 256)  # a plane and its result
    assert len(regions(job, (1, 1, 128, 128))) == 4 * 3
    assert len(regions(job, (1, 1, 128, 128), shares_cores=False)) == 4  # three planes each
    job = of_parts(job, 1 << 40)
    assert regions(job, (1, 1, 128, 128)) == [tuple(slice(0, n) for n in job.shape)]


def test_frames_of_a_video_stay_together():
    job = job_of(VIDEO, (400, 2, 40, 40), "TCYX")
    found = regions(job, (1, 2, 20, 20))
    assert all((one[2], one[3]) == (slice(0, 40), slice(0, 40)) for one in found)
    frames = {one[0].stop - one[0].start for one in found}
    assert max(frames) >= 8 * sum(job.margins[0])


def in_memory(limit, given=True):
    return HostMemory(BASE + limit, given)


def limited(job, limit, given=True):
    return replace(job, run=replace(job.run, host_memory=in_memory(limit, given)))


def test_parts_stay_within_the_memory_of_the_machine():
    job = of_parts(job_of(small(gd.NLMeans), (4, 3, 256, 256), "TCYX"), 1 << 40)
    found = regions(limited(job, 1 << 22), (1, 1, 64, 64))
    assert len(found) > len(regions(job, (1, 1, 64, 64))) == 1
    held = max(4 * np.prod([s.stop - s.start for s in one]) for one in found)
    assert 8 * held <= 1 << 22


def test_a_limit_to_memory_that_is_too_small_is_refused():
    job = job_of(VIDEO, (400, 2, 40, 40), "TCYX")
    with pytest.raises(HostMemoryError, match="allow at least memory_limit_host="):
        regions(limited(job, 1 << 10), (1, 2, 40, 40))
    # What was chosen for the user refuses nothing.
    assert regions(limited(job, 1 << 10, given=False), (1, 2, 40, 40))
    # Frames are as many as fit.
    (frames, *_), *_ = regions(limited(job, 1 << 19), (1, 2, 40, 40))
    assert sum(job.margins[0]) <= frames.stop - frames.start < 40


def test_buffers_of_a_cpu_are_memory_of_the_machine(device):
    on_cpu, other = replace(device, kind="CPU"), replace(device, kind="GPU")
    host = in_memory(1 << 20)
    assert host.for_buffers([on_cpu], None) == 1 << 19
    assert host.for_buffers([on_cpu], 1000) == 1000
    assert host.for_buffers([other], None) is None
    assert in_memory(1 << 20, given=False).for_buffers([on_cpu], None) == 1 << 30
    with pytest.raises(HostMemoryError), host.of_buffers(None):
        raise DeviceMemoryError("too small", "allow more", code="memory-limit", needed=1 << 20)
    with pytest.raises(DeviceMemoryError), host.of_buffers(5):
        raise DeviceMemoryError("too small", "allow more", code="memory-limit", needed=1 << 20)
