"""The scripts of tools/, started in this process as they are from a shell."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"


def load(name: str) -> ModuleType:
    """Return a file of tools/ as a module, once for all tests."""
    path = TOOLS / f"{name}.py"
    loaded = sys.modules.get(name)
    if getattr(loaded, "__file__", None) != str(path):
        spec = importlib.util.spec_from_file_location(name, path)
        loaded = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
    return loaded


@pytest.fixture
def run(capsys):
    """Run a script of tools/; returns its exit code, and what it prints and complains."""

    def run_it(script: str, *argv: object) -> tuple[int, str, str]:
        code = load(script).main([str(argument) for argument in argv])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run_it
