"""Several devices: the same pixels whoever filters them, and what happens when one fails."""

from __future__ import annotations

import threading
from dataclasses import replace

import dask.array as da
import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise.errors import (
    Cancelled,
    DeviceMemoryError,
    KernelError,
    NoDeviceError,
    NonFiniteError,
)
from napari_gpu_denoise.opencl import device as choosing
from napari_gpu_denoise.opencl.device import choose
from napari_gpu_denoise.run import by_parts as several
from napari_gpu_denoise.run import part as parts_of_images
from napari_gpu_denoise.run.job import start
from napari_gpu_denoise.run.part import Part
from napari_gpu_denoise.run.request import Run
from scenes import Stored, joining, noisy, small

SIGMA = 20.0


@pytest.fixture
def pair(device, monkeypatch):
    """One device twice, in contexts of its own, and images that are large enough to be divided."""
    monkeypatch.setattr(parts_of_images, "_SMALLEST_PART", 1 << 10)
    monkeypatch.setattr(parts_of_images, "PART_BYTES", 1)
    monkeypatch.setattr(parts_of_images, "_FRAMES_PER_MARGIN", 1)
    return device, replace(device, index=device.index + 100)


@pytest.fixture
def failing(monkeypatch):
    """Let every part fail on the devices of these numbers."""

    def fail(*numbers: int, error=KernelError, after: int = 0):
        plain = several.filter_part
        left = dict.fromkeys(numbers, after)

        def filter_part(job, part, block, out, progress):
            number = job.run.device.index
            if number in left:
                left[number] -= 1
                if left[number] < 0:
                    raise error(f"Device {number} is broken.")
            return plain(job, part, block, out, progress)

        monkeypatch.setattr(several, "filter_part", filter_part)

    return fail


def test_the_record_is_that_of_one_device(pair):
    image, options = noisy(24, 61, 57, dtype="uint8"), {"axes": "TYX", "dtype": "int8"}
    one = gd.denoise(image, small(gd.NLMeans), SIGMA, device=pair[0], **options)
    both = gd.denoise(image, small(gd.NLMeans), SIGMA, device=pair, **options)
    np.testing.assert_array_equal(one.image, both.image)
    assert both.record.device == f"2 x {pair[0]}"
    assert both.record.saturated == one.record.saturated > 100


@pytest.mark.parametrize(
    ("settings", "shape"),
    [
        (gd.BM3D.of(profile="fast", refine="once"), (40, 600)),
        (gd.VBM3D(refine="once", frames_before=1, frames_after=1), (160, 24, 25)),
        (gd.BM4D.of(profile="fast", cube="4x4x4", refine="once"), (200, 16, 17)),
    ],
    ids=lambda given: getattr(given, "name", ""),
)
def test_refined_results_are_those_of_one_device(pair, settings, shape):
    image, axes = noisy(*shape), {"bm3d": "YX", "vbm3d": "TYX", "bm4d": "ZYX"}[settings.name]
    one = gd.denoise(image, settings, SIGMA, axes=axes, device=pair[0])
    both = gd.denoise(image, settings, SIGMA, axes=axes, device=pair)
    assert both.record.device == f"2 x {pair[0]}"
    np.testing.assert_array_equal(both.image, one.image)


def test_both_devices_work(pair, monkeypatch):
    used, plain = set(), several.filter_part
    meeting = threading.Barrier(2, timeout=60)

    def filter_part(job, part, block, out, progress):
        number = job.run.device.index
        if number not in used:
            used.add(number)
            meeting.wait()  # neither can have done everything before the other began
        return plain(job, part, block, out, progress)

    monkeypatch.setattr(several, "filter_part", filter_part)
    made = gd.denoise(noisy(4, 61, 57), small(gd.BM3D), SIGMA, device=pair)
    assert used == {device.index for device in pair}
    assert made.record.device == f"2 x {pair[0]}"


