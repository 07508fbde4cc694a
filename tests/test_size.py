"""The package stays small enough to be read: its files, its lines, and the longest of them.

The totals are printed (``pytest -s``). Limits are only ever lowered, to what a commit that removes
something has reached: whoever adds lines takes as many away elsewhere.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from napari_gpu_denoise.filters import MODULES
from napari_gpu_denoise.noise.models import MODELS

PACKAGE = "napari_gpu_denoise"
ROOT = Path(__file__).resolve().parents[1]
MODULE_LINES, KERNEL_LINES = 800, 250
#: The most that the package may have; only ever lowered.
LIMITS = {
    "modules": 187,
    "lines": 43_957,
    "lines of imports": 2_737,
    "modules with a single importer": 24,
}

# Files that may be longer, by their path from the root of the repository, and why.
LONG: dict[str, str] = {}


def line_counts() -> dict[Path, int]:
    """Return the number of lines of each module and kernel."""
    modules = ROOT.glob("src/napari_gpu_denoise/**/*.py")
    kernels = [path for path in ROOT.glob("kernels/**/*") if path.suffix in {".cl", ".h"}]
    return {
        path: len(path.read_text(encoding="utf-8").splitlines()) for path in [*modules, *kernels]
    }


def import_lines(path: Path) -> int:
    """Return the number of lines of a module that its imports take."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    return sum(node.end_lineno - node.lineno + 1 for node in imports)


@pytest.fixture(scope="module")
def totals(import_graph) -> dict[str, int]:
    """What the package has, by the names of `LIMITS`."""
    counts = {path: lines for path, lines in line_counts().items() if path.suffix == ".py"}
    # A filter or model of noise is found by its list, which its page asks for, and no such module.
    listed = {*MODULES.values(), *(kind.__module__ for kind in MODELS)}
    importers = [
        len(import_graph.find_modules_that_directly_import(name) - {f"{PACKAGE}.__main__"})
        for name in import_graph.modules - listed
    ]
    figures = {
        "modules": len(counts),
        "lines": sum(counts.values()),
        "lines of imports": sum(map(import_lines, counts)),
        "modules with a single importer": importers.count(1),
    }
    print("".join(f"\n{name}: {figure} (limit {LIMITS[name]})" for name, figure in figures.items()))
    return figures


@pytest.mark.parametrize("name", LIMITS)
def test_the_package_is_no_larger_than_agreed(totals, name):
    assert totals[name] <= LIMITS[name], (
        "take away as much elsewhere if you can; if not, leave the limit as it is and say so in "
        "the pull request: a maintainer makes room (CONTRIBUTING.md)"
    )


def test_no_module_or_kernel_is_too_long_without_a_reason():
    found = {
        path.relative_to(ROOT).as_posix(): lines
        for path, lines in line_counts().items()
        if lines > (MODULE_LINES if path.suffix == ".py" else KERNEL_LINES)
    }
    assert found.keys() == LONG.keys(), (
        f"longer than {MODULE_LINES} (modules) or {KERNEL_LINES} (kernels): {found}; LONG holds "
        "those that have a reason, and no others"
    )
    assert all(reason.strip() for reason in LONG.values())
