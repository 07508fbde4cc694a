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
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from napari_gpu_denoise import errors
from napari_gpu_denoise.files import formats
from napari_gpu_denoise.files.input_checks import check_no_secrets
from napari_gpu_denoise.files.zarr.places import Address, Claim, as_path, zarr_package
from napari_gpu_denoise.files.zarr.writing import FullResolutionArray, NewImage
from napari_gpu_denoise.image.axes import check_axes
from napari_gpu_denoise.opencl.device import own_device
from napari_gpu_denoise.run.by_parts import PartList
from napari_gpu_denoise.run.input import Input
from napari_gpu_denoise.run.job import Job, start
from napari_gpu_denoise.run.ledger import Ledger, mark_of
from napari_gpu_denoise.run.part import Part, filter_part, size_of, unit_of
from napari_gpu_denoise.run.progress import MEASURING, Progress
from napari_gpu_denoise.run.record import DeviceReport, Result, Tally
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
    correction: Any = None  # a `Correction`
    target: tuple[str, str, str] | None = None

    def source(self) -> Any:
        """Return the pixels, which are read part by part."""
        with _opening:  # two threads would open it twice, and one be closed as nobody keeps it
            data = _opened(self.run, self.path, self.companions_anywhere)[1].data
        return self.correction.of(data) if self.correction else data


@dataclass(frozen=True)
class Outcome:
    """What a task returned, or the error with which it failed, and the address of the worker."""

    worker: str
    value: Any = None
    error: errors.DenoiseError | None = None


class Done(NamedTuple):
    """What was counted in a part, where, and its mark; or its pixels, if they are sent back."""

    device: str
    tally: Tally
    mark: int
    made: np.ndarray | None = None


def outcome_of(version: str, function: Callable, *given: Any) -> Outcome:
    """Do a task, unless the program that gives it has another version of this package."""
    import distributed

    worker = distributed.get_worker().address
    if version != package_version():
        raise _other_version(worker, package_version(), version)
    try:
        return Outcome(worker, function(*given))
    except errors.DenoiseError as error:
        return Outcome(worker, error=error)


def _other_version(worker: str, found: str, wanted: str) -> errors.ClusterError:
    told = f"version {found} of" if found else "no"
    return errors.ClusterError(
        f"The dask worker {worker} has {told} napari-gpu-denoise: install version {wanted} there, "
        "as here."
    )


def device_of_this(wanted: Any) -> tuple[str, str, str, str]:
    """Return name, platform, version and driver of the device of this process."""
    device = own_device(wanted)
    return device.name, device.platform, device.version, device.driver


def prepared(place: Place, run: Run, known: Any) -> tuple[Job, Any]:
    """Prepare a run for an input: what to correct, and the noise, are measured."""
    image = Input.of(place.source(), run, known)
    job = start(replace(run, device=own_device(place.device)), image).sharing(image.windows())
    # Devices of this machine mean nothing on another.
    return replace(job, run=replace(job.run, device=None)), image.correction


def filtered(place: Place, job: Job, part: Part) -> Done:
    """Filter a part, and write it if it has a place."""
    job = replace(job, run=job.run.on([own_device(place.device)]))
    block = job.block(place.source()[part.reads])
    out = np.empty(part.shape, job.dtypes[1])
    tally, mark = filter_part(job, part, block, out), 0
    if place.target is None:
        return Done(str(job.device), tally, mark, out)
    target = _result(*place.target)
    target[part.yields] = out
    if not isinstance(target.place, Address):  # where nothing is resumed
        mark = mark_of(target, part.yields, out)
    return Done(str(job.device), tally, mark)


_opening = threading.Lock()


@lru_cache(maxsize=4)
def _opened(run: str, path: str, companions_anywhere: bool) -> tuple[Any, Any]:
    """Open a file; it is closed some time after other files have been opened."""
    opened = formats.open_stack(path, companions_anywhere=companions_anywhere)
    return opened, opened.__enter__()


@lru_cache(maxsize=4)
def _result(folder: str, name: str, run: str) -> FullResolutionArray:
    where = as_path(folder)
    array = zarr_package().open_array(os.fspath(where / name), mode="r+")
    return FullResolutionArray(array, where, where / name, Claim(where, run))


# What is asked of them.

