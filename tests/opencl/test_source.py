"""Kernel files: found, their includes expanded once, built once, errors named by file and line."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from napari_gpu_denoise.errors import KernelError
from napari_gpu_denoise.opencl import program as source
from napari_gpu_denoise.opencl.program import Session, session


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Use kernel files of the test's own."""
    monkeypatch.setattr(source, "kernel_folder", lambda: tmp_path)
    source.expand.cache_clear()
    (tmp_path / "common").mkdir()
    yield tmp_path
    source.expand.cache_clear()


@pytest.fixture
def fresh(device):
    """A session that has built nothing yet."""
    return Session(device, session(device).context)


def test_each_include_is_expanded_once_with_line_marks(folder):
    (folder / "common" / "a.h").write_text("// a\n")
    (folder / "common" / "b.h").write_text('// b\n#include "common/a.h"\n// end of b\n')
    (folder / "k.cl").write_text(
        '// k\n#include "common/a.h"\n  #include "common/b.h"\n#include "common/a.h"\n// last\n'
    )
    assert source.expand("k.cl").splitlines() == [
        '#line 1 "k.cl"',
        "// k",
        '#line 1 "common/a.h"',
        "// a",
        '#line 3 "k.cl"',
        '#line 1 "common/b.h"',
        "// b",
        "",
        "// end of b",
        '#line 4 "k.cl"',
        "",
        "// last",
    ]


def test_every_kernel_file_names_its_kernel_and_tells_its_grid():
    files = sorted(source.kernel_folder().rglob("*.cl"))
    assert len(files) >= 4
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert text.count("__kernel") == 1, file
        assert f" {file.stem}(" in text, file
        assert text.startswith("// "), file
        told = text.split("__kernel")[0]
        # Or in a file that it names.
        for name in re.findall(r"[\w/]+\.(?:h|cl)\b", told):
            if (named := source.kernel_folder() / name).is_file():
                told += named.read_text(encoding="utf-8")
        for word in ("Grid:", "Constants:", "Shapes"):
            assert word in told, (file, word)


NUMBERS = {"int", "uint", "ulong", "float", "float2", "float4", "int4", "short2", "uchar", "Level"}


def test_every_head_tells_names_and_types_whatever_the_constants():
    for file in source.kernel_folder().rglob("*.cl"):
        name = file.relative_to(source.kernel_folder()).as_posix()
        for arguments in source.signatures(file.stem, source.expand(name)):
            assert all(map(str.isidentifier, arguments)), (name, arguments)
            types = {kind.removesuffix(" *") for kind in arguments.values()}
            assert types <= NUMBERS, (name, types)


def test_arguments_may_depend_on_macros_and_conditions():
    head = """
    #if MAP
    #define MORE __global const float *map, \\
                 int pitch,
    #else
    #define MORE
    #endif
    __kernel void k(__global float *out, MORE
    #if LATE
        int late,
    #endif
        const float last)
    {"""
    head = "\n".join(line.strip() for line in head.splitlines())
    found = [list(each.items()) for each in source.signatures("k", head)]
    first, last = ("out", "float *"), ("last", "float")
    more, late = [("map", "float *"), ("pitch", "int")], [("late", "int")]
    assert sorted(found, key=len) == [
        [first, last],
        [first, *late, last],
        [first, *more, last],
        [first, *more, *late, last],
    ]
    swapped = head.replace("#define MORE\n", "#define MORE int pitch, __global float *map,\n")
    with pytest.raises(ValueError, match="two orders"):
        source.signatures("k", swapped)


def test_a_compiler_message_names_file_and_line(folder, fresh):
    (folder / "common" / "a.h").write_text("#define ONE 1\n#define TWO (2 +\n")
    (folder / "k.cl").write_text(
        '#include "common/a.h"\n\n__kernel void k(__global int *out)\n{\n    out[0] = nothing;\n}\n'
    )
    with pytest.raises(KernelError, match=r"cannot build the kernel k[\s\S]*k\.cl.?:5") as caught:
        fresh.kernel("k", {})
    assert str(fresh.device) in str(caught.value)


def test_a_program_is_built_once_and_each_kernel_is_its_own(folder, fresh):
    (folder / "k.cl").write_text(
        "__kernel void k(__global int *out) { out[get_global_id(0)] = VALUE; }\n"
    )
    with ThreadPoolExecutor(4) as pool:
        kernels = list(pool.map(lambda _: fresh.kernel("k", {"VALUE": 3}), range(4)))
    assert len({id(kernel) for kernel in kernels}) == 4
    assert len(fresh.programs) == 1
    fresh.kernel("k", {"VALUE": 4})
    assert len(fresh.programs) == 2
