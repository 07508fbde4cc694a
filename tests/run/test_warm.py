"""Programs of a filter, built before there is an image."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.opencl.program import Session, session
from napari_gpu_denoise.run.job import prepare
from napari_gpu_denoise.run.part import programs_of, warm_up
from napari_gpu_denoise.run.request import Run


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
        job = prepare(Run(settings, 5.0, axes="TYX", device=posing), image)
        assert set(programs_of(job, image.dtype, job.dtypes[1])) <= set(built)
    assert len(set(built)) == len(built)


def test_a_cpu_is_left_alone(device, built):
    warm_up(gd.DCT3D(), dataclasses.replace(device, kind="CPU"))
    assert not built


def test_a_rehearsal_leaves_nothing_behind(device, arenas):
    posing = dataclasses.replace(device, kind="discrete GPU")
    image = np.full((9, 30, 20), 50, np.float32)
    job = prepare(Run(gd.DCT3D(), 5.0, axes="ZYX", device=posing), image)
    before = set(session(posing).programs)
    assert programs_of(job, image.dtype, job.dtypes[1])
    assert set(session(posing).programs) == before
    assert not any(arena.nbytes for arena in arenas)
