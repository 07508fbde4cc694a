"""The scripts of tools/, started in this process as they are from a shell."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"


def load(name: str) -> ModuleType:
    """Return a script of tools/ as a module; its folder is on the path, as where it is started."""
    if str(TOOLS) not in sys.path:
        sys.path.insert(0, str(TOOLS))
    return importlib.import_module(name)


@pytest.fixture
def run(capsys):
    """Run a script of tools/; returns its exit code, and what it prints and complains."""

    def run_it(script: str, *argv: object) -> tuple[int, str, str]:
        code = load(script).main([str(argument) for argument in argv])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run_it
