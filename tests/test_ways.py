"""A filter gives the same pixels by every way to run it.

Each case combines what goes wrong together: odd sizes, several tiles and chunks, channels, frames
whose noise differs, and one of whose first channel has none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import fields, replace
from typing import NamedTuple

import dask.array as da
import numpy as np
import pytest
import tifffile

import napari_gpu_denoise as gd
from flows import finish
from napari_gpu_denoise.files import one_file, resuming
from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.run import parts as parts_of_images
from napari_gpu_denoise.run.input import Block
from napari_gpu_denoise.run.job import prepare
from napari_gpu_denoise.run.part import filter_part
from napari_gpu_denoise.run.parts import Part
from napari_gpu_denoise.run.request import Run
from scenes import cut, joining, needs_volume, noisy


class Case(NamedTuple):
    """A filter, an image, and the noise of its planes."""

    filter: object
    image: np.ndarray
    axes: str
    sigma: np.ndarray
    device: object

    def whole(self) -> np.ndarray:
        """Return the result in memory, as one part."""
        return gd.denoise(self.image, self.filter, self.sigma, **self.named()).image

    def named(self) -> dict:
        return {"axes": self.axes, "device": self.device}


JOINT = [
    kind
    for kind in FILTERS
    for spec in fields(kind)
    if spec.name == "channels" and "joint" in spec.metadata["choices"]
]


@pytest.fixture(
    params=[(kind, {}) for kind in FILTERS] + [(kind, {"channels": "joint"}) for kind in JOINT],
    ids=lambda one: "-".join([one[0].name, *one[1].values()]),
)
def case(request, device) -> Case:
    kind, changes = request.param
    axes = "TZYX" if needs_volume(kind) else "TCYX"
    settings = joining(kind, axes.replace("Z", ""), **changes)
    planes = (4, 6) if needs_volume(kind) else (5, 2)
    image = noisy(*planes, 61, 57, dtype="uint16")
    sigma = 12.0 + 2 * np.arange(np.prod(planes, dtype=int)).reshape(planes)
    if needs_volume(kind):
        # Slices that are filtered together share their noise.
        sigma[:] = sigma[:, :1]
    else:
        sigma[1, 0] = 0
    return Case(settings, image, axes, sigma, device)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """Divide even small images, and note each part at once."""
    monkeypatch.setattr(one_file, "STREAMED_BYTES", 0)
    monkeypatch.setattr(parts_of_images, "PART_BYTES", 1)
    monkeypatch.setattr(parts_of_images, "_FRAMES_PER_MARGIN", 1)
    monkeypatch.setattr(parts_of_images, "_SMALLEST_PART", 1 << 10)
    monkeypatch.setattr(resuming, "_SECONDS", 0)
    monkeypatch.setattr(resuming, "_SHARE", float("inf"))


def by_function(case: Case, folder) -> np.ndarray:
    function = getattr(gd, case.filter.name)
    return function(case.image, case.sigma, settings=case.filter, **case.named())


def in_tiles(case: Case, folder) -> np.ndarray:
    limit = cut(case.filter, slices=case.image.shape[1])
    named = case.named() | {"memory_limit": limit}
    return gd.denoise(case.image, case.filter, case.sigma, **named).image


def in_place(case: Case, folder) -> np.ndarray:
    image = case.image.copy()
    named = case.named() | {"memory_limit": cut(case.filter, slices=image.shape[1])}
    return gd.denoise(image, case.filter, case.sigma, out=image, **named).image


def chunks_of(case: Case) -> tuple[int, ...]:
    return (2, 1, 30, 40) if case.axes == "TCYX" else (2, 4, 30, 40)


def from_chunks_to_an_array(case: Case, folder) -> np.ndarray:
    out = np.zeros_like(case.image)
    image = da.from_array(case.image, chunks=chunks_of(case))
    gd.denoise(image, case.filter, case.sigma, out=out, **case.named())
    return out


def lazily(case: Case, folder) -> np.ndarray:
    image = da.from_array(case.image, chunks=chunks_of(case))
    return gd.denoise_lazy(image, case.filter, case.sigma, **case.named()).compute()


def as_a_stream(case: Case, folder) -> np.ndarray:
    named = case.named() | {"axes": case.axes[1:]}
    frames = gd.stream(case.filter, iter(case.image), lambda k: case.sigma[k], **named)
    return np.array(list(frames))


def as_a_live_stream(case: Case, folder) -> np.ndarray:
    named = case.named() | {"axes": case.axes[1:], "live": True}
    frames = gd.stream(case.filter, iter(case.image), lambda k: case.sigma[k], **named)
    return np.array(list(frames))


def frame_by_frame(case: Case, folder) -> np.ndarray:
    made = [
        gd.denoise(case.image, case.filter, case.sigma, frames=k, **case.named()).image
        for k in range(len(case.image))
    ]
    return np.concatenate(made)


def on_two_devices(case: Case, folder) -> np.ndarray:
    twin = replace(case.device, index=case.device.index + 100)
    named = case.named() | {"device": (case.device, twin)}
    return gd.denoise(case.image, case.filter, case.sigma, **named).image


def in_parts(case: Case, folder) -> np.ndarray:
    """Parts in the reverse order, as other processes might filter them."""
    block = Block.of(case.image, case.axes, "raise")
    job = prepare(Run(case.filter, case.sigma, **case.named()), block)
    out = np.zeros_like(case.image)
    for start in reversed(range(0, len(case.image), 2)):
        part = Part.of(job, [slice(start, start + 2), *(slice(0, n) for n in job.shape[1:])])
        finish(filter_part(job, part, block[part.reads], out[part.yields]))
    return out


def written(case: Case, folder):
    path = folder / "in.tif"
    tifffile.imwrite(path, case.image, metadata={"axes": case.axes})
    return path


def in_a_batch(case: Case, folder) -> np.ndarray:
    target = folder / "out.tif"
    named = case.named() | {"output": target}
    report = gd.run_batch(written(case, folder), case.filter, case.sigma, **named)
    assert not report.failed, report.failed
    return gd.read(target).data


def resumed(case: Case, folder) -> np.ndarray:
    """Stop after the first part, and go on."""
    path, target, cancel = written(case, folder), folder / "out.tif", threading.Event()
    named = case.named() | {"output": target}
    plain = resuming.ResumeLedger.wrote

    def stop(self, *given):
        plain(self, *given)
        cancel.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resuming.ResumeLedger, "wrote", stop)
        report = gd.run_batch(path, case.filter, case.sigma, cancel=cancel, **named)
        assert report.cancelled and not target.exists()
    report = gd.run_batch(path, case.filter, case.sigma, resume=True, **named)
    assert not report.failed, report.failed
    return gd.read(target).data


WAYS: tuple[Callable[[Case, object], np.ndarray], ...] = (
    by_function,
    in_tiles,
    in_place,
    from_chunks_to_an_array,
    lazily,
    as_a_stream,
    as_a_live_stream,
    frame_by_frame,
    on_two_devices,
    in_parts,
    in_a_batch,
    resumed,
)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_every_way_gives_the_same_pixels(case, way, tmp_path):
    expected, given = case.whole(), case.image.copy()
    made = way(case, tmp_path)
    assert made.dtype == expected.dtype
    np.testing.assert_array_equal(made, expected)
    np.testing.assert_array_equal(case.image, given)
