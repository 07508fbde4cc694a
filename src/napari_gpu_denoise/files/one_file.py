"""Denoise one file into another; a large one part by part, never whole in memory."""

from __future__ import annotations

import contextlib
import hashlib
import json
import operator
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import FileError, ImageError, OutputError
from napari_gpu_denoise.files import formats, zarr
from napari_gpu_denoise.files.image_file import Blocks, ImageFile, PartOfBlocks
from napari_gpu_denoise.files.input_checks import free_memory, open_regular
from napari_gpu_denoise.files.recommended import Recommended
from napari_gpu_denoise.files.resuming import ResumeLedger, digest_of
from napari_gpu_denoise.image.axes import check_axes
from napari_gpu_denoise.image.levels import check_numbers, output_dtype, put_together
from napari_gpu_denoise.opencl.device import choose_devices
from napari_gpu_denoise.protocol.filter import Context, Filter
from napari_gpu_denoise.run.denoise import denoise_image
from napari_gpu_denoise.run.ledger import Ledger, packed
from napari_gpu_denoise.run.progress import MEASURING, SILENT, Progress
from napari_gpu_denoise.run.record import Record, Result
from napari_gpu_denoise.run.request import HostMemory, Run
from napari_gpu_denoise.version import package_version

_WHOLE = 1 << 26  # bytes of an input up to which all are compared; else, beside size and time,
_SAMPLES, _BLOCK = 256, 1 << 16  # so many blocks of its files, of this size,
_READ = 1 << 22  # bytes of a file that are read at once: between two it waits for other threads
_PLACES, _SIDE = 16, 64  # or, at an address, samples of pixels, of this width


class OpenImage(contextlib.ExitStack):
    """An image whose pixels are still in its file, which is closed when the block ends.

    With a run, `nbytes` are those of a small image with its result, 0 of one that is not read
    whole, and `memory` is what the run may take.
    """

    nbytes = 0

    def __init__(self, path: Path, companions_anywhere: bool, run: Run | None = None) -> None:
        super().__init__()
        opened = formats.open_stack(path, companions_anywhere=companions_anywhere)
        self.picture = self.enter_context(opened)
        self._before, data = _stamps(self.picture), self.picture.data
        if run is not None:
            self.memory, axes = memory_of(run), run.axes or self.picture.filter_axes
            if not _is_long(self.picture, replace(run, axes=axes, host_memory=self.memory)):
                self.nbytes = data.nbytes + data.size * max(data.dtype.itemsize, 4)

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """Raise if the input files have changed since they were opened, once the block has run."""
        yield
        if _stamps(self.picture) != self._before:
            raise FileError(
                f"{self.picture.path} was changed during the run, so no result was written: repeat "
                "the run when the file is complete.",
                resumable=False,
            )


@dataclass(frozen=True)
class Options:
    """Options of `run_batch` for reading and writing files."""

    overwrite: bool = False
    resume: bool = False
    companions_anywhere: bool = False
    client: Any = None


