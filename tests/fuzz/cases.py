"""All cases by their number, so that any can be repeated: the number is the seed."""

from __future__ import annotations

import shutil
import tempfile
from functools import cache
from pathlib import Path
from random import Random

from fuzz import array_cases as arrays
from fuzz.checkpoint_cases import checkpoint_case
from fuzz.file_cases import bytes_case, ome_case, tags_case
from fuzz.json_cases import json_case
from fuzz.nifti_cases import nifti_case
from fuzz.record_cases import record_case
from fuzz.watching import OWN, Case, Outcome, outcome
from fuzz.zarr_cases import plant, zarr_case

OF_ARRAYS = {
    "denoise": arrays.denoise_case,
    "denoise_lazy": arrays.lazy_case,
    "stream": arrays.stream_case,
    "estimate_noise": arrays.estimate_case,
}
OF_FILES = {
    "NIfTI": nifti_case,
    "TIFF bytes": bytes_case,
    "TIFF tags": tags_case,
    "OME-XML": ome_case,
    "OME-Zarr": zarr_case,
    "JSON": json_case,
    "records": record_case,
    "checkpoints": checkpoint_case,
}
KINDS = (*OF_ARRAYS, *OF_FILES)  # an equal number of each


def kind_of(number: int) -> str:
    """Return the kind of a case."""
    return KINDS[number % len(KINDS)]


@cache
def prepare() -> None:
    """Load what cases need, which takes longer than they do."""
    import numpy as np

    import napari_gpu_denoise as gd
    from scenes import SMALL

    gd.nl_means(np.zeros((12, 14)), sigma=1, **SMALL["nl_means"])


def made(kind: str, rng: Random, folder: Path) -> Case:
    """Return a case with its files; what is raised when arguments are made is raised again."""
    for name in (*OWN, "secret"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    try:
        if kind in OF_ARRAYS:
            return OF_ARRAYS[kind](rng)
        plant(folder / "secret")
        return OF_FILES[kind](rng, folder)
    except Exception as error:
        raised = error

        def run() -> None:
            raise raised

        return Case("the arguments themselves", run)


def run_case(number: int) -> tuple[Case, Outcome]:
    """Run the case of a number in a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz"))
    try:
        case = made(kind_of(number), Random(number), folder)
        return case, outcome(case, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