@pytest.mark.parametrize("error", [KernelError, DeviceMemoryError, NoDeviceError])
@pytest.mark.parametrize("after", [0, 1])
def test_a_device_that_fails_is_left_out(pair, failing, error, after):
    image, settings = noisy(61, 157), small(gd.NLMeans)
    expected = gd.denoise(image, settings, SIGMA, device=pair[0])
    failing(pair[1].index, error=error, after=after)
    made = gd.denoise(image, settings, SIGMA, device=pair)
    np.testing.assert_array_equal(made.image, expected.image)
    # It may have come too late to fail.
    left_out = [note for note in made.record.notes if "left out" in note]
    assert all("is broken" in note for note in left_out) and len(left_out) <= 1


def test_a_part_that_comes_back_when_the_others_have_ended_is_done(pair, monkeypatch):
    image, settings = noisy(61, 157), small(gd.NLMeans)
    expected = gd.denoise(image, settings, SIGMA, device=pair[0])
    plain, ended = several.filter_part, several._DeviceThreads._work
    last = threading.Event()

    def work(crew, device):
        ended(crew, device)
        if device == pair[0]:
            last.set()

    def filter_part(job, part, block, out, progress):
        if job.run.device == pair[1]:
            assert last.wait(60)
            raise KernelError("Broken.")
        return plain(job, part, block, out, progress)

    monkeypatch.setattr(several._DeviceThreads, "_work", work)
    monkeypatch.setattr(several, "filter_part", filter_part)
    # Begin with the one that fails: it has a part before the other has taken all.
    made = gd.denoise(image, settings, SIGMA, device=pair[::-1])
    np.testing.assert_array_equal(made.image, expected.image)


@pytest.mark.parametrize("error", [KernelError, ZeroDivisionError])
def test_the_error_is_raised_when_all_fail_or_it_is_not_of_a_device(pair, failing, error):
    failing(*(device.index for device in pair), error=error)
    with pytest.raises(error, match="is broken"):
        gd.denoise(noisy(61, 157), small(gd.NLMeans), SIGMA, device=pair)


def test_a_run_that_is_cancelled_leaves_no_thread(pair):
    before, cancel = threading.active_count(), threading.Event()
    options = {"progress": lambda *_: cancel.set(), "cancel": cancel, "device": pair}
    with pytest.raises(Cancelled):
        gd.denoise(noisy(8, 61, 157), small(gd.NLMeans), SIGMA, **options)
    assert threading.active_count() <= before


@pytest.mark.parametrize(
    ("axes", "dtype", "noise"),
    [("TYX", "uint16", {"sigma": SIGMA}), ("CTYX", "float32", {"noise": gd.PoissonGaussian(2, 0)})],
)
def test_series_that_are_not_in_memory(pair, axes, dtype, noise):
    image = noisy(*((2,) if "C" in axes else ()), 17, 40, 37, dtype=dtype)
    settings = small(gd.VBM3D, frames_before=2, frames_after=1)
    made = [Stored(np.zeros(image.shape, np.float32)) for _ in range(2)]
    options = {"axes": axes, "dtype": "float32", **noise}
    one = gd.denoise(Stored(image), settings, out=made[0], device=pair[0], **options)
    both = gd.denoise(Stored(image), settings, out=made[1], device=pair, **options)
    np.testing.assert_array_equal(made[0].array, made[1].array)
    assert both.record.saturated == one.record.saturated
    # One may have been too busy to take any part.
    assert both.record.device in (f"2 x {pair[0]}", str(pair[0]))
    if dtype == "float32":
        image[..., 7, 3, 4] = np.nan
        with pytest.raises(NonFiniteError):
            gd.denoise(Stored(image), settings, out=made[1], device=pair, **options)


