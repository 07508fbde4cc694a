"""Parts of images: what is not cut, and what is built ahead. For pixels see tests/test_ways.py."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import napari_gpu_denoise as gd
from flows import part_steps
from napari_gpu_denoise.opencl.program import Session, session
from napari_gpu_denoise.run.input import Block
from napari_gpu_denoise.run.job import start
from napari_gpu_denoise.run.part import Part, programs_of, warm_up
from napari_gpu_denoise.run.request import Run
from scenes import joining, noisy


def test_planes_shorter_than_the_filter_takes_are_not_cut(device):
    image, settings = noisy(3, 5, 40), joining(gd.BM3D, "")
    job = start(Run(settings, 20.0, axes="TYX", device=device), Block.of(image, "TYX", "raise"))
    with pytest.raises(ValueError, match="axis Y of 5 pixels"):
        Part.of(job, (slice(0, 1), slice(0, 3), slice(0, 40)))
    expected = gd.denoise(image, settings, 20.0, axes="TYX", device=device).image
    out = np.empty_like(image[1:2, :, 7:30])
    part = slice(1, 2), slice(0, 5), slice(7, 30)
    part_steps(image, settings, device, out, axes="TYX", part=part)
    np.testing.assert_array_equal(out, expected[part])


@pytest.fixture
def built(monkeypatch) -> list:
    """Return what is built from here on; nothing is."""
    asked = []

    def build_all(session, keys, builders):
        asked.extend(keys)
        yield from ()

    monkeypatch.setattr(Session, "build_all", build_all)
    return asked


def test_a_gpu_gets_the_programs_of_a_run(device, built):
    posing = dataclasses.replace(device, kind="discrete GPU")
    settings = gd.NLMeans.of(profile="video")
    warm_up(settings, posing)
    for dtype in (np.float32, np.uint16):
        image = np.full((7, 30, 20), 50, dtype)
        job = start(Run(settings, 5.0, axes="TYX", device=posing), image)
        assert set(programs_of(job, image.dtype, job.dtypes[1])) <= set(built)
    assert len(set(built)) == len(built)


def test_a_cpu_is_left_alone(device, built):
    warm_up(gd.BM4D(), dataclasses.replace(device, kind="CPU"))
    assert not built


def test_a_rehearsal_leaves_nothing_behind(device, arenas):
    posing = dataclasses.replace(device, kind="discrete GPU")
    image = np.full((9, 30, 20), 50, np.float32)
    job = start(Run(gd.BM4D(), 5.0, axes="ZYX", device=posing), image)
    before = set(session(posing).programs)
    assert programs_of(job, image.dtype, job.dtypes[1])
    assert set(session(posing).programs) == before
    assert not any(arena.nbytes for arena in arenas)
