"""Files filtered part by part by workers of dask.distributed, on this machine or on others.

dask.distributed is imported when it is used; it is an extra of this package.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from napari_gpu_denoise import errors
from napari_gpu_denoise.errors import ClusterError, Note
from napari_gpu_denoise.files import formats
from napari_gpu_denoise.files.input_checks import check_no_secrets
from napari_gpu_denoise.files.zarr import NewImage
from napari_gpu_denoise.files.zarr.places import Address, Claim, as_path, zarr_package
from napari_gpu_denoise.files.zarr.writing import FullResolutionArray
from napari_gpu_denoise.image.axes import check_axes
from napari_gpu_denoise.noise.structure.remove import CorrectedArray, Correction
from napari_gpu_denoise.opencl.device import choose_devices, names_of, own_device
from napari_gpu_denoise.run.by_parts import PartList
from napari_gpu_denoise.run.input import Input
from napari_gpu_denoise.run.job import Job, start
from napari_gpu_denoise.run.ledger import Ledger, mark_of
from napari_gpu_denoise.run.part import Part, filter_part, size_of, unit_of
from napari_gpu_denoise.run.progress import MEASURING, Progress
from napari_gpu_denoise.run.record import Record, Result, Tally
from napari_gpu_denoise.run.request import Run
from napari_gpu_denoise.version import package_version

# What workers do.


@dataclass(frozen=True)
class Place:
    """Where an input and its result are, for any process that sees the same files.

    `run` tells runs apart: a file is opened anew in each. `device` is what each worker chooses its
    own from. `target` is a folder of zarr, the name of the array in it, and the run that may write;
    None where the pixels are sent back.
    """

    run: str
    path: str
    companions_anywhere: bool
    device: Any = None
    correction: Correction | None = None
    target: tuple[str, str, str] | None = None

    def source(self) -> Any:
        """Return the pixels, which are read part by part."""
        data = _opened(self.run, self.path, self.companions_anywhere)[1].data
        return CorrectedArray(data, self.correction) if self.correction else data


@dataclass(frozen=True)
class Failed:
    """The error of a task, the device it was done on, if known, and the address of the worker."""

    error: errors.DenoiseError
    device: str
    worker: str


@dataclass(frozen=True)
class Done:
    """What was counted in a part, by whom, and its mark; or its pixels, if they are sent back."""

    tally: Tally
    mark: int
    device: str
    worker: str
    made: np.ndarray | None = None


def device_of_this(wanted: Any) -> tuple[str, str, str, str]:
    """Return name, platform, version and driver of the device of this process."""
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


def filtered(place: Place, job: Job, part: Part) -> Done | Failed:
    """Filter a part, and write it if it has a place."""
    device = ""
    try:
        job = replace(job, run=job.run.on([own_device(place.device)]))
        device = str(job.device)
        block = job.block(place.source()[part.reads])
        out = np.empty([one.size for one in part.spans], job.dtypes[1])
        tally = filter_part(job, part, block, out)
        if place.target is None:
            return Done(tally, 0, device, address(), out)
        target = _result(*place.target)
        target[part.yields] = out
        # Nothing is resumed at an address.
        at_address = isinstance(target.place, Address)
        mark = 0 if at_address else mark_of(target, part.yields, out)
        return Done(tally, mark, device, address())
    except errors.DenoiseError as error:
        return Failed(error, device, address())


def checked(version: str, function: Callable, *given: Any) -> Any:
    """Do a task, unless the program that gives it has another version of this package."""
    if version != package_version():
        raise _other_version(address(), package_version(), version)
    return function(*given)


def _other_version(worker: str, found: str, wanted: str) -> ClusterError:
    told = f"version {found} of" if found else "no"
    return ClusterError(
        f"The dask worker {worker} has {told} napari-gpu-denoise: install version {wanted} there, "
        "as here."
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
def _result(folder: str, name: str, run: str) -> FullResolutionArray:
    where, place = as_path(folder), f"{folder}/{name}"
    array = zarr_package().open_array(place, mode="r+")
    return FullResolutionArray(array, where, place, Claim(where, run))


# What is asked of them.

# Errors after which a task is tried again, on another worker if there is one.
_TRANSIENT = (errors.DeviceMemoryError, errors.KernelError, errors.NoDeviceError)
_TRANSIENT += (errors.FileError, errors.OutputError)
_TRIES = 3
_AHEAD = 3  # tasks given out at a time, for each thread of the workers
_PAUSE = 0.05  # seconds between two looks at what has arrived, and at whether a run was cancelled
# Seconds without any worker until that is said, and until the run ends: others may come.
_ALONE_SAID, _ALONE_MAX = 30.0, 600.0
_LOST = OSError, CancelledError, asyncio.CancelledError  # of a client without its scheduler
_logger = logging.getLogger(__name__)


@dataclass
class ClusterReport:
    """What was counted, the devices of the workers by their address, and what failed."""

    tally: Tally = field(default_factory=Tally)
    devices: dict[str, str] = field(default_factory=dict)
    failed: list[Failed] = field(default_factory=list)

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
    tries: int = 0

    def again(self, outcome: Any) -> bool:
        """Return whether the task failed, and is to be tried once more."""
        self.tries += isinstance(outcome, Failed)
        failed = isinstance(outcome, Failed) and isinstance(outcome.error, _TRANSIENT)
        return failed and self.tries < _TRIES


def outcomes(
    client: Any,
    work: Iterable[tuple],
    report: ClusterReport,
    progress: Progress,
    raises: bool = True,
) -> Iterator[tuple[int, Any]]:
    """Yield number and outcome of each task as it ends, in any order.

    `work` has a name, a function and its arguments for each task. Those of a worker that ends
    are given to others by dask. Those that fail for want of a device, memory or a file are tried
    again, elsewhere where possible; what still fails is raised, or with `raises` off yielded.
    Whether to stop is asked of `progress`. Closing the iterator gives up what is not done.
    """
    import distributed

    arrived = distributed.as_completed(loop=client.loop, with_results=True, raise_errors=False)
    waiting = (_Task(number, each) for number, each in enumerate(work))
    given: dict[Any, _Task] = {}
    with contextlib.ExitStack() as held:
        held.callback(_quietly, lambda: client.cancel(list(given)))
        for workers in _workers_there(client):
            progress.check()
            room = _AHEAD * max(1, sum(workers.values())) - len(given)
            for task in itertools.islice(waiting, max(0, room)):
                _give(client, task, given, arrived)
            if not given:
                return
            if not arrived.has_ready():
                time.sleep(_PAUSE)
            for future, result in arrived.next_batch(block=False):
                task, outcome = given.pop(future), _outcome(future, result)
                if task.again(outcome):
                    report.failed.append(outcome)
                    avoided = {each.worker for each in report.failed}
                    others = [each for each in workers if each not in avoided]
                    _give(client, task, given, arrived, others)
                    continue
                if raises and isinstance(outcome, Failed):
                    raise outcome.error
                if getattr(outcome, "worker", ""):
                    report.devices[outcome.worker] = outcome.device
                yield task.number, outcome


def _give(client: Any, task: _Task, given: dict, arrived: Any, others: Sequence[str] = ()) -> None:
    """Give a task to the workers, best to some; the dashboard shows it by its name."""
    name, *work = task.work
    # Where only those are left that failed, or new ones have come, they do it.
    options = {"workers": list(others), "allow_other_workers": True} if others else {}
    options |= {"key": f"{name}-{uuid.uuid4().hex}", "pure": False}
    future = asked(client.submit, checked, package_version(), *work, **options)
    given[future] = task
    arrived.add(future)


def _workers_there(client: Any) -> Iterator[dict[str, int]]:
    """Yield the threads of all workers, time and again; give up after a while without any."""
    since, said = time.monotonic(), False
    while True:
        if found := asked(client.nthreads):
            since, said = time.monotonic(), False
        seconds = time.monotonic() - since
        if seconds >= _ALONE_SAID and not said:
            said = True
            _logger.warning(
                "There is no dask worker: the run waits for one, and ends after %g s without any.",
                _ALONE_MAX,
            )
        if seconds >= _ALONE_MAX:
            raise ClusterError(
                f"There has been no dask worker for {_ALONE_MAX:g} s",
                "start some, and repeat the run with resume=True",
                code="no-workers",
            )
        yield found


def asked(method: Callable, *given: Any, **options: Any) -> Any:
    """Return what a method of a client does; `ClusterError` if the scheduler does not answer."""
    try:
        return method(*given, **options)
    except _LOST as error:
        raise _no_scheduler() from error


def _no_scheduler() -> ClusterError:
    remedy = "start it again, and repeat the run with resume=True"
    return ClusterError("The dask scheduler was lost", remedy, code="no-scheduler")


def run_task(client: Any, progress: Progress, *work: Any) -> Any:
    """Have one task done, named first; return its outcome."""
    progress.stage(MEASURING)
    ((_, outcome),) = outcomes(client, [work], ClusterReport(), progress)
    return outcome


def _outcome(future: Any, result: Any) -> Any:
    """Return the result of a task that has ended; its error is raised."""
    from distributed import KilledWorker
    from distributed.comm import CommClosedError

    if isinstance(result, _LOST[1:]) or future.status == "cancelled":
        raise _no_scheduler()
    if future.status != "error":
        return result
    error = result[1]
    if isinstance(error, (*_LOST[1:], CommClosedError)):
        raise _no_scheduler() from error
    if isinstance(error, KilledWorker):
        raise ClusterError(
            "Several dask workers ended while filtering the same part, perhaps for lack of memory: "
            "give each more memory, or start fewer."
        ) from error
    raise error


def check_workers(client: Any) -> None:
    """Refuse workers without this package, or with another version: the first task ends them."""
    # What is of Python each worker has.
    question = eval, "__import__('napari_gpu_denoise.version').version.package_version()"
    for worker, found in asked(client.run, *question, on_error="return").items():
        if found != package_version():
            version = found if isinstance(found, str) else ""
            raise _other_version(worker, version, package_version())


def denoise_by_workers(
    client: Any,
    picture: Any,
    run: Run,
    out: NewImage | Callable[[tuple[int, ...], np.dtype], Any],
    ledger: Ledger,
    progress: Progress,
    companions_anywhere: bool,
) -> Result:
    """Denoise the pixels of a file part by part, on the dask workers.

    The workers read the file, and write the parts of a new OME-Zarr, by themselves; pixels for
    another kind of result, which ``out(shape, dtype)`` returns, or of parts that share a chunk,
    are sent back. Parts are those of a run on one device, and `ledger` is kept here: so either can
    go on with what the other began.
    """
    place = Place(uuid.uuid4().hex, _absolute(picture.path), companions_anywhere, run.device)
    shape = tuple(picture.data.shape)
    # What is free here says nothing of the machines of the workers.
    host = run.host_memory if run.host_memory is not None and run.host_memory.given else None
    run = replace(run, axes=check_axes(run.axes, shape), device=None, host_memory=host)
    correction, known = ledger.known("correction"), ledger.known("job")
    if known is None or (run.correct is not None and correction is None):
        job, correction = run_task(client, progress, "noise", prepared, place, run, correction)
        if correction is not None:
            ledger.keep("correction", correction)
        ledger.keep("job", (job.dtypes, job.filter, job.sigma, job.levels))
    else:
        job = Job(run, run.axes, shape, *known)
    place = replace(place, correction=correction)
    made = (out.finest if isinstance(out, NewImage) else out)(shape, job.dtypes[1])
    unit = unit_of(made) or unit_of(picture.data)
    size = partial(size_of, job, unit, [None])
    if host is not None:
        size = partial(run_task, client, progress, "size", size_of_parts, place, job, unit)
    parts = PartList(job, made, size, ledger, progress)
    # Two processes must not write to one chunk at the same time.
    if isinstance(out, NewImage) and begin_chunks(parts.left, made.chunks):
        place = replace(place, target=(_absolute(out.folder), out.name, out.claim.run))
    report, total = ClusterReport(), parts.done + len(parts.left)
    progress.tell(parts.done, total, "part")
    work = ((job.filter.name, filtered, place, job, part) for part in parts.left)
    with contextlib.closing(outcomes(client, work, report, progress)) as results:
        for done, (number, outcome) in enumerate(results, parts.done + 1):
            part = parts.left[number]
            if outcome.made is None:
                parts.wrote(part, outcome.tally, outcome.mark)
            else:
                parts.write(part, outcome.made, outcome.tally)
            report.tally += outcome.tally
            progress.tell(done, total, "part")
    image = Input(picture.data, job.names, correction)
    devices = names_of(report.devices.values()) or "dask workers"
    record = report.noted(parts.record(image.array, report.tally, devices))
    return Result(made, image.noted(record))


def begin_chunks(parts: Iterable[Part], chunks: Sequence[int]) -> bool:
    """Return whether all parts of an image begin where chunks do, so that none share one."""
    starts = ([one.start for one in part.yields] for part in parts)
    return not any(n % step for start in starts for n, step in zip(start, chunks, strict=True))


def _absolute(path: str | os.PathLike) -> str:
    """Return a path as other processes have to be told it."""
    return os.fspath(path if isinstance(path, Address) else Path(path).absolute())


# Where they are.

_ANSWER_SECONDS = 30.0  # that a scheduler may take to answer, and its first worker to come
# Threads of PoCL: its versions have two names for their number.
THREADS_OF_POCL = ("POCL_MAX_PTHREAD_COUNT", "POCL_CPU_MAX_CU_COUNT")


@contextlib.contextmanager
def connected(
    scheduler: str | None = None,
    workers: int = 0,
    device: Any = None,
    seconds: float = _ANSWER_SECONDS,
) -> Iterator[Any]:
    """Yield a client of dask: of the scheduler at an address, or of new workers on this machine.

    The workers end with the block. `device` is what they are to run on: of a CPU each has its share
    of the cores. A scheduler, and its first worker, are waited for `seconds`.
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
        if scheduler is not None:
            client = _client_of(distributed, scheduler, seconds)
        else:
            options = {"n_workers": workers, "preload": [__name__], **_shared_out(workers, device)}
            options["silence_logs"] = logging.CRITICAL  # of each worker that ends
            # Whoever can reach the dashboard sees names of files, and more.
            options["dashboard_address"] = "127.0.0.1:8787"
            try:
                cluster = distributed.LocalCluster(**options)
                held.callback(_quietly, cluster.close)
                client = distributed.Client(cluster, set_as_default=False)
            except (OSError, RuntimeError) as error:
                raise ClusterError(
                    f"{workers} workers could not be started ({error}): start fewer."
                ) from error
        held.callback(_quietly, client.close)
        yield client