def denoise_file(
    path: Path,
    target: Path,
    run: Run,
    options: Options,
    *,
    opened: OpenImage | None = None,
    progress: Progress = SILENT,
    spent: dict[str, float] | None = None,
) -> tuple[ImageFile, Record, tuple[str, ...]]:
    """Denoise a file into a new one, which appears when it is complete.

    What is cancelled leaves what a later run can go on with. A run without axes takes those of the
    file. With `resume` an unfinished result of an earlier run is continued, if the file is
    streamed. A streamed file is filtered by the workers of a `client` of dask. A file that is
    `opened` already is closed. `spent` is given the seconds of what was done one after the other.
    Returns the description of the input, the record of the result, and notes about the writing.
    """
    times = [time.monotonic()]
    with opened or OpenImage(path, options.companions_anywhere) as source:
        picture = source.picture
        formats.check_name(target, picture)
        check_numbers(picture.data)
        picture, run = _for_image(picture, target, run)
        dtype = run.dtype
        possible = [np.dtype(dtype)] if dtype else [picture.data.dtype, np.dtype(np.float32)]
        for one in possible:
            formats.check_writable(picture, one)
        run = replace(run, host_memory=memory_of(run))
        made_from = fingerprint(picture, run)
        new_image = formats.format_like(picture).new_image
        if streamed := new_image is not None or _is_long(picture, run):
            _make_folder(target)
        else:
            largest = max(one.itemsize for one in possible)
            needed = picture.data.size * largest
            memory_of(run).check_whole(picture.data.nbytes + needed)
            with source.unchanged():
                picture = picture.loaded(result=needed)
        why = ""
        if isinstance(run.filter, Recommended):
            progress.stage(MEASURING)
            run, why = run.filter.run_for(picture.pixels, run)
            run = replace(run, filter=with_voxel(run.filter, picture))
        told = {"source": picture.path.name, "recommended": why, "made_from": made_from}
        if streamed:
            return _Streamed(source, picture, target, run, options, told, progress).denoise()
    times.append(time.monotonic())
    with memory_of(run).of_buffers(run.limit_of_memory):
        result = denoise_image(picture.pixels, run, progress=progress)
    times.append(time.monotonic())
    _make_folder(target)
    image = result.image
    if picture.alpha is not None:
        image = put_together(image, picture.colours, np.asarray(picture.data), picture.alpha)
    record = replace(result.record, **told)
    notes = formats.write(target, image, picture, record, overwrite=options.overwrite)
    if spent is not None:
        each = map(operator.sub, (*times[1:], time.monotonic()), times)
        spent.update(zip(("reading", "filtering", "writing"), each, strict=True))
    return picture, record, notes


