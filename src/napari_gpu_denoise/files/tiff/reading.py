"""Reading TIFF."""

from __future__ import annotations

import contextlib
import json
import math
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tifffile

from napari_gpu_denoise.errors import FileError, ImageError
from napari_gpu_denoise.files.regular import open_regular
from napari_gpu_denoise.files.tiff import checks, imagej, looks, ome_xml, voxel
from napari_gpu_denoise.files.tiff.large_planes import LargePlanes, is_large
from napari_gpu_denoise.files.tiff.messages import brief, listening
from napari_gpu_denoise.files.tiff.picture import MARK, Picture, is_tiff
from napari_gpu_denoise.files.tiff.planes import Planes, grey

# Tags that are copied, since they hold no offsets into the file: texts, origin, ICC profile, XMP,
# georeference. ImageDescription and Software are handled separately: they may hold records.
_CARRIED = (269, 271, 272, 274, 285, 286, 287, 306, 315, 316, 333, 700, 33432, 33550, 33922, 34264)
_CARRIED += (34675, 34735, 34736, 34737, 42112, 42113)
_RATIONALS = {5, 10}


def read(path: str | os.PathLike, *, companions_anywhere: bool = False) -> Picture:
    """Read the first image of a TIFF file.

    Parameters
    ----------
    path : path-like
        A TIFF, BigTIFF, ImageJ or OME-TIFF file.
    companions_anywhere : bool, default False
        Read the other files of an OME-TIFF set wherever its XML says they are. By default only
        those in the folder of `path`, or below.

    Returns
    -------
    Picture

    Raises
    ------
    FileError
        If the file is missing, not a TIFF, cut short, or needs a codec that is not installed; if it
        declares far more pixels than it holds, or more than fit into memory.
    ImageError
        If it has no pixels.
    """
    with open_stack(path, companions_anywhere=companions_anywhere) as picture:
        return picture.loaded()


@contextlib.contextmanager
def open_stack(path: str | os.PathLike, *, companions_anywhere: bool = False) -> Iterator[Picture]:
    """Open the first image of a TIFF file, to read its planes on demand.

    Yields what `read` returns, but ``data`` is a `Planes`. It can be indexed until the block ends,
    and raises `FileError` for a plane that turns out to be damaged. The rest stays valid, so that
    `write` still takes the picture for its metadata. Raises what `read` raises.
    """
    path = Path(path)
    if path.is_dir():
        raise FileError(
            f"{path} is a folder, not an image: choose a file, or a folder with TIFF, NIfTI or "
            "OME-Zarr in it."
        )
    with contextlib.ExitStack() as held:
        # Errors that the caller raises in its block are not about reading this file.
        with listening(path) as log:
            file = held.enter_context(open_regular(path))
            if os.fstat(file.fileno()).st_size == 0:
                raise FileError(f"{path} is empty: copy it again from its source.")
            if not is_tiff(path):
                raise FileError(
                    f"{path} is not a TIFF, NIfTI or OME-Zarr file: only these can be read."
                )
            # Micro-Manager files also hold OME-XML, which says more than their own index.
            options: dict[str, Any] = {"offset": 0, "is_mmstack": False}
            tif = held.enter_context(tifffile.TiffFile(file, **options))
            outside: tuple[str, ...] = ()
            if tif.ome_metadata:
                checks.check_planes(tif, path)
                where = path.parent, companions_anywhere
                xml, outside = ome_xml.keep_inside(tif.ome_metadata, *where)
                if outside:
                    tif = held.enter_context(tifffile.TiffFile(file, omexml=xml, **options))
            picture = _picture(tif, path, log, outside)
        held.callback(picture.data.close)
        yield picture


