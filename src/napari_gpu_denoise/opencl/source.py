"""Find kernel files and expand their includes."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

_INCLUDE = re.compile(r'^\s*#include\s+"([^"]+)"\s*$')
_MARK = re.compile(r'^#line (\d+) "(.+)"$')
_NAMELESS = re.compile(r"<kernel>:(\d+)")


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


def name_lines(message: str, name: str) -> str:
    """Return a compiler's message with the original files and lines in it.

    NVIDIA's compiler ignores ``#line`` marks: it calls the expanded source ``<kernel>``.
    """
    places, file, number = [], name, 0
    for line in expand(name).splitlines():
        mark = _MARK.match(line)
        if mark:
            number, file = int(mark[1]) - 1, mark[2]
        else:
            number += 1
        places.append(f"{file}:{number}")

    def place(match: re.Match) -> str:
        line = int(match[1])
        return places[line - 1] if 0 < line <= len(places) else match[0]

    return _NAMELESS.sub(place, message)
