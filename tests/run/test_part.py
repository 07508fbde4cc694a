"""However an image is cut into parts, and wherever these are filtered, they are as in the whole."""

from __future__ import annotations

import dataclasses
from itertools import pairwise, product

import numpy as np
import pytest

import napari_gpu_denoise as gd
from flows import part_steps
from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.opencl.program import Session, session
from napari_gpu_denoise.protocol.settings import setting_fields
from napari_gpu_denoise.run.input import Block
from napari_gpu_denoise.run.job import start
from napari_gpu_denoise.run.part import Part, filter_part, programs_of, warm_up
from napari_gpu_denoise.run.record import Tally
from napari_gpu_denoise.run.request import Run
from scenes import joining, needs_volume, noisy

LENGTHS = {"T": 4, "C": 2, "Z": 5, "Y": 61, "X": 57}


def cases():
    """Return each filter with axes that it joins, and with axes in another order."""
    for kind in FILTERS:
        axes = "ZYX" if needs_volume(kind) else "YX"
        joined = {spec.metadata["needs_axis"] for spec in setting_fields(kind)} - {None, *axes}
        for named in (axes, *(letter + axes for letter in sorted(joined)), "ZXYC"):
            yield pytest.param(kind, named, id=f"{kind.name}-{named}")


def image_of(axes: str, dtype="uint16") -> np.ndarray:
    """Return an image whose brightness differs between frames, and within each by another law."""
    image = noisy(*(LENGTHS[a] for a in axes))
    if "T" in axes:
        lamp = np.linspace(1, 1.4, 4).reshape([-1 if a == "T" else 1 for a in axes])
        image = image * lamp
        image[..., : LENGTHS["X"] // 2] += 10 * lamp**3
    return np.rint(np.clip(image, 0, 255)).astype(dtype)


def cut(job, seed: int) -> list[list[slice]]:
    """Cut an image at random, in a random order; channels that are joined stay together."""
    rng = np.random.default_rng(seed)
    along = []
    for axis, length in zip(job.names, job.shape, strict=True):
        most = 2 if len(job.names) < 4 else 1
        count = 0 if axis in "CS" and "C" in job.filter.joint else min(most, length - 1)
        places = rng.choice(np.arange(1, length), count, replace=False)
        ends = sorted({0, length, *places.tolist()})
        along.append([slice(*two) for two in pairwise(ends)])
    parts = [list(part) for part in product(*along)]
    rng.shuffle(parts)
    return parts


@pytest.mark.parametrize(("kind", "axes"), cases())
def test_any_cut_gives_what_the_whole_gives(kind, device, axes):
    settings, image = joining(kind, axes), image_of(axes)
    run = Run(settings, 20.0, axes=axes, device=device, dtype="int8")  # much is clipped
    block = Block.of(image, axes, "raise")
    job = start(run, block)
    expected = gd.denoise(image, settings, 20.0, axes=axes, device=device, dtype="int8")
    found, total = np.zeros(job.shape, np.int8), Tally()
    for yields in cut(job, len(axes)):
        part = Part.of(job, yields)
        total += filter_part(job, part, block[part.reads], found[part.yields])
    np.testing.assert_array_equal(found, expected.image)
    assert total.saturated == expected.record.saturated > 100


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