def _picture(
    tif: tifffile.TiffFile, path: Path, log: list[str], outside: tuple[str, ...]
) -> Picture:
    if not tif.series:
        raise ImageError(f"{path} holds no image: choose another file.")
    series, page = tif.series[0], tif.series[0].keyframe
    if math.prod(series.shape) == 0:
        raise ImageError(f"{path} has no pixels (its shape is {series.shape}): nothing to filter.")
    notes: list[str] = []
    if outside:
        notes.append(
            f"The OME-XML names {outside[0]!r}, which is not an ordinary file in the folder of "
            f"{path} or below, and was not read."
        )
    files = checks.stored_files(tif, path, series, log, notes)
    kind = series.kind if series.kind in ("ome", "imagej") else "plain"
    metadata = {
        "byteorder": tif.byteorder,
        "bigtiff": tif.is_bigtiff,
        "dtype": series.dtype.name,
        "photometric": int(page.photometric),
        "extrasamples": tuple(int(e) for e in page.extrasamples),
        "compression": int(page.compression),
        "predictor": int(page.predictor),
        "rowsperstrip": None if page.is_tiled else page.rowsperstrip,
        "tile": (page.tilelength, page.tilewidth) if page.is_tiled else None,
        "truncate": series.is_truncated,
        "resolution": (page.tags.valueof(282), page.tags.valueof(283)),
        "resolutionunit": page.tags.valueof(296),
        "colormap": page.colormap,
        "software": _raw(tif, page.tags.get(305)),
        "tags": _carried(tif, page),
        "stored": page.shaped,
        "signed16": False,
        # There may be two: tifffile writes its own description after the user's.
        "descriptions": [_raw(tif, t) for i in (0, 1) if (t := page.tags.get(270, index=i))],
    }
    history: tuple[dict, ...] = ()
    size, shown = voxel.NONE, looks.Looks({})
    if kind == "ome":
        xml = metadata["xml"] = tif.ome_metadata
        metadata["image"] = ome_xml.find_image(xml, series.name, math.prod(series.shape))
        history = ome_xml.history(xml, metadata["image"])
        size = voxel.of_ome(xml, metadata["image"])
        shown = looks.of_ome(xml, metadata["image"])
    elif kind == "imagej":
        blocks = _raw(tif, page.tags.get(imagej.BLOCKS)) or b""
        lengths = page.tags.valueof(imagej.LENGTHS, default=())
        try:
            metadata["imagej"] = imagej.Blocks(blocks, lengths, tif.byteorder)
        except (struct.error, IndexError, TypeError):
            metadata["imagej"] = imagej.Blocks(b"", (), tif.byteorder)
            notes.append("The labels, overlays and Info of the file are damaged and not kept.")
        history = _records(metadata["imagej"].info)
        size = voxel.of_imagej(tif.imagej_metadata, page)
        shown = looks.of_imagej(tif.imagej_metadata, page, metadata["imagej"])
    else:
        history = _records((metadata["software"] or b"").decode("ascii", "replace"))
        shown = looks.of_description(metadata["descriptions"])
        if series.kind not in ("shaped", "uniform", "generic"):
            _foreign(series, metadata, notes)
        elif tif.is_ome:
            metadata["descriptions"] = []
            notes.append("The OME-XML does not describe these pixels and is not kept.")
    if len(tif.series) > 1:
        notes.append(
            f"The file holds {len(tif.series)} images: the first, {series.axes} "
            f"{series.shape}, was used."
        )
    if len(series.levels) > 1:
        notes.append("The image is a pyramid: its finest level was used.")
    notes += [f"tifffile reports: {brief(m)}." for m in dict.fromkeys(log)][:3]

    if kind == "imagej":
        metadata["signed16"] = imagej.is_signed16(tif.imagej_metadata, series.dtype)
    kind_of = LargePlanes if is_large(series) else Planes
    planes = kind_of(series, path, signed16=metadata["signed16"])
    kept = (path, files, tuple(notes), history, *size, shown)
    return Picture(planes, grey(series)[1], kind, metadata, *kept)


def _raw(tif: tifffile.TiffFile, tag: tifffile.TiffTag | None) -> bytes | None:
    """Return the bytes of a tag as stored, whatever their text encoding."""
    if tag is None:
        return None
    handle = tif.filehandle
    handle.seek(tag.valueoffset)
    return handle.read(tag.valuebytecount)


def _carried(tif: tifffile.TiffFile, page: tifffile.TiffPage) -> list[tuple]:
    tags = []
    for code in _CARRIED:
        tag = page.tags.get(code)
        if tag is not None:
            value = tag.value if tag.dtype in _RATIONALS else _raw(tif, tag)
            tags.append((code, int(tag.dtype), tag.count, value, True))
    return tags


def _foreign(series: tifffile.TiffPageSeries, metadata: dict, notes: list[str]) -> None:
    """Prepare to write an image of a vendor's format as a plain stack with named axes."""
    axes, shape = series.axes, series.shape
    samples = shape[-1] if axes.endswith("YXS") else 1
    if not axes.endswith(("YX", "YXS")):
        raise FileError(
            f"Images in the {series.kind} format with axes {axes} are not supported: convert the "
            "file to OME-TIFF first."
        )
    y, x = shape[axes.index("Y")], shape[axes.index("X")]
    described = json.dumps({"shape": shape, "axes": axes})
    metadata.update(stored=(1, 1, y, x, samples), truncate=False, descriptions=[described.encode()])
    notes.append(
        f"The file is in the {series.kind} format: axes, resolution and the usual tags are kept, "
        "other metadata of that format are not."
    )


def _records(text: str) -> tuple[dict, ...]:
    found = []
    for line in text.splitlines():
        if line.startswith(MARK):
            found += ome_xml.parsed_record(line[len(MARK) :].rstrip("\0"))
    return tuple(found)
