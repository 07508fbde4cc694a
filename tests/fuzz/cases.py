"""All cases by their number, so that any can be repeated: the number is the seed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from random import Random

from fuzz.array_cases import ARRAY_CASES
from fuzz.checkpoint_cases import CHECKPOINT_CASES
from fuzz.file_cases import FILE_CASES
from fuzz.json_cases import JSON_CASES
from fuzz.nifti_cases import NIFTI_CASES
from fuzz.record_cases import IN_NAPARI, RECORD_CASES, viewer_model
from fuzz.settings_cases import SETTINGS_CASES
from fuzz.tree_cases import TREE_CASES, plant
from fuzz.watching import OWN, Case, Outcome, outcome
from fuzz.zarr_cases import ZARR_CASES

_OF_FILES = {**NIFTI_CASES, **FILE_CASES, **ZARR_CASES, **JSON_CASES, **TREE_CASES}
_OF_FILES |= {**SETTINGS_CASES, **RECORD_CASES, **CHECKPOINT_CASES}
KINDS = (*ARRAY_CASES, *_OF_FILES)  # one number in sixteen is of each


def kind_of(number: int) -> str:
    """Return the kind of a case."""
    return KINDS[number % len(KINDS)]


def left_out() -> dict[str, str]:
    """Return the kinds of cases that cannot run here, and why."""
    return {} if find_spec("napari") else {IN_NAPARI: "napari is not installed"}


@cache
def prepare(kind: str) -> None:
    """Load what cases of a kind need, which takes longer than they do."""
    import numpy as np

    import napari_gpu_denoise as gd
    from scenes import SMALL

    gd.nl_means(np.zeros((12, 14)), sigma=1, **SMALL["nl_means"])
    if kind == IN_NAPARI:
        viewer_model()


def made(kind: str, rng: Random, folder: Path) -> Case:
    """Return a case with its files; what is raised when arguments are made is raised again."""
    for name in (*OWN, "secret"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    if kind not in ARRAY_CASES:
        plant(folder / "secret")
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
        case = made(kind_of(number), Random(number), folder)
        return case, outcome(case, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
