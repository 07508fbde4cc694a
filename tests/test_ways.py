"""A filter gives the same pixels by every way to run it.

Each case combines what goes wrong together: odd sizes, several tiles and chunks, channels, frames
whose noise differs, and one of whose first channel has none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property

import dask.array as da
import numpy as np
import pytest
import tifffile

import napari_gpu_denoise as gd
from flows import finish
from napari_gpu_denoise.files import one_file, resuming
from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.run import part as parts_of_images
from napari_gpu_denoise.run.input import Block
from napari_gpu_denoise.run.job import prepare
from napari_gpu_denoise.run.part import Part, filter_part
from napari_gpu_denoise.run.request import Run
from scenes import cut, frame, joining, needs_volume, noisy


@dataclass
class Case:
    """A filter, an image, and the noise of its planes, or a map of it."""

    filter: object
    image: np.ndarray
    axes: str
    sigma: np.ndarray
    device: object

    @cached_property
    def whole(self) -> np.ndarray:
        """The result in memory, as one part."""
        return gd.denoise(self.image, self.filter, self.sigma, **self.named()).image

    def named(self) -> dict:
        return {"axes": self.axes, "device": self.device}

    def chunked(self) -> da.Array:
        chunks = (2, 1, 90, 40) if self.axes == "TCYX" else (2, 4, 90, 40)
        return da.from_array(self.image, chunks=chunks)

    @property
    def streamed_sigma(self):
        return self.sigma if self.is_map else lambda frame: self.sigma[frame]

    @property
    def is_map(self) -> bool:
        return self.sigma.shape == self.image.shape[-2:]


def having(name: str, test: Callable) -> list[type]:
    return [kind for kind in FILTERS if any(s.name == name and test(s) for s in fields(kind))]


JOINT = having("channels", lambda spec: "joint" in spec.metadata["choices"])
SLICED = having("slices", lambda spec: spec.default == 0)
CASES = [(kind, {}) for kind in FILTERS] + [(kind, {"channels": "joint"}) for kind in JOINT]
CASES = [(kind, "TZYX" if needs_volume(kind) else "TCYX", changes) for kind, changes in CASES]
CASES += [(kind, "TZYX", {}) for kind in SLICED]


def named(one: tuple) -> str:
    kind, axes, changes = one
    return "-".join([kind.name, axes, *changes.values()])


def settings_of(kind, axes: str, changes: dict):
    return joining(kind, axes.replace("Z", "") if needs_volume(kind) else axes, **changes)


@pytest.fixture(params=CASES, ids=named, scope="module")
def case(request, device) -> Case:
    kind, axes, changes = request.param
    planes, settings = (4, 6) if "Z" in axes else (5, 2), settings_of(kind, axes, changes)
    image = noisy(*planes, *frame(settings), dtype="uint16")
    sigma = 12.0 + 2 * np.arange(np.prod(planes, dtype=int)).reshape(planes)
    if needs_volume(kind):
        # Slices that are filtered together share their noise.
        sigma[:] = sigma[:, :1]
    else:
        sigma[1, 0] = 0
    return Case(settings, image, axes, sigma, device)


@pytest.fixture(params=CASES, ids=named, scope="module")
def mapped(request, device) -> Case:
    """A case whose noise is a map: slopes, jumps and a hole."""
    kind, axes, changes = request.param
    settings = settings_of(kind, axes, changes)
    image = noisy(*((3, 5) if "Z" in axes else (3, 2)), *frame(settings))
    y, x = np.indices(image.shape[-2:])
    sigma = 5 + 10 * x / 57 + 15 * (y > 80)
    sigma[90:105, 14:21] = sigma[-1, 0] = 0
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


def limit_of(case: Case) -> int:
    limit = cut(case.filter, is_map=case.is_map, slices=case.image.shape[1])
    # A tile of joint channels has all of them.
    return limit * 4 // 3 if getattr(case.filter, "channels", "") == "joint" else limit


def in_tiles(case: Case, folder) -> np.ndarray:
    totals, cut_into = [], []
    given = case.image, case.filter, case.sigma
    gd.denoise(*given, **case.named(), progress=lambda done, total: totals.append(total))
    made = gd.denoise(
        *given,
        **case.named(),
        memory_limit=limit_of(case),
        progress=lambda done, total: cut_into.append(total),
    )
    assert cut_into[-1] > totals[-1], "nothing was cut"
    return made.image


def in_place(case: Case, folder) -> np.ndarray:
    image = case.image.copy()
    named = case.named() | {"memory_limit": limit_of(case)}
    return gd.denoise(image, case.filter, case.sigma, out=image, **named).image


def from_chunks_to_an_array(case: Case, folder) -> np.ndarray:
    out = np.zeros_like(case.image)
    gd.denoise(case.chunked(), case.filter, case.sigma, out=out, **case.named())
    return out


def lazily(case: Case, folder) -> np.ndarray:
    lazy = gd.denoise_lazy(case.chunked(), case.filter, case.sigma, **case.named())
    assert isinstance(lazy, da.Array)
    # Filters over time see frames as a whole, and these are few.
    assert lazy.npartitions > 1 or "T" in case.filter.joint
    assert (lazy.shape, lazy.dtype) == (case.image.shape, case.image.dtype)
    return lazy.compute()


def as_a_stream(case: Case, folder) -> np.ndarray:
    named = case.named() | {"axes": case.axes[1:]}
    frames = gd.stream(case.filter, iter(case.image), case.streamed_sigma, **named)
    return np.array(list(frames))


def as_a_live_stream(case: Case, folder) -> np.ndarray:
    named = case.named() | {"axes": case.axes[1:], "live": True}
    frames = gd.stream(case.filter, iter(case.image), case.streamed_sigma, **named)
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


# Those that cut a map as they cut the image.
WAYS_OF_MAPS = (in_tiles, lazily, as_a_stream, in_parts)


def same(case: Case, way, folder) -> None:
    expected, given = case.whole, case.image.copy()
    made = way(case, folder)
    assert made.dtype == expected.dtype
    np.testing.assert_array_equal(made, expected)
    np.testing.assert_array_equal(case.image, given)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_every_way_gives_the_same_pixels(case, way, tmp_path):
    same(case, way, tmp_path)


@pytest.mark.parametrize("way", WAYS_OF_MAPS, ids=lambda way: way.__name__)
def test_maps_are_cut_as_the_image_is(mapped, way, tmp_path):
    same(mapped, way, tmp_path)


def test_planes_without_noise_stay(case):
    still = case.sigma == 0
    np.testing.assert_array_equal(case.whole[still], case.image[still])
    assert not np.any(np.all(case.whole == case.image, axis=(-2, -1)) & ~still)


def test_places_without_noise_stay(mapped):
    still = mapped.sigma == 0
    np.testing.assert_array_equal(mapped.whole[..., still], mapped.image[..., still])
    assert np.all(np.isfinite(mapped.whole)) and not np.array_equal(mapped.whole, mapped.image)
