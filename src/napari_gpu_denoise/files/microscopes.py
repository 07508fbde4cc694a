"""ND2, CZI and LIF in, by the readers of bioio; results are OME-TIFF or OME-Zarr.

A file may hold several images (scenes), such as the positions of a run: ``cells.lif#2`` names the
second. The readers are imported when a file is read.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import FileError
from napari_gpu_denoise.files import image_file, input_checks
from napari_gpu_denoise.files.image_file import (
    Channel,
    FileBlocks,
    Format,
    ImageFile,
    PixelMetadata,
)

SUFFIXES = (".nd2", ".czi", ".lif")
_MAGICS = {b"\xda\xce\xbe\n": "nd2", b"ZISRAWFILE": "czi", b"p\0\0\0": "lif"}
# A dimension of a plane in the directory of a CZI.
_DIMENSION = np.dtype([("name", "S1"), ("a", "V3"), ("start", "<i4"), ("size", "<i4"), ("b", "V8")])
_JXR_TAG = np.dtype([("name", "<u2"), ("a", "V6"), ("value", "<u4")])
_PIXEL_BYTES = 24  # of complex colours, the most
# Planes up to which any number may be missing in a CZI; of more, one of so many must be there.
_SPARE, _ONE_OF = 1 << 12, 500
_ND2_FRAME = re.compile(rb"(ImageDataSeq\|\d+!)(.{16})", re.S)
_SCENE = re.compile(r"(.+\.(?:nd2|czi|lif))#(\d+)$", re.I)


def _parts(path: str | os.PathLike) -> tuple[Path, int | None]:
    """Return the file that a path names, and the scene in it, counted from 0, if it names one."""
    found = _SCENE.match(os.fspath(path))
    if found is None or os.path.exists(path):
        return Path(path), None
    return Path(found[1]), int(found[2]) - 1


def _kind_of(path: Path) -> str | None:
    """Return which of the formats a file starts like."""
    start = input_checks.start_of(path, 10)
    return next((kind for magic, kind in _MAGICS.items() if start.startswith(magic)), None)


def is_microscope(path: str | os.PathLike) -> bool:
    """Return whether a file starts like ND2, CZI or LIF, also where a scene of it is named."""
    return _kind_of(_parts(path)[0]) is not None


def is_named(path: str | os.PathLike) -> bool:
    """Return whether a path has the name of such a file, or of a scene in one."""
    return os.fspath(_parts(path)[0]).lower().endswith(SUFFIXES)


def _reader_of(path: Path) -> tuple[str, Any, list[Any]]:
    """Open a file; return its format, the reader of bioio, and the scenes."""
    with input_checks.open_image(path):
        kind = _kind_of(path)
    if kind is None:
        raise FileError(f"{path} is not an ND2, CZI or LIF file: copy it again from its source.")
    scenes = _checked_scenes(path) if kind == "czi" else None
    reader = import_module(f"bioio_{kind}").Reader(path)
    return kind, reader, scenes or list(reader.scenes)


def _checked_scenes(path: Path) -> list[int]:
    """Return the scenes in the list of planes of a CZI; its metadata may lack them.

    A list that is damaged is refused: the reader would take it as it is.
    """
    with input_checks.open_image(path) as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(84)
        file.seek(int.from_bytes(file.read(8), "little"))
        head = file.read(160)
        used, count = (int.from_bytes(head[at : at + 8], "little") for at in (24, 32))
        if not head.startswith(b"ZISRAWDIRECTORY") or not 128 <= used <= size:
            raise input_checks.cut_short(path)
        entries, at, found = file.read(used - 128), 0, []
        for _ in range(count & 0xFFFFFFFF):
            end = at + 32 + 20 * int.from_bytes(entries[at + 28 : at + 32], "little")
            place = int.from_bytes(entries[at + 6 : at + 14], "little")
            if place >= size or end > len(entries):
                raise input_checks.cut_short(path)
            found.append(entries[at + 32 : end])
            if compression := entries[at + 18 : at + 19].strip(b"\0"):
                told = np.frombuffer(found[-1], _DIMENSION)
                pixels = math.prod(told["size"][np.isin(told["name"], (b"X", b"Y"))].tolist())
                if _inflated(file, place, compression[0]) > _PIXEL_BYTES * pixels:
                    raise input_checks.cut_short(path)
            at = end
    told = np.frombuffer(b"".join(found), _DIMENSION)
    ends, planes = told["start"].astype(np.int64) + told["size"], 1
    for name in set(told["name"].tolist()) - {b"X", b"Y"}:
        own = told["name"] == name
        # The reader counts from 0, wherever the planes begin.
        planes *= int(ends[own].max() - min(0, told["start"][own].min()))
    width, height = (int(told["size"][told["name"] == a].max(initial=0)) for a in (b"X", b"Y"))
    input_checks.check_declared(width * height, size, path, "ZEN")
    # A plane twice, or more planes than counted, stand for others that are lost.
    lost = len(set(found)) < len(found) or entries[at : at + 2] == b"DV"
    if lost or not 0 < planes <= _SPARE + _ONE_OF * len(found):
        raise input_checks.cut_short(path)
    return sorted(set(told["start"][told["name"] == b"S"].tolist())) or [0]


def _inflated(file: Any, place: int, compression: int) -> int:
    """Return the bytes, or pixels of JPEG XR, that a plane of a CZI becomes as it is decoded."""
    file.seek(place)
    head = file.read(80)
    dimensions = int.from_bytes(head[76:80], "little")
    file.seek(place + 32 + max(256, 48 + 20 * dimensions) + int.from_bytes(head[32:36], "little"))
    data = file.read(1024)
    if compression == 4:
        at = int.from_bytes(data[4:8], "little")
        tags = np.frombuffer(data[at + 2 :][: 12 * data[at]], _JXR_TAG)
        return math.prod(tags["value"][np.isin(tags["name"], (0xBC80, 0xBC81))].tolist())
    frame = data[data[0] * (compression == 6) :]  # of Zstandard
    if not frame.startswith(b"\x28\xb5\x2f\xfd"):
        return 0
    kind, single = frame[4], frame[4] >> 5 & 1
    at, length = 6 - single + (0, 1, 2, 4)[kind & 3], (single, 2, 4, 8)[kind >> 6]
    return int.from_bytes(frame[at : at + length], "little")


def images_of(path: Path) -> list[Path]:
    """Return the names of all scenes of a file; itself if it has one, or cannot be read."""
    with contextlib.suppress(FileError), input_checks.reading(path):
        if _parts(path)[1] is None and (count := len(_reader_of(path)[2])) > 1:
            return [path.with_name(f"{path.name}#{number + 1}") for number in range(count)]
    return [path]


def open_image(
    path: Path, held: contextlib.ExitStack, companions_anywhere: bool = False
) -> ImageFile:
    """Open a scene of a file, by default the first, to read its planes on demand."""
    file, scene = _parts(path)
    with input_checks.reading(file):
        return _picture(path, file, scene, held)


def _picture(path: Path, file: Path, scene: int | None, held: contextlib.ExitStack) -> ImageFile:
    (kind, reader, scenes), notes = _reader_of(file), []
    if scene is not None and not 0 <= scene < len(scenes):
        raise FileError(f"{file} has {len(scenes)} images: name one of 1 to {len(scenes)} after #.")
    if scene is None and len(scenes) > 1:
        notes.append(
            f"The file holds {len(scenes)} images: the first, {scenes[0]!r}, was used. "
            f"{file.name}#2 names the second."
        )
    number, own = scene or 0, {a: a for a in "ZYX"}  # letters here and in the file
    if kind == "czi":
        names, sizes, read = _open_czi(file, scenes[number], held, notes)
    else:
        reader.set_scene(number)
    if kind == "lif":
        names, sizes, read, own = _open_lif(file, number, held, notes)
    elif kind == "nd2":
        notes += filter(None, [_missing_frames(file)])
        array = reader.xarray_dask_data
        names, sizes = [str(name).upper() for name in array.dims], array.shape
    if "M" in names and sizes[names.index("M")] > 1:
        notes.append("The tiles of the mosaic are filtered each by itself (axis M).")
    outer = [k for k, a in enumerate(names) if a not in "YXS"]
    order = [k for k in outer if sizes[k] > 1]
    if kind == "lif":  # stored in any order
        order.sort(key=lambda k: "MTCZ".find(names[k]))
    inner = [names.index(a) for a in "YXS" if a in names and (a != "S" or sizes[-1] > 1)]
    axes, shape = "".join(names[k] for k in order + inner), [sizes[k] for k in order + inner]

    def plane(number: int) -> np.ndarray:
        place = np.unravel_index(number, shape[: len(order)]) if order else ()
        index = dict(zip(order, map(int, place), strict=True))
        whole = tuple(index.get(k, 0) for k in outer)
        # Not by workers of dask.
        one = array[whole].data.compute(scheduler="synchronous") if kind == "nd2" else read(whole)
        return np.asarray(one).reshape(shape[len(order) :]).astype(dtype, copy=False)

    sizes_um = reader.physical_pixel_sizes
    steps = {a: (getattr(sizes_um, b, 0) or 0, "µm") for a, b in own.items() if a in axes}
    if "T" in axes:
        steps["T"] = (_seconds(kind, reader, scenes), "s")
    told = image_file.kept_steps(steps)
    channels = [Channel(str(name)) for name in reader.channel_names or ()]
    named = "C" in axes and len(channels) == shape[axes.index("C")]  # else wavelengths
    shown = PixelMetadata(told, tuple(channels) if named else ())
    dtype = np.dtype(reader.dtype).newbyteorder("=")
    data = FileBlocks(file, tuple(shape), dtype, len(order), plane)
    rest = (path, (file,), tuple(notes), (), shown)
    return ImageFile(data, axes, "microscope", {}, *rest)


def _seconds(kind: str, reader: Any, scenes: list) -> float:
    """Return the time between frames; 0 if it is not told."""
    if kind == "lif" and "T" in (coords := reader.xarray_dask_data.coords):
        return float(np.diff(coords["T"]).mean())  # bioio tells no interval
    # bioio prints a traceback where the scenes of a CZI do not begin with 0.
    interval = reader.time_interval if kind != "czi" or scenes[0] == 0 else None
    return interval.total_seconds() if interval is not None else 0.0


def _open_czi(file: Path, scene: int, held: contextlib.ExitStack, notes: list[str]) -> tuple:
    """Return names and sizes of the axes of a scene, and what reads a plane."""
    from aicspylibczi import CziFile

    opened = CziFile(held.enter_context(input_checks.open_image(file)))
    known = opened.get_dims_shape()
    held_by = next((e for e in known if scene in range(*e.get("S", (0, 1)))), known[0])
    ranges = {a: held_by[a] for a in opened.dims if a in held_by and a not in "SB"}
    for name in "TZC":
        count = int(opened.meta.findtext(f"Metadata/Information/Image/Size{name}") or 1)
        stored = int(np.ptp(ranges.get(name, (0, 1))))
        if count > stored:
            notes.append(f"The file declares {count} along {name} but holds {stored}, as if cut.")

    def read(place: tuple[int, ...]) -> np.ndarray:
        firsts = [(a, first) for a, (first, _) in ranges.items() if a not in "YXA"]
        at = {a: first + k for (a, first), k in zip(firsts, place, strict=True)}
        try:
            plane = opened.read_image(S=scene, **at)[0]
        except Exception as error:
            if "not a subset of the defined image" not in str(error):  # as libCZI says it
                raise
            raise FileError(
                f"{file} lacks planes, as of a run that was stopped: save those that are "
                "complete as a file of their own."
            ) from error
        return plane[..., ::-1] if "A" in ranges else plane  # BGR

    sizes = [int(np.ptp(each)) for each in ranges.values()]
    names = ["S" if a == "A" else a for a in ranges]  # samples (colours)
    return names, sizes, read


def _open_lif(file: Path, scene: int, held: contextlib.ExitStack, notes: list[str]) -> tuple:
    """Do the same for a LIF, with the axes of the file that Z, Y and X are.

    Its planes may be XZ or XT, and others than those that bioio reads.
    """
    import liffile

    image = held.enter_context(liffile.LifFile(file)).images[scene]
    frames, names = image.frames, list(image.frames.dims)
    if "S" in names or len(frames.frame_dims) != 2:
        what = "colours" if "S" in names else f"no planes but the axes {', '.join(image.dims)}"
        raise FileError(
            f"{file} has {what}, which are not read: save it as TIFF, for example in Fiji."
        )
    if (spare := image.memory_block.size - image.nbytes) < 0:
        raise input_checks.cut_short(file)
    if count := spare // (math.prod(frames.frame_shape) * frames.dtype.itemsize):
        notes.append(f"The file holds {count} planes more than it describes: it may be damaged.")
    rows, columns = frames.frame_dims
    here = {"Y": rows, "X": columns} | {rows: "Y", columns: "X"}
    free = iter(sorted(set("CELHIRV") - set(names), key="CELHIRV".index))
    made = [here.get(a) or (a if re.fullmatch("[A-Z]", a) else next(free)) for a in names]
    if made != names:
        notes.append(f"The axes {', '.join(names)} of the scan are {', '.join(made)} here.")
    own = dict(zip(made, names, strict=True))
    return made, frames.shape, frames.__getitem__, own


def _missing_frames(file: Path) -> str:
    """Return a note on frames that an ND2 file does not hold; its reader fills them with 0."""
    import nd2

    with nd2.ND2File(file) as opened:
        told, count = opened.attributes, math.prod(loop.count for loop in opened.experiment)
    frame, stored = told.heightPx * (told.widthBytes or 0), 0
    with input_checks.open_image(file) as content:
        size = content.seek(-8, os.SEEK_END) + 8
        input_checks.check_declared(frame, size, file, "NIS-Elements")
        content.seek(int.from_bytes(content.read(8), "little"))
        for name, place in dict(_ND2_FRAME.findall(content.read())).items():
            content.seek(int.from_bytes(place[:8], "little"))
            length = int.from_bytes(content.read(16)[8:], "little")
            there = content.read(len(name)) == name and content.tell() + length <= size
            stored += there and (length >= frame or told.compressionType is not None)
    if not stored:
        raise input_checks.cut_short(file)
    missing = f"{count - stored} of {count} frames"
    note = f"{missing} are not in the file, as of a run that was stopped: read as 0."
    return note if stored < count else ""


def result_name(path: Path) -> str:
    """Return a name for the result of a scene."""
    file, scene = _parts(path)
    return f"{file.stem}{'' if scene is None else f'_{scene + 1}'}.ome.tif"


FORMAT = Format(
    name="ND2/CZI/LIF",
    suffixes=SUFFIXES,
    kinds=("microscope",),
    is_format=is_microscope,
    open_image=open_image,
    write=None,
    is_named=is_named,
    written=(),
    becomes=("TIFF", "OME-Zarr"),
    result_name=result_name,
)
