"""ND2, CZI and LIF in, by the readers of bioio; results are OME-TIFF or OME-Zarr.

A file may hold several images (scenes), such as the positions of a run: ``cells.lif#2`` names the
second. The readers are imported when a file is read.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import FileError
from napari_gpu_denoise.files.image_file import (
    Blocks,
    Channel,
    Format,
    ImageFile,
    PixelMetadata,
    kept_steps,
    voxel_of,
)
from napari_gpu_denoise.files.input_checks import (
    check_declared,
    closed,
    cut_short,
    open_image,
    open_regular,
    reading,
)

SUFFIXES = (".nd2", ".czi", ".lif")
_MAGICS = {b"\xda\xce\xbe\n": "nd2", b"ZISRAWFILE": "czi", b"p\0\0\0": "lif"}
# A dimension of a plane in the directory of a CZI.
_DIMENSION = np.dtype([("name", "S1"), ("a", "V3"), ("start", "<i4"), ("size", "<i4"), ("b", "V8")])
# Planes up to which any number may be missing in a CZI; of more, one of so many must be there.
_SPARE, _ONE_OF = 1 << 12, 500
_SCENE = re.compile(r"(.+\.(?:nd2|czi|lif))#(\d+)$", re.I)


def _parts(path: str | os.PathLike) -> tuple[Path, int | None]:
    """Return the file that a path names, and the scene in it, counted from 0, if it names one."""
    found = _SCENE.match(os.fspath(path))
    if found is None or os.path.exists(path):
        return Path(path), None
    return Path(found[1]), int(found[2]) - 1


def _kind_of(path: Path) -> str | None:
    """Return which of the formats a file starts like."""
    try:
        with open_regular(path) as file:
            start = file.read(10)
    except OSError:
        return None
    return next((kind for magic, kind in _MAGICS.items() if start.startswith(magic)), None)


def is_microscope(path: str | os.PathLike) -> bool:
    """Return whether a file starts like ND2, CZI or LIF, also where a scene of it is named."""
    return _kind_of(_parts(path)[0]) is not None


def is_named(path: str | os.PathLike) -> bool:
    """Return whether a path has the name of such a file, or of a scene in one."""
    return os.fspath(_parts(path)[0]).lower().endswith(SUFFIXES)


def _reader_of(path: Path) -> Any:
    """Open a file with the reader of bioio for its format."""
    with open_image(path):
        kind = _kind_of(path)
    if kind is None:
        raise FileError(f"{path} is not an ND2, CZI or LIF file: copy it again from its source.")
    made = import_module(f"bioio_{kind}").Reader
    if kind == "nd2":
        return made(path)
    if kind == "czi":
        _check_directory(path)
    # By default the others read whole stacks at once. A: samples (colours) of CZI.
    return made(path, chunk_dims=["Y", "X", "A"] if kind == "czi" else ["Y", "X"])


def _check_directory(path: Path) -> None:
    """Refuse a CZI whose list of planes is damaged, which its reader would take as it is."""
    with open_image(path) as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(84)
        file.seek(int.from_bytes(file.read(8), "little"))
        head = file.read(160)
        used, count = (int.from_bytes(head[at : at + 8], "little") for at in (24, 32))
        if not head.startswith(b"ZISRAWDIRECTORY") or not 128 <= used <= size:
            raise cut_short(path)
        entries, at, found = file.read(used - 128), 0, []
    for _ in range(count & 0xFFFFFFFF):
        end = at + 32 + 20 * int.from_bytes(entries[at + 28 : at + 32], "little")
        if int.from_bytes(entries[at + 6 : at + 14], "little") >= size or end > len(entries):
            raise cut_short(path)
        found.append(entries[at + 32 : end])
        at = end
    told = np.frombuffer(b"".join(found), _DIMENSION)
    ends, planes = told["start"].astype(np.int64) + told["size"], 1
    for name in set(told["name"].tolist()) - {b"X", b"Y"}:
        own = told["name"] == name
        planes *= int(ends[own].max() - told["start"][own].min())
    width, height = (int(told["size"][told["name"] == a].max(initial=0)) for a in (b"X", b"Y"))
    check_declared(width * height, size, path, "ZEN")
    if not 0 < planes <= _SPARE + _ONE_OF * len(found):
        raise cut_short(path)


def images_of(path: Path) -> list[Path]:
    """Return the names of all scenes of a file; itself if it has one, or cannot be read."""
    with contextlib.suppress(FileError), reading(path):
        if _parts(path)[1] is None and (count := len(_reader_of(path).scenes)) > 1:
            return [path.with_name(f"{path.name}#{number + 1}") for number in range(count)]
    return [path]


@contextlib.contextmanager
def open_stack(path: Path, *, companions_anywhere: bool = False) -> Iterator[ImageFile]:
    """Open a scene of a file, by default the first, to read its planes on demand."""
    file, scene = _parts(path)
    with reading(file):
        picture = _picture(path, file, scene)
    with contextlib.closing(picture.data):
        yield picture


def _picture(path: Path, file: Path, scene: int | None) -> ImageFile:
    reader, notes = _reader_of(file), []
    scenes = reader.scenes
    if scene is not None and not 0 <= scene < len(scenes):
        raise FileError(f"{file} has {len(scenes)} images: name one of 1 to {len(scenes)} after #.")
    if scene is None and len(scenes) > 1:
        notes.append(
            f"The file holds {len(scenes)} images: the first, {scenes[0]!r}, was used. "
            f"{file.name}#2 names the second."
        )
    reader.set_scene(scene or 0)
    kind = _kind_of(file)
    if kind == "lif":
        _check_grey(file, scene or 0)
    elif kind == "nd2" and (missing := _missing_frames(file)):
        notes.append(missing)
    array = reader.xarray_dask_data
    names, sizes = [str(name).upper() for name in array.dims], array.shape
    if "M" in names and sizes[names.index("M")] > 1:
        notes.append("The tiles of the mosaic are filtered each by itself (axis M).")
    order = [k for k, a in enumerate(names) if a not in "YXS" and sizes[k] > 1]
    order += [names.index(a) for a in "YXS" if a in names and (a != "S" or sizes[-1] > 1)]
    axes = "".join(names[k] for k in order)
    kept = tuple(slice(None) if k in order else 0 for k in range(len(names)))
    left = [k for k in range(len(names)) if k in order]
    lazily = array.data[kept].transpose([left.index(k) for k in order])
    sizes_um = reader.physical_pixel_sizes
    steps = {a: (getattr(sizes_um, a) or 0, "µm") for a in "ZYX" if a in axes}
    if "T" in axes:
        interval = reader.time_interval
        seconds = interval.total_seconds() if interval is not None else 0.0
        if kind == "lif" and "T" in array.coords:  # of which bioio tells no interval
            seconds = float(np.diff(array.coords["T"]).mean())
        steps["T"] = (seconds, "s")
    told = kept_steps(steps)
    channels = [Channel(str(name)) for name in reader.channel_names or ()]
    shown = PixelMetadata(told, tuple(channels) if "C" in axes else ())
    if kind == "czi" and axes.endswith("S"):
        lazily = lazily[..., ::-1]  # BGR
    data = Planes(lazily, axes, file)
    rest = (path, (file,), tuple(notes), (), *voxel_of(told), shown)
    return ImageFile(data, axes, "microscope", {}, *rest)


def _check_grey(file: Path, scene: int) -> None:
    """Refuse a LIF with colours, as its reader knows none."""
    import liffile

    with liffile.LifFile(file) as opened:
        if "S" in opened.images[scene].sizes:
            raise FileError(
                f"{file} has colours, which are not read: save it as TIFF, for example in Fiji."
            )


def _missing_frames(file: Path) -> str:
    """Return a note on frames of an ND2 file that are not stored; its reader fills them with 0."""
    import nd2

    with nd2.ND2File(file) as opened:
        count = math.prod(loop.count for loop in opened.experiment)
        stored = opened.attributes.sequenceCount
    if stored >= count:
        return ""
    missing = f"{count - stored} of {count} frames"
    return f"{missing} are not in the file, as of a run that was stopped: read as 0."


class Planes(Blocks):
    """The planes of an image that bioio reads as a dask array."""

    def __init__(self, array: Any, axes: str, path: Path) -> None:
        outer = len(axes) - (3 if axes.endswith("S") else 2)
        super().__init__(array.shape, np.dtype(array.dtype).newbyteorder("="), outer)
        self._array, self._path = array, path

    def close(self) -> None:
        """End reading."""
        self._array = None

    def _block(self, number: int) -> np.ndarray:
        array, outer = self._array, self.shape[: self._outer]
        if array is None:
            raise closed(self._path)
        place = tuple(map(int, np.unravel_index(number, outer))) if outer else ()
        with reading(self._path):
            try:
                plane = array[place].compute(scheduler="synchronous")
            except Exception as error:
                if "not a subset of the defined image" not in str(error):  # as libCZI says it
                    raise
                raise FileError(
                    f"{self._path} lacks planes, as of a run that was stopped: save those that are "
                    "complete as a file of their own."
                ) from error
        return np.asarray(plane).astype(self.dtype, copy=False)


def result_name(path: Path) -> str:
    """Return a name for the result of a scene."""
    file, scene = _parts(path)
    return f"{file.stem}{'' if scene is None else f'_{scene + 1}'}.ome.tif"


FORMAT = Format(
    name="ND2/CZI/LIF",
    suffixes=SUFFIXES,
    kinds=("microscope",),
    new_suffix=".ome.tif",
    is_format=is_microscope,
    open_stack=open_stack,
    write=None,
    is_named=is_named,
    written=(),
    becomes=("TIFF", "OME-Zarr"),
    result_name=result_name,
)
