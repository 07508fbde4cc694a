"""Work-items of a launch, and their groups."""

from __future__ import annotations

import dataclasses
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from napari_gpu_denoise.opencl.memory import constant_buffer
from napari_gpu_denoise.opencl.program import (
    Kernel,
    Session,
    pixel_grid,
    session,
    value_grid,
    values_per_item,
)


@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize("count", [1, 127, 128, 4096, 4097, 1_000_003])
def test_work_items_cover_all_values_and_no_more_than_a_group_besides(device, lanes, count):
    chosen = dataclasses.replace(device, float_lanes=lanes, max_group=256)
    (items,), (group,) = value_grid(count, chosen)
    each = values_per_item(chosen)
    assert items % group == 0
    assert 0 <= items * each - count < group * each


def test_groups_are_no_larger_than_a_device_can_have(device):
    small = dataclasses.replace(device, float_lanes=1, max_group=64)
    assert value_grid(100, small) == ((128,), (64,))
    assert pixel_grid(small, 33, 9, 5) == ((64, 10, 5), (32, 2, 1))
    single = dataclasses.replace(device, max_group=1)
    assert pixel_grid(single, 33, 9, 5) == ((33, 9, 5), (1, 1, 1))


@pytest.fixture
def building(device, monkeypatch):
    """Return a function that makes a session of another kind of device, which builds nothing."""
    made = session(device).kernel("search/pad_far", {"SPLIT": 1, "ALIKE": 0})._kernel.program
    meeting, built = threading.Barrier(2), []

    def build(self, key):
        built.append(dict(key[1]))
        if not self.device.shares_cores:
            meeting.wait(120)  # for the other one
        return made

    monkeypatch.setattr(Session, "_build", build)

    def opened(kind):
        chosen = session(device)
        return Session(dataclasses.replace(chosen.device, kind=kind), chosen.context), built

    return opened


def test_different_programs_are_built_at_the_same_time(building):
    opened, built = building("discrete GPU")
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda k: opened.kernel("search/pad_far", {"K": k % 2}), range(6)))
    assert sorted(each["K"] for each in built) == [0, 1]


def test_a_cpu_builds_one_after_another(building):
    opened, built = building("CPU")
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda k: opened.kernel("search/pad_far", {"K": k % 3}), range(6)))
    assert sorted(each["K"] for each in built) == [0, 1, 2] and len(opened.building) == 1


def test_kernels_take_numbers_by_name_and_missing_buffers(device):
    import pyopencl as cl

    source = """
    __kernel void add(__global float *out, int a, float b, __global const float *more)
    {
        out[get_global_id(0)] = a + b + (more ? more[0] : 0.0f);
    }
    """
    held = session(device)
    kernel, queue = Kernel(cl.Program(held.context, source).build(), "add", source), held.queue()
    found, one = np.empty(2, np.float32), np.ones(1, np.float32)
    out = cl.Buffer(held.context, cl.mem_flags.READ_WRITE, size=found.nbytes)
    for more in (None, constant_buffer(held, one), None):
        for a, b in ((3, 2.0), (np.int64(-1), np.float64(0.5)), (True, 1)):
            kernel(queue, (2,), None, more=more, b=b, a=a, out=out)
            cl.enqueue_copy(queue, found, out)
            assert found.tolist() == [a + b + (more is not None)] * 2
    with pytest.raises(TypeError, match=r"missing \['more'\], unknown \['mroe'\]"):
        kernel(queue, (2,), None, out=out, a=1, b=2, mroe=None)


@pytest.fixture
def kept_by_pyopencl(monkeypatch, own_cache):
    """Return the folder of pyopencl's cache, which is used as if the driver had none of its own."""
    monkeypatch.setattr("pyopencl.characterize.has_src_build_cache", lambda _: False)
    monkeypatch.delenv("PYOPENCL_CACHE_FAILURE_FATAL", raising=False)
    own_cache.mkdir()
    return own_cache / "programs"


def build_again(device):
    """Build a program as a new process does."""
    made = Session(device, session(device).context)
    return made.kernel("search/pad_far", {"SPLIT": 1, "ALIKE": 0})


@pytest.mark.parametrize("name", ["info", "binary"])
@pytest.mark.parametrize("damage", [None, b"no pickle, no program"], ids=["missing", "other bytes"])
def test_a_damaged_cache_is_built_anew(device, kept_by_pyopencl, name, damage):
    build_again(device)
    files = list(kept_by_pyopencl.glob(f"*/{name}"))
    assert files
    for file in files:
        file.write_bytes(damage) if damage else file.unlink()
    build_again(device)
    build_again(device)
    assert list(kept_by_pyopencl.glob("*/binary"))


def test_a_cache_without_a_folder_is_done_without(device, kept_by_pyopencl):
    kept_by_pyopencl.write_text("a file is in the place of the folder")
    build_again(device)


def test_compiler_output_is_hidden_of_kernels_alone(device):
    import pyopencl as cl

    def build(redefined):
        made = Session(dataclasses.replace(device, kind="other"), session(device).context)
        made.program(("search/pad_far", (("INT_MAX", redefined), ("SPLIT", 1))))

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(build, range(4)))
        assert not told
        source = "__kernel void same(__global int *out) { out[0] = INT_MAX; }"
        cl.Program(session(device).context, source).build("-DINT_MAX=1")
    assert [each.category for each in told] == [cl.CompilerWarning]