# Errors after which a task is tried again, on another worker if there is one.
_TRANSIENT = (errors.DeviceMemoryError, errors.KernelError, errors.NoDeviceError)
_TRANSIENT += (errors.FileError, errors.OutputError)
_TRIES = 3
_AHEAD = 3  # tasks given out at a time, for each thread of the workers
_PAUSE = 0.01  # seconds between two looks at what has arrived, and at whether a run was cancelled
# Seconds without any worker until that is said, and until the run ends: others may come.
_ALONE_SAID, _ALONE_MAX = 30.0, 600.0
# What is raised without a scheduler, as those that were waited for are cancelled.
_CANCELLED = CancelledError, asyncio.CancelledError
_logger = logging.getLogger(__name__)


def outcomes(
    client: Any, work: Iterable[tuple], report: DeviceReport, progress: Progress
) -> Generator[tuple[int, Outcome], None, None]:
    """Yield number and outcome of each task as it ends, in any order.

    `work` has a name, a function and its arguments for each task. Those of a worker that ends
    are given to others by dask. Those that fail for want of a device, memory or a file are tried
    again, elsewhere where possible. Whether to stop is asked of `progress`. Closing the iterator
    gives up what is not done.
    """
    import distributed

    arrived = distributed.as_completed(loop=client.loop, with_results=True, raise_errors=False)
    waiting, given, avoided = enumerate(work), {}, set()

    def give(number: int, task: tuple, tries: int = 1, others: Sequence[str] = ()) -> None:
        # Where only those are left that failed, or new ones have come, they do it.
        options = {"workers": others, "allow_other_workers": True} if others else {}
        name, *call = task  # the dashboard shows it by its name
        options |= {"key": f"{name}-{uuid.uuid4().hex}", "pure": False}
        with _in_words(OSError):
            future = client.submit(outcome_of, package_version(), *call, **options)
        given[future] = number, task, tries
        arrived.add(future)

    with contextlib.ExitStack() as held:
        held.callback(_quietly, lambda: client.cancel(list(given)))
        for workers in _workers_there(client):
            progress.check()
            room = _AHEAD * max(1, sum(workers.values())) - len(given)
            for each in itertools.islice(waiting, max(0, room)):
                give(*each)
            if not given:
                return
            if not arrived.has_ready():
                time.sleep(_PAUSE)
            for future, result in arrived.next_batch(block=False):
                number, task, tries = given.pop(future)
                outcome = _outcome(future, result)
                if tries == _TRIES or not isinstance(outcome.error, _TRANSIENT):
                    yield number, outcome
                    continue
                report.failed.append((f"The dask worker {outcome.worker}", outcome.error))
                avoided.add(outcome.worker)
                give(number, task, tries + 1, [each for each in workers if each not in avoided])


def run_task(client: Any, progress: Progress, *work: Any) -> Any:
    """Have one task done, named first; return its value, or raise its error."""
    progress.stage(MEASURING)
    ((_, outcome),) = outcomes(client, [work], DeviceReport(), progress)
    if outcome.error is not None:
        raise outcome.error
    return outcome.value


def _workers_there(client: Any) -> Iterator[dict[str, int]]:
    """Yield the threads of all workers, time and again; give up after a while without any."""
    since, said = time.monotonic(), False
    while True:
        with _in_words(OSError):
            found = client.nthreads()
        if found:
            since, said = time.monotonic(), False
        alone = time.monotonic() - since
        if alone >= _ALONE_SAID and not said:
            said = True
            told = (
                "There is no dask worker: the run waits for one, and ends after %g s without any."
            )
            _logger.warning(told, _ALONE_MAX)
        if alone >= _ALONE_MAX:
            raise errors.ClusterError(
                f"There has been no dask worker for {_ALONE_MAX:g} s",
                "start some, and repeat the run with resume=True",
                code="no-workers",
            )
        yield found


@contextlib.contextmanager
def _in_words(*lost: type[Exception]) -> Iterator[None]:
    """Raise what dask raises as a `ClusterError`; `lost` are errors of a lost scheduler."""
    from distributed import KilledWorker

    try:
        yield
    except KilledWorker as error:
        raise errors.ClusterError(
            "Several dask workers ended while filtering the same part, perhaps for lack of memory: "
            "give each more memory, or start fewer."
        ) from error
    except (*lost, *_CANCELLED) as error:
        remedy = "start it again, and repeat the run with resume=True"
        raise errors.ClusterError(
            "The dask scheduler was lost", remedy, code="no-scheduler"
        ) from error


