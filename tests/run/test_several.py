"""Several devices: the same pixels whoever filters them, and what happens when one fails."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

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
from napari_gpu_denoise.run.request import Limits, Run
from scenes import Stored, joining, noisy, small

SIGMA = 20.0


@pytest.fixture
def pair(device, in_parts):
    """One device twice, in contexts of its own, and images that are large enough to be divided."""
    return device, replace(device, index=device.index + 100)


@pytest.fixture
def before_parts(monkeypatch):
    """Return a function that lets another one be called, with the device, before each part."""
    plain = several.filter_part

    def call(first):
        def filter_part(job, *given):
            first(job.run.device)
            return plain(job, *given)

        monkeypatch.setattr(several, "filter_part", filter_part)

    return call


def failing(*devices, error=KernelError, after: int = 0):
    """Return what lets every part fail on these devices, after so many."""
    left = dict.fromkeys(devices, after)

    def fail(device):
        if device in left:
            left[device] -= 1
            if left[device] < 0:
                raise error(f"Device {device.index} is broken.")

    return fail


def test_both_devices_work(pair, before_parts):
    used, meeting = set(), threading.Barrier(2, timeout=60)

    def meet(device):
        if device not in used:
            used.add(device)
            meeting.wait()  # neither can have done everything before the other began

    before_parts(meet)
    made = gd.denoise(noisy(4, 61, 57), small(gd.BM3D), SIGMA, device=pair)
    assert used == {*pair}
    assert made.record.device == f"2 x {pair[0]}"


@pytest.mark.parametrize("error", [KernelError, DeviceMemoryError, NoDeviceError])
@pytest.mark.parametrize("after", [0, 1])
def test_a_device_that_fails_is_left_out(pair, before_parts, error, after):
    image, settings = noisy(61, 157), small(gd.NLMeans)
    expected = gd.denoise(image, settings, SIGMA, device=pair[0])
    before_parts(failing(pair[1], error=error, after=after))
    made = gd.denoise(image, settings, SIGMA, device=pair)
    np.testing.assert_array_equal(made.image, expected.image)
    # It may have come too late to fail.
    left_out = [note for note in made.record.notes if "left out" in note]
    assert all("is broken" in note for note in left_out) and len(left_out) <= 1


def test_a_part_that_comes_back_when_all_others_are_done_is_done(pair, before_parts):
    image, settings, rest_done = noisy(61, 157), small(gd.NLMeans), threading.Event()
    expected = gd.denoise(image, settings, SIGMA, device=pair[0])

    def wait(device):
        if device == pair[1]:
            assert rest_done.wait(60)
            time.sleep(0.1)  # by now the other one has ended
            raise KernelError("Broken.")

    def progress(done, total):
        if done == total - 1:
            rest_done.set()

    before_parts(wait)
    # Begin with the one that fails: it has a part before the other has taken all.
    made = gd.denoise(image, settings, SIGMA, device=pair[::-1], progress=progress)
    np.testing.assert_array_equal(made.image, expected.image)


@pytest.mark.parametrize("error", [KernelError, ZeroDivisionError])
def test_the_error_is_raised_when_all_fail_or_it_is_not_of_a_device(pair, before_parts, error):
    before_parts(failing(*pair, error=error))
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


def test_parts_cover_the_whole_and_small_images_stay_so(pair):
    settings = joining(gd.VBM3D, "TYX")
    job = start(Run(settings, SIGMA, axes="TYX", device=pair[0]), noisy(40, 61, 57))
    parts = parts_of_images.divide(job, Part.of(job), 3)
    ends = [(part.spans[0].start, part.spans[0].stop) for part in parts]
    assert len(parts) >= 3 and len(parts) % 3 == 0
    assert [a for a, _ in ends] == [0, *(b for _, b in ends)][:-1] and ends[-1][1] == 40
    # Frames are compared as wholes.
    assert all(part.yields[1:] == (slice(0, 61), slice(0, 57)) for part in parts)
    # One for each of equal devices, more where the slowest would delay the others.
    planes = start(Run(small(gd.NLMeans), SIGMA, device=pair[0]), noisy(40, 61, 57))
    for each in (1, 4):
        assert len(parts_of_images.divide(planes, Part.of(planes), 2, each)) == 2 * each
    run = Run(small(gd.NLMeans), SIGMA, device=pair[0], limits=Limits())
    tiny = start(run, noisy(64, 64))
    assert len(parts_of_images.divide(tiny, Part.of(tiny), 2)) == 1


def test_all_are_those_of_the_best_kind(device, machine):
    best = choose("all")
    twin = replace(best, index=90)
    weaker = replace(best, index=91, kind="other")
    broken = replace(best, index=92, problem="It is old.")
    machine(weaker, best, broken, twin)
    with pytest.warns(UserWarning, match=r"is left out: It is old\."):
        assert choosing.choose_devices("all") == (best, twin)
    assert choosing.names_of((best, twin, weaker)) == f"2 x {best}; {weaker}"
    with pytest.warns(UserWarning, match="is left out"):
        assert choosing.why("ALL").startswith(f"2 x {best} are used")


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


def test_hardware_that_two_platforms_list_counts_once(device, machine):
    def put(*handles, kind="discrete GPU", vendors="aaa"):
        each = zip(handles, vendors, strict=False)
        found = [
            replace(device, index=number, kind=kind, handle=handle, vendor=vendor)
            for number, (handle, vendor) in enumerate(each)
        ]
        machine(*found)
        return [each.index for each in choosing.choose_devices("all")]

    assert put(Handle("a"), Handle("b"), kind="CPU") == [0]
    assert put(Handle("a"), Handle("a"), Handle("b")) == [0, 1]
    assert put(Handle("a"), Handle("b"), vendors="ab") == [0, 1]
    assert put(Handle("a", bus=7), Handle("b", bus=7), Handle("b", bus=8)) == [0, 2]
