"""Draw which folders of the package import which, as the picture of docs/develop/architecture.md.

    python scripts/draw_modules.py

Arrows go from the importer, above, to what it imports, below; a folder has its number of modules
beside its name. Imports inside functions count, those for type checkers only do not. Arrows that
follow from others are left out: if A imports B and B imports C, no arrow is drawn from A to C.

Needs grimp, which import-linter brings, and the program dot of Graphviz.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import grimp

OUT = Path(__file__).resolve().parents[1] / "docs" / "images" / "modules.svg"
PACKAGE = "napari_gpu_denoise"
STYLE = """
  graph [rankdir=TB, newrank=true, nodesep=0.25, ranksep=0.45, bgcolor=white,
         fontname="Helvetica,Arial,sans-serif", fontsize=12, style="rounded,filled",
         color="#b8c4ce", fillcolor="#f5f8fa"];
  node [shape=box, style="rounded,filled", color="#5b7083", fillcolor=white,
        fontname="Helvetica,Arial,sans-serif", fontsize=12, height=0.3, margin="0.12,0.05"];
  edge [color="#5b7083", arrowsize=0.6];
"""

Arrows = set[tuple[str, str]]


def box(module: str) -> str:
    """Return the folder, or the module of the top level, that a module is drawn in."""
    return module.split(".")[1]


def without_implied(arrows: Arrows) -> Arrows:
    """Return arrows without those that follow from others; there must be no circle."""
    return {
        (a, b)
        for a, b in arrows
        if not any(b in _reached(arrows, c) for x, c in arrows if x == a and c != b)
    }


def _reached(arrows: Arrows, start: str) -> set[str]:
    """Return what arrows lead to from a box, the box included."""
    return {start}.union(*(_reached(arrows, b) for a, b in arrows if a == start))


def drawing() -> str:
    """Return the picture in the language of Graphviz."""
    graph = grimp.build_graph(PACKAGE, exclude_type_checking_imports=True, cache_dir=None)
    boxes: Counter[str] = Counter()
    arrows: Arrows = set()
    for module in sorted(graph.modules - {PACKAGE}):
        imported = graph.find_modules_directly_imported_by(module)
        # The empty __init__ of a folder is no module of it.
        empty = graph.find_children(module) and not graph.find_modules_that_directly_import(module)
        if imported or not empty:
            boxes[box(module)] += 1
            arrows |= {(box(module), box(one)) for one in imported - {PACKAGE}}
    arrows = without_implied({(a, b) for a, b in arrows if a != b})
    lines = []
    for name in sorted(boxes):
        look = f"label={json.dumps(name)}"
        if graph.find_children(f"{PACKAGE}.{name}"):
            label = json.dumps(f"{name}/  {boxes[name]}")
            look = f'label={label}, fillcolor="#dfe9f1", penwidth=1.5'
        lines.append(f"{json.dumps(name)} [{look}];")
    lines += [f"  {json.dumps(a)} -> {json.dumps(b)};" for a, b in sorted(arrows)]
    return "\n".join(["digraph modules {", STYLE, *lines, "}", ""])


def main() -> None:
    """Draw."""
    dot = shutil.which("dot")
    if dot is None:
        sys.exit("There is no program dot: install Graphviz (https://graphviz.org/download/).")
    command = [dot, "-Tsvg", "-o", str(OUT)]
    subprocess.run(command, input=drawing(), text=True, encoding="utf-8", check=True)


if __name__ == "__main__":
    main()