def test_dask_chunks_take_the_device_that_does_least(pair):
    image = noisy(4, 61, 57, dtype="uint8")
    array = da.from_array(image, chunks=(1, 61, 57))
    made = gd.denoise_lazy(array, small(gd.NLMeans), SIGMA, device=list(pair))
    # Devices are sent by their names, and found in the process that computes.
    np.testing.assert_array_equal(
        made.compute(), gd.denoise(image, small(gd.NLMeans), SIGMA, device=pair[0]).image
    )


def test_parts_cover_the_whole_and_small_images_stay_so(pair, monkeypatch):
    settings = joining(gd.VBM3D, "TYX")
    job = start(Run(settings, SIGMA, axes="TYX", device=pair[0]), noisy(40, 61, 57))
    parts = parts_of_images.divide(job, Part.of(job), 3)
    ends = [(part.spans[0].start, part.spans[0].stop) for part in parts]
    assert len(parts) >= 3 and len(parts) % 3 == 0
    assert [a for a, _ in ends] == [0, *(b for _, b in ends)][:-1] and ends[-1][1] == 40
    # Frames are compared as wholes.
    assert all(part.yields[1:] == (slice(0, 61), slice(0, 57)) for part in parts)
    monkeypatch.undo()
    tiny = start(Run(small(gd.NLMeans), SIGMA, device=pair[0]), noisy(64, 64))
    assert len(parts_of_images.divide(tiny, Part.of(tiny), 2)) == 1


def test_all_are_those_of_the_best_kind(device, monkeypatch):
    best = choose("all")
    twin = replace(best, index=90)
    weaker = replace(best, index=91, kind="other")
    broken = replace(best, index=92, problem="It is old.")
    monkeypatch.setattr(choosing, "devices", lambda: (weaker, best, broken, twin))
    with pytest.warns(UserWarning, match=r"is left out: It is old\."):
        assert choosing.choose_devices("all") == (best, twin)
    assert choosing.names_of((best, twin, weaker)) == f"2 x {best}; {weaker}"
    with pytest.warns(UserWarning, match="is left out"):
        assert choosing.why_devices("ALL").startswith(f"2 x {best} are used")


def test_devices_are_named_in_any_way(device, monkeypatch):
    assert choosing.choose_devices(f"{device.index}, {device.index}") == (device,)
    assert choosing.choose_devices([device, device.index]) == (device,)
    assert choosing.choose_devices(device.index) == (device,)
    monkeypatch.setenv("GPU_DENOISE_DEVICE", f"{device.index},{device.index}")
    assert choosing.choose_devices() == (device,) and choose() == device
    monkeypatch.setenv("GPU_DENOISE_DEVICE", "all")
    assert choose() in choosing.choose_devices()
    for wrong in ([], "0,nonsense", [device, True]):
        with pytest.raises(NoDeviceError):
            choosing.choose_devices(wrong)


class Handle:
    """What a driver tells of a device."""

    def __init__(self, platform, bus=None):
        self.platform = platform
        if bus is not None:
            self.pci_domain_id_nv, self.pci_bus_id_nv, self.pci_slot_id_nv = 0, bus, 0


def test_hardware_that_two_platforms_list_counts_once(device, monkeypatch):
    def put(*handles, kind="discrete GPU", vendors="aaa"):
        each = zip(handles, vendors, strict=False)
        found = [
            replace(device, index=number, kind=kind, handle=handle, vendor=vendor)
            for number, (handle, vendor) in enumerate(each)
        ]
        monkeypatch.setattr(choosing, "devices", lambda: found)
        monkeypatch.setattr(choosing, "choose", lambda wanted: found[0])
        return [each.index for each in choosing.choose_devices("all")]

    assert put(Handle("a"), Handle("b"), kind="CPU") == [0]
    assert put(Handle("a"), Handle("a"), Handle("b")) == [0, 1]
    assert put(Handle("a"), Handle("b"), vendors="ab") == [0, 1]
    assert put(Handle("a", bus=7), Handle("b", bus=7), Handle("b", bus=8)) == [0, 2]
