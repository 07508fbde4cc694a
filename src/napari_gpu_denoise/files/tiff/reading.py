"""Reading TIFF."""

from __future__ import annotations

import contextlib
import json
import math
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import tifffile

from napari_gpu_denoise.errors import FileError, ImageError
from napari_gpu_denoise.files.image_file import (
    NO_VOXEL,
    Channel,
    ImageFile,
    PixelMetadata,
    kept_steps,
    records_in,
)
from napari_gpu_denoise.files.input_checks import brief, check_declared, open_image, open_regular
from napari_gpu_denoise.files.tiff import imagej, ome_xml
from napari_gpu_denoise.files.tiff.planes import LargePlanes, Planes, grey, is_large, listening

# Tags that are copied, since they hold no offsets into the file: texts, origin, ICC profile, XMP,
# georeference. ImageDescription and Software are handled separately: they may hold records.
_CARRIED = (269, 271, 272, 274, 285, 286, 287, 306, 315, 316, 333, 700, 33432, 33550, 33922, 34264)
_CARRIED += (34675, 34735, 34736, 34737, 42112, 42113)
_RATIONALS = {5, 10}
SUFFIXES = (".tif", ".tiff", ".btf", ".tf8")
_MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")

# Planes that OME-XML may declare whatever the file holds, and per plane that its files hold.
_PLANES = 1 << 17
_PLANES_EACH = 100


def has_suffix(path: str | os.PathLike) -> bool:
    """Return whether a name ends like that of a TIFF file."""
    return os.fspath(path).lower().endswith(SUFFIXES)


def is_tiff(path: str | os.PathLike) -> bool:
    """Return whether a file starts like a TIFF file; False also if it cannot be opened."""
    try:
        with open_regular(path) as file:
            return file.read(4) in _MAGIC
    except OSError:
        return False


@contextlib.contextmanager
def open_stack(
    path: str | os.PathLike, *, companions_anywhere: bool = False
) -> Iterator[ImageFile]:
    """Open the first image of a TIFF file, to read its planes on demand.

    Yields what `formats.read` returns, but ``data`` is a `Planes`. It can be indexed until the
    block ends, and raises `FileError` for a plane that turns out to be damaged. The rest stays
    valid, so that `write` still takes the image for its metadata.
    """
    path = Path(path)
    with contextlib.ExitStack() as held:
        # Errors that the caller raises in its block are not about reading this file.
        with listening(path) as log:
            file = held.enter_context(open_image(path))
            if not is_tiff(path):
                raise FileError(
                    f"{path} is not a TIFF, NIfTI or OME-Zarr file: only these can be read."
                )
            # Micro-Manager files also hold OME-XML, which says more than their own index.
            options: dict[str, Any] = {"offset": 0, "is_mmstack": False}
            tif = held.enter_context(tifffile.TiffFile(file, **options))
            if min(tif.pages.first.shape, default=0) < 0:
                # tifffile would look for its series without end.
                raise FileError(
                    f"{path} declares pages of {tif.pages.first.shape} pixels: it is damaged."
                )
            outside: tuple[str, ...] = ()
            if tif.ome_metadata:
                check_planes(tif, path)
                where = path.parent, companions_anywhere
                xml, outside = ome_xml.keep_inside(tif.ome_metadata, *where)
                if outside:
                    tif = held.enter_context(tifffile.TiffFile(file, omexml=xml, **options))
            picture = _picture(tif, path, log, outside)
        held.callback(picture.data.close)
        yield picture


