"""A region of an image alone: the pixels are those of a run of everything."""

from __future__ import annotations

import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.protocol.settings import setting_fields
from napari_gpu_denoise.run.input import Block
from napari_gpu_denoise.run.job import prepare
from napari_gpu_denoise.run.part import Part, filter_part, finish
from napari_gpu_denoise.run.request import Run
from scenes import joining, needs_volume, noisy

SPANS = {"T": slice(2, 3), "Z": slice(4, 5), "C": slice(0, 2), "Y": slice(19, 40)}
LENGTHS = {"T": 5, "Z": 9, "C": 2, "Y": 61, "X": 71}


def cases():
    for kind in FILTERS:
        axes = "ZYX" if needs_volume(kind) else "YX"
        yield pytest.param(kind, axes, id=f"{kind.name}-{axes}")
        changes = {each.metadata["needs_axis"] for each in setting_fields(kind)}
        for letter in sorted(changes - {None}):
            named = letter + axes
            if letter not in axes:
                yield pytest.param(kind, named, id=f"{kind.name}-{named}")


def region_alone(image, run, spans):
    """Filter a region with the noise and levels of the whole, reading only what is needed."""
    whole = Block.of(image, run.axes, "raise")
    job = prepare(run, whole)
    part = Part.of(job, spans)
    out = np.empty([one.stop - one.start for one in spans], job.dtypes[1])
    finish(filter_part(job, part, whole[part.reads], out))
    return out


@pytest.mark.parametrize(("kind", "axes"), cases())
def test_regions_are_those_of_the_whole(kind, axes, device):
    shape = tuple(LENGTHS[a] for a in axes)
    image = noisy(*shape).astype(np.float32)
    if "T" in axes:
        # Brightness differs between frames, and within each: a part has another change.
        place = axes.index("T")
        lamp = np.linspace(1, 1.4, shape[place]).reshape([-1 if a == "T" else 1 for a in axes])
        image = image * lamp.astype(np.float32)
        image[..., : shape[-1] // 2] += 10 * lamp.astype(np.float32) ** 3
    spans = [SPANS.get(a, slice(30, 55)) for a in axes]
    run = Run(joining(kind, axes), 12.0, axes=axes, device=device)
    whole = gd.denoise(image, run.filter, 12.0, axes=axes, device=device).image
    np.testing.assert_array_equal(region_alone(image, run, spans), whole[tuple(spans)])


def test_slices_of_volumes_over_time_are_those_of_the_whole(device):
    image = noisy(3, 9, 20, 22) * np.linspace(1, 1.5, 9, dtype=np.float32)[:, None, None]
    image *= np.linspace(1, 2, 3, dtype=np.float32)[:, None, None, None]
    image[1, 4:] *= 1.3
    settings = joining(gd.BM4D, "T")
    options = {"axes": "TZYX", "device": device}
    whole = gd.denoise(image, settings, 12, **options).image
    one = gd.denoise(image, settings, 12, slices=slice(0, 2), frames=1, **options).image
    np.testing.assert_array_equal(one, whole[1:2, 0:2])
