"""Constructs that compilers get wrong, and the rules that keep them out of the kernels.

Each case in compiler_cases/ names the compilers it was found with.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from napari_gpu_denoise.opencl.program import expand, kernel_folder

CASES = Path(__file__).parent / "compiler_cases"
KERNELS = sorted(str(path.relative_to(kernel_folder())) for path in kernel_folder().rglob("*.cl"))


def built(device, name: str, options: str = ""):
    """Build a case, optimised; return its kernel, a queue and the context."""
    import pyopencl as cl

    context = cl.Context([device.handle])
    program = cl.Program(context, (CASES / f"{name}.cl").read_text()).build(options)
    return getattr(program, name), cl.CommandQueue(context), context


def test_two_exits_after_a_barrier_that_nothing_skips(device):
    import pyopencl as cl

    kernel, queue, context = built(device, "early_return", "-DEARLY=0")
    image = np.random.default_rng(0).uniform(1, 9, 64).astype(np.float32)
    levels, out = np.array([1, 0, 1], np.float32), np.empty((3, 30), np.float32)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    sent = [cl.Buffer(context, flags, hostbuf=array) for array in (levels, image, out)]
    numbers = np.int32(6), np.int32(30)
    kernel(queue, (32, 2, 3), (8, 2, 1), sent[0], sent[1], *numbers, sent[2])
    cl.enqueue_copy(queue, out, sent[2])
    both = image[:30] + image[1:31]
    more = sum(image[d : 30 + d] for d in range(6))
    expected = np.where(both > 5, both + more, both)
    np.testing.assert_allclose(out, np.tile(expected, (3, 1)), rtol=1e-6)


def test_items_that_give_away_one_half_of_their_values(device):
    import pyopencl as cl

    kernel, queue, context = built(device, "chosen_pointer", "-DCHOSEN=0")
    given, out = np.arange(32, dtype=np.float32).reshape(2, 16), np.empty((4, 16), np.float32)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    sent = [cl.Buffer(context, flags, hostbuf=array) for array in (given, out)]
    kernel(queue, (16,), (16,), *sent)
    cl.enqueue_copy(queue, out, sent[1])
    lower = np.arange(16) < 8
    expected = np.concatenate([np.where(lower, -1, given), np.where(lower, given, -1)])
    np.testing.assert_array_equal(out, expected)


def test_sorted_lists_of_long_numbers(device):
    import pyopencl as cl

    kernel, queue, context = built(device, "least_of_longs", "-DMINIMA=0")
    items, count, none = 128, 4, np.iinfo(np.uint64).max
    rng = np.random.default_rng(0)
    lists, more = rng.integers(0, none, (2, items, 12), np.uint64)
    lists = np.sort(lists[:, :8])
    lists[:64, 5:] = none
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    out, given = np.empty((items, 8), np.uint64), np.concatenate([lists.ravel(), more.T.ravel()])
    sent = [cl.Buffer(context, flags, hostbuf=array) for array in (given, out)]
    kernel(queue, (items,), (64,), sent[0], np.int32(count), sent[1])
    cl.enqueue_copy(queue, out, sent[1])
    # Three places are free: the least three of the others take them.
    expected = np.sort(np.concatenate([lists[:64, :5], np.sort(more[:64])[:, :3]], axis=1))
    np.testing.assert_array_equal(out, np.concatenate([expected, lists[64:]]))


def parts_with_barriers(source: str) -> set[str]:
    """Return the names of the functions and macros of a source that contain a barrier."""
    source = source.replace("\\\n", " ")
    macros = dict(re.findall(r"^#define (\w+)\([^)]*\)(.*)$", source, re.M))
    functions = dict(
        re.findall(r"^static inline [\w ]+?\**(\w+)\(.*?\)\n\{\n(.*?)^\}", source, re.M | re.S)
    )
    bodies, found = macros | functions, {"barrier"}
    while more := {
        name
        for name, body in bodies.items()
        if name not in found and re.search(rf"\b({'|'.join(found)})\(", body)
    }:
        found |= more
    return found


@pytest.mark.parametrize("name", KERNELS)
def test_no_work_item_leaves_before_a_barrier(name):
    source = expand(name)
    kernel = re.search(r"^(?:__attribute__.*\n)?__kernel .*?^\{\n(.*?)^\}", source, re.M | re.S)[1]
    waits = [
        at.end() for at in re.finditer(rf"\b({'|'.join(parts_with_barriers(source))})\(", kernel)
    ]
    leaves = [at.start() for at in re.finditer(r"\breturn;", kernel)]
    assert not waits or all(at > waits[-1] for at in leaves), 'see "One exit" in kernels/README.md'


@pytest.mark.parametrize("name", KERNELS)
def test_functions_with_barriers_are_always_inlined(name):
    source = expand(name)
    for part in parts_with_barriers(source):
        before = re.findall(rf"^(.*)\nstatic inline [\w ]+?\**{part}\(", source, re.M)
        assert set(before) <= {"__attribute__((always_inline))"}, f"{part}, see kernels/README.md"
