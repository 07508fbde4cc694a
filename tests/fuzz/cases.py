"""All cases by their number, so that any can be repeated: the number is the seed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random

from fuzz.array_cases import ARRAY_CASES
from fuzz.file_cases import FILE_CASES
from fuzz.json_cases import JSON_CASES
from fuzz.nifti_cases import NIFTI_CASES
from fuzz.watching import Case, Outcome, outcome
from fuzz.zarr_cases import ZARR_CASES

_OF_FILES = {**NIFTI_CASES, **FILE_CASES, **ZARR_CASES, **JSON_CASES}
KINDS = (*ARRAY_CASES, *_OF_FILES)  # one number in eleven is of each


def kind_of(number: int) -> str:
    """Return the kind of a case."""
    return KINDS[number % len(KINDS)]


def made(kind: str, rng: Random, folder: Path) -> Case:
    """Return a case with its files; what is raised when arguments are made is raised again."""
    try:
        if kind in ARRAY_CASES:
            return ARRAY_CASES[kind](rng)
        return _OF_FILES[kind](rng, folder)
    except Exception as error:
        return Case("the arguments themselves", _raising(error))


def _raising(error: Exception) -> Callable[[], None]:
    def run() -> None:
        raise error

    return run


def run_case(number: int) -> tuple[Case, Outcome]:
    """Run the case of a number in a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz"))
    try:
        for name in ("data", "out", "secret"):
            (folder / name).mkdir()
        case = made(kind_of(number), Random(number), folder)
        return case, outcome(case, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
