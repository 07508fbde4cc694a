"""A filter gives the same pixels by every way to run it.

Each case combines what goes wrong together: odd sizes, several tiles and chunks, channels, frames
whose noise differs, and one of whose first channel has none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import dask.array as da
import numpy as np
import pytest
import tifffile
from scipy import ndimage

import napari_gpu_denoise as gd
from napari_gpu_denoise.files import resuming
from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.protocol.settings import setting_fields
from napari_gpu_denoise.run.input import Block
from napari_gpu_denoise.run.job import start
from napari_gpu_denoise.run.part import Part, filter_part
from napari_gpu_denoise.run.request import Run
from scenes import Stored, altered, cut, frame, joining, needs_volume, noisy


@dataclass
class Case:
    """A filter, an image, its noise by plane, by place or by brightness, and the device."""

    filter: object
    image: np.ndarray
    axes: str
    noise: dict
    device: object
    nonfinite: str = "raise"

    @cached_property
    def whole(self) -> np.ndarray:
        """The result in memory, as one part; its steps of progress are kept."""
        self.steps: list[int] = []
        return self.denoised(progress=lambda done, total: self.steps.append(total))

    def denoised(self, **options) -> np.ndarray:
        return gd.denoise(self.image, self.filter, **self.options(**options)).image

    def options(self, **changes) -> dict:
        own = {"axes": self.axes, "device": self.device, "nonfinite": self.nonfinite}
        return own | self.noise | changes

    def chunked(self) -> da.Array:
        chunks = (2, 1, 90, 40) if self.axes == "TCYX" else (2, 4, 90, 40)
        return da.from_array(self.image, chunks=chunks)

    @property
    def is_map(self) -> bool:
        return np.shape(self.noise.get("sigma")) == self.image.shape[-2:]


def having(name: str, test: Callable) -> list[type]:
    return [
        kind for kind in FILTERS if any(s.name == name and test(s) for s in setting_fields(kind))
    ]


JOINT = having("channels", lambda spec: "joint" in spec.metadata["choices"])
SLICED = having("slices", lambda spec: spec.default == 0)
CASES = [(kind, {}) for kind in FILTERS] + [(kind, {"channels": "joint"}) for kind in JOINT]
# Of volumes the cubes are told: images have room for the tiles of the furthest that may be chosen.
CASES = [
    (kind, "TZYX", {**changes, "cube": "4x4x4"}) if needs_volume(kind) else (kind, "TCYX", changes)
    for kind, changes in CASES
]
CASES += [(kind, "TZYX", {}) for kind in SLICED]
CASES += [(gd.VBM3D, "TCYX", {"frames_after": 0})]


def settings_of(kind, axes: str, changes: dict):
    """Return settings that look at more frames before each than after it."""
    uneven = {spec.name: 2 for spec in setting_fields(kind) if spec.name == "frames_before"}
    return joining(kind, axes.replace("Z", "") if needs_volume(kind) else axes, **uneven | changes)


def by_plane(settings, axes: str, device) -> Case:
    """Return frames that fade and of which one is dropped, with noise that differs by plane."""
    planes = (3, 4) if "Z" in axes else (5, 2)
    image = noisy(*planes, *frame(settings)) * np.linspace(1, 0.6, planes[0])[:, None, None, None]
    image[-2, 1] = 7
    sigma = 12.0 + 2 * np.arange(np.prod(planes, dtype=int)).reshape(planes)
    if needs_volume(type(settings)):
        # Slices that are filtered together share their noise.
        sigma[:] = sigma[:, :1]
    else:
        sigma[1, 0] = 0
    image = np.clip(np.rint(image + 60), 0, 255).astype(np.uint16)
    return Case(settings, image, axes, {"sigma": sigma}, device)


def by_place(settings, axes: str, device) -> Case:
    """Return an image with NaN, whose noise is a map: slopes, jumps and a hole."""
    image = noisy(*((2, 4) if "Z" in axes else (3, 2)), *frame(settings))
    image[1, 1, 50:52, 9:12] = np.nan
    image[-1, 0, 88, 40] = -np.inf
    y, x = np.indices(image.shape[-2:])
    sigma = 5 + 10 * x / 57 + 15 * (y > 80)
    sigma[90:105, 14:21] = sigma[-1, 0] = 0
    return Case(settings, image, axes, {"sigma": sigma}, device, "keep")


def by_brightness(settings, axes: str, device) -> Case:
    """Return an image with photon noise, for each channel another."""
    image = noisy(*((2, 4) if "Z" in axes else (3, 2)), *frame(settings), dtype="uint16")
    models = gd.PoissonGaussian(2.0, 8.0, 3.0), gd.PoissonGaussian(1.0, 20.0)
    return Case(settings, image, axes, {"noise": models[: 1 + ("C" in axes)]}, device)


@pytest.fixture
def case(request, device) -> Case:
    return made(*request.param, device)


@lru_cache(maxsize=1)
def made(noise: Callable, number: int, device) -> Case:
    """Return a case, the one of the test before if it is the same: that knows its result."""
    kind, axes, changes = CASES[number]
    return noise(settings_of(kind, axes, changes), axes, device)


pytestmark = pytest.mark.usefixtures("in_parts")


def by_function(case: Case, folder) -> np.ndarray:
    """By settings and by their names."""
    function, spelled = getattr(gd, case.filter.name), case.filter.as_dict()
    made = function(case.image, **case.options(), **spelled)
    np.testing.assert_array_equal(
        function(case.image, settings=case.filter, **case.options()), made
    )
    return made


def limit_of(case: Case) -> int:
    # What is chosen from the pixels needs memory, too.
    applied = start(Run(case.filter, **case.options()), case.image).filter
    limit = cut(applied, is_map=case.is_map, slices=case.image.shape[1])
    # A tile of joint channels has all of them.
    return limit * 4 // 3 if getattr(case.filter, "channels", "") == "joint" else limit


def in_tiles(case: Case, folder) -> np.ndarray:
    cut_into: list[int] = []
    made = case.denoised(
        memory_limit=limit_of(case), progress=lambda done, total: cut_into.append(total)
    )
    assert cut_into[-1] > case.steps[-1], "nothing was cut"
    return made


def in_place(case: Case, folder) -> np.ndarray:
    copy = replace(case, image=case.image.copy())
    return copy.denoised(out=copy.image, memory_limit=limit_of(case))


def from_chunks_to_an_array(case: Case, folder) -> np.ndarray:
    out = np.zeros_like(case.image)
    gd.denoise(case.chunked(), case.filter, out=out, **case.options())
    return out


def from_storage_to_an_array(case: Case, folder) -> np.ndarray:
    out = np.zeros_like(case.image)
    gd.denoise(Stored(case.image), case.filter, out=Stored(out), **case.options())
    return out


def lazily(case: Case, folder) -> np.ndarray:
    lazy = gd.denoise_lazy(case.chunked(), case.filter, **case.options())
    assert isinstance(lazy, da.Array)
    # Filters over time see frames as a whole, and these are few.
    assert lazy.npartitions > 1 or "T" in case.filter.joint
    assert (lazy.shape, lazy.dtype) == (case.image.shape, case.whole.dtype)
    return lazy.compute()


def as_a_stream(case: Case, folder, **options) -> np.ndarray:
    options |= {"axes": case.axes[1:]}
    if "sigma" in case.noise and not case.is_map:
        options["sigma"] = case.noise["sigma"].__getitem__
    frames = gd.stream(case.filter, iter(case.image), **case.options(**options))
    return np.array(list(frames))


def as_a_live_stream(case: Case, folder) -> np.ndarray:
    return as_a_stream(case, folder, live=True)


def frame_by_frame(case: Case, folder) -> np.ndarray:
    return np.concatenate([case.denoised(frames=k) for k in range(len(case.image))])


def on_two_devices(case: Case, folder) -> np.ndarray:
    return case.denoised(device=(case.device, replace(case.device, index=case.device.index + 100)))


def in_parts(case: Case, folder) -> np.ndarray:
    """Parts in the reverse order, as other processes might filter them."""
    block = Block.of(case.image, case.axes, case.nonfinite)
    job = start(Run(case.filter, **case.options()), block)
    out = np.zeros(case.image.shape, job.dtypes[1])
    for first in reversed(range(0, len(case.image), 2)):
        part = Part.of(job, [slice(first, first + 2), *(slice(0, n) for n in job.shape[1:])])
        filter_part(job, part, block[part.reads], out[part.yields])
    return out


def in_a_batch(case: Case, folder, resumed: bool = False) -> np.ndarray:
    path, options = folder / "in.tif", case.options(output=folder / "out.tif")
    tifffile.imwrite(path, case.image, metadata={"axes": case.axes})
    if resumed:
        stop_before_the_last_frame(path, case, options)
    report = gd.run_batch(path, case.filter, resume=resumed, **options)
    assert not report.failed, report.failed
    return gd.read(options["output"]).data


def stop_before_the_last_frame(path, case: Case, options: dict) -> None:
    cancel, wrote = threading.Event(), resuming.ResumeLedger.wrote

    def stop(self, *given):
        wrote(self, *given)
        if len(self.done) == len(case.image) - 1:
            cancel.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resuming.ResumeLedger, "wrote", stop)
        report = gd.run_batch(path, case.filter, cancel=cancel, **options)
    assert report.cancelled and not options["output"].exists()


def resumed(case: Case, folder) -> np.ndarray:
    return in_a_batch(case, folder, resumed=True)


WAYS: tuple[Callable[[Case, object], np.ndarray], ...] = (
    by_function,
    in_tiles,
    in_place,
    from_chunks_to_an_array,
    from_storage_to_an_array,
    lazily,
    as_a_stream,
    as_a_live_stream,
    frame_by_frame,
    on_two_devices,
    in_parts,
    in_a_batch,
    resumed,
)
#: The ways that treat noise in their own manner, by how it varies.
WAYS_BY_NOISE = {
    by_plane: WAYS,
    by_place: (in_tiles, from_storage_to_an_array, lazily, as_a_stream, on_two_devices, in_parts),
    by_brightness: (in_tiles, lazily, as_a_stream, frame_by_frame, in_parts, in_a_batch),
}


def ways_of(noise: Callable, number: int) -> tuple[Callable, ...]:
    """Return the ways that a case is tried by: every second one where channels or slices vary.

    So it is with volumes, which are cut as images are, and take as long as all others together.
    """
    ways, many = WAYS_BY_NOISE[noise], needs_volume(CASES[number][0])
    return ways[number % 2 :: 2] if many or number >= len(FILTERS) else ways


def named(noise: Callable, kind, axes: str, changes: dict, *way: Callable) -> str:
    words = [kind.name, axes, *map(str, changes.values())]
    return "-".join([noise.__name__, *words, *(each.__name__ for each in way)])


def cases(*noises: Callable, ways: bool = False):
    """Parametrise a test: every filter with noise of these kinds, and every way if asked for."""
    rows = [
        (noise, number, *way)
        for noise in noises
        for number, (kind, *_) in enumerate(CASES)
        if noise is not by_brightness or not kind().sigma_unused
        for way in (((way,) for way in ways_of(noise, number)) if ways else [()])
    ]
    names, values = ["case", "way"], [(row[:2], row[2]) if ways else row for row in rows]
    ids = [named(noise, *CASES[number], *way) for noise, number, *way in rows]
    return pytest.mark.parametrize(names if ways else "case", values, ids=ids, indirect=["case"])


@cases(*WAYS_BY_NOISE, ways=True)
def test_every_way_gives_the_same_pixels(case, way, tmp_path):
    expected, given = case.whole, case.image.copy()
    made = way(case, tmp_path)
    assert made.dtype == expected.dtype
    np.testing.assert_array_equal(made, expected)
    np.testing.assert_array_equal(case.image, given)


@pytest.fixture(scope="module")
def fast_motion(device) -> Case:
    """Return frames for which VBM3D searches wider than by default."""
    settings = settings_of(gd.VBM3D, "TCYX", {"frames_after": 1, "window_nearest": 0})
    ny, nx = frame(replace(settings, window_nearest=23))
    rng = np.random.default_rng(0)
    wide = 120 + 150 * ndimage.gaussian_filter(rng.normal(size=(ny, nx + 32)), 2)
    image = np.stack([wide[None, :, 8 * t : 8 * t + nx] for t in range(5)])
    image = np.rint(image + rng.normal(0, 12, image.shape)).clip(0, 255).astype(np.uint8)
    return Case(settings, image, "TCYX", {"sigma": np.full((5, 1), 12.0)}, device)


@pytest.mark.parametrize("way", WAYS[1::2], ids=lambda way: way.__name__)
def test_a_search_for_fast_motion_is_chosen_alike(fast_motion, way, tmp_path):
    case = fast_motion
    if way in (as_a_stream, as_a_live_stream):  # which does not see all frames
        case = replace(case, filter=replace(case.filter, window_nearest=15))
    assert np.array_equal(case.whole, fast_motion.whole) == (case is fast_motion)
    np.testing.assert_array_equal(way(case, tmp_path), case.whole)


@cases(by_plane)
def test_planes_without_noise_stay_and_brightness_is_followed(case):
    still = case.noise["sigma"] == 0
    dropped = np.ptp(case.image, axis=(-2, -1)) == 0
    if case.filter.over_time and "Z" not in case.axes:
        # A frame of joint channels is dropped if all of them are.
        still |= dropped & ("C" not in case.filter.joint)
        plain = replace(case, filter=altered(case.filter, compares_brightness=False))
        assert not np.array_equal(plain.denoised(), case.whole)
    np.testing.assert_array_equal(case.whole[still], case.image[still])
    assert not np.any(np.all(case.whole == case.image, axis=(-2, -1)) & ~still & ~dropped)


@cases(by_place)
def test_places_without_noise_stay_and_nan_is_kept(case):
    kept = (case.noise["sigma"] == 0) | ~np.isfinite(case.image)
    np.testing.assert_array_equal(case.whole[kept], case.image[kept])
    assert np.all(np.isfinite(case.whole[~kept]))
    same = np.mean(case.whole[~kept] == case.image[~kept])
    # Filters that need no sigma may choose pixels instead of averaging them, as a median does.
    assert same < (0.2 if case.filter.sigma_unused else 0.1)
