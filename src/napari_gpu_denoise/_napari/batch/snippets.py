"""A batch as text: the command line and the Python call that do the same."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from napari_gpu_denoise._napari.batch.rows import Row
from napari_gpu_denoise._napari.denoise.snippets import (
    common_arguments,
    noise_argument,
    noise_option,
    shell_line,
)
from napari_gpu_denoise._napari.noise import snippets as code
from napari_gpu_denoise.errors import FileError
from napari_gpu_denoise.files.batch import Batch
from napari_gpu_denoise.files.inputs import find_files
from napari_gpu_denoise.run.settings import as_options


def command_with_remarks(batch: Batch, rows: Sequence[Row], folder: str) -> tuple[str, list[str]]:
    """Return the command for a shell, and sentences on what it does otherwise than the panel."""
    run = batch.run
    words = ["gpu-denoise", run.filter.name.replace("_", "-"), *inputs_of(rows), "-o", folder]
    words += noise_option(run)
    words += ["--axes", run.axes] if run.axes else []
    words += as_options(run.filter.as_arguments() | common_arguments(run))
    words += [f"--{name}" for name in _existing(batch)]
    remarks = []
    if "--noise" in words and not isinstance(run.noise, str):
        remarks.append("It measures the noise again, in each file.")
    return shell_line(words), remarks


def python_call(batch: Batch, rows: Sequence[Row], folder: str) -> str:
    """Return Python code that does the same."""
    run = batch.run
    given: dict[str, Any] = {**noise_argument(run), "output": folder}
    given |= {"axes": run.axes} if run.axes else {}
    given |= common_arguments(run) | dict.fromkeys(_existing(batch), True)
    chosen = run.filter.as_arguments()
    made = ".of" if "profile" in chosen else ""
    words = ", ".join(f"{name}={value!r}" for name, value in chosen.items())
    listed = "".join(f"    {name!r},\n" for name in inputs_of(rows))
    return (
        f"{code.IMPORT}\nfiles = [\n{listed}]\n"
        f"report = gd.run_batch(files, gd.{type(run.filter).__name__}{made}({words})"
        f"{code.arguments(given)})\n"
        "for file in report.failed:\n    print(file.input, file.error)\n"
    )


def inputs_of(rows: Sequence[Row]) -> list[str]:
    """Return what names the files: the folders that were added, where they are still complete."""
    held = {row.path for row in rows}
    whole = {given: _is_all_of(given, held) for given in {row.given for row in rows}}
    names = (row.given if whole[row.given] else str(row.path) for row in rows)
    return list(dict.fromkeys(names))


def _is_all_of(given: str, held: set[Path]) -> bool:
    if not os.path.isdir(given):
        return True
    try:
        return held.issuperset(find_files(given))
    except FileError:
        return False


def _existing(batch: Batch) -> list[str]:
    """Return the arguments that say what becomes of existing results."""
    return [name for name in ("overwrite", "resume") if getattr(batch, name)]
