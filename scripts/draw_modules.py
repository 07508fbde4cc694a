"""Draw which folders and modules of the package import which, as an SVG picture.

    python scripts/draw_modules.py                          # folders and modules of the top level
    python scripts/draw_modules.py --depth 2                # and what is inside the folders
    python scripts/draw_modules.py --modules -o modules.svg # every module

Arrows go from the importer, above, to what it imports, below; a folder has its number of modules
beside its name. Imports inside functions count, those for type checkers only do not. Arrows that
follow from others are left out, unless --all-arrows is given: if A imports B and B imports C, no
arrow is drawn from A to C. Imports that close a circle are red.

Needs grimp, which import-linter brings, and the program dot of Graphviz.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "napari_gpu_denoise"
OUT = ROOT / "docs" / "images" / "modules.svg"
STYLE = """
  graph [rankdir=TB, newrank=true, nodesep=0.25, ranksep=0.45, bgcolor=white,
         fontname="Helvetica,Arial,sans-serif", fontsize=12, style="rounded,filled",
         color="#b8c4ce", fillcolor="#f5f8fa"];
  node [shape=box, style="rounded,filled", color="#5b7083", fillcolor=white,
        fontname="Helvetica,Arial,sans-serif", fontsize=12, height=0.3, margin="0.12,0.05"];
  edge [color="#5b7083", arrowsize=0.6];
"""


class Drawing:
    """The graph of modules, with everything below a depth drawn as one box.

    Parameters
    ----------
    depth : int or None
        Levels of folders whose contents are drawn, or None for every module.
    """

    def __init__(self, depth: int | None):
        self._graph = grimp.build_graph(PACKAGE, exclude_type_checking_imports=True, cache_dir=None)
        self._depth = depth
        self.boxes: Counter[str] = Counter()
        self.arrows: Counter[tuple[str, str]] = Counter()
        for module in sorted(self._graph.modules - {PACKAGE}):
            box = self.box(module)
            if self._is_empty(module):
                continue
            self.boxes[box] += 1
            for imported in self._graph.find_modules_directly_imported_by(module):
                if imported != PACKAGE and self.box(imported) != box:
                    self.arrows[box, self.box(imported)] += 1

    def box(self, module: str) -> str:
        """Return the box that a module is drawn in."""
        parts = module.split(".")[1:]
        return ".".join(parts[: self._depth])

    def _is_empty(self, module: str) -> bool:
        """Return whether a module is the ``__init__`` of a folder, without imports either way."""
        return bool(
            self._graph.find_children(module)
            and not self._graph.find_modules_directly_imported_by(module)
            and not self._graph.find_modules_that_directly_import(module)
        )

    def is_folder(self, box: str) -> bool:
        """Return whether a box stands for a folder."""
        return bool(self._graph.find_children(f"{PACKAGE}.{box}"))

    def in_circle(self) -> set[tuple[str, str]]:
        """Return the arrows that are part of a circle."""
        return {(a, b) for a, b in self.arrows if a in _reached(self.arrows, b)}

    def dot(self, arrows: set[tuple[str, str]]) -> str:
        """Return the drawing with these arrows in the language of Graphviz."""
        lines = ["digraph modules {", STYLE, *self._inside("")]
        red = self.in_circle()
        for a, b in sorted(arrows):
            color = ' [color="#c62828", penwidth=1.6]' if (a, b) in red else ""
            lines.append(f"  {json.dumps(a)} -> {json.dumps(b)}{color};")
        return "\n".join([*lines, "}", ""])

    def _inside(self, folder: str) -> list[str]:
        """Return the boxes of a folder, and the folders inside it."""
        prefix = f"{folder}." if folder else ""
        names = {
            prefix + box.removeprefix(prefix).split(".")[0]
            for box in self.boxes
            if box.startswith(prefix)
        }
        lines = []
        for name in sorted(names):
            if any(box.startswith(f"{name}.") for box in self.boxes):
                label = json.dumps(f"{_last(name)}/")
                lines += [f'subgraph "cluster_{name}" {{ label={label};', *self._inside(name)]
                if name in self.boxes:
                    lines.append(f'{json.dumps(name)} [label="__init__"];')
                lines.append("}")
            else:
                lines.append(f"{json.dumps(name)} [{self._look(name)}];")
        return lines

    def _look(self, box: str) -> str:
        if not self.is_folder(box):
            return f"label={json.dumps(_last(box))}"
        label = json.dumps(f"{_last(box)}/  {self.boxes[box]}")
        return f'label={label}, fillcolor="#dfe9f1", penwidth=1.5'


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _reached(arrows, start: str) -> set[str]:
    """Return what arrows lead to from a box, the box included."""
    reached, waiting = {start}, [start]
    while waiting:
        here = waiting.pop()
        found = {b for a, b in arrows if a == here} - reached
        reached |= found
        waiting += found
    return reached


def without_implied(arrows: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return arrows without those that follow from others; there must be no circle."""
    return {
        (a, b)
        for a, b in arrows
        if not any(b in _reached(arrows, c) for x, c in arrows if x == a and c != b)
    }


def main() -> None:
    """Draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "-o", "--out", type=Path, default=OUT, help="SVG file (default: %(default)s)"
    )
    parser.add_argument(
        "--depth", type=int, default=1, help="levels of folders to open (default: 1)"
    )
    parser.add_argument("--modules", action="store_true", help="draw every module")
    parser.add_argument("--all-arrows", action="store_true", help="draw implied arrows, too")
    args = parser.parse_args()
    if args.depth < 1:
        parser.error("--depth must be at least 1")
    dot = shutil.which("dot")
    if dot is None:
        sys.exit(
            "The program dot was not found: install Graphviz (https://graphviz.org/download/)."
        )
    drawing = Drawing(None if args.modules else args.depth)
    arrows, circles = set(drawing.arrows), drawing.in_circle()
    if not args.all_arrows:
        # An arrow of a circle implies others of it and is implied by them: all of those are kept.
        arrows = without_implied(arrows - circles) | circles
    args.out.parent.mkdir(parents=True, exist_ok=True)
    command = [dot, "-Tsvg", "-o", str(args.out)]
    subprocess.run(command, input=drawing.dot(arrows), text=True, encoding="utf-8", check=True)
    print(f"{args.out}: {len(drawing.boxes)} boxes, {len(arrows)} of {len(drawing.arrows)} arrows")


if __name__ == "__main__":
    main()
