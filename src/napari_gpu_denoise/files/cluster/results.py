"""Give tasks to the dask workers, some at a time, and take their outcomes as they come."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import CancelledError
from contextlib import closing
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from typing import Any

from napari_gpu_denoise.errors import (
    ClusterError,
    DeviceMemoryError,
    FileError,
    KernelError,
    NoDeviceError,
    Note,
    OutputError,
)
from napari_gpu_denoise.files.cluster.tasks import Failed
from napari_gpu_denoise.opencl.several import names_of
from napari_gpu_denoise.run.record import MEASURING, Progress, Record, Tally
from napari_gpu_denoise.version import package_version

# Errors after which a task is tried again, on another worker if there is one.
_TRANSIENT = (DeviceMemoryError, KernelError, NoDeviceError, FileError, OutputError)
_TRIES = 3
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
        self._client.cancel([task.future for task in self._given.values()])

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
            left = [each for each in self._client.nthreads() if each not in self._avoided]
            # Where only others are left, or have come, they do it.
            others = {"workers": left, "allow_other_workers": True} if left else {}
        task.future = submit(self._client, *task.work, **others)
        self._given[task.future.key] = task
        task.future.add_done_callback(lambda future: self._ended.put((future.key, _ended(future))))

    def _look_for_workers(self) -> None:
        """Say that there is no worker, and give up after a while: others may come until then."""
        if self._client.nthreads():
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
    return client.submit(function, *given, key=key, pure=False, **options)


def run_task(client: Any, *work: Any) -> Generator[Progress, None, Any]:
    """Have one task done; yields `MEASURING` meanwhile, and returns its outcome."""
    with closing(Results(client, iter([work]), 1, ClusterReport())) as results:
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
    except CancelledError as error:
        raise ClusterError(
            "The dask scheduler was lost",
            "start it again, and repeat the run with resume=True",
            code="no-scheduler",
        ) from error
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
    asked = eval, "__import__('napari_gpu_denoise.version').version.package_version()"
    for worker, found in client.run(*asked, on_error="return").items():
        told = "no napari-gpu-denoise" if isinstance(found, ImportError) else ""
        if isinstance(found, str) and found != here:
            told = f"version {found} of napari-gpu-denoise"
        if told:
            raise ClusterError(
                f"The dask worker {worker} has {told}: install version {here} there, as here."
            )
