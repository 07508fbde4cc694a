"""Reading TIFF: the metadata of an image, and its pixels on demand.

Files are read and not mapped, since mapped pages count as memory of the process.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import re
import struct
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import tifffile

from napari_gpu_denoise.errors import FileError, ImageError
from napari_gpu_denoise.files import FORMAT_NAMES, image_file, input_checks
from napari_gpu_denoise.files.image_file import (
    Channel,
    FileBlocks,
    ImageFile,
    PixelMetadata,
    Region,
)
from napari_gpu_denoise.files.tiff import imagej, ome_xml

_lock = threading.Lock()
_handlers: list[logging.Handler] = []
_muted: list[tuple[int, bool, bool]] = []

LARGE_PLANE = 1 << 27  # bytes from which on a plane is read in regions
# Rows and columns that are best read at once where rows are stored as they are.
_ROWS, _COLUMNS = 256, 1024
_THREADS = min(4, os.cpu_count() or 1)


# Compressions of bytes; others are of images, which have lengths of their own.
_OF_BYTES = {1, 5, 8, 32773, 32946, 34925, 34926, 50000, 50013}
_SPARE = 1 << 12  # pixels that such an image may have more
_FRAMES = {*range(0xC0, 0xD0), 0xF7} - {0xC4, 0xC8, 0xCC}  # markers of JPEG
_CODED = re.compile(rb"(?s)\xff\x4f\xff\x51.{4}(.{4})(.{4})|^\x89PNG.{12}(.{4})(.{4})")


def _coded_pixels(data: bytes) -> int:
    """Return how many pixels an image in JPEG, JPEG 2000 or PNG says it has; of others 1."""
    at, sides = 2, found.groups() if (found := _CODED.search(data)) else ()
    while data[:2] == b"\xff\xd8" and at + 9 < len(data) and data[at] == 0xFF and not sides:
        if data[at + 1] in _FRAMES:
            sides = data[at + 5 : at + 7], data[at + 7 : at + 9]
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return math.prod(int.from_bytes(each, "big") for each in filter(None, sides))


def page_axis(shape: tuple[int, ...], size: int) -> int | None:
    """Return the last axis from which on an image fills pages of `size` values; None if none."""
    fitting = (n for n in range(len(shape), -1, -1) if math.prod(shape[n:]) == size)
    return next(fitting, None)


def grey(series: tifffile.TiffPageSeries) -> tuple[tuple[int, ...], str]:
    """Return shape and axes of an image, without an axis of colours that has a single one.

    Only damaged files have such an axis, and no file that is written like them would.
    """
    pairs = zip(series.shape, series.axes, strict=True)
    kept = [(length, axis) for length, axis in pairs if (length, axis) != (1, "S")]
    return tuple(length for length, _ in kept), "".join(axis for _, axis in kept)


class Planes(FileBlocks):
    """The pixels of an image in a TIFF file; indexing reads only the pages required.

    NumPy's basic indexing, by whole numbers, slices and ``...``, gives arrays in memory; so does
    ``numpy.asarray`` for the whole. Several threads may read. `open_stack` makes it.

    What is not stored in pages of whole planes, such as an image scaled by its metadata, is read
    completely when any of it is indexed, and kept.
    """

    _series: Any  # of tifffile, which types much of it as optional

    def __init__(self, series: tifffile.TiffPageSeries, path: Path, *, signed16: bool) -> None:
        page, scaled = math.prod(series.keyframe.shape), series.transform is not None
        shape, axes = grey(series)
        self._contiguous = series.dataoffset is not None and not scaled
        if self._contiguous and {"Y", "X"} <= set(axes):
            outer = min(axes.index("Y"), axes.index("X"))
        elif self._contiguous or scaled or page * len(series) != math.prod(shape):
            outer = 0
        else:
            outer = page_axis(shape, page) or 0
        told: Any = series.dtype if self._contiguous or scaled else series.keyframe.dtype
        stored = told.newbyteorder("=")
        number = np.dtype(np.uint8) if stored.kind == "b" else stored  # which filters take
        number = np.dtype(np.int16) if signed16 else number
        super().__init__(path, shape, number, outer, reading=listening)
        self._stored, self._signed16, self._series = stored, signed16, series

    def _whole(self) -> np.ndarray:
        with self._reading():
            for page in () if self._contiguous else self._series:
                self._check_coded(page)
            return self._shown(self._series.asarray(), self.shape)

    def _read(self, number: int) -> np.ndarray:
        series, page = self._series, None if self._contiguous else self._series[number]
        if self._outer == 0:
            return self._whole()
        if self._contiguous:
            handle = series.parent.filehandle
            dtype = self._stored.newbyteorder(series.parent.byteorder)
            start = series.dataoffset + number * self._block_bytes
            pixels = handle.read_array(dtype, self._block_bytes // dtype.itemsize, start)
        elif page is None:
            pixels = np.zeros(self._block_shape, self._stored)
        else:
            self._check_coded(page)
            with _open_file(page.parent):
                pixels = page.asarray()
        return self._shown(pixels, self._block_shape)

    def _check_coded(self, page: Any, numbers: Iterable[int] | None = None) -> None:
        """Refuse strips or tiles in which larger images are encoded, before they are decoded."""
        if page is None or page.keyframe.compression in _OF_BYTES:
            return
        places = list(zip(page.dataoffsets, page.databytecounts, strict=False))
        with _open_file(page.parent) as handle:
            for offset, length in places if numbers is None else map(places.__getitem__, numbers):
                handle.seek(offset)
                if (
                    _coded_pixels(handle.read(length))
                    > 2 * math.prod(page.keyframe.chunks) + _SPARE
                ):
                    problem = f"{self._path} holds larger images than it declares: it is damaged"
                    raise FileError(f"{problem}; copy it again from its source.")

    def _shown(self, pixels: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Return pixels as programs that know the format show them."""
        pixels = pixels.astype(self._stored, copy=False).reshape(shape)
        return (
            imagej.swap_sign16(pixels) if self._signed16 else pixels.astype(self.dtype, copy=False)
        )


