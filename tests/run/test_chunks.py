"""Chunks proposed for a filter, and what their margins cost."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.errors import AxesError, SettingsError
from napari_gpu_denoise.run import lazy
from scenes import noisy, small


def test_the_overhead_is_what_is_read_more_than_yielded(device, monkeypatch):
    read, plain = [], lazy.filter_part

    def filter_part(job, part, block, out):
        read.append(block.given.size)
        return plain(job, part, block, out)

    monkeypatch.setattr(lazy, "filter_part", filter_part)
    image = noisy(2, 90, 70)
    array, filter = da.from_array(image, chunks=(1, (40, 40, 10), 35)), small(gd.NLMeans)
    # Chunks smaller than the margin are joined; here none is.
    assert max(filter.reach.y) <= 10
    gd.nl_means(array, 20, settings=filter, device=device).compute()
    told = gd.propose_chunks(array, filter)
    assert told.present == pytest.approx(sum(read) / image.size - 1)
    assert told.overhead == 0
    assert told.chunks == image.shape


def test_chunks_grow_until_they_take_the_bytes():
    array = da.zeros((100, 4096, 4096), dtype="uint16", chunks=(1, 256, 256))
    filter = gd.BM3D()
    told = [gd.propose_chunks(array, filter, axes="TYX", nbytes=f"{n}M") for n in (1, 8, 64, 512)]
    assert {n % 256 for one in told for n in one.chunks[1:]} == {0}
    # Frames, which have no margin, come last.
    assert [one.chunks[0] for one in told] == [1, 1, 1, 4]
    assert [one.overhead for one in told] == sorted((one.overhead for one in told), reverse=True)
    for one, most in zip(told[1:], (8, 64, 512), strict=True):
        assert most / 4 < one.nbytes / 2**20 <= most
    assert told[0].chunks == (1, 256, 256)
    assert told[0].overhead == pytest.approx(told[0].present)
    assert f"they add {told[0].overhead:.0%} to the work" in str(told[0])


def test_axes_that_are_not_cut_stay_whole():
    array = np.empty((3, 40, 300, 400), np.uint8)
    told = gd.propose_chunks(array, gd.VBM3D(), axes="CTYX", nbytes="1M")
    assert told.chunks[2:] == (300, 400)
    assert told.chunks[1] >= max(told.margins[1])
    assert told.present is None
    assert told.margins[0] == (0, 0)
    joint = gd.propose_chunks(array, gd.BM3D(channels="joint"), axes="CTYX", nbytes="1M")
    assert joint.chunks[0] == 3


def test_what_does_not_fit_is_refused():
    with pytest.raises(SettingsError, match="is not a filter"):
        gd.propose_chunks(np.zeros((9, 9)), gd.BM3D)
    with pytest.raises(AxesError):
        gd.propose_chunks(np.zeros((9, 9)), gd.BM3D(), axes="TY")
    with pytest.raises(SettingsError):
        gd.propose_chunks(np.zeros((9, 9)), gd.BM3D(), nbytes="many")
