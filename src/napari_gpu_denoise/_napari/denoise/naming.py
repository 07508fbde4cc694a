"""Asks for the names of files that results are written to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from qtpy.QtWidgets import QFileDialog, QWidget

from napari_gpu_denoise._napari import preferences
from napari_gpu_denoise._napari.denoise.in_file import size_of_file, suggested
from napari_gpu_denoise._napari.denoise.request import Request
from napari_gpu_denoise._napari.layers.storage import gigabytes
from napari_gpu_denoise.errors import OutputError
from napari_gpu_denoise.files import zarr


def with_files(panel: QWidget, requests: Sequence[Request]) -> list[Request]:
    """Return requests with a file for each result that needs one.

    Raises `OutputError` if the user names none.
    """
    largest = preferences.read().largest_result
    return [
        replace(each, target=_asked(panel, each, size))
        if (size := size_of_file(each, largest))
        else each
        for each in requests
    ]


def _asked(panel: QWidget, request: Request, size: int) -> Path:
    title = f"File for the result of {request.source.name} ({gigabytes(size)})"
    name, _ = QFileDialog.getSaveFileName(
        panel, title, suggested(request), "OME-Zarr (*.ome.zarr *.zarr)"
    )
    if not name:
        raise OutputError(
            f"The result of {request.source.name!r} takes {gigabytes(size)}, and no file was named "
            "for it: name one, or raise Results without a file (MB) in napari's preferences."
        )
    return Path(name if zarr.has_suffix(name) else f"{name}.ome.zarr")
