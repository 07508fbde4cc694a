"""What a result depends on, told by digests: settings, noise, device, and the input itself."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import FileError
from napari_gpu_denoise.files import zarr
from napari_gpu_denoise.files.tiff.picture import Picture
from napari_gpu_denoise.opencl.several import choose_devices
from napari_gpu_denoise.run.packed import packed
from napari_gpu_denoise.run.request import Run
from napari_gpu_denoise.version import package_version

_PLACES = 16  # in the pixels of an input, where samples are read,
_SIDE = 64  # of this width


def resume_fingerprint(
    picture: Picture, run: Run, same: bool, devices: Sequence[tuple[str, ...]] | None = None
) -> dict[str, str]:
    """Return what a result depends on: a digest for each kind of thing that may change.

    `devices` are name, platform, version and driver of those that are used, if they are not the
    devices of this process.
    """
    if devices is None:
        used = choose_devices(run.device)
        devices = [(each.name, each.platform, each.version, each.driver) for each in used]
    given = np.asarray(run.sigma) if isinstance(run.sigma, (list, tuple)) else run.sigma
    parts: dict[str, Any] = {
        "input": _identity(picture),
        "version of this package": package_version(),
        "filter or setting": _told(run.filter),
        "sigma": [_told(given), run.sigma_factor],
        "noise": _told(run.noise),
        "order of axes": run.axes,
        "type of the result": [str(run.dtype), same],
        "handling of NaN": run.nonfinite,
        "correction": _told(run.correct),
        "device": sorted(devices),
    }
    return {name: digest_of(json.dumps(value)) for name, value in parts.items()}


def _told(value: Any) -> Any:
    """Encode a value as JSON; user-defined classes cannot be resumed."""
    try:
        return packed(value)
    except TypeError:
        return repr(value)


def _identity(picture: Picture) -> list[Any]:
    """Return shape and type of an input, size and time of its files, and a digest of samples."""
    data, found = picture.data, _stamps(picture)
    samples = hashlib.sha256()
    y, x = (picture.axes.index(axis) for axis in "YX")
    outer = [n for axis, n in enumerate(data.shape) if axis not in (y, x)]
    for share in np.linspace(0, 1, _PLACES):
        place = iter(np.unravel_index(round(share * (int(np.prod(outer)) - 1)), outer or (1,)))
        index = []
        for axis, n in enumerate(data.shape):
            if axis in (y, x):
                first = round(share * max(n - _SIDE, 0))
                index.append(slice(first, first + _SIDE))
            else:
                index.append(int(next(place)))
        samples.update(np.ascontiguousarray(data[tuple(index)]).tobytes())
    return [list(data.shape), str(data.dtype), found, samples.hexdigest()]


def _stamps(picture: Picture) -> list[list[Any]]:
    """Return name, size and time of all files of an input; at an address, of its metadata."""
    found = []
    for path in picture.files or (picture.path,):
        if not isinstance(path, zarr.Address):
            found += _files_below(Path(path))
            continue
        # To list all chunks would take long, and memory.
        finest = picture.metadata["arrays"][0].path.strip("/")
        places = (path / name for name in (*zarr.HEADS, *(f"{finest}/{n}" for n in zarr.HEADS)))
        found += [[str(place), *place.stamp()] for place in places]
    return found


@contextlib.contextmanager
def unchanged(picture: Picture) -> Iterator[None]:
    """Raise if the input files change while the block runs."""
    before = _stamps(picture)
    yield
    if _stamps(picture) != before:
        raise FileError(
            f"{picture.path} was changed during the run, so no result was written: repeat the run "
            "when the file is complete.",
            resumable=False,
        )


def _files_below(path: Path) -> list[list[Any]]:
    """Return name, size and time of a file, or of each file of a folder."""
    if not path.is_dir():
        status = path.stat() if path.exists() else None
        return [[path.name, *((status.st_size, status.st_mtime_ns) if status else ())]]
    found = []
    for folder, _, names in os.walk(path):
        for name in names:
            inside = os.path.relpath(os.path.join(folder, name), path)
            try:
                status = os.stat(os.path.join(folder, name))
            except OSError:  # a link that leads nowhere, or in a circle
                status = os.lstat(os.path.join(folder, name))
            found.append([inside, status.st_size, status.st_mtime_ns])
    return sorted(found)


def digest_of(text: str) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()