def _outcome(future: Any, result: Any) -> Outcome:
    """Return the result of a task that has ended; its error is raised."""
    from distributed.comm.core import CommClosedError

    with _in_words(CommClosedError):
        if future.status == "error":
            raise result[1]
        if future.status == "cancelled" or isinstance(result, _CANCELLED):
            raise CancelledError
        return result


def check_workers(client: Any) -> None:
    """Refuse workers without this package, or with another version: the first task ends them."""
    if not hasattr(client, "nthreads"):
        raise errors.ClusterError(f"client={client!r:.60} is none: give a distributed.Client.")
    # What is of Python each worker has.
    question = eval, "__import__('napari_gpu_denoise.version').version.package_version()"
    with _in_words(OSError):
        answers = client.run(*question, on_error="return")
    for worker, found in answers.items():
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
    names = check_axes(run.axes, shape)
    # What is free here says nothing of the machines of the workers.
    host = run.host_memory if run.host_memory is not None and run.host_memory.given else None
    run = replace(run, axes=names, device=None, host_memory=host)
    correction, known = ledger.known("correction"), ledger.known("job")
    if known is None or (run.correct is not None and correction is None):
        job, correction = run_task(client, progress, "noise", prepared, place, run, correction)
        if correction is not None:
            ledger.keep("correction", correction)
        ledger.keep("job", (job.dtypes, job.filter, job.sigma, job.levels))
    else:
        job = Job(run, names, shape, *known)
    place = replace(place, correction=correction)
    made: Any = (out.finest if isinstance(out, NewImage) else out)(shape, job.dtypes[1])
    size = partial(size_of, job, unit_of(made) or unit_of(picture.data), [None])
    parts = PartList(job, made, size, ledger, progress)
    # Two processes must not write to one chunk at the same time.
    if isinstance(out, NewImage) and begin_chunks(parts.left, made.chunks):
        place = replace(place, target=(_absolute(out.folder), out.name, out.claim.run))
    report, total = DeviceReport(), parts.done + len(parts.left)
    progress.tell(parts.done, total, "part")
    work = ((job.filter.name, filtered, place, job, part) for part in parts.left)
    with contextlib.closing(outcomes(client, work, report, progress)) as results:
        for count, (number, outcome) in enumerate(results, parts.done + 1):
            if outcome.error is not None:
                raise outcome.error
            part, done = parts.left[number], outcome.value
            if done.made is None:
                parts.wrote(part, done.tally, done.mark)
            else:
                parts.write(part, done.made, done.tally)
            report.tally += done.tally
            report.used[outcome.worker] = done.device
            progress.tell(count, total, "part")
    image = Input(picture.data, job.names, correction)
    return Result(made, image.noted(parts.record(image.array, report, "dask workers")))


def begin_chunks(parts: Iterable[Part], chunks: Sequence[int]) -> bool:
    """Return whether all parts of an image begin where chunks do, so that none share one."""
    starts = ([one.start for one in part.yields] for part in parts)
    return not any(n % step for start in starts for n, step in zip(start, chunks, strict=True))


def _absolute(path: str | os.PathLike) -> str:
    """Return the path or address by which other processes open a file."""
    return os.fspath(path if isinstance(path, Address) else Path(path).absolute())


# Where they are.

_ANSWER_SECONDS = 30.0  # that a scheduler may take to answer, and its first worker to come
# Threads of PoCL: its versions have two names for their number.
THREADS_OF_POCL = ("POCL_MAX_PTHREAD_COUNT", "POCL_CPU_MAX_CU_COUNT")


def _check_dask() -> None:
    """Refuse workers where dask.distributed is not installed; importing it takes a second."""
    if find_spec("distributed") is None:
        raise errors.ClusterError(
            "Workers need dask.distributed, which is not installed: pip install distributed."
        )


