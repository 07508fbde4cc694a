"""What a TIFF file declares against what it holds, and what fits in memory."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path

import psutil
import tifffile

from napari_gpu_denoise.errors import FileError
from napari_gpu_denoise.files.tiff import ome_xml

# Images of at least so many bytes are refused if they are compressed more than so many times: even
# counts of photons, in one of three hundred pixels, are not.
_LARGE = 1 << 28
_MOST_COMPRESSED = 500

# Planes that OME-XML may declare whatever the file holds, and per plane that its files hold.
_PLANES = 1 << 17
_PLANES_EACH = 100

_CGROUPS, _OWN_CGROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def check_planes(tif: tifffile.TiffFile, path: Path) -> None:
    """Refuse OME-XML that declares so many planes that listing them would fill the memory."""
    declared, files = ome_xml.declared_planes(tif.ome_metadata)
    held = len(tif.pages) * files
    if declared > max(_PLANES, _PLANES_EACH * held):
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


def check_declared(declared: int, stored: int, path: Path, reader: str) -> None:
    """Refuse a large image of far more bytes than are stored; `reader` names another reader."""
    if stored < enough_stored(declared):
        raise FileError(
            f"{path} declares {_size(declared)} of pixels but holds {_size(stored)}: it is damaged "
            f"or blank. If it is correct, read it with {reader} and pass the array."
        )


def enough_stored(declared: int) -> int:
    """Return the least bytes that must be stored of an image of so many; 0 if it is small."""
    return -(-declared // _MOST_COMPRESSED) if declared >= _LARGE else 0


def check_memory(needed: int, path: Path) -> None:
    """Refuse an image that does not fit into the memory that is free."""
    free = free_memory()
    if needed > free:
        raise FileError(
            f"{path} needs {_size(needed)} of memory for pixels and result, but only {_size(free)} "
            "are free: close other programs, or crop or split the image."
        )


def free_memory() -> int:
    """Return the bytes of memory this process may still take, of the machine or its control group.

    A job of a cluster or a container has the limit of its group.
    """
    free = psutil.virtual_memory().available
    # Where there are no groups, or of version 1, nothing is found.
    with contextlib.suppress(OSError, ValueError, IndexError):
        name = _OWN_CGROUP.read_text().split("::", 1)[1].splitlines()[0]
        group = _CGROUPS / name.lstrip("/")
        for folder in (group, *group.parents):
            if folder == _CGROUPS.parent:
                break
            with contextlib.suppress(OSError, ValueError):
                limit = int((folder / "memory.max").read_text())
                used = int((folder / "memory.current").read_text())
                told = (folder / "memory.stat").read_text().split()
                # Files kept in memory give way to programs.
                cached = int(told[told.index("inactive_file") + 1])
                free = min(free, limit - used + cached)
    return max(free, 0)


def _size(count: float) -> str:
    """Return a number of bytes in words."""
    units = ["bytes", "kB", "MB", "GB", "TB"]
    while count >= 1000 and len(units) > 1:
        count /= 1000
        del units[0]
    return f"{count:.3g} {units[0]}"
