"""However an image is cut into parts, and wherever these are filtered, they are as in the whole."""

from __future__ import annotations

import dataclasses
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise, product

import numpy as np
import pytest

import napari_gpu_denoise as gd
from flows import filter_pickled, finish, part_steps
from napari_gpu_denoise.errors import NonFiniteError
from napari_gpu_denoise.opencl.program import Session, session
from napari_gpu_denoise.run.input import Block
from napari_gpu_denoise.run.job import prepare
from napari_gpu_denoise.run.part import Part, filter_part, programs_of, warm_up
from napari_gpu_denoise.run.record import Tally
from napari_gpu_denoise.run.request import Run
from scenes import IMAGE_FILTERS, joining, noisy

LENGTHS = {"T": 4, "C": 2, "Z": 2, "Y": 61, "X": 57}


@pytest.fixture(params=IMAGE_FILTERS, ids=lambda one: one.name)
def kind(request):
    return request.param


def settings_of(kind, axes: str):
    """Return settings whose frames may be cut: nothing is measured on whole frames."""
    settings = joining(kind, axes)
    return kind.of(settings, flicker=False) if settings.over_time else settings


def image_of(axes: str, dtype="uint8", seed: int = 0) -> np.ndarray:
    return noisy(*(LENGTHS[a] for a in axes), dtype=dtype, seed=seed)


def cut(job, seed: int, whole: str = "") -> list[list[slice]]:
    """Cut an image at random, in a random order, but along some axes."""
    rng = np.random.default_rng(seed)
    joined = "CS" if "C" in job.filter.joint else ""
    along = []
    for axis, length in zip(job.names, job.shape, strict=True):
        most = 2 if len(job.names) < 4 else 1
        count = 0 if axis in whole + joined else min(most, length - 1)
        places = rng.choice(np.arange(1, length), count, replace=False)
        ends = sorted({0, length, *places.tolist()})
        along.append([slice(*two) for two in pairwise(ends)])
    parts = [list(part) for part in product(*along)]
    rng.shuffle(parts)
    return parts


def in_parts(job, block: Block, parts) -> tuple[np.ndarray, Tally]:
    out, total = np.zeros(job.shape, job.dtypes[1]), Tally()
    for yields in parts:
        part = Part.of(job, yields)
        _, tally = finish(filter_part(job, part, block[part.reads], out[part.yields]))
        total += tally
    return out, total


@pytest.mark.parametrize(
    ("axes", "dtype"), [("YX", "uint16"), ("TYX", "uint8"), ("TCYX", "uint16"), ("ZXYC", "uint8")]
)
def test_any_cut_gives_what_the_whole_gives(kind, device, axes, dtype):
    settings, image = settings_of(kind, axes), image_of(axes, dtype)
    run = Run(settings, 20.0, axes=axes, device=device, dtype="int8")  # much is clipped
    block = Block.of(image, axes, "raise")
    job = prepare(run, block)
    expected = gd.denoise(image, settings, 20.0, axes=axes, device=device, dtype="int8")
    found, tally = in_parts(job, block, cut(job, len(axes)))
    np.testing.assert_array_equal(found, expected.image)
    assert tally.saturated == expected.record.saturated > 100


@pytest.mark.parametrize("count", [1, 2])
def test_models_of_noise_are_those_of_the_whole(kind, device, count):
    axes = "TCYX"
    settings, image = settings_of(kind, axes), image_of(axes, "uint16")
    noise = (gd.PoissonGaussian(2.0, 8.0, 3.0), gd.PoissonGaussian(1.0, 20.0))[:count]
    noise = noise[0] if count == 1 else noise
    block = Block.of(image, axes, "raise")
    job = prepare(Run(settings, noise=noise, axes=axes, device=device), block)
    expected = gd.denoise(image, settings, noise=noise, axes=axes, device=device).image
    found, _ = in_parts(job, block, cut(job, 3))
    np.testing.assert_array_equal(found, expected)


def test_brightness_needs_whole_frames_only(device):
    """Filters that compare the brightness of frames are cut along time, and between videos."""
    gain = np.linspace(1, 0.6, 6)[:, None, None, None]
    image = np.rint(gain * noisy(6, 2, 61, 57, sigma=8)).astype(np.uint8)
    for settings in (joining(gd.VBM3D, "T"), joining(gd.NLMeans, "T")):
        block = Block.of(image, "TZYX", "raise")
        job = prepare(Run(settings, 8.0, axes="TZYX", device=device), block)
        expected = gd.denoise(image, settings, 8.0, axes="TZYX", device=device).image
        found, _ = in_parts(job, block, cut(job, 5, whole="YX"))
        np.testing.assert_array_equal(found, expected)


def test_other_processes_filter_parts_that_are_sent_to_them(kind, device):
    axes = "TYX"
    settings, image = settings_of(kind, axes), image_of(axes, "uint16")
    job = prepare(Run(settings, 20.0, axes=axes, device=device), Block.of(image, axes, "raise"))
    parts = [Part.of(job, yields) for yields in cut(job, 1, whole="X")]
    sent = [pickle.dumps((job, part, image[part.reads])) for part in parts]
    assert not any(b"pyopencl" in one for one in sent)
    out = np.zeros_like(image)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        for part, made in zip(parts, pool.map(filter_pickled, sent), strict=True):
            out[part.yields] = made
    expected = gd.denoise(image, settings, 20.0, axes=axes, device=device).image
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("nonfinite", ["raise", "keep"])
def test_a_part_looks_only_at_its_own_pixels(device, nonfinite):
    image = image_of("YX", "float32")
    image[2, 2] = np.nan
    far = slice(40, 61), slice(40, 57)
    out = np.zeros((21, 17), np.float32)
    block = Block.of(image, "YX", nonfinite)
    run = Run(joining(gd.NLMeans, ""), 20.0, axes="YX", nonfinite=nonfinite, device=device)
    job = prepare(run, image)  # not looked at: each part has levels of its own
    part = Part.of(job, far)
    _, tally = finish(filter_part(job, part, block[part.reads], out))
    assert tally.nonfinite == 0
    near = Part.of(job, (slice(0, 9), slice(0, 9)))
    steps = filter_part(job, near, block[near.reads], np.zeros((9, 9), np.float32))
    if nonfinite == "keep":
        assert finish(steps)[1].nonfinite == 1
    else:
        with pytest.raises(NonFiniteError):
            finish(steps)


def test_planes_shorter_than_the_filter_takes_are_not_cut(device):
    image, settings = noisy(3, 5, 40), joining(gd.BM3D, "")
    job = prepare(Run(settings, 20.0, axes="TYX", device=device), Block.of(image, "TYX", "raise"))
    with pytest.raises(ValueError, match="axis Y of 5 pixels"):
        Part.of(job, (slice(0, 1), slice(0, 3), slice(0, 40)))
    expected = gd.denoise(image, settings, 20.0, axes="TYX", device=device).image
    out = np.empty_like(image[1:2, :, 7:30])
    part = slice(1, 2), slice(0, 5), slice(7, 30)
    finish(part_steps(image, settings, device, out, axes="TYX", part=part))
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
