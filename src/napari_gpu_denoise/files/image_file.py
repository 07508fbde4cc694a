"""One image of a file, whatever its format: its metadata, and its pixels, read in blocks."""

from __future__ import annotations

import contextlib
import json
import math
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from napari_gpu_denoise.files import input_checks
from napari_gpu_denoise.image.axes import chosen_range, index_parts

INTEGERS = {f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
_CACHED = 4  # decoded blocks kept in memory,
_CACHED_BYTES = 2**25  # as long as they do not exceed this; one is always kept

Region = tuple[slice, ...]


class Blocks(ABC):
    """An array that is read in blocks, each of which holds all but the first `outer` axes."""

    _is_fresh = False  # whether a region that is read is nobody else's

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, outer: int) -> None:
        self.shape = tuple(int(length) for length in shape)
        self.dtype = dtype
        self.ndim, self.size = len(self.shape), math.prod(self.shape)
        self.nbytes = self.size * dtype.itemsize
        self._outer = outer
        self._block_shape = self.shape[outer:]
        self._block_bytes = math.prod(self._block_shape) * dtype.itemsize
        self._numbers = np.arange(math.prod(self.shape[:outer])).reshape(self.shape[:outer])
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Any:
        parts = tuple(index_parts(index, self.shape))
        numbers, part = np.asarray(self._numbers[parts[: self._outer]]), parts[self._outer :]
        shape = np.broadcast_to(False, self._block_shape)[part].shape
        region, inner = _region_of(part, self._block_shape)
        if self._is_fresh and numbers.size == 1 and math.prod(shape):
            found = self._region(int(numbers.flat[0]), region)[inner]
            return found.reshape(numbers.shape + shape)[()]
        result = np.empty(numbers.shape + shape, self.dtype)
        for place in np.ndindex(numbers.shape) if result.size else ():
            result[place] = self._region(int(numbers[place]), region)[inner]
        return result[()]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("copy=False is not possible: planes are read from disk.")
        whole = self._whole()
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def reads_by_plane(self, *axes: int) -> bool:
        """Return whether a plane of these two axes can be read without reading the whole file."""
        return hasattr(self, "chunks") or (self._outer <= min(axes) and self._numbers.size > 1)

    def _whole(self) -> np.ndarray:
        return self[...]

    def _region(self, number: int, region: Region) -> np.ndarray:
        """Read a region of a block, of at least a pixel."""
        return self._block(number)[region]

    @abstractmethod
    def _block(self, number: int) -> np.ndarray:
        """Read one block, which the caller does not change."""


def _region_of(part: tuple[int | slice, ...], shape: tuple[int, ...]) -> tuple[Region, tuple]:
    """Return the region that holds what an index selects, and the index into that region.

    Samples of a pixel lie side by side, and are all read.
    """
    region, inner = [slice(0, n) for n in shape], list(part)
    for axis, (one, length) in enumerate(zip(part[:2], shape[:2], strict=True)):
        chosen = chosen_range(one, length)
        low, high = sorted((chosen[0], chosen[-1])) if chosen else (0, -1)
        region[axis] = slice(low, high + 1)
        inner[axis] = slice(None, None, chosen.step) if isinstance(one, slice) else 0
    return tuple(region), tuple(inner)


def read_into(file: Any, values: np.ndarray) -> bool:
    """Fill an array from a file; return whether that held enough."""
    rest = values.reshape(-1).view(np.uint8).data
    while rest and (count := file.readinto(rest)):
        rest = rest[count:]
    return not rest


