"""Filter a file by dask workers: which part is whose, what fails, and what it adds up to."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from napari_gpu_denoise.files.cluster import tasks
from napari_gpu_denoise.files.cluster.results import ClusterReport, Results, run_task
from napari_gpu_denoise.files.cluster.tasks import Place
from napari_gpu_denoise.files.zarr import Address, NewImage
from napari_gpu_denoise.image.axes import check_axes
from napari_gpu_denoise.image.levels import is_plain
from napari_gpu_denoise.run.by_parts import ValueRange, change_in_the_middle
from napari_gpu_denoise.run.input import Input
from napari_gpu_denoise.run.job import Job
from napari_gpu_denoise.run.ledger import Ledger, check_whole, parts_left
from napari_gpu_denoise.run.part import Part, regions_of, size_of, unit_of
from napari_gpu_denoise.run.record import MEASURING, Progress, Result
from napari_gpu_denoise.run.request import Run
from napari_gpu_denoise.version import package_version

# Tasks given out at a time: for each thread of the workers, if pixels come back; else in all.
_AHEAD, _GIVEN = 2, 256


def device_of_workers(
    client: Any, wanted: Any
) -> Generator[Progress, None, list[tuple[str, str, str, str]]]:
    """Return what tells the device of a worker from those of other models."""
    return [(yield from run_task(client, "device", tasks.described, wanted, package_version()))]


def cluster_steps(
    client: Any,
    picture: Any,
    run: Run,
    out: NewImage | Callable[[tuple[int, ...], np.dtype], Any],
    ledger: Ledger | None = None,
    companions_anywhere: bool = False,
) -> Generator[Progress, None, Result]:
    """Denoise the pixels of a file part by part, on the dask workers.

    The workers read the file, and write the parts of a new OME-Zarr, by themselves; pixels for
    another kind of result, which ``out(shape, dtype)`` returns, are sent back. Parts are those of
    a run on one device, and `ledger` is kept here: so either can go on with what the other began.
    Yields as `denoise_steps` does, and closing the generator stops the work likewise.
    """
    ledger = ledger or Ledger()
    path = _absolute(picture.path)
    place = Place(uuid.uuid4().hex, path, companions_anywhere, run.device)
    shape = tuple(picture.data.shape)
    # What is free here says nothing of the machines of the workers.
    host = run.host_memory if run.host_memory is not None and run.host_memory.given else None
    run = replace(run, axes=check_axes(run.axes, shape), device=None, host_memory=host)
    correction, known = ledger.known("correction"), ledger.known("job")
    yield MEASURING
    if known is None or (run.correct is not None and correction is None):
        asked = "noise", tasks.prepared, place, run, correction
        job, correction = yield from run_task(client, *asked)
        if correction is not None:
            ledger.keep("correction", correction)
        ledger.keep("job", (job.dtypes, job.filter, job.sigma, job.levels, job.notes))
    else:
        job = Job(run, run.axes, shape, *known)
    place = replace(place, correction=correction)
    made = (out.finest if isinstance(out, NewImage) else out)(shape, job.dtypes[1])
    if isinstance(out, NewImage):
        place = replace(place, target=(_absolute(out.folder), out.name))
    unit = unit_of(made) or unit_of(picture.data)
    size = ledger.known("parts")
    if size is None:
        if host is None:
            size = size_of(job, unit, [None])  # devices are only counted
        else:
            size = yield from run_task(client, "size", tasks.size_of_parts, place, job, unit)
        ledger.keep("parts", size)
    parts = [Part.of(job, region) for region in regions_of(job, size)]
    if job.levels is None and not is_plain(job.dtypes[0]):
        levels = ledger.known("levels")
        if levels is None:
            levels = yield from _levels(client, place, job, parts)
            ledger.keep("levels", levels)
        job = replace(job, levels=levels)
    rest, wrote = yield from parts_left(parts, ledger, made)
    before, done = ledger.tally, len(parts) - len(rest)
    groups = groups_of(rest, unit) if place.target else [[part] for part in rest]
    report = ClusterReport()
    yield Progress(done, len(parts), "part")
    work = ((job.filter.name, tasks.filtered, place, job, group) for group in groups)
    ahead = _GIVEN if place.target else _AHEAD * max(1, sum(client.nthreads().values()))
    with _marked(place), closing(Results(client, work, ahead, report)) as results:
        for number, outcome in results.arriving():
            if outcome is not None:
                group = groups[number]
                counted = zip(group, outcome.tallies, outcome.marks, strict=True)
                for k, (part, tally, mark) in enumerate(counted):
                    if outcome.made is not None:
                        made[part.yields] = outcome.made[k]
                    wrote(part, tally, mark)
                    report.tally += tally
                done += len(group)
            yield Progress(done, len(parts), "part")
    yield from check_whole(ledger, made, [part.yields for part in parts])
    image = Input(picture.data, job.names, correction)
    change = change_in_the_middle(image.array, made, job, parts)
    record = report.noted(job.record(before + report.tally, change, report.names))
    return Result(made, image.noted(record))


def groups_of(parts: Sequence[Part], unit: Sequence[int] | None) -> list[list[Part]]:
    """Return parts so that those of different groups share no chunk of the result.

    Two processes must not write to one chunk at the same time.
    """
    if unit is None:
        return [list(parts)]
    numbers = []  # along each axis: the group of a part by where it begins
    for axis, length in enumerate(unit):
        starts = sorted({part.yields[axis].start for part in parts})
        new = [start % length == 0 for start in starts]
        numbers.append(dict(zip(starts, accumulate(new), strict=True)))
    groups: dict[tuple[int, ...], list[Part]] = {}
    for part in parts:
        key = tuple(held[one.start] for held, one in zip(numbers, part.yields, strict=True))
        groups.setdefault(key, []).append(part)
    return list(groups.values())


def _levels(
    client: Any, place: Place, job: Job, parts: Sequence[Part]
) -> Generator[Progress, None, Any]:
    """Choose the mapping of grey levels from the range of all pixels."""
    total, done = ValueRange(), 0
    work = (("range", tasks.seen, place, part) for part in parts)
    with closing(Results(client, work, _GIVEN, ClusterReport())) as results:
        for _, outcome in results.arriving():
            if outcome is not None:
                total += outcome
                done += 1
            yield Progress(done, len(parts), "part read")
    return total.levels(job)


@contextlib.contextmanager
def _marked(place: Place) -> Iterator[None]:
    """Let workers write to the result; none does that is late, or of an earlier run."""
    if place.target is None:
        yield
        return
    for mark in place.marks():
        mark.unlink()
    place.mark.touch()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            place.mark.unlink()


def _absolute(path: str | os.PathLike) -> str:
    """Return a path as other processes have to be told it."""
    return os.fspath(path if isinstance(path, Address) else Path(path).absolute())
