"""No file is too long to be read in one go, unless there is a reason that is given here."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODULE_LINES, KERNEL_LINES = 800, 250

# Files that may be longer, by their path from the root of the repository, and why.
LONG: dict[str, str] = {}


def too_long() -> dict[str, int]:
    """Return the files above their limit, and their lines."""
    modules = [(path, MODULE_LINES) for path in ROOT.glob("src/napari_gpu_denoise/**/*.py")]
    kernels = [(p, KERNEL_LINES) for p in ROOT.glob("kernels/**/*") if p.suffix in {".cl", ".h"}]
    assert modules and kernels
    found = {}
    for path, limit in [*modules, *kernels]:
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > limit:
            found[path.relative_to(ROOT).as_posix()] = lines
    return found


def test_no_module_or_kernel_is_too_long_without_a_reason():
    found = {path: lines for path, lines in sorted(too_long().items()) if path not in LONG}
    assert not found, f"longer than {MODULE_LINES} (modules) or {KERNEL_LINES} (kernels): {found}"


def test_every_exception_has_a_reason_and_is_needed():
    assert all(reason.strip() for reason in LONG.values())
    assert not LONG.keys() - too_long().keys(), "these are short enough by now: take them out"