def _quietly(method: Callable, **options: Any) -> None:
    """Close something, whether or not there is somebody to tell."""
    with contextlib.suppress(*_LOST):
        method(**options)


def _client_of(distributed: Any, scheduler: str, seconds: float) -> Any:
    check_no_secrets(scheduler if "://" in scheduler else f"tcp://{scheduler}", ClusterError)
    try:
        if not scheduler.startswith(("inproc:", "ucx:")):  # which have no ports
            # Of an address that it refuses, a client leaves a thread that the next one waits for.
            distributed.comm.get_address_host_port(scheduler)
        client = distributed.Client(scheduler, timeout=seconds, set_as_default=False)
    except (OSError, TimeoutError, ValueError, TypeError) as error:
        raise ClusterError(
            f"No dask scheduler answers at {scheduler} ({error}): give the address that it prints "
            "when it starts, such as tcp://login1:8786."
        ) from error
    try:
        asked(client.wait_for_workers, 1, timeout=seconds)
    except ClusterError as error:
        _quietly(client.close, timeout=1)
        raise ClusterError(
            f"The scheduler at {scheduler} has no workers: start some with 'dask worker "
            f"{scheduler}'."
        ) from error
    return client


def _shared_out(workers: int, device: Any) -> dict[str, Any]:
    """Return the threads of each of some workers, and the variables of their environment."""
    from dask.system import CPU_COUNT

    try:
        on_cores = choose_devices(device)[0].shares_cores
    except errors.NoDeviceError:
        on_cores = False  # each worker looks for itself, and says so
    if not on_cores:
        # While the device filters a part, another one is read or written.
        return {"threads_per_worker": 2}
    each = str(max(1, CPU_COUNT // workers))
    given = {name: each for name in THREADS_OF_POCL if name not in os.environ}
    return {"threads_per_worker": 1, "env": given}


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