@contextlib.contextmanager
def connected(scheduler: str, seconds: float = _ANSWER_SECONDS) -> Iterator[Any]:
    """Yield a client of the dask scheduler at an address, which has `seconds` to answer."""
    _check_dask()
    from distributed import Client, Security, comm

    async def connect() -> None:
        given = Security().get_connection_args("client")
        (await comm.connect(scheduler, timeout=seconds, **given)).abort()  # pyright: ignore[reportPrivateImportUsage]

    check_no_secrets(scheduler if "://" in scheduler else f"tcp://{scheduler}", errors.ClusterError)
    try:
        asyncio.run(connect())  # a client that fails leaves a thread for which Python would wait
        client = Client(scheduler, timeout=seconds, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise errors.ClusterError(
            f"No dask scheduler answers at {scheduler} ({error}): give the address that it prints "
            "when it starts, such as tcp://login1:8786."
        ) from error
    with contextlib.ExitStack() as held:
        held.callback(_quietly, client.close)
        try:
            client.wait_for_workers(1, timeout=seconds)
        except (OSError, *_CANCELLED) as error:
            raise errors.ClusterError(
                f"The scheduler at {scheduler} has no workers: start some with 'dask worker "
                f"{scheduler}'."
            ) from error
        yield client


def _quietly(method: Callable, **options: Any) -> None:
    """Close something, whether or not there is somebody to tell."""
    with contextlib.suppress(OSError, *_CANCELLED):
        method(**options)


# Workers are started where cores would be idle for more than so many seconds: to start and to end
# them takes three, they use half of that time (H200: 200 files take 7.7 s, 8.4 with 8 workers), and
# the first files tell the time of the others within a factor of two; or at once for one image that
# takes a graphics card so many.
_WORTH, _ALONE = 30.0, 10.0
_THREADS = 2  # of each process: while a device filters a part, another one is read or written


class NewWorkers:
    """Workers on this machine, which are started when that shortens a batch.

    `device` is what they are to run on. `said` is told the address of the dashboard, if there is
    one. `note` says why they were started, or not.
    """

    def __init__(self, count: int, device: Any, said: Callable[[str], object]) -> None:
        _check_dask()
        self.device, self._count, self._said = device, count, said
        self.note, self._first = "No workers were started: the run was too short.", None

    def pay(self, seconds: float, begun: int, left: int) -> bool:
        """Return whether they shorten what is left of a batch, of which files are begun already.

        The next image alone may take so many seconds. While cores are busy, workers save nothing.
        Files that are under way count: the first of several at once ends late.
        """
        import psutil  # which dask.distributed needs, too

        if seconds > _ALONE:
            return True
        idle = psutil.cpu_times().idle / (psutil.cpu_count() or 1)
        if self._first is None:
            self._first = (idle, begun) if begun else None
            return False
        before, since = self._first
        if begun == since:
            return False
        saved = (idle - before) * left / (begun - since)
        if saved <= _WORTH:
            told = f"they would have saved {saved:.1f} s at most, and taken about 3 s"
            self.note = f"No workers were started: {told}."
        return saved > _WORTH

    @contextlib.contextmanager
    def started(self) -> Iterator[Any]:
        """Yield a client of the workers, which end with the block; of a CPU, each has its share."""
        from distributed import Client, LocalCluster

        count, share = self._count, str(max((os.cpu_count() or 1) // self._count, 1))
        with contextlib.ExitStack() as held:
            try:
                cluster = LocalCluster(
                    n_workers=count,
                    threads_per_worker=_THREADS,
                    memory_limit=1 / (count + 1),  # of the machine: this process is another
                    host="127.0.0.1",
                    protocol="tcp://",
                    # Whoever can reach the dashboard sees names of files, and more.
                    dashboard_address="127.0.0.1:8787",
                    silence_logs=logging.CRITICAL,  # of each worker that ends
                    preload=[__name__],
                    env={name: share for name in THREADS_OF_POCL if name not in os.environ},
                )
                held.callback(_quietly, cluster.close)
                client = Client(cluster, set_as_default=False)
            except (OSError, RuntimeError) as error:
                raise errors.ClusterError(
                    f"{count} workers could not be started ({error}): start fewer."
                ) from error
            held.callback(_quietly, client.close)
            self._said(client.dashboard_link or "")
            self.note = f"{count} workers were started."
            yield client


def dask_setup(worker: Any) -> None:
    """Leave Ctrl-C to the command, which the terminal sends to all of its processes.

    Called by each worker that `NewWorkers` starts, before any work.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # It warns of each task that is given up when a run is stopped.
    logging.getLogger("distributed.worker.state_machine").setLevel(logging.ERROR)
    # Where a write fails, zarr leaves the other chunks that it is writing; Python tells of each.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    sys.unraisablehook = lambda _: None
