"""What a dask worker does: it opens input and result by itself, and filters parts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import ClusterError, DenoiseError
from napari_gpu_denoise.files import formats
from napari_gpu_denoise.files.zarr.places import Address, as_path, zarr_package
from napari_gpu_denoise.files.zarr.writing import FullResolutionArray
from napari_gpu_denoise.image.levels import as_array
from napari_gpu_denoise.noise.structure.remove import CorrectedArray, Correction
from napari_gpu_denoise.opencl.several import own_device
from napari_gpu_denoise.run.by_parts import ValueRange
from napari_gpu_denoise.run.input import Block, Input
from napari_gpu_denoise.run.job import Job, prepare
from napari_gpu_denoise.run.ledger import mark_of
from napari_gpu_denoise.run.part import Part, filter_part, finish, size_of
from napari_gpu_denoise.run.record import Tally
from napari_gpu_denoise.run.request import Run
from napari_gpu_denoise.version import package_version


@dataclass(frozen=True)
class Place:
    """Where an input and its result are, for any process that sees the same files.

    `run` tells runs apart: a file is opened anew in each. `device` is what each worker chooses its
    own from. `target` is a folder of zarr and the name of the array in it; None where the pixels
    are sent back.
    """

    run: str
    path: str
    companions_anywhere: bool
    device: Any = None
    correction: Correction | None = None
    target: tuple[str, str] | None = None
    version: str = package_version()

    @property
    def mark(self) -> Path | Address:
        """A file in the folder of the result that is there as long as the run goes on.

        A worker may still be at a part when a run has been stopped, and another one begun.
        """
        return as_path(self.target[0]) / f".run-{self.run}"

    def marks(self) -> list[Path | Address]:
        """Return the marks of all runs, also of those that were killed."""
        folder = as_path(self.target[0])
        if isinstance(folder, Address):
            return (folder / ".run-*").matching()
        return list(folder.glob(".run-*"))

    def source(self) -> Any:
        """Return the pixels, which are read part by part."""
        check_version(self.version)
        data = _opened(self.run, self.path, self.companions_anywhere)[1].data
        return CorrectedArray(data, self.correction) if self.correction else data

    def own(self, job: Job) -> Job:
        """Return a job for the device of this process."""
        run = replace(job.run, device=own_device(self.device))
        if run.host_memory is not None:
            limit = run.host_memory.for_buffers([run.device], run.memory_limit)
            run = replace(run, memory_limit=limit)
        return replace(job, run=run)


@dataclass(frozen=True)
class Failed:
    """The error of a task, the device it was done on, if known, and the address of the worker."""

    error: DenoiseError
    device: str
    worker: str


@dataclass(frozen=True)
class Done:
    """What was counted in each of some parts, their marks, by whom; their pixels, if sent back."""

    tallies: list[Tally]
    marks: list[int]
    device: str
    worker: str
    made: list[np.ndarray] | None = None


def described(wanted: Any, version: str) -> tuple[str, str, str, str]:
    """Return what tells the device of this process from those of other models."""
    check_version(version)
    device = own_device(wanted)
    return device.name, device.platform, device.version, device.driver


def prepared(place: Place, run: Run, known: Correction | None) -> tuple[Job, Correction | None]:
    """Prepare a run for an input: what to correct, and the noise, are measured."""
    image = Input.of(place.source(), run, known)
    job = prepare(replace(run, device=own_device(place.device)), image)
    # Devices of this machine mean nothing on another.
    return replace(job, run=replace(job.run, device=None)), image.correction


def size_of_parts(place: Place, job: Job, unit: Sequence[int] | None) -> tuple[int, ...]:
    """Return the lengths of parts for one device."""
    return size_of(job, unit, [own_device(place.device)])


def seen(place: Place, part: Part) -> ValueRange:
    """Return the range of the values of a part."""
    return ValueRange.of(as_array(place.source()[part.yields]))


def filtered(place: Place, job: Job, parts: Sequence[Part]) -> Done | Failed:
    """Filter parts one after another, and write them if they have a place."""
    tallies, marks, made, device = [], [], [], ""
    try:
        job = place.own(job)
        device = str(job.device)
        source, target = place.source(), place.target and _result(place.run, *place.target)
        for part in parts:
            block = Block.of(as_array(source[part.reads]), job.names, job.run.nonfinite)
            out = np.empty([one.size for one in part.spans], job.dtypes[1])
            with closing(filter_part(job, part, block, out)) as steps:
                tallies.append(finish(steps))
            if target is None:
                made.append(out)
            elif not place.mark.exists():
                raise ClusterError("The run was stopped while a worker was filtering a part.")
            else:
                target[part.yields] = out
            marks.append(mark_of(target, part.yields, out))
    except DenoiseError as error:
        return Failed(error, device, address())
    return Done(tallies, marks, device, address(), None if target is not None else made)


def check_version(version: str) -> None:
    """Refuse work of a program that has another version of this package than the worker."""
    if version != package_version():
        raise ClusterError(
            f"The dask worker {address()} has version {package_version()} of napari-gpu-denoise: "
            f"install version {version} there, as here."
        )


def address() -> str:
    """Return the address of the worker that calls."""
    import distributed

    return distributed.get_worker().address


@lru_cache(maxsize=4)
def _opened(run: str, path: str, companions_anywhere: bool) -> tuple[Any, Any]:
    """Open a file; it is closed some time after other files have been opened."""
    opened = formats.open_stack(path, companions_anywhere=companions_anywhere)
    return opened, opened.__enter__()


@lru_cache(maxsize=4)
def _result(run: str, folder: str, name: str) -> FullResolutionArray:
    place = f"{folder}/{name}"
    return FullResolutionArray(zarr_package().open_array(place, mode="r+"), as_path(folder), place)