def memory_of(run: Run) -> HostMemory:
    """Return the limit of a run to the memory of this machine: by default a quarter of the free."""
    return run.host_memory or HostMemory(free_memory() // 4, given=False)


def _for_image(picture: ImageFile, target: Path, run: Run) -> tuple[ImageFile, Run]:
    """Return an image as its result is described, and its run."""
    picture = formats.result_like(target, picture)
    dtype = output_dtype(run.dtype, picture.data.dtype)
    if dtype is None and picture.keeps_type:
        dtype = output_dtype("same", picture.data.dtype)
    filter, axes = with_voxel(run.filter, picture), run.axes or picture.filter_axes
    return picture, replace(run, filter=filter, axes=axes, dtype=dtype)


@dataclass(frozen=True)
class _Streamed:
    """A file that is filtered part by part, or frame by frame, by this process or by workers.

    `told` is what its record says of the file.
    """

    source: OpenImage
    picture: ImageFile
    target: Path
    run: Run
    options: Options
    told: dict[str, Any]
    progress: Progress

    def denoise(self) -> tuple[ImageFile, Record, tuple[str, ...]]:
        """Do what `denoise_file` does."""
        ledger: Any = contextlib.nullcontext(Ledger())
        if not isinstance(self.target, zarr.places.Address):
            brief, resume = self.run.limits.brief_seconds, self.options.resume
            ledger = ResumeLedger(self.target, self._wanted(), resume, brief)
        new_image = formats.format_like(self.picture).new_image
        with ledger as noted:
            return self._in_place(new_image, noted) if new_image else self._by_planes(noted)

    def _wanted(self) -> dict[str, str]:
        """Return what has to be the same for the result of another run to be continued."""
        if self.options.client is not None:
            from napari_gpu_denoise.files.cluster import device_of_this, run_task

            work = "device", device_of_this, self.run.device
            devices = [run_task(self.options.client, self.progress, *work)]
        else:
            used = choose_devices(self.run.device)
            devices = [(each.name, each.platform, each.version, each.driver) for each in used]
        # Of parts also the filter that was recommended, and times of files, are compared.
        made_from = self.told["made_from"]
        wanted = {
            "input": [made_from["input"], _stamps(self.picture)],
            "filter or setting": _told(self.run.filter),
            "device": sorted(devices),
        }
        return made_from | _digests(wanted)

    def _in_place(
        self, new_image: Any, ledger: ResumeLedger
    ) -> tuple[ImageFile, Record, tuple[str, ...]]:
        """Write parts where they will be, as an OME-Zarr takes them."""
        given: dict[str, Any] = {"overwrite": self.options.overwrite, "resumed": bool(ledger.done)}
        if isinstance(ledger, ResumeLedger):
            given["part"] = ledger.image
        with new_image(self.target, self.picture, **given) as made:
            out = made.finest if self.options.client is None else made
            _, record = self._filtered(self.picture.data, out, ledger)
            made.finish([record.as_dict()])
        return self.picture, record, ()

    def _by_planes(self, ledger: ResumeLedger) -> tuple[ImageFile, Record, tuple[str, ...]]:
        """Collect the planes in a file, from which the result is written when all are there."""
        picture, run, data = self.picture, self.run, self.picture.data
        names, filter = check_axes(run.axes, data.shape), run.filter
        over_time = filter.over_time and "T" in names
        over_time = over_time and filter.prepare(Context(names, data.shape)).over_time
        if over_time and isinstance(data, Blocks) and hasattr(data, "chunks"):
            # Such a filter looks at whole frames, and is best given each once.
            data = PartOfBlocks(data, (slice(None),) * data.ndim)
        store = partial(ledger.array, "pixels")
        result, record = self._filtered(data, store, ledger)
        options = {"overwrite": self.options.overwrite}
        notes = formats.write(self.target, result.image, picture, record, **options)
        return picture, record, notes

    def _filtered(self, data: Any, out: Any, ledger: ResumeLedger) -> tuple[Result, Record]:
        run, options = self.run, {"out": out, "ledger": ledger, "progress": self.progress}
        with self.source.unchanged(), memory_of(run).of_buffers(run.limit_of_memory):
            if self.options.client is None:
                result = denoise_image(data, run, **options)
            else:
                from napari_gpu_denoise.files.cluster import denoise_by_workers

                client, anywhere = self.options.client, self.options.companions_anywhere
                options["companions_anywhere"] = anywhere
                result = denoise_by_workers(client, self.picture, run, **options)
        return result, replace(result.record, **self.told)


def with_voxel(filter: Filter, picture: ImageFile) -> Filter:
    """Return a filter with the voxel size of a file, if it has that setting and it is empty."""
    if getattr(filter, "voxel", "unused") or picture.voxel is None:
        return filter
    return replace(filter, voxel=",".join(f"{step:.7g}" for step in picture.voxel))


def _is_long(picture: ImageFile, run: Run) -> bool:
    """Return whether a stack is read and filtered frame by frame, or in parts of some planes."""
    data = picture.data
    if data.nbytes < min(run.limits.streamed_bytes, memory_of(run).limit // 16):
        return False
    names = check_axes(run.axes, data.shape)
    # Files with alpha, which is not filtered, are read whole, and so are files in which each frame
    # is scattered over the whole file.
    return picture.alpha is None and picture.reads_by_plane(names)


def check_result(target: Path, picture: ImageFile, run: Run) -> None:
    """Refuse a file that is not the result of an input and a run."""
    made: Any = None
    with contextlib.suppress(FileError, ImageError), formats.open_stack(target) as found:
        made = dict(found.history[-1]).get("made_from") if found.history else None
    wanted = fingerprint(*_for_image(picture, target, run))
    problem = ""
    if not isinstance(made, dict):
        problem = f"{target} is no result whose record identifies its input and settings"
    elif names := [name for name, digest in wanted.items() if made.get(name) != digest]:
        problem = f"{target} was made with a different {' and '.join(names)}"
    if problem:
        remedy = "choose another name, or pass overwrite=True in place of resume=True"
        raise OutputError(problem, remedy, code="another-result")


def _make_folder(target: Path) -> None:
    """Create the folder of a file if necessary."""
    if isinstance(target, zarr.places.Address):
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"The folder {target.parent} cannot be created: {error.strerror or error}."
        ) from error


def fingerprint(picture: ImageFile, run: Run) -> dict[str, str]:
    """Return what a result depends on, but for the device: a digest for each kind of thing.

    `run` has the axes and the type of the result.
    """
    sigma, noise = run.sigma, run.noise
    if sigma is None and isinstance(noise, (int, float, np.number)):
        sigma, noise = noise, None
    with contextlib.suppress(TypeError, ValueError):  # which the run refuses
        sigma = None if sigma is None else np.atleast_1d(np.asarray(sigma, np.float64))
    return _digests(
        {
            "input": _identity(picture),
            "version of this package": package_version(),
            "filter or setting": _told(run.filter),
            "sigma": [_told(sigma), float(run.sigma_factor)],
            "noise": _told(None if isinstance(noise, str) and noise == "auto" else noise),
            "order of axes": str(run.axes).upper(),
            "type of the result": str(run.dtype),
            "handling of NaN": run.nonfinite,
            "correction": _told(run.correct),
        }
    )


def _digests(values: dict[str, Any]) -> dict[str, str]:
    return {name: digest_of(json.dumps(value))[:32] for name, value in values.items()}


def _told(value: Any) -> Any:
    """Encode a value as JSON; user-defined classes cannot be resumed."""
    try:
        return packed(value)
    except TypeError:
        return repr(value)


def _identity(picture: ImageFile) -> list[Any]:
    """Return shape and type of an input, its number in its file, and digests of its content."""
    data, stamps = picture.data, _stamps(picture)
    told = [list(data.shape), str(data.dtype), picture.path.name.partition("#")[2]]
    if isinstance(picture.path, zarr.places.Address):
        return [*told, stamps, _digest_of_pixels(picture)]
    whole = sum(size for _, size, _ in stamps) <= _WHOLE
    if not whole:
        told.append(stamps)
    few = slice(None, None, 1 if whole else -(-len(stamps) // _SAMPLES))
    for (_, place), (name, size, when) in zip(_files_of(picture)[few], stamps[few], strict=False):
        count = -(-size // _READ) if whole else max(1, _SAMPLES // len(stamps))
        # What a link in a folder leads to is not opened.
        linked = os.path.islink(place) and Path(place) not in (*picture.files, picture.path)
        block = _READ if whole else _BLOCK
        content = when if linked else _digest_of_blocks(place, size, count, block)
        told.append([name * (len(stamps) > 1), content])
    return told


def _digest_of_blocks(place: str, size: int, count: int, block: int) -> str:
    """Return a digest of blocks of a file, evenly spaced; '' if it cannot be read."""
    digest = hashlib.sha256()
    with contextlib.suppress(OSError), open_regular(place) as file:
        starts = np.linspace(0, max(size - block, 0), count).astype(int)
        for start in starts if count * block < size else range(0, size, block):
            file.seek(start)
            digest.update(file.read(block))
        return digest.hexdigest()
    return ""


def _digest_of_pixels(picture: ImageFile) -> str:
    """Return a digest of all pixels of a small image, and of samples of a large one."""
    data, samples = picture.data, hashlib.sha256()
    whole = data.nbytes <= _WHOLE
    for share in (0,) if whole else np.linspace(0, 1, _PLACES):
        index = []
        for axis, n in zip(picture.axes, data.shape, strict=True):
            side = n if whole else min(n, _SIDE if axis in "YX" else 1)
            first = round(share * (n - side))
            index.append(slice(first, first + side))
        samples.update(np.ascontiguousarray(data[tuple(index)]).tobytes())
    return samples.hexdigest()


def _stamps(picture: ImageFile) -> list[list[Any]]:
    """Return name, size and time of all files of an input; at an address, of its metadata."""
    path = picture.path
    if isinstance(path, zarr.places.Address):
        # To list all chunks would take long, and memory.
        finest = picture.metadata["arrays"][0].path.strip("/")
        folders = path, path / finest
        places = (folder / name for folder in folders for name in zarr.places.HEADS)
        return [[str(place), *place.stamp()] for place in places]
    return [[name, *_size_and_time(place)] for name, place in _files_of(picture)]


def _files_of(picture: ImageFile) -> list[tuple[str, str]]:
    """Return name and place of each file of an input, or in a folder that is one, sorted."""
    found = []
    for path in map(os.fspath, picture.files or (picture.path,)):
        if not os.path.isdir(path):
            found.append((os.path.basename(path), path))
        for folder, _, names in os.walk(path):
            below = folder[len(path) :].strip(os.sep)
            found += [(os.path.join(below, name), os.path.join(folder, name)) for name in names]
    return sorted(found)


def _size_and_time(place: str | Path) -> tuple[int, int]:
    for look in (os.stat, os.lstat):  # a link may lead nowhere, or in a circle
        with contextlib.suppress(OSError):
            status = look(place)
            return status.st_size, status.st_mtime_ns
    return 0, 0