@contextlib.contextmanager
def listening(path: Path) -> Iterator[list[str]]:
    """Yield what tifffile logs, as it comes, and turn what it raises into a `FileError`.

    Much of what is wrong with a file is only logged, and heard even if a program has muted the log.
    """
    logger, thread = logging.getLogger("tifffile"), threading.get_ident()
    messages: list[str] = []
    handler = logging.Handler(logging.WARNING)
    # Two files may be read at once, each in its thread.
    handler.addFilter(lambda record: record.thread == thread)
    handler.emit = lambda record: messages.append(record.getMessage())
    with _lock:
        if not _handlers and not logger.isEnabledFor(logging.WARNING):
            _muted.append((logger.level, logger.disabled, logger.propagate))
            logger.setLevel(logging.WARNING)
            # Messages stay hidden from the program's own handlers.
            logger.disabled, logger.propagate = False, False
        _handlers.append(handler)
        logger.addHandler(handler)
    try:
        with input_checks.reading(path):
            yield messages
    finally:
        with _lock:
            _handlers.remove(handler)
            logger.removeHandler(handler)
            if not _handlers and _muted:
                level, logger.disabled, logger.propagate = _muted.pop()
                logger.setLevel(level)


def is_large(series: tifffile.TiffPageSeries) -> bool:
    """Return whether the planes of an image are large, and stored so that regions can be read."""
    page: Any = series.keyframe
    if math.prod(page.shape) * page.dtype.itemsize < LARGE_PLANE or series.transform is not None:
        return False
    shape, axes = grey(series)
    outer = page_axis(shape, math.prod(page.shape))
    whole = outer is not None and axes[outer:] in ("YX", "YXS")
    separate = page.planarconfig == 2 and page.samplesperpixel > 1
    return whole and page.imagedepth == 1 and not separate and page.shape == shape[outer:]


