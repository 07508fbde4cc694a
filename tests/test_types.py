"""What type checkers, editors and documentation know of the public functions."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from numpydoc.validate import validate

import napari_gpu_denoise as gd

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
#: Those of classes are in a section of attributes, or have their words in the code of a setting.
OF_CLASSES = {"PR01"}
PUBLIC = [name for name in gd.__all__ if callable(getattr(gd, name))]


def test_the_types_of_the_package_are_those_of_its_functions():
    script = ROOT / "scripts" / "write_stub.py"
    assert not subprocess.run([sys.executable, script, "--check"]).returncode, (
        "run python scripts/write_stub.py"
    )


def test_public_functions_leave_no_type_open():
    stub = Path(gd.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    assert "def bm3d(" in stub and not re.search(r"\bAny\b", stub)


@pytest.mark.parametrize("name", PUBLIC)
def test_docstrings_follow_numpydoc(name):
    every, *left_out = PROJECT["tool"]["numpydoc_validation"]["checks"]
    assert every == "all"
    left_out += OF_CLASSES if inspect.isclass(getattr(gd, name)) else ()
    found = validate(f"{gd.__name__}.{name}")["errors"]
    assert [each for each in found if each[0] not in left_out] == []
