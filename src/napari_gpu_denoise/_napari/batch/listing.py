"""Files that are added to the list: found and looked at off the GUI thread."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from qtpy.QtCore import QObject, Signal

from napari_gpu_denoise._napari.batch.rows import Row, looking
from napari_gpu_denoise._napari.loading import Loading
from napari_gpu_denoise._napari.noise.measuring import Measuring
from napari_gpu_denoise.errors import DenoiseError, FileError
from napari_gpu_denoise.files import formats, zarr
from napari_gpu_denoise.files.inputs import find_files


class Listing(QObject):
    """Finds the files that names stand for, and then looks at them."""

    #: A list of `Row`, and a list of errors.
    found = Signal(list, list)
    #: A `Look`.
    looked = Signal(object)

    def __init__(self, parent: QObject):
        super().__init__(parent)
        self._looking = Measuring(self, looking, "Batch")
        self._looking.staged.connect(self.looked)

    def add(self, names: Sequence[str]) -> None:
        """Find files."""
        Loading(partial(found_in, names), lambda got: self.found.emit(*(got or ([], []))), self)

    def look(self, paths: Sequence[Path]) -> None:
        """Look at files, in place of those that are waited for."""
        self._looking.ask(tuple(paths))

    def drop(self) -> None:
        """Look at no more files."""
        self._looking.drop()


def found_in(names: Sequence[str]) -> tuple[list[Row], list[DenoiseError]]:
    """Return the files that names of files and folders stand for, and what is wrong with others."""
    rows: list[Row] = []
    errors: list[DenoiseError] = []
    for name in map(os.path.abspath, names):
        try:
            for path in find_files(name):
                if not (formats.has_suffix(path) or formats.is_image(path)):
                    raise FileError(
                        f"{path} is not a TIFF, NIfTI or OME-Zarr file: choose another."
                    )
                rows.append(Row(path, name))
        except DenoiseError as error:
            errors.append(error)
    return rows, errors


def folder_for(row: Row) -> str:
    """Return a folder for results: in the folder that was added, or beside the file."""
    given = Path(row.given)
    if given.is_dir() and not formats.is_image(given):
        return str(given / "denoised")
    # Not in an OME-Zarr that a field is part of.
    whole = [each for each in (given, *given.parents) if zarr.has_suffix(each)]
    return str((whole[-1] if whole else given).parent / "denoised")