def _picture(
    tif: tifffile.TiffFile, path: Path, log: list[str], outside: tuple[str, ...]
) -> ImageFile:
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
    files = stored_files(tif, path, series, log, notes)
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
    size, shown = NO_VOXEL, PixelMetadata({})
    if kind == "ome":
        xml = metadata["xml"] = tif.ome_metadata
        metadata["image"] = ome_xml.find_image(xml, series.name, math.prod(series.shape))
        history = ome_xml.history(xml, metadata["image"])
        size = ome_xml.voxel_size(xml, metadata["image"])
        shown = ome_xml.pixel_metadata(xml, metadata["image"])
    elif kind == "imagej":
        blocks = _raw(tif, page.tags.get(imagej.BLOCKS)) or b""
        lengths = page.tags.valueof(imagej.LENGTHS, default=())
        try:
            metadata["imagej"] = imagej.Blocks(blocks, lengths, tif.byteorder)
        except (struct.error, IndexError, TypeError):
            metadata["imagej"] = imagej.Blocks(b"", (), tif.byteorder)
            notes.append("The labels, overlays and Info of the file are damaged and not kept.")
        history = records_in(metadata["imagej"].info)
        size = imagej.voxel_size(tif.imagej_metadata, page)
        shown = imagej.pixel_metadata(tif.imagej_metadata, page, metadata["imagej"])
    else:
        history = records_in((metadata["software"] or b"").decode("ascii", "replace"))
        shown = _described(metadata["descriptions"])
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
    return ImageFile(planes, grey(series)[1], kind, metadata, *kept)


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


def check_planes(tif: tifffile.TiffFile, path: Path) -> None:
    """Refuse OME-XML that declares so many planes that listing them would fill the memory."""
    declared, pixels, files = ome_xml.declared_planes(tif.ome_metadata)
    most = max(_PLANES, _PLANES_EACH * len(tif.pages) * files)
    if pixels // max(tif.pages[0].size, 1) > most:
        # tifffile counts as many planes of the size of a page; there may be larger ones.
        pages = (tif.pages.get(n, aspage=True, cache=False) for n in range(len(tif.pages)))
        declared = max(declared, pixels // max(1, *(page.size for page in pages)))
    if declared > most:
        raise FileError(
            f"The OME-XML of {path} declares {declared} planes, but the file holds "
            f"{len(tif.pages)}: it is damaged; save the image again as OME-TIFF."
        )


def stored_files(
    tif: tifffile.TiffFile,
    path: Path,
    series: tifffile.TiffPageSeries,
    log: list[str],
    notes: list[str],
) -> tuple[Path, ...]:
    """Refuse a file that is cut short or declares far more than it holds; return all its files."""
    len(tif.pages)  # walks to the end of the chain of pages
    cut = FileError(f"{path} is cut short or damaged: copy it again from its source.")
    if any("TiffPages @" in message for message in log):
        raise cut
    # tifffile reads what is left if ImageJ's single page declares more than the file holds.
    declared = tif.imagej_metadata.get("images", 1) if tif.is_imagej else 1
    if declared > len(series) and series.kind in ("generic", "uniform"):
        raise cut
    if series.is_truncated:
        start = series.dataoffset
        if start is not None and start + series.nbytes > tif.filehandle.size:
            raise cut
        return (path,)
    files: dict[Path, None] = {}
    missing = blank = blocks = stored_bytes = 0
    for page in series:
        if page is None:
            missing += 1
            continue
        stored = len(page.dataoffsets)
        if not page.is_contiguous and stored < math.prod(page.chunked):
            raise cut
        blocks += stored
        # tifffile reads blocks without a place as 0 as well.
        places = [*zip(page.dataoffsets, page.databytecounts, strict=False)]
        blank += sum(not (offset and length) for offset, length in places)
        stored_bytes += sum(page.databytecounts)
        handle = page.parent.filehandle
        files[Path(handle.path)] = None
        if max(map(sum, places), default=0) > handle.size:
            raise cut
    check_declared(series.nbytes, stored_bytes, path, "tifffile")
    if missing:
        notes.append(f"{missing} of {len(series)} planes are missing and were read as 0.")
    if blank:
        notes.append(
            f"{blank} of {blocks} strips or tiles ({100 * blank / blocks:.3g} %) are not in the "
            "file and were read as 0."
        )
    if len(files) > 1:
        notes.append(f"The image spans {len(files)} files, all of which were read.")
    return tuple(files)


def _described(texts: Iterable[bytes]) -> PixelMetadata:
    """Return what descriptions in JSON of tifffile's kind tell, as `writing` makes them."""
    for text in texts:
        try:
            found = json.loads(text.rstrip(b"\0"))
            steps = {a: (float(s), str(u)) for a, (s, u) in found["steps"].items()}
            channels = tuple(Channel(str(n), str(c)) for n, c in found.get("channels", ()))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            continue
        return PixelMetadata(kept_steps(steps), channels)
    return PixelMetadata({})
