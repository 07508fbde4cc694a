"""Find kernel files, expand their includes, and read which arguments a kernel takes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

Arguments = dict[str, str]
"""The arguments of a kernel in order: names and types, such as ``"int"`` or ``"float *"``."""

_INCLUDE = re.compile(r'^\s*#include\s+"([^"]+)"\s*$')
# Arguments that depend on constants: a part of the head, or a macro that stands for some.
_CHOICE = re.compile(r"#if[^\n]*\n(.*?)(?:#else[^\n]*\n(.*?))?#endif|\b([A-Z][A-Z_]+)\b", re.DOTALL)
_QUALIFIERS = {"__global", "__constant", "__local", "const", "restrict"}


@lru_cache(maxsize=1)
def kernel_folder() -> Path:
    """Return the folder of the OpenCL C files, in the installed package or in the checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "kernels"
    return installed if installed.is_dir() else package.parents[1] / "kernels"


@lru_cache(maxsize=64)
def expand(name: str) -> str:
    """Return the source of a kernel file, such as ``"nl_means/pad_far.cl"``, and its includes.

    Each include is expanded once. ``#line`` marks let compilers name the original file and line.
    """
    return _expand(name, seen=set())


def _expand(name: str, seen: set[str]) -> str:
    seen.add(name)
    lines = [f'#line 1 "{name}"']
    text = (kernel_folder() / name).read_text(encoding="utf-8")
    for number, line in enumerate(text.splitlines(), start=1):
        include = _INCLUDE.match(line)
        if not include:
            lines.append(line)
        elif include[1] not in seen:
            lines += [_expand(include[1], seen), f'#line {number + 1} "{name}"']
        else:
            lines.append("")
    return "\n".join(lines)


@lru_cache(maxsize=128)
def signatures(kernel: str, source: str) -> tuple[Arguments, ...]:
    """Return what a kernel may take: arguments may depend on constants, by ``#if`` and macros.

    Raises ValueError if the same names may stand in different orders.
    """
    head = re.search(rf"\bvoid {kernel}\((.*?)\)\s*\{{", source, re.DOTALL)
    if not head:
        raise ValueError(f"The source has no kernel {kernel}.")
    made = map(dict, _alternatives(head[1], source.replace("\\\n", " ")))
    found: dict[frozenset[str], Arguments] = {}
    for arguments in made:
        if list(found.setdefault(frozenset(arguments), arguments)) != list(arguments):
            raise ValueError(f"The arguments of {kernel} may have two orders.")
    return tuple(found.values())


def _alternatives(text: str, source: str) -> list[tuple[tuple[str, str], ...]]:
    """Return all lists of names and types that a part of a head may stand for."""
    found: list[tuple[tuple[str, str], ...]] = [()]
    end = 0
    for choice in _CHOICE.finditer(text):
        bodies = [choice[1], choice[2] or ""]
        if choice[3]:
            define = rf"^#define {choice[3]}\b(.*)$"
            bodies = re.findall(define, source, re.MULTILINE)
        fixed = tuple(map(_argument, _parts(text[end : choice.start()])))
        others = [each for body in dict.fromkeys(bodies) for each in _alternatives(body, source)]
        found = [(*before, *fixed, *each) for before in found for each in others]
        end = choice.end()
    fixed = tuple(map(_argument, _parts(text[end:])))
    return [(*before, *fixed) for before in found]


def _parts(text: str) -> Iterator[str]:
    return filter(None, map(str.strip, text.split(",")))


def _argument(text: str) -> tuple[str, str]:
    *words, name = text.replace("*", " * ").split()
    return name, " ".join(word for word in words if word not in _QUALIFIERS)