class FileBlocks(Blocks):
    """Blocks of a file that is open, each read by a function of its number until they are closed.

    Several threads may read. Blocks that were read last are kept. `reading` turns what is raised
    into a `FileError`.
    """

    def __init__(
        self,
        path: Path,
        shape: tuple[int, ...],
        dtype: np.dtype,
        outer: int,
        read: Any = None,
        reading: Callable[[Path], Any] = input_checks.reading,
    ) -> None:
        super().__init__(shape, dtype, outer)
        self._path, self._reads, self._named = path, read, reading
        self._kept: dict[int, np.ndarray] | None = {}  # the block used longest ago comes first

    def close(self) -> None:
        """End reading; who opened the file closes it."""
        with self._lock:
            self._kept = None

    @contextlib.contextmanager
    def _reading(self) -> Iterator[dict[int, np.ndarray]]:
        """Let this thread alone read, and yield the blocks that are kept."""
        with self._lock, self._named(self._path):
            if self._kept is None:
                raise input_checks.closed(self._path)
            yield self._kept

    def _block(self, number: int) -> np.ndarray:
        with self._reading() as kept:
            block = kept.pop(number, None)
            if block is None:
                most = min(_CACHED, max(1, _CACHED_BYTES // self._block_bytes))
                while len(kept) >= most:
                    del kept[next(iter(kept))]
                block = self._read(number)
            kept[number] = block
            return block

    def _read(self, number: int) -> np.ndarray:
        return self._reads(number)


class PartOfBlocks(Blocks):
    """Part of each block of an array, such as the colours of an image without alpha."""

    def __init__(self, blocks: Blocks, kept: tuple[slice, ...]) -> None:
        shape = np.broadcast_to(False, blocks.shape)[kept].shape
        super().__init__(shape, blocks.dtype, blocks._outer)
        self._numbers = blocks._numbers[kept[: self._outer]]
        self._blocks, self._kept = blocks, kept[self._outer :]

    def _block(self, number: int) -> np.ndarray:
        return self._blocks._block(number)[self._kept]


BOOLEAN = "The file is boolean: its pixels are taken for 0 and 1, of type uint8."
MARK = "napari-gpu-denoise: "  # starts a line that holds a record as JSON
_ALPHA = (1, 2)  # kinds of extra sample, premultiplied or not

# Units by the names that OME-Zarr and pint have for them: the symbol of OME-XML, metres, and what
# else files call them.
_UNITS: dict[str, tuple[str, float, tuple[str, ...]]] = {
    "meter": ("m", 1.0, ("metre",)),
    "centimeter": ("cm", 1e-2, ()),
    "millimeter": ("mm", 1e-3, ()),
    "micrometer": ("µm", 1e-6, ("μm", "um", "micron", "microns")),
    "nanometer": ("nm", 1e-9, ()),
    "picometer": ("pm", 1e-12, ()),
    "angstrom": ("Å", 1e-10, ()),
    "inch": ("in", 0.0254, ("inches",)),
    "second": ("s", 0, ("sec", "secs", "seconds")),
    "millisecond": ("ms", 0, ("msec",)),
    "microsecond": ("µs", 0, ("μs", "us", "usec")),
    "nanosecond": ("ns", 0, ()),
    "minute": ("min", 0, ("minutes",)),
    "hour": ("h", 0, ("hr", "hours")),
    "day": ("d", 0, ("days",)),
}
SYMBOLS = {name: symbol for name, (symbol, _, _) in _UNITS.items()}
METRES = {name: length for name, (_, length, _) in _UNITS.items() if length}
_NAMES = {each: name for name, (symbol, _, more) in _UNITS.items() for each in (symbol, *more)}

Steps = dict[str, tuple[float, str]]


@dataclass(frozen=True)
class Channel:
    """A channel: its name, its colour as ``"#rrggbb"``, the grey levels shown black and white."""

    name: str = ""
    colour: str = ""
    limits: tuple[float, float] | None = None


@dataclass(frozen=True)
class PixelMetadata:
    """How an image is shown.

    `steps` hold, by the letter of an axis, the distance of neighbours and its unit, such as
    ``"micrometer"``; the unit is empty where it is not known. `channels` are those along C.
    """

    steps: Steps
    channels: tuple[Channel, ...] = ()


@dataclass(frozen=True, eq=False)
class ImageFile:
    """One image of a file, and what is needed to write another with the same metadata.

    Attributes
    ----------
    data : ndarray or Blocks
        The pixels, in native byte order: in memory after `read`, in the file after `open_stack`.
        Those of a boolean file are 0 and 1, of type uint8.
        16-bit signed images of ImageJ, which that program stores with an offset of 32768, are
        int16 here.
    axes : str
        One letter an axis, as tifffile names them: T Z C Y X, S colour samples, Q or I unknown.
    kind : str
        ``"ome"``, ``"imagej"`` or ``"plain"`` for a TIFF file, ``"nifti"``, ``"zarr"``,
        ``"dicom"``, ``"video"`` or ``"microscope"``.
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
    pixel_metadata : PixelMetadata
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
    pixel_metadata: PixelMetadata = field(default=PixelMetadata({}), repr=False)

    def reads_by_plane(self, axes: str) -> bool:
        """Return whether a plane of named axes is read without the whole file, which is open."""
        places = (axes.upper().index(axis) for axis in "YX")
        return isinstance(self.data, Blocks) and self.data.reads_by_plane(*places)

    @property
    def voxel(self) -> tuple[float, float, float] | None:
        """Voxel size (z, y, x), if the file tells all three."""
        return _voxel_of(self.pixel_metadata.steps)[0]

    @property
    def voxel_unit(self) -> str:
        """Its unit, such as ``"µm"``; empty if the file does not tell it."""
        return _voxel_of(self.pixel_metadata.steps)[1]

    @property
    def filter_axes(self) -> str:
        """The axes, unknown ones as ``.``, which may occur more than once."""
        return "".join(a if a in "TZCSYXD" else "." for a in self.axes)

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
    def keeps_type(self) -> bool:
        """Whether results have the type of the pixels: indices of colours, DICOM, videos."""
        palette = self.kind == "plain" and self.metadata.get("colormap") is not None
        return palette or self.kind in ("dicom", "video")

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
        if isinstance(self.data, Blocks):
            return PartOfBlocks(self.data, self.colours)
        return self.data[self.colours]

    def loaded(self, result: int = 0) -> ImageFile:
        """Return the same picture with its pixels in memory, beside `result` bytes to come.

        FileError if the machine has not enough memory for both.
        """
        if isinstance(self.data, Blocks):
            input_checks.check_memory(self.data.nbytes + result, self.path)
        return replace(self, data=np.asarray(self.data))


@dataclass(frozen=True)
class Format:
    """A format of image files: what the package for it offers to `formats`.

    `suffixes`, in small letters, end the names of its files, of results those of `written` only, if
    it has any; `kinds` are those of an `ImageFile` that it reads. `name` is for messages.
    `is_format` judges a file by how it starts, False if it cannot be opened, `is_named` a path by
    its name, by default its suffix. `open_image` takes a path, the stack that holds what it opens
    but for ``data``, and whether other files may lie anywhere; `write` what was opened for the
    result, its path, pixels, an image like it, and records: it returns what was lost. `held` has
    the types of pixels that its files hold, by their kind, after what that is called;
    `check_writable` refuses what else cannot be written. With `new_image` large results are written
    part by part where they will be. `becomes` names the formats that results may have besides, or
    only, if there is no `write`; `described_anew` returns an image of another format as a new one
    of this. `tables` returns the files beside an image that are copied beside a result, and their
    names there. `result_name` returns a name for the result of a file, by default its own.
    """

    name: str
    suffixes: tuple[str, ...]
    kinds: tuple[str, ...]
    is_format: Callable[[Any], bool]
    open_image: Callable[[Any, contextlib.ExitStack, bool], ImageFile]
    write: Callable[[Any, Path, Any, ImageFile, Sequence[dict]], tuple[str, ...]] | None
    held: Mapping[str, tuple[str, Collection[str]]] = field(default_factory=dict)
    check_writable: Callable[[ImageFile, np.dtype], None] = lambda like, dtype: None
    is_named: Callable[[Any], bool] | None = None
    new_image: Callable[..., contextlib.AbstractContextManager[Any]] | None = None
    becomes: tuple[str, ...] = ()
    written: tuple[str, ...] | None = None
    described_anew: Any = None
    tables: Callable[[Path, Path], dict[Path, Path]] = lambda path, target: {}
    result_name: Callable[[Path], str] | None = None

    def is_path(self, path: str | os.PathLike) -> bool:
        """Return whether a path has the name of such a file."""
        if self.is_named is not None:
            return self.is_named(path)
        return os.fspath(path).lower().endswith(self.suffixes)


def record_line(record: dict) -> str:
    """Return a record as a line of a text, as which `records_in` finds it."""
    return MARK + json.dumps(record)


def records_in(text: str) -> tuple[dict, ...]:
    """Return the records in the lines of a text, oldest first."""
    lines = (line for line in text.splitlines() if line.startswith(MARK))
    return tuple(each for line in lines for each in parsed_record(line[len(MARK) :].rstrip("\0")))


def parsed_record(text: str) -> list[dict]:
    """Return the record in a text; nothing if it is something else, as of another program."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return [found] if isinstance(found, dict) else []


def rounded(levels: ArrayLike, dtype: np.dtype, low: int, high: int) -> tuple[np.ndarray, int]:
    """Return levels as integers of up to 32 bits, and how many are beyond the ends, or NaN (0)."""
    whole = np.rint(np.asarray(levels, np.float64))
    held = (low <= whole) & (whole <= high)
    made = np.clip(np.nan_to_num(whole), low, high).astype(dtype)
    return made, int(np.count_nonzero(~held))


def unit_named(told: Any) -> str:
    """Return the full name of a unit; empty for one that is no length and no time."""
    text = str(told).strip()
    if text in _NAMES:  # capitals count: M is no metre
        return _NAMES[text]
    text = text.lower()
    text = _NAMES.get(text, text) if len(text) > 2 else text
    return text if text in SYMBOLS else ""


def kept_steps(found: Mapping[str, tuple[Any, Any]]) -> Steps:
    """Return the steps that are distances, with the full names of their units."""
    return {
        letter: (value, unit_named(unit))
        for letter, (told, unit) in found.items()
        if (value := step_of(told))
    }


def step_of(told: Any) -> float:
    """Return a length; 0 for what is none."""
    try:
        step = abs(float(told))
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return step if math.isfinite(step) else 0.0


def _voxel_of(steps: Steps) -> tuple[tuple[float, float, float] | None, str]:
    """Return the voxel size, and the symbol of the unit of x; none if units do not compare."""
    known = [steps[axis] for axis in "ZYX" if axis in steps]
    units = [unit for _, unit in known]
    lengths = [METRES.get(unit, 0) for unit in units]
    if len(known) < 3 or (len(set(units)) > 1 and not all(lengths)):
        return None, ""
    z, y, x = (
        step if own == lengths[2] else step * own / lengths[2]
        for (step, _), own in zip(known, lengths, strict=True)
    )
    return (z, y, x), SYMBOLS.get(units[2], units[2])
