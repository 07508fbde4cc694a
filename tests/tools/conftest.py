"""The scripts of tools/, started in this process as they are from a shell."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load(name: str, folder: str = "tools") -> ModuleType:
    """Return a script as a module; its folder is on the path, as where it is started."""
    if str(ROOT / folder) not in sys.path:
        sys.path.insert(0, str(ROOT / folder))
    return importlib.import_module(name)


@pytest.fixture
def run(capsys):
    """Run a script of tools/; returns its exit code, and what it prints and complains."""

    def run_it(script: str, *argv: object) -> tuple[int, str, str]:
        code = load(script).main([str(argument) for argument in argv])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run_it
