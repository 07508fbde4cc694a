"""Files filtered part by part by workers of dask.distributed, on this machine or on others.

dask.distributed is imported when it is used; it is an extra of this package.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from napari_gpu_denoise.errors import (
    ClusterError,
    DenoiseError,
    DeviceMemoryError,
    FileError,
    KernelError,
    NoDeviceError,
    Note,
    OutputError,
)
from napari_gpu_denoise.files import formats
from napari_gpu_denoise.files.input_checks import check_no_secrets
from napari_gpu_denoise.files.zarr import NewImage
from napari_gpu_denoise.files.zarr.places import Address, as_path, zarr_package
from napari_gpu_denoise.files.zarr.writing import FullResolutionArray
from napari_gpu_denoise.image.axes import check_axes
from napari_gpu_denoise.image.levels import as_array
from napari_gpu_denoise.noise.structure.remove import CorrectedArray, Correction
from napari_gpu_denoise.opencl.device import choose_devices, names_of, own_device
from napari_gpu_denoise.run.by_parts import change_in_the_middle
from napari_gpu_denoise.run.input import Block, Input
from napari_gpu_denoise.run.job import Job, start
from napari_gpu_denoise.run.ledger import Ledger, check_whole, mark_of, parts_left
from napari_gpu_denoise.run.part import Part, filter_part, finish, regions_of, size_of, unit_of
from napari_gpu_denoise.run.record import MEASURING, Progress, Record, Result, Tally
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
    """Return name, platform, version and driver of the device of this process."""
    check_version(version)
    device = own_device(wanted)
    return device.name, device.platform, device.version, device.driver


def prepared(place: Place, run: Run, known: Correction | None) -> tuple[Job, Correction | None]:
    """Prepare a run for an input: what to correct, and the noise, are measured."""
    image = Input.of(place.source(), run, known)
    job = start(replace(run, device=own_device(place.device)), image).sharing(image.windows())
    # Devices of this machine mean nothing on another.
    return replace(job, run=replace(job.run, device=None)), image.correction


def size_of_parts(place: Place, job: Job, unit: Sequence[int] | None) -> tuple[int, ...]:
    """Return the lengths of parts for one device."""
    return size_of(job, unit, [own_device(place.device)])


def filtered(place: Place, job: Job, parts: Sequence[Part]) -> Done | Failed:
    """Filter parts one after another, and write them if they have a place."""
    tallies, marks, made, device = [], [], [], ""
    try:
        job = place.own(job)
        device = str(job.device)
        source, target = place.source(), place.target and _result(place.run, *place.target)
        for part in parts:
            pixels = as_array(source[part.reads])
            block = Block.of(pixels, job.names, job.run.nonfinite, job.levels)
            out = np.empty([one.size for one in part.spans], job.dtypes[1])
            tallies.append(finish(filter_part(job, part, block, out)))
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


# Errors after which a task is tried again, on another worker if there is one.
_TRANSIENT = (DeviceMemoryError, KernelError, NoDeviceError, FileError, OutputError)
_TRIES = 3
_LOST = OSError, CancelledError, asyncio.CancelledError  # of a client without its scheduler
_NO_SCHEDULER = "The dask scheduler was lost", "start it again, and repeat the run with resume=True"
_SAME_VERSION = f"install version {package_version()} there, as here"
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Patience:
    """How long is waited, in seconds, where nothing comes from the workers."""

    look: float = 0.5  # between two looks at whether the run was cancelled
    told: float = 30  # without any worker, until that is said
    most: float = 600  # until the run ends


@dataclass
class ClusterReport:
    """What was counted, the devices of the workers by their address, and what failed."""

    tally: Tally = field(default_factory=Tally)
    devices: dict[str, str] = field(default_factory=dict)
    failed: list[Failed] = field(default_factory=list)

    @property
    def names(self) -> str:
        """The devices in words."""
        return names_of(self.devices.values()) or "dask workers"

    def noted(self, record: Record) -> Record:
        """Return a record that tells of what failed and was done again."""
        told = dict.fromkeys(
            f"{each.device or 'a dask worker'} failed, and its part was done again: {each.error}"
            for each in self.failed
        )
        return replace(record, notes=(*record.notes, *map(Note, told)))


@dataclass
class _Task:
    number: int
    work: tuple
    future: Any = None
    tries: int = 0


class Results:
    """The outcomes of tasks; `close` gives up those that have not begun.

    `work` has a name, a function and its arguments for each task. Those of a worker that ends
    are given to others by dask. Those that fail for want of a device, memory or a file are tried
    again, elsewhere where possible; what still fails is raised, or with `raises` off yielded.
    """

    def __init__(
        self,
        client: Any,
        work: Iterator[tuple],
        ahead: int,
        report: ClusterReport,
        raises: bool = True,
        patience: Patience | None = None,
    ) -> None:
        self._client, self._ahead, self._report, self._raises = client, ahead, report, raises
        self._waiting = enumerate(work)
        self._given: dict[str, _Task] = {}
        self._ended: SimpleQueue = SimpleQueue()
        self._avoided: set[str] = set()  # workers that failed
        self._patience = patience or Patience()
        self._alone: float | None = None  # since when there is no worker
        self._told = False

    def close(self) -> None:
        """Give up what is not done."""
        with contextlib.suppress(ClusterError):
            asked(self._client.cancel, [task.future for task in self._given.values()])

    def arriving(self) -> Iterator[tuple[int, Any]]:
        """Yield number and outcome of each task, in any order; None if nothing came for a while."""
        self._fill()
        while self._given:
            try:
                key, outcome = self._ended.get(timeout=self._patience.look)
            except Empty:
                self._look_for_workers()
                yield -1, None
                continue
            task, self._alone = self._given.pop(key), None
            if isinstance(outcome, Exception):
                raise outcome
            if isinstance(outcome, Failed) and self._again(task, outcome):
                continue
            if getattr(outcome, "worker", ""):
                self._report.devices[outcome.worker] = outcome.device
            self._fill()
            yield task.number, outcome

    def _fill(self) -> None:
        while len(self._given) < self._ahead:
            number, work = next(self._waiting, (None, None))
            if number is None:
                return
            self._give(_Task(number, work))

    def _give(self, task: _Task) -> None:
        others = {}
        if self._avoided:
            left = [each for each in asked(self._client.nthreads) if each not in self._avoided]
            # Where only others are left, or have come, they do it.
            others = {"workers": left, "allow_other_workers": True} if left else {}
        task.future = submit(self._client, *task.work, **others)
        self._given[task.future.key] = task
        task.future.add_done_callback(lambda future: self._ended.put((future.key, _ended(future))))

    def _look_for_workers(self) -> None:
        """Say that there is no worker, and give up after a while: others may come until then."""
        if asked(self._client.nthreads):
            self._alone, self._told = None, False
            return
        now = time.monotonic()
        self._alone = self._alone or now
        if now - self._alone >= self._patience.told and not self._told:
            self._told = True
            _logger.warning(
                "There is no dask worker: the run waits for one, and ends after %g s without any.",
                self._patience.most,
            )
        if now - self._alone >= self._patience.most:
            raise ClusterError(
                f"There has been no dask worker for {self._patience.most:g} s",
                "start some, and repeat the run with resume=True",
                code="no-workers",
            )

    def _again(self, task: _Task, failed: Failed) -> bool:
        """Give a task that failed to a worker once more; return False if that was tried enough."""
        task.tries += 1
        if task.tries == _TRIES or not isinstance(failed.error, _TRANSIENT):
            if self._raises:
                raise failed.error
            return False
        self._report.failed.append(failed)
        self._avoided.add(failed.worker)
        self._give(task)
        return True


def submit(client: Any, name: str, function: Callable, *given: Any, **options: Any) -> Any:
    """Give a task to the workers; the dashboard shows it by its name."""
    key = f"{name}-{uuid.uuid4().hex}"
    return asked(client.submit, function, *given, key=key, pure=False, **options)


def asked(method: Callable, *given: Any, **options: Any) -> Any:
    """Return what a method of a client does; `ClusterError` if the scheduler does not answer."""
    try:
        return method(*given, **options)
    except _LOST as error:
        raise ClusterError(*_NO_SCHEDULER, code="no-scheduler") from error


def run_task(client: Any, *work: Any) -> Generator[Progress, None, Any]:
    """Have one task done; yields `MEASURING` meanwhile, and returns its outcome."""
    with contextlib.closing(Results(client, iter([work]), 1, ClusterReport())) as results:
        for _, outcome in results.arriving():
            yield MEASURING
            result = outcome
    return result


def _ended(future: Any) -> Any:
    """Return the result of a task, or its error.

    Called in a thread of dask: a result that is lost with its worker is waited for there.
    """
    try:
        return result_of(future)
    except Exception as error:
        return error


def result_of(future: Any) -> Any:
    """Return the result of a task; `ClusterError` if workers or scheduler were lost."""
    try:
        return future.result()
    except (ImportError, AttributeError) as error:
        if isinstance(error, AttributeError) and "Can't get attribute" not in str(error):
            raise
        raise ClusterError(
            f"A dask worker cannot load a module ({error}): {_SAME_VERSION}."
        ) from error
    except Exception as error:
        if "deserialization of the task graph" in str(error):
            problem = "The dask scheduler cannot load this package"
            raise ClusterError(f"{problem}: {_SAME_VERSION}.") from error
        if isinstance(error, CancelledError) or type(error).__name__ == "CommClosedError":
            raise ClusterError(*_NO_SCHEDULER, code="no-scheduler") from error
        if type(error).__name__ != "KilledWorker":
            raise
        raise ClusterError(
            "Several dask workers ended while filtering the same part, perhaps for lack of memory: "
            "give each more memory, or start fewer."
        ) from error


def check_workers(client: Any) -> None:
    """Refuse workers without this package, or with another version: the first task ends them."""
    here = package_version()
    # What is of Python each worker has.
    question = eval, "__import__('napari_gpu_denoise.version').version.package_version()"
    for worker, found in asked(client.run, *question, on_error="return").items():
        told = "no napari-gpu-denoise" if isinstance(found, ImportError) else ""
        if isinstance(found, str) and found != here:
            told = f"version {found} of napari-gpu-denoise"
        if told:
            raise ClusterError(
                f"The dask worker {worker} has {told}: install version {here} there, as here."
            )


# Tasks given out at a time: for each thread of the workers, if pixels come back; else in all.
_AHEAD, _GIVEN = 2, 256


def device_of_workers(
    client: Any, wanted: Any
) -> Generator[Progress, None, list[tuple[str, str, str, str]]]:
    """Return name, platform, version and driver of the device of a worker."""
    return [(yield from run_task(client, "device", described, wanted, package_version()))]


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
        measured = "noise", prepared, place, run, correction
        job, correction = yield from run_task(client, *measured)
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
            size = size_of(job, unit, [None])
        else:
            size = yield from run_task(client, "size", size_of_parts, place, job, unit)
        ledger.keep("parts", size)
    parts = [Part.of(job, region) for region in regions_of(job, size)]
    places = [part.yields for part in parts]
    rest, wrote = yield from parts_left(parts, places, ledger, made)
    before, done = ledger.tally, len(parts) - len(rest)
    groups = groups_of(rest, unit) if place.target else [[part] for part in rest]
    report = ClusterReport()
    yield Progress(done, len(parts), "part")
    work = ((job.filter.name, filtered, place, job, group) for group in groups)
    ahead = _GIVEN if place.target else _AHEAD * max(1, sum(asked(client.nthreads).values()))
    with _marked(place), contextlib.closing(Results(client, work, ahead, report)) as results:
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
    yield from check_whole(ledger, made, places)
    image = Input(picture.data, job.names, correction)
    change = change_in_the_middle(image.array, made, job, parts, places)
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


_SECONDS = 30  # to wait for a scheduler, and for its first worker
# Threads of PoCL: its versions have two names for their number.
THREADS_OF_POCL = ("POCL_MAX_PTHREAD_COUNT", "POCL_CPU_MAX_CU_COUNT")


@contextlib.contextmanager
def connected(scheduler: str | None = None, workers: int = 0, device: Any = None) -> Iterator[Any]:
    """Yield a client of dask: of the scheduler at an address, or of new workers on this machine.

    The workers end with the block. `device` is what they are to run on: of a CPU each has its share
    of the cores.
    """
    if workers < 0:
        raise ClusterError(f"There cannot be {workers} workers: start one or more.")
    try:
        import distributed
    except ImportError as error:
        raise ClusterError(
            "Workers need dask.distributed, which is not installed: pip install "
            "'napari-gpu-denoise[cluster]'."
        ) from error
    with contextlib.ExitStack() as held:
        held.callback(_quietened())
        if scheduler is not None:
            client = _client_of(distributed, scheduler)
        else:
            options = {"n_workers": workers, "preload": [__name__], **_shared_out(workers, device)}
            # Whoever can reach the dashboard sees names of files, and more.
            options["dashboard_address"] = "127.0.0.1:8787"
            try:
                cluster = distributed.LocalCluster(**options)
                _enter(held, cluster)
                client = distributed.Client(cluster, set_as_default=False)
            except (OSError, RuntimeError) as error:
                raise ClusterError(
                    f"{workers} workers could not be started ({error}): start fewer."
                ) from error
        _enter(held, client)
        yield client


def _enter(held: contextlib.ExitStack, opened: Any) -> None:
    """Enter a client or a cluster, which is left whether or not there is somebody to tell."""
    opened.__enter__()
    held.callback(_quietly, opened.__exit__, None, None, None)


def _quietly(method: Callable, *given: Any, **options: Any) -> None:
    with contextlib.suppress(*_LOST):
        method(*given, **options)


def _client_of(distributed: Any, scheduler: str) -> Any:
    _check_address(distributed, scheduler)
    try:
        client = distributed.Client(scheduler, timeout=_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError, TypeError) as error:
        raise ClusterError(
            f"No dask scheduler answers at {scheduler}: give the address that it prints when it "
            "starts, such as tcp://login1:8786."
        ) from error
    try:
        asked(client.wait_for_workers, 1, timeout=_SECONDS)
    except ClusterError as error:
        _quietly(client.close, timeout=1)
        raise ClusterError(
            f"The scheduler at {scheduler} has no workers: start some with 'dask worker "
            f"{scheduler}'."
        ) from error
    return client


def _check_address(distributed: Any, scheduler: str) -> None:
    """Refuse at once an address that dask would try to reach until its time is over."""
    from distributed.comm import get_address_host_port, parse_address
    from distributed.comm.registry import get_backend

    check_no_secrets(scheduler if "://" in scheduler else f"tcp://{scheduler}", ClusterError)
    protocol, _ = parse_address(scheduler)
    try:
        get_backend(protocol)
        if protocol in ("tcp", "tls"):
            get_address_host_port(scheduler)
    except ValueError as error:
        raise ClusterError(
            f"{scheduler} is no address of a dask scheduler: give the one that it prints when it "
            "starts, such as tcp://login1:8786."
        ) from error
    secured = distributed.Security().get_connection_args("client")
    if protocol in ("tls", "wss") and secured.get("ssl_context") is None:
        raise ClusterError(
            f"{scheduler} needs certificates, and none are set: name them in the settings of dask, "
            "as distributed.comm.tls.client.cert, .key and ca-file."
        )


def _shared_out(workers: int, device: Any) -> dict[str, Any]:
    """Return the threads of each of some workers, and the variables of their environment."""
    try:
        on_cores = choose_devices(device)[0].shares_cores
    except NoDeviceError:
        on_cores = False  # each worker looks for itself, and says so
    if not on_cores:
        # While the device filters a part, another one is read or written.
        return {"threads_per_worker": 2}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    each = str(max(1, (cores or 1) // workers))
    given = {name: each for name in THREADS_OF_POCL if name not in os.environ}
    return {"threads_per_worker": 1, "env": given}


def _quietened() -> Any:
    """Let dask not tell of each worker that ends, or of its scheduler; return what undoes it."""
    names = ("distributed", *(f"distributed.{one}" for one in ("nanny", "client", "utils")))
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    return lambda: [one.setLevel(level) for one, level in zip(loggers, before, strict=True)]


def dask_setup(worker: Any) -> None:
    """Leave Ctrl-C to the command, which the terminal sends to all of its processes.

    Called by each worker that `connected` starts, before any work.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # It warns of each task that is given up when a run is stopped.
    logging.getLogger("distributed.worker.state_machine").setLevel(logging.ERROR)
    # Where a write fails, zarr leaves the other chunks that it is writing; Python tells of each.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    sys.unraisablehook = lambda _: None
