"""Write the types of the package, for type checkers and editors: its names are loaded when used.

    python scripts/write_stub.py [--check]

Functions of filters take settings that stand in the classes of these, so that no code shows their
signatures. Run this after changing a public function, a setting or a filter.
"""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import napari_gpu_denoise as gd
from napari_gpu_denoise.run import request

STUB = Path(__file__).parents[1] / "src" / "napari_gpu_denoise" / "__init__.pyi"
MODULES = {"errors": "napari_gpu_denoise", "samples": "napari_gpu_denoise.files"}
#: Types that functions leave open, by the names of parameters.
OPEN = {
    "image": "ArrayLike",
    "sigma": "ArrayLike | None",
    "stream(sigma)": "ArrayLike | Callable[[int], ArrayLike] | None",
    "axes": "str | None",
    "region": "Sequence[int | slice] | None",
    "dtype": "DTypeLike | None",
    "device": "DeviceChoice",
    "out": "object",
    "client": "object",
    "progress": "Callable[[int, int], None] | None",
    "cancel": "Stops | None",
}
HEAD = """\
# By scripts/write_stub.py; do not edit.
import os
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
"""
BODY = '''
__all__: list[str]
__version__: str
FILTERS: tuple[type[Filter], ...]

class Stops(Protocol):
    """An event that stops a run, such as ``threading.Event()``."""

    def is_set(self) -> bool: ...
'''


def imported(module: Any) -> dict[str, str]:
    """Return the modules of the names that a module defines, or imports to whatever end."""
    nodes = list(ast.walk(ast.parse(inspect.getsource(module))))
    found = {
        each.name: node.module
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for each in node.names
    }
    own = [node.name for node in nodes if isinstance(node, ast.ClassDef)]
    return found | dict.fromkeys(own, module.__name__)


def definition(name: str, function: Any) -> str:
    """Return the definition of a function, in which everything has a type, and what it does."""
    signature, parts = inspect.signature(function), []
    for each in signature.parameters.values():
        kind = "Any" if each.annotation is each.empty else each.annotation
        if "Any" in kind:
            kind = OPEN.get(f"{name}({each.name})", OPEN[each.name])
        if each.kind is each.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        default = "" if each.default is each.empty else f" = {each.default!r}"
        parts.append(f"{each.name}: {kind}{default}")
    kinds = f"({', '.join(parts)}) -> {signature.return_annotation}"
    said = " ".join(inspect.getdoc(function).partition("\n\n")[0].split())
    return f'\ndef {name}{kinds}:\n    """{said}"""\n'


def stub() -> str:
    """Return the types of all public names."""
    public = {name: getattr(gd, name) for name in gd.__all__ if name not in MODULES}
    classes = {name: each for name, each in public.items() if inspect.isclass(each)}
    functions = {name: each for name, each in public.items() if inspect.isfunction(each)}
    lines = [f"from {MODULES[name]} import {name} as {name}" for name in MODULES]
    lines += [f"from {each.__module__} import {name} as {name}" for name, each in classes.items()]
    text = "".join(definition(name, each) for name, each in functions.items())
    known = imported(request)
    for each in functions.values():
        known |= imported(inspect.getmodule(each))
    known["Array"] = "dask.array"  # as its users name it
    used = {node.id for node in ast.walk(ast.parse(BODY + text)) if isinstance(node, ast.Name)}
    more = sorted(used & known.keys() - imported_by_head() - classes.keys())
    lines += [f"from {known[name]} import {name}" for name in more]
    return formatted("\n".join([HEAD, *lines, BODY, text]))


def imported_by_head() -> set[str]:
    """Return the names that `HEAD` imports."""
    nodes = ast.walk(ast.parse(HEAD))
    return {each.name for node in nodes for each in getattr(node, "names", ())}


def formatted(text: str) -> str:
    """Return the text of a stub as ruff writes it, imports in order."""
    for command in (["check", "--fix", "--quiet"], ["format"]):
        run = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(STUB), "-"]
        text = subprocess.run(run, input=text, capture_output=True, text=True, check=True).stdout
    return text


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(stub() != STUB.read_text(encoding="utf-8"))
    STUB.write_text(stub(), encoding="utf-8")