class LargePlanes(Planes):
    """Planes that are read in regions: `chunks` are the tiles, strips or rows they are stored in.

    Whole planes can be read as well, if there is memory for them.
    """

    _is_fresh = True

    def __init__(self, series: tifffile.TiffPageSeries, path: Path, *, signed16: bool) -> None:
        super().__init__(series, path, signed16=signed16)
        page = series.keyframe
        ny, nx = page.shape[:2]
        if self._contiguous or self._by_rows(page):
            unit = min(_ROWS, ny), min(_COLUMNS, nx)
        elif page.is_tiled:
            unit = min(page.tilelength, ny), min(page.tilewidth, nx)
        else:
            unit = min(page.rowsperstrip, ny), nx
        self.chunks = (1,) * self._outer + unit + page.shape[2:]

    @staticmethod
    def _by_rows(page: Any) -> bool:
        keyframe = page.keyframe
        return not keyframe.is_tiled and keyframe.is_final and page.is_contiguous

    def _region(self, number: int, region: Region) -> np.ndarray:
        shape = tuple(one.stop - one.start for one in region)
        with self._reading():
            page = self._series if self._contiguous else self._series[number]
            if page is None:
                return self._shown(np.zeros(shape, self._stored), shape)
            with _open_file(page.parent):
                if self._contiguous:
                    start = page.dataoffset + number * self._block_bytes
                    pixels = self._rows(page, start, region, shape)
                elif self._by_rows(page):
                    pixels = self._rows(page, page.dataoffsets[0], region, shape)
                else:
                    pixels = self._segments(page, region, shape)
                return self._shown(pixels, shape)

    def _rows(self, page: Any, start: int, region: Region, shape: tuple[int, ...]) -> np.ndarray:
        handle, dtype = page.parent.filehandle, self._stored.newbyteorder(page.parent.byteorder)
        pixels = np.empty(shape, dtype)
        (_, width, *_), samples = self._block_shape, math.prod(shape[2:])
        for number, run in enumerate(pixels.reshape(1 if shape[1] == width else shape[0], -1)):
            first = ((region[0].start + number) * width + region[1].start) * samples
            handle.seek(start + first * dtype.itemsize)
            if not image_file.read_into(handle, run):
                raise input_checks.cut_short(self._path)
        return pixels

    def _segments(
        self, page: tifffile.TiffPage, region: Region, shape: tuple[int, ...]
    ) -> np.ndarray:
        handle, keyframe = page.parent.filehandle, page.keyframe
        ny, nx = self.chunks[self._outer : self._outer + 2]
        if keyframe.is_tiled:
            ny, nx = keyframe.tilelength, keyframe.tilewidth
        across = -(-self._block_shape[1] // nx)
        numbers = [
            y * across + x
            for y in range(region[0].start // ny, -(-region[0].stop // ny))
            for x in range(region[1].start // nx, -(-region[1].stop // nx))
        ]
        self._check_coded(page, numbers)
        options: dict[str, Any] = {"_fullsize": False}
        if keyframe.compression in (6, 7, 33007, 34892):
            options |= {"jpegtables": page.jpegtables, "jpegheader": keyframe.jpegheader}
        pixels = np.zeros(shape, self._stored)
        offsets, lengths = page.dataoffsets, page.databytecounts
        places = [offsets[n] for n in numbers], [lengths[n] for n in numbers]

        def place(segment: tuple[bytes | None, int]) -> None:
            decoded, (_, _, y, x, _), _ = keyframe.decode(*segment, **options)
            if decoded is None:
                return
            decoded = decoded[0].reshape(*decoded.shape[1:3], *shape[2:])
            into, outof = [], []
            for start, n, one in zip((y, x), decoded.shape, region, strict=False):
                low, high = max(start, one.start), min(start + n, one.stop)
                into.append(slice(low - one.start, high - one.start))
                outof.append(slice(low - start, high - start))
            pixels[tuple(into)] = decoded[tuple(outof)]

        with ThreadPoolExecutor(_THREADS) as threads:
            list(threads.map(place, handle.read_segments(*places, numbers)))
        return pixels


# Tags that are copied, since they hold no offsets into the file: texts, origin, ICC profile, XMP,
# georeference. ImageDescription and Software are handled separately: they may hold records.
_CARRIED = (269, 271, 272, 274, 285, 286, 287, 306, 315, 316, 333, 700, 33432, 33550, 33922, 34264)
_CARRIED += (34675, 34735, 34736, 34737, 42112, 42113)
# How pixels are stored, and resolution, which the writer tells of all planes.
_LAYOUT = {*range(254, 263), 266, 273, *range(277, 280), *range(282, 285), 296, 297, 317, 320}
_LAYOUT |= {*range(322, 326), 338, 339, 347, *range(512, 522), *range(529, 533), 32997}
_RATIONALS = {5, 10}
_CIELAB, _GDAL_NODATA = 8, 42113
_NO_DATA = "GDAL_NODATA is not looked at: make such pixels NaN, and pass nonfinite='keep'."
_SECONDARY = 0b101  # kinds of pages: reduced images, masks
_MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")

# Planes that OME-XML may declare whatever the file holds, and per plane that its files hold.
_PLANES = 1 << 17
_PLANES_EACH = 100


def is_tiff(path: str | os.PathLike) -> bool:
    """Return whether a file starts like a TIFF file; False also if it cannot be opened.

    DICOM files may start so, too.
    """
    start = input_checks.start_of(path)
    return start[:4] in _MAGIC and start[128:] != b"DICM"


def open_image(
    path: Path, held: contextlib.ExitStack, companions_anywhere: bool = False
) -> ImageFile:
    """Open the first image of a TIFF file, to read its planes on demand.

    ``data`` is a `Planes`, which raises `FileError` for a plane that turns out to be damaged. The
    rest stays valid when the file is closed, so that `write` still takes the image for its
    metadata.
    """
    with listening(path) as log:
        file = held.enter_context(input_checks.open_image(path))
        if not is_tiff(path):
            raise FileError(f"{path} is not a {FORMAT_NAMES} file: only these can be read.")
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
            where = Path(file.name).parent, companions_anywhere  # where they are looked for
            xml, outside = ome_xml.keep_inside(tif.ome_metadata, *where)
            if outside:
                tif = held.enter_context(tifffile.TiffFile(file, omexml=xml, **options))
        return _picture(tif, path, log, outside)


def _picture(
    tif: tifffile.TiffFile, path: Path, log: list[str], outside: tuple[str, ...]
) -> ImageFile:
    if not (tif.is_ome or tif.is_imagej):
        len(tif.pages)  # ends links between pages in a circle, which series follow for ever
    if not tif.series:
        raise ImageError(f"{path} holds no image: choose another file.")
    full = (each for each in tif.series if not each.keyframe.subfiletype & _SECONDARY)
    series = next(full, tif.series[0])
    if math.prod(series.shape) == 0:
        raise ImageError(f"{path} has no pixels (its shape is {series.shape}): nothing to filter.")
    if series.keyframe.photometric == _CIELAB and series.dtype.kind == "u":
        raise ImageError(f"{path} holds CIELAB colours, whose signs are lost: convert it to RGB.")
    notes = [
        f"The OME-XML names {name!r}, which is not an ordinary file in the folder of {path} or "
        "below, and was not read."
        for name in outside[:1]
    ]
    files, pages = stored_files(tif, path, series, log, notes)
    metadata = _metadata(tif, series)
    kind, history, shown = _told(tif, series, metadata, notes)
    if len(tif.series) > 1:
        which = "first" if series is tif.series[0] else "first that is no reduced one or mask"
        used = f"the {which}, {series.axes} {series.shape}, was used"
        notes.append(f"The file holds {len(tif.series)} images: {used}.")
    notes += _lost_tags(series, pages, kind)
    notes += [image_file.BOOLEAN] * (series.dtype.kind == "b")
    notes += [_NO_DATA] * (_GDAL_NODATA in series.keyframe.tags)
    if len(series.levels) > 1:
        notes.append("The image is a pyramid: its finest level was used.")
    notes += [f"tifffile reports: {input_checks.brief(m)}." for m in dict.fromkeys(log)][:3]
    kind_of = LargePlanes if is_large(series) else Planes
    planes = kind_of(series, path, signed16=metadata["signed16"])
    kept = (path, files, tuple(notes), history, shown)
    return ImageFile(planes, grey(series)[1], kind, metadata, *kept)


def _metadata(tif: tifffile.TiffFile, series: tifffile.TiffPageSeries) -> dict[str, Any]:
    """Return what is written again with a result, as the first page of a series has it."""
    page = series.keyframe
    return {
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
        "software": _raw(page.tags.get(305)),
        "tags": _carried(page),
        "stored": page.shaped,
        "signed16": False,
        # There may be two: tifffile writes its own description after the user's.
        "descriptions": [_raw(t) for i in (0, 1) if (t := page.tags.get(270, index=i))],
    }


def _told(
    tif: tifffile.TiffFile,
    series: tifffile.TiffPageSeries,
    metadata: dict[str, Any],
    notes: list[str],
) -> tuple[str, tuple[dict, ...], PixelMetadata]:
    """Return the kind of a file, its records, and how it is shown, and add to its metadata."""
    if series.kind == "ome":
        xml = metadata["xml"] = tif.ome_metadata or ""
        told = ome_xml.read_image(xml, series.name, math.prod(series.shape))
        metadata["image"], history, shown = told
        return "ome", history, shown
    if series.kind == "imagej":
        kept = metadata["imagej"] = imagej.read_kept(series.keyframe, notes)
        described = tif.imagej_metadata or {}
        metadata["signed16"] = imagej.is_signed16(described, series.dtype)
        shown = imagej.read_shown(described, series.keyframe, kept)
        return "imagej", image_file.records_in(imagej.info_of(kept)), shown
    history = image_file.records_in((metadata["software"] or b"").decode("ascii", "replace"))
    shown = _described(metadata["descriptions"])
    if series.kind not in ("shaped", "uniform", "generic"):
        _foreign(series, metadata, notes)
    elif tif.is_ome:
        metadata["descriptions"] = []
        notes.append("The OME-XML does not describe these pixels and is not kept.")
    return "plain", history, shown


def _raw(tag: tifffile.TiffTag | None) -> bytes | None:
    """Return the bytes of a tag as stored, whatever their text encoding."""
    if tag is None:
        return None
    with _open_file(tag.parent) as handle:
        handle.seek(tag.valueoffset)
        return handle.read(tag.valuebytecount)


def _open_file(tif: Any) -> Any:
    """Open a file of a set, if it is closed: they may be more than a process may open."""
    if not tif.filehandle.closed:
        return contextlib.nullcontext(tif.filehandle)
    tif.filehandle.open()
    return contextlib.closing(tif.filehandle)


def _carried(page: tifffile.TiffPage) -> list[tuple]:
    tags = ((code, tag) for code in _CARRIED if (tag := page.tags.get(code)))
    return [
        (code, int(tag.dtype), tag.count, tag.value if tag.dtype in _RATIONALS else _raw(tag), True)
        for code, tag in tags
    ]


def _lost_tags(series: tifffile.TiffPageSeries, pages: Iterable[Any], kind: str) -> list[str]:
    """Return a note of tags that a result lacks, or has with the value of the first plane only."""
    first, lost = series.keyframe, {270: 0}
    kept = {*_CARRIED, 270, 305} | ({imagej.BLOCKS, imagej.LENGTHS} if kind == "imagej" else set())
    ignored = _LAYOUT | ({330} if len(series.levels) > 1 else set())
    for page in pages:
        # Each file of a set has the same OME-XML, but for its name.
        codes = _codes(page) - ignored - ({270} if page.parent is not first.parent else set())
        with _open_file(first.parent), _open_file(page.parent):
            tags = (first.tags, page.aspage().tags) if codes else ()
            for code in codes:
                differs = code not in kept or len({str(one.valueof(code)) for one in tags}) > 1
                lost[code] = lost.get(code, 0) + differs
    lost[270] += sum(tag.code == 270 for tag in first.tags) > (1 if kind == "ome" else 2)
    planes = {code: f", of {n} planes" if n > 1 else "" for code, n in sorted(lost.items()) if n}
    found = [f"{tifffile.TIFF.TAGS.get(code, 'tag')} ({code}{n})" for code, n in planes.items()]
    return [f"Of the metadata of the file these are not kept: {', '.join(found)}."] if found else []


def _codes(page: Any) -> set[int]:
    """Return the codes of the tags of a page: tifffile takes 40 times as long to make tags."""
    tif, size = page.parent, page.parent.tiff.tagsize
    if not page.offset:  # a plane of a stack with a single directory
        return set()
    with _open_file(tif) as handle:
        handle.seek(page.offset)
        (count,) = struct.unpack(tif.tiff.tagnoformat, handle.read(tif.tiff.tagnosize))
        held = handle.read(count * size)
    return {
        struct.unpack_from(f"{tif.byteorder}H", held, at)[0] for at in range(0, len(held), size)
    }


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
    """Refuse OME-XML that declares more planes than memory can list."""
    declared, pixels, files = ome_xml.declared_planes(tif.ome_metadata or "")
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


def _pages_of(series: Any) -> list[Any]:
    """Return the pages that are there; of later ones of one block only where they are stored."""
    if series.kind == "shaped" and series.dataoffset is not None:
        # In a quarter of the time that tifffile takes for all of their tags.
        series.parent.pages.set_keyframe(series.keyframe.index)
        series.parent.pages.useframes = True
    return [page for page in series if page is not None]


def stored_files(
    tif: tifffile.TiffFile,
    path: Path,
    series: tifffile.TiffPageSeries,
    log: list[str],
    notes: list[str],
) -> tuple[tuple[Path, ...], list[Any]]:
    """Refuse a file that is cut short or declares too many pixels; return its files and pages."""
    len(tif.pages)  # walks to the end of the chain of pages
    cut = input_checks.cut_short(path)
    # tifffile reads what is left if ImageJ's single page declares more than the file holds.
    declared = (tif.imagej_metadata or {}).get("images", 1)
    lacks_planes = declared > len(series) and series.kind in ("generic", "uniform")
    if lacks_planes or any("TiffPages @" in message for message in log):
        raise cut
    if series.is_truncated:
        start = series.dataoffset
        if start is not None and start + series.nbytes > tif.filehandle.size:
            raise cut
        return (path,), [series.keyframe]
    files: dict[Path, None] = {}
    blank = blocks = stored_bytes = 0
    pages = _pages_of(series)
    for page in pages:
        stored = len(page.dataoffsets)
        if not page.is_contiguous and stored < math.prod(page.chunked):
            raise cut
        blocks += stored
        # tifffile reads blocks without a place as 0 as well.
        lengths = (*page.databytecounts, *[0] * stored)
        places = [*zip(page.dataoffsets, lengths, strict=False)]
        blank += sum(not (offset and length) for offset, length in places)
        stored_bytes += sum(page.databytecounts)
        handle = page.parent.filehandle
        files[Path(handle.path)] = None
        if max(map(sum, places), default=0) > handle.size:
            raise cut
    input_checks.check_declared(series.nbytes, stored_bytes, path, "tifffile")
    if missing := len(series) - len(pages):
        notes.append(f"{missing} of {len(series)} planes are missing and were read as 0.")
    if blank:
        notes.append(
            f"{blank} of {blocks} strips or tiles ({100 * blank / blocks:.3g} %) are not in the "
            "file and were read as 0."
        )
    if len(files) > 1:
        notes.append(f"The image spans {len(files)} files, all of which were read.")
    return tuple(files), pages


def _described(texts: Iterable[bytes]) -> PixelMetadata:
    """Return what descriptions in JSON of tifffile's kind tell, as `writing` makes them."""
    for text in texts:
        try:
            found = json.loads(text.rstrip(b"\0"))
            steps = {a: (float(s), str(u)) for a, (s, u) in found["steps"].items()}
            channels = tuple(Channel(str(n), str(c)) for n, c in found.get("channels", ()))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            continue
        return PixelMetadata(image_file.kept_steps(steps), channels)
    return PixelMetadata({})
