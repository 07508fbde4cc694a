"""Declarations of the OpenCL C that kernels use, with which the tests build programs.

PoCL has every program include opencl-c.h of Clang. Those 18,000 lines are half of what the compiler
does before it optimises, and the tests build more than a thousand. The simulator builds all kernels
with the header.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from napari_gpu_denoise.opencl import program

# It leaves out the header: this is what guards that against a second inclusion.
GUARD = "_OPENCL_H_"
_WIDTHS = ("", "2", "4", "8", "16")
_WHOLE = ("char", "uchar", "short", "ushort", "int", "uint", "long", "ulong")
_PLACES = ("get_global_id", "get_local_id", "get_group_id", "get_global_size", "get_num_groups")
# By their arguments.
_FLOATS = {
    1: ["sqrt", "rsqrt", "exp", "exp2", "log", "log1p", "log2", "cos", "fabs", "ceil", "floor"],
    2: ["fmin", "fmax"],
    3: ["fma"],
}


def replace_header() -> None:
    """Have this process build programs with these declarations in place of the header."""
    import pyopencl as cl

    with_header = program._built

    def built(context, source, options):
        portable = "Portable" in context.devices[0].platform.name
        if portable and "-cl-std=CL1.2" in options:
            try:
                return with_header(context, declarations() + source, [*options, f"-D{GUARD}"])
            except cl.Error as error:
                # What is not declared here, and another PoCL, takes the whole header.
                if "error:" not in str(error):
                    raise
        return with_header(context, source, options)

    program._built = built


@cache
def declarations() -> str:
    """Return the declarations as lines of source."""
    return "\n".join([*map(_pure, _functions()), *map(_other, _effects())]) + "\n"


def _pure(declared: str) -> str:
    return f"__attribute__((overloadable, const)) {declared};"


def _other(declared: str) -> str:
    return f"__attribute__((overloadable)) {declared};"


def _functions() -> Iterator[str]:
    """Yield functions whose results depend on nothing but their arguments."""
    for name in _PLACES:
        yield f"size_t {name}(uint)"
    for n in _WIDTHS:
        for count, names in _FLOATS.items():
            yield from (f"float{n} {name}({', '.join([f'float{n}'] * count)})" for name in names)
        yield f"float{n} native_divide(float{n}, float{n})"
        yield f"float{n} native_exp2(float{n})"
        for kind in ("int", "uint", "long", "ulong", "float"):
            one = kind + n
            yield f"{one} min({one}, {one})"
            yield f"{one} max({one}, {one})"
            yield f"{one} clamp({one}, {one}, {one})"
            if kind != "float":
                yield f"{one} clz({one})"
                yield f"{one} popcount({one})"
        for kind in ("int", "uint", "float"):
            yield f"{kind}{n} select({kind}{n}, {kind}{n}, int{n})"
            yield f"{kind}{n} select({kind}{n}, {kind}{n}, uint{n})"
        for kind in (*_WHOLE, "float"):
            yield f"float{n} convert_float{n}({kind}{n})"
        yield f"uint{n} abs(int{n})"
        yield f"int{n} isfinite(float{n})"
        yield f"int{n} islessequal(float{n}, float{n})"
        yield f"int{n} convert_int{n}_rte(float{n})"
        yield f"int any(int{n})"


def _effects() -> Iterator[str]:
    """Yield functions that read and write memory, or wait."""
    yield "__attribute__((convergent)) void barrier(uint)"
    for space in ("__global", "__local", "__private"):
        for kind in ("short", "ushort", "int", "uint", "float"):
            for n in _WIDTHS[1:]:
                yield f"{kind}{n} vload{n}(size_t, const {space} {kind} *)"
                yield f"void vstore{n}({kind}{n}, size_t, {space} {kind} *)"
    for space in ("__global", "__local"):
        for kind in ("int", "uint"):
            for name in ("add", "or"):
                yield f"{kind} atomic_{name}(volatile {space} {kind} *, {kind})"
            yield f"{kind} atomic_inc(volatile {space} {kind} *)"
            yield f"{kind} atomic_cmpxchg(volatile {space} {kind} *, {kind}, {kind})"
