"""One image and the metadata of its file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from napari_gpu_denoise.files.regular import open_regular
from napari_gpu_denoise.files.tiff.checks import check_memory
from napari_gpu_denoise.files.tiff.looks import Looks
from napari_gpu_denoise.files.tiff.planes import Blocks, PartOfPlanes, Planes

if TYPE_CHECKING:
    from napari_gpu_denoise.run.record import Record

SUFFIXES = (".tif", ".tiff", ".btf", ".tf8")
MARK = "napari-gpu-denoise: "  # starts a line that holds a record as JSON
_ALPHA = (1, 2)  # kinds of extra sample, premultiplied or not
_MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


@dataclass(frozen=True, eq=False)
class Picture:
    """One image of a file, and what is needed to write another with the same metadata.

    Attributes
    ----------
    data : ndarray or Blocks
        The pixels, in native byte order: in memory after `read`, in the file after `open_stack`.
        16-bit signed images of ImageJ, which that program stores with an offset of 32768, are
        int16 here.
    axes : str
        One letter an axis, as tifffile names them: T Z C Y X, S colour samples, Q or I unknown.
    kind : str
        ``"ome"``, ``"imagej"``, ``"plain"`` or, for a NIfTI file, ``"nifti"``.
    metadata : dict
        Tags and layout of the file, for `write`.
    path : Path
        Where it was read from.
    files : tuple of Path
        All files that hold its pixels: several for an OME-TIFF set.
    notes : tuple of str
        What a user should know about how it was read, one sentence each.
    history : tuple of dict
        Records of earlier denoising found in the file, oldest first.
    voxel : tuple of float or None
        Voxel size (z, y, x), if the file tells all three.
    voxel_unit : str
        Its unit, such as ``"µm"``; empty if the file does not tell it.
    looks : Looks
        Steps along the axes with their units, and names and colours of channels, as far as the
        file tells them.
    """

    data: np.ndarray | Blocks
    axes: str
    kind: str
    metadata: dict[str, Any]
    path: Path
    files: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()
    history: tuple[dict, ...] = field(default=(), repr=False)
    voxel: tuple[float, float, float] | None = None
    voxel_unit: str = ""
    looks: Looks = field(default=Looks({}), repr=False)

    @property
    def filter_axes(self) -> str:
        """The axes, unknown ones as ``.``, which may occur more than once."""
        return "".join(a if a in "TZCSYX" else "." for a in self.axes)

    @property
    def alpha(self) -> tuple[slice, ...] | None:
        """Index of the alpha channel, which is not denoised; None if there is none."""
        extra = self.metadata.get("extrasamples", ())
        if "S" not in self.axes or len(extra) != 1 or extra[0] not in _ALPHA:
            return None
        if self.data.shape[self.axes.index("S")] < 2:
            return None  # a damaged file says that its only sample is alpha
        return tuple(slice(-1, None) if a == "S" else slice(None) for a in self.axes)

    @property
    def has_palette(self) -> bool:
        """Whether the pixels are indices of a colour table, which only integers can have."""
        return self.kind == "plain" and self.metadata.get("colormap") is not None

    @property
    def colours(self) -> tuple[slice, ...]:
        """Index of what is filtered: all but alpha."""
        kept = slice(None) if self.alpha is None else slice(-1)
        return tuple(kept if a == "S" else slice(None) for a in self.axes)

    @property
    def pixels(self) -> np.ndarray | Blocks:
        """What is filtered: `data` without alpha, still in the file if `data` is."""
        if self.alpha is None:
            return self.data
        if isinstance(self.data, Planes):
            return PartOfPlanes(self.data, self.colours)
        return self.data[self.colours]

    def loaded(self, result: int = 0) -> Picture:
        """Return the same picture with its pixels in memory, beside `result` bytes to come.

        FileError if the machine has not enough memory for both.
        """
        if isinstance(self.data, Blocks):
            check_memory(self.data.nbytes + result, self.path)
        return replace(self, data=np.asarray(self.data))


def is_tiff(path: str | os.PathLike) -> bool:
    """Return whether a file starts like a TIFF file; False also if it cannot be opened."""
    try:
        with open_regular(path) as file:
            return file.read(4) in _MAGIC
    except OSError:
        return False


def records_of(record: Record | Sequence[dict] | None) -> list[dict]:
    """Return the records that a writer is given: of one run, of several, or none."""
    if record is None:
        return []
    return [record.as_dict()] if hasattr(record, "as_dict") else list(record)
