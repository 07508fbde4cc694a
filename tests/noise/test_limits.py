"""The limits that decide what is noise stand in one module; few other constants do."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from napari_gpu_denoise.noise import limits

MODULE = Path(limits.__file__)
SOURCES = {path: path.read_text(encoding="utf-8") for path in MODULE.parent.rglob("*.py")}
#: The most that there may be; only ever lowered.
MOST_LIMITS, MOST_CONSTANTS = 67, 137


def constants(path: Path) -> dict[str, int]:
    """Return the constants that a module assigns, and in which line."""
    found = {}
    for node in ast.parse(SOURCES[path]).body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = (each for target in targets for each in ast.walk(target))
            found |= {each.id: node.lineno for each in names if isinstance(each, ast.Name)}
    return {name: line for name, line in found.items() if name.isupper()}


def test_there_are_few():
    of_all = sum(len(constants(path)) for path in SOURCES)
    print(f"{len(constants(MODULE))} limits, {of_all} constants")
    assert len(constants(MODULE)) <= MOST_LIMITS
    assert of_all <= MOST_CONSTANTS


@pytest.mark.parametrize(("name", "line"), constants(MODULE).items())
def test_each_is_used_and_says_why(name, line):
    above, own = SOURCES[MODULE].splitlines()[line - 2 : line]
    assert above.startswith("#") or "#" in own, "no comment"
    assert any(re.search(rf"\blimits\.{name}\b", text) for text in SOURCES.values()), "not used"
