"""Batch processing: while a graphics card filters a file, others are read and written."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import ArrayLike

from napari_gpu_denoise import errors
from napari_gpu_denoise.files import FORMAT_NAMES, formats, output, zarr
from napari_gpu_denoise.files.image_file import ImageFile
from napari_gpu_denoise.files.one_file import OpenImage, Options, check_result, denoise_file
from napari_gpu_denoise.files.resuming import kept_notes, remove_unfinished
from napari_gpu_denoise.noise.models import summary_of
from napari_gpu_denoise.opencl.device import Device, choose_devices, own_device
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.run.progress import SILENT, Progress, Step
from napari_gpu_denoise.run.record import Record
from napari_gpu_denoise.run.request import HostMemory, Run, check_flags, on_cores, takes_options

_PACE = 5e8  # bytes a second of a large file that one process reads, filters fast, and writes
_AT_ONCE = 6  # files that are read, filtered and written at the same time
_PAUSE = 0.05  # seconds between two looks at whether the batch was cancelled
_LONG = 60.0  # seconds that files take of which it is told what took most
# What a file fails with while others take memory, or one of several devices fails.
_TRIED_ALONE = (errors.DeviceMemoryError, errors.KernelError, MemoryError)


@dataclass(frozen=True)
class Batch:
    """Files to denoise with the same settings.

    `targets` are the results of those among `found` that are meant to be images; `workers` are
    those of dask that are started if that shortens the run.
    """

    found: tuple[Path, ...]
    targets: dict[Path, Path]
    run: Run
    options: Options
    stop_on_error: bool = False
    workers: Any = None

    @classmethod
    def of(
        cls,
        inputs: Any,
        output: str | os.PathLike,
        run: Run,
        stop_on_error: bool = False,
        workers: Any = None,
        **options: Any,
    ) -> Batch:
        """Return the batch of inputs and output, as `run_batch` takes them."""
        found = formats.find_files(inputs)
        targets = dict(formats.pair(found, output))
        if options.get("client") is None:  # workers choose their devices by themselves
            run = replace(run, device=choose_devices(run.device, *run.uses))
        return cls(tuple(found), targets, run, Options(**options), stop_on_error, workers)

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices of this process, on which files are filtered in turn."""
        return choose_devices(self.run.device)

    def open_image(self, path: Path) -> contextlib.AbstractContextManager[ImageFile]:
        """Open an image of the batch, or a result."""
        return formats.open_stack(path, companions_anywhere=self.options.companions_anywhere)

    def opened(self, path: Path) -> OpenImage:
        """Open an image of the batch to be denoised, and see whether it is read whole."""
        return OpenImage(path, self.options.companions_anywhere, self.run)


@dataclass(frozen=True)
class BatchProgress:
    """The progress of a batch."""

    path: Path  # of the current file
    index: int  # its number, from 0,
    count: int  # of how many
    done: int  # units of this file
    total: int  # 0, as `done`, while it is read, its noise measured, or kernels compiled
    unit: str = ""  # what is counted, as in `Step`, or what is done before; empty for reading


@dataclass(frozen=True)
class FileReport:
    """The outcome for one file: exactly one of `output`, `error` and `skipped` is set.

    `skipped` says why the file was left out; `notes` are remarks on reading and writing it, and
    `seconds` it took, beside others of which parts were done at the same time.
    """

    input: Path
    output: Path | None = None
    record: Record | None = None
    error: Exception | None = None
    skipped: str = ""
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain values that JSON can hold."""
        error = self.error
        return {
            "input": str(self.input),
            "output": None if self.output is None else str(self.output),
            "record": None if self.record is None else self.record.as_dict(),
            "error": None if error is None else {"kind": type(error).__name__, "text": str(error)},
            "skipped": self.skipped,
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class BatchReport:
    """The outcome for all files, in the order processed, up to a cancellation or a stop.

    `notes` say where the unfinished result of a file is kept at which the batch was cancelled, or
    what of a plate is not in its result; `workers` why workers were started or not. `spent` has the
    seconds that each file took for reading, filtering and writing, where these follow each other.
    """

    files: tuple[FileReport, ...]
    cancelled: bool = False
    notes: tuple[str, ...] = ()
    spent: tuple[dict[str, float], ...] = ()
    workers: str = ""

    @property
    def done(self) -> tuple[FileReport, ...]:
        """The files that have a result."""
        return tuple(file for file in self.files if file.output is not None)

    @property
    def failed(self) -> tuple[FileReport, ...]:
        """The files that failed."""
        return tuple(file for file in self.files if file.error is not None)

    @property
    def skipped(self) -> tuple[FileReport, ...]:
        """The files that were left out: not an image, part of one already read, or done before."""
        return tuple(file for file in self.files if file.skipped)

    @property
    def summary(self) -> str:
        """The numbers of files, in words; of a long batch also what took most of its time."""
        done, failed, skipped = map(len, (self.done, self.failed, self.skipped))
        told = f"{done} denoised, {failed} failed, {skipped} skipped. {self.workers}".strip()
        spent = sum(map(Counter, self.spent), Counter())
        if spent.total() < _LONG:
            return told
        ((most, seconds),) = spent.most_common(1)
        return f"{told} Most time: {most}, {100 * seconds / spent.total():.0f} %."

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain values that JSON can hold."""
        return {"files": [file.as_dict() for file in self.files], "cancelled": self.cancelled}


def is_expected(error: BaseException) -> bool:
    """Return whether an error is one that a user can do something about; others are bugs."""
    return isinstance(error, (errors.DenoiseError, MemoryError))


def lines_on(file: FileReport, settings: Any, said: Callable[[str], str] = str) -> Iterator[str]:
    """Yield what is told of a file that has a result, a line each.

    `said` returns a note as a front end words it.
    """
    record: Any = file.record
    sigma = ", ".join(f"{value:.4g}" for value in record.sigma)
    yield str(file.output)
    if record.recommended:
        yield f"  recommended {record.recommended}"
    if len(settings.presets) > 1:
        profile, changes = settings.nearest_profile()
        changed = "".join(f", {name}={value}" for name, value in changes.items())
        yield f"  profile     {profile}{changed}"
    for words in record.corrected:
        yield f"  corrected   {words}"
    if record.noise:
        yield f"  noise       {summary_of(record.noise)} ({record.sigma_source})"
    else:
        # The source says why, for a filter that takes no sigma.
        source = record.sigma_source
        yield f"  sigma       {f'{sigma} ({source})' if sigma else source}"
    if record.sigma_factor != 1:
        yield f"  strength    {record.sigma_factor:g} times this"
    clipped = f", clipped to the range of {record.output_dtype}: float32 keeps them"
    yield f"  saturated   {record.saturated} values{clipped if record.saturated else ''}"
    if record.nonfinite:
        yield f"  non-finite  {record.nonfinite} values, left unchanged"
    yield f"  device      {record.device}"
    for note in (*record.notes, *file.notes):
        yield f"  note        {said(note)}"


@takes_options()
def run_batch(
    inputs: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    filter: Filter,
    sigma: ArrayLike | None = None,
    *,
    output: str | os.PathLike[str],
    memory_limit_host: int | str | None = None,
    overwrite: bool = False,
    resume: bool = False,
    companions_anywhere: bool = False,
    stop_on_error: bool = False,
    client: Any = None,
    progress: Callable[[BatchProgress], None] | None = None,
    cancel=None,
    **options: Any,
) -> BatchReport:
    """Denoise TIFF, NIfTI, OME-Zarr and DICOM files with the same settings.

    Parameters
    ----------
    inputs : path-like or iterable of path-like
        Files, patterns such as ``"raw/*.tif"`` (``**`` includes subfolders), or folders, with all
        files of these formats in them. A folder with the slices of a DICOM series is one image.
    filter : Filter
        An object of one of `FILTERS`, such as ``NLMeans(patch=5, step=1)``; or ``Recommended()``,
        which filters each file as `recommend` says.
    sigma : float, array_like or None, default None
        Noise standard deviation in grey levels: one value, one for each channel, one for each
        plane, or a map, as for `denoise`. None measures the noise of each file.
    noise : NoiseModel, tuple of NoiseModel, NoiseEstimate, str or float, optional
        Noise model, as for `denoise`; ``"auto"``, the default without `sigma`, and names of
        models measure it in each file.
    output : path-like
        A file for one input, of the same format (of DICOM also NIfTI, TIFF or OME-Zarr); or a
        folder, created if necessary, in which each result has the name of its input, after that of
        its folder if two would be the same.
    axes : str, optional
        Names of the axes of all files; by default those in each file.
    dtype : data type, "auto" or "same", optional
        Type of the results, as for `denoise`.
    {nonfinite}
    {correct}
    {sigma_factor}
    {device}
    {memory_limit}
    memory_limit_host : int or str, optional
        Maximum main memory, including Python and drivers: bytes, or text such as ``"2G"``. Large
        files are read and written in parts that fit; a file that must be in memory as a whole is
        refused if it does not fit. By default pixels may take a quarter of the free memory.
    overwrite : bool, default False
        Replace existing results. By default files that have one are skipped. An input is never
        replaced.
    resume : bool, default False
        Continue a batch that was interrupted: results of the same input, by its content, settings,
        noise, axes, type and version of this package are kept, any other file in their place is an
        error. A large file, or an OME-Zarr, that is written to a folder is continued with the parts
        that are not written yet; if any of these or the device differ, it is an error.
    companions_anywhere : bool, default False
        Read the other files of an OME-TIFF set wherever its XML says they are, and what links in an
        OME-Zarr lead to, not only in the folder of the input or below.
    stop_on_error : bool, default False
        Stop at the first file that fails, instead of continuing with the others.
    client : distributed.Client, optional
        Client of dask, whose workers filter the parts of OME-Zarr and large files, and small files
        as a whole. They must see the same files under the same names. `device` then limits the
        devices that each worker may choose from.
    progress : callable, optional
        Called with a `BatchProgress` before each file and after each tile, in this thread.
    cancel : object with ``is_set()``, optional
        An event that stops the work at the next tile; the report then says so. Complete results are
        kept.

    Returns
    -------
    BatchReport
        Files that fail are listed there, each with its error.

    Raises
    ------
    FileError
        If there is no input.
    OutputError
        If `output` does not match the inputs.
    NoDeviceError
        If there is no device to run on.
    ClusterError
        If the workers of `client` were lost.

    Examples
    --------
    >>> import napari_gpu_denoise as gd
    >>> report = gd.run_batch("raw/*.tif", gd.NLMeans(), output="denoised")  # doctest: +SKIP
    >>> for file in report.failed:  # doctest: +SKIP
    ...     print(file.input, file.error)
    """
    run = Run(filter, sigma, host_memory=HostMemory.of(memory_limit_host), **options)
    told: dict[str, Any] = {"overwrite": overwrite, "resume": resume}
    told["companions_anywhere"] = companions_anywhere
    check_flags(stop_on_error=stop_on_error, **told)
    stopped = Progress.of(progress, cancel).stopped
    batch = Batch.of(inputs, output, run, stop_on_error, client=client, **told)

    def report(state: BatchProgress | FileReport) -> None:
        if progress is not None and isinstance(state, BatchProgress):
            progress(state)

    return denoise_files(batch, Progress(report, stopped))


def denoise_files(
    batch: Batch, progress: Progress = SILENT, only: Collection[Path] | None = None
) -> BatchReport:
    """Denoise files, and report on them in their order.

    `progress` is given a `BatchProgress` before each file and after each of its steps, and its
    `FileReport` in the end; if it says stop, what was done is returned. `only` names the files to
    denoise now; the others are not touched either.
    """
    todo = [path for path in batch.found if only is None or path in only]
    files: list[FileReport] = []
    state, count, new = _BatchState(batch), len(todo), batch.workers
    with contextlib.ExitStack() as held:
        flow = held.enter_context(_Flow(batch, state, files, progress))
        try:
            if batch.options.client is not None:
                todo = _by_workers(batch, state, todo, files, progress)
            while todo and not state.stops(files):
                begun = count - len(todo) if files else 0  # until a file is done, kernels are built
                if batch.workers is not None and flow.pays(begun, todo):
                    flow.finish()
                    run = replace(batch.run, device=new.device)
                    options = replace(batch.options, client=held.enter_context(new.started()))
                    batch = flow.batch = replace(batch, run=run, options=options, workers=None)
                    todo = _by_workers(batch, state, todo, files, progress)
                else:
                    flow.take(todo, count)
                    del todo[0]
            flow.finish()
        except errors.Cancelled:
            notes = flow.cancelled()
            return BatchReport(tuple(files), len(files) < count, notes, tuple(state.spent))
    workers = "" if new is None else new.note
    report = BatchReport(tuple(files), spent=tuple(state.spent), workers=workers)
    return replace(report, notes=_plate(batch)) if not report.failed else report


def _close(opened: Iterable[Future[OpenImage] | None]) -> None:
    """Close images that were opened ahead, and are not denoised."""
    for future in opened:
        if future is not None and future.exception() is None:
            future.result().close()


class _Begun(NamedTuple):
    """A file that a thread denoises: its place, since when, its bytes, and steps to report."""

    path: Path
    place: tuple[int, int]
    since: float
    nbytes: int
    steps: deque[Step]
    future: Future


class _Flow(contextlib.ExitStack):
    """Denoises files and reports on them in their order; small ones in threads, several at once.

    A graphics card then waits for no disk; on a CPU, which has nothing else to do, files would only
    take longer. The first file is denoised alone: it makes the folder, and builds the kernels.
    Those that come next are opened ahead.
    """

    def __init__(self, batch: Batch, state: _BatchState, files: list, progress: Progress) -> None:
        super().__init__()
        self.batch, self._state, self._files, self._progress = batch, state, files, progress
        self._path: Path | None = None  # of the last file that was waited for
        self._begun: deque[_Begun] = deque()
        # Held while a step is reported: there a front end may pause the run.
        self._reporting, self._ended = threading.Lock(), threading.Event()
        self._coming: dict[Path, Future[OpenImage]] = {}
        self.callback(_close, self._coming.values())
        self._pool = self.enter_context(ThreadPoolExecutor(_AT_ONCE, "files"))
        self._opening = self.enter_context(ThreadPoolExecutor(_AT_ONCE, "opening"))
        self.callback(self._ended.set)

    def pays(self, begun: int, todo: Sequence[Path]) -> bool:
        """Return whether workers shorten what is left of a batch, of which files are begun."""
        batch, seconds, coming = self.batch, 0.0, self._coming.get(todo[0])
        if not on_cores(batch.devices):  # whose cores workers would take
            with contextlib.suppress(Exception), contextlib.ExitStack() as held:
                opened = coming.result() if coming else held.enter_context(batch.opened(todo[0]))
                seconds = sum(self._seconds(opened, batch.devices))
        return batch.workers.pay(seconds, begun, len(todo))

    def _seconds(self, opened: OpenImage, devices: Sequence[Device]) -> tuple[float, float]:
        """Return about how many seconds devices take for an image, and this process."""
        from napari_gpu_denoise.assessment.recommend import seconds_on  # imports all filters

        filter, pixels = self.batch.run.filter, opened.picture.data
        return seconds_on(filter, pixels.size, devices, start=0.0), pixels.nbytes / _PACE

    def take(self, todo: Sequence[Path], count: int) -> None:
        """Denoise the first of the last files of a count, or begin to."""
        batch, path, place = self.batch, todo[0], (count - len(todo), count)
        flows = bool(self._files) and batch.options.client is None and not batch.stop_on_error
        flows = flows and not on_cores(batch.devices)
        if os.path.islink(batch.targets.get(path, "")):
            self.finish()  # it may lead to the result of an earlier file
        for each in todo[: 1 + _AT_ONCE] if flows else ():
            if each in batch.targets and each not in self._coming:
                self._coming[each] = self._opening.submit(batch.opened, each)
        coming = self._coming.pop(path, None)
        found = self._state.sort(path, coming and coming.result)
        if not isinstance(found, OpenImage):
            _close([coming])
            self.finish()
            self._alone(path, place, found)
            return
        with contextlib.ExitStack() as opened:
            opened.push(found)
            while self._begun:
                held = found.nbytes + sum(each.nbytes for each in self._begun)
                if len(self._begun) < _AT_ONCE and found.memory.fits(held, batch.devices):
                    break
                self._finish_first()
            self._begin(path, place, found)
            opened.pop_all()

    def _begin(self, path: Path, place: tuple[int, int], opened: OpenImage) -> None:
        """Let a thread denoise a file, on one of the devices."""
        devices = self.batch.devices
        if len(devices) > 1:  # as many as are kept busy: another takes time to open
            filtering, rest = self._seconds(opened, devices[:1])
            devices = devices[: 1 + int(filtering / rest)]
        device = (devices[place[0] % len(devices)],)
        run = replace(self.batch.run, host_memory=opened.memory, device=device)
        steps: deque[Step] = deque()

        def report(step: Step) -> None:
            with self._reporting:
                steps.append(step)

        def stopped() -> bool:
            return self._ended.is_set() or self._progress.stopped()

        own = {"opened": opened, "progress": Progress(report, stopped), "spent": {}}
        self._state.spent.append(own["spent"])
        given = denoise_file, path, self.batch.targets[path], run, self.batch.options
        future = self._pool.submit(*given, **own)
        self._begun.append(_Begun(path, place, time.monotonic(), opened.nbytes, steps, future))

    def finish(self) -> None:
        """Wait for the files that were begun, and report on them."""
        while self._begun:
            self._finish_first()

    def _finish_first(self) -> None:
        path, place, since, _, steps, future = self._begun[0]
        own = self._steps_of(path, place)
        while not future.done() or steps:
            wait([future], _PAUSE)
            while steps:
                with self._reporting:
                    own.report(steps.popleft())
            own.check()
        again = isinstance(future.exception(), _TRIED_ALONE)
        for each in self._begun if again else ():
            if (error := each.future.exception()) is not None:
                errors.free_traceback(error)  # with the pixels that it holds
        self._begun.popleft()
        if again:
            self._alone(path, place)
        else:
            self._end(path, future.result, since)

    def _steps_of(self, path: Path, place: tuple[int, int]) -> Progress:
        self._path = path

        def among_all(step: Step) -> BatchProgress:
            return BatchProgress(path, *place, step.done, step.total, step.unit)

        own = self._progress.within(among_all)
        own.stage("")
        return own

    def _alone(self, path: Path, place: tuple[int, int], known: FileReport | None = None) -> None:
        """Denoise one file, with this process or with all workers, while no other is.

        `known` is the report on one that is not to be denoised.
        """
        own, since = self._steps_of(path, place), time.monotonic()

        def made() -> Any:
            self._state.spent.append({})
            batch, told = self.batch, {"progress": own, "spent": self._state.spent[-1]}
            return denoise_file(path, batch.targets[path], batch.run, batch.options, **told)

        self._end(path, made if known is None else lambda: known, since)

    def _end(self, path: Path, made: Callable[[], Any], since: float) -> None:
        """Report on a file, of which `made` returns a report, or what `denoise_file` does."""
        try:
            found = made()
            report = found if isinstance(found, FileReport) else self._state.done(path, *found)
        except (errors.Cancelled, errors.NoDeviceError):
            raise
        except Exception as error:
            # Whatever is wrong with one file, try the others.
            report = self._state.failed(path, error)
        self._files.append(replace(report, seconds=time.monotonic() - since))
        self._progress.report(self._files[-1])
        self._progress.check()

    def cancelled(self) -> tuple[str, ...]:
        """Add the reports on files that were complete when a batch was cancelled.

        Returns where unfinished results are kept.
        """
        self._ended.set()
        left = [self._path]
        if self._files and self._files[-1].input == self._path:
            # An error may be that of PoCL, whose compiler Ctrl-C makes fail, too.
            left = [self._files.pop().input] if self._files[-1].error else []
        for one in self._begun:
            if one.future.exception() is None:
                self._files.append(self._state.done(one.path, *one.future.result()))
            else:
                left.append(one.path)
        notes = (kept_notes(self.batch.targets.get(path)) for path in dict.fromkeys(left) if path)
        return tuple(itertools.chain.from_iterable(notes))


def _by_workers(
    batch: Batch, state: _BatchState, todo: list[Path], files: list[FileReport], progress: Progress
) -> list[Path]:
    """Have workers denoise small files, several at a time, and add to the reports on `files`.

    Returns what is left: large files, of which all workers filter parts, or a single one.
    """
    from napari_gpu_denoise.files.cluster import DeviceReport, check_workers, outcomes

    client, options = batch.options.client, replace(batch.options, client=None)
    check_workers(client)
    if len(todo) < 2:
        return todo
    rest: list[Path] = []
    begun: list[Path] = []
    before, total = len(files), len(files) + len(todo)

    def among_all(step: Step) -> BatchProgress:
        index = min(step.done, total - 1)
        path = todo[max(index - before, 0)]
        return BatchProgress(path, index, total, step.done, step.total, step.unit)

    of_all = progress.within(among_all)

    def add_report(report: FileReport) -> None:
        files.append(report)
        progress.report(report)
        of_all.tell(len(files), total, "file")

    def small() -> Iterator[tuple[Any, ...]]:
        for path in itertools.takewhile(lambda _: not state.stops(files), todo):
            found = state.sort(path, partial(batch.opened, path))
            if isinstance(found, OpenImage):
                found.close()
                begun.append(path)
                yield "file", filtered_file, path, batch.targets[path], batch.run, options
            elif found:
                add_report(found)
            else:
                rest.append(path)

    of_all.tell(before, total, "file")
    work = outcomes(client, small(), DeviceReport(), progress)
    with contextlib.closing(work) as results:
        for number, outcome in results:
            report = outcome.value or FileReport(begun[number], error=outcome.error)
            add_report(state.returned(report))
            if state.stops(files):
                break
    return rest


def filtered_file(path: Path, target: Path, run: Run, options: Options) -> FileReport:
    """Denoise a small file on the device of this process, which is that of a worker."""
    try:
        run = replace(run, device=own_device(run.device))
        picture, record, notes = denoise_file(path, target, run, options)
        return FileReport(path, target, record, notes=(*picture.notes, *notes))
    except (errors.DeviceMemoryError, errors.KernelError, errors.NoDeviceError):
        raise  # another worker may have another device
    except Exception as error:
        return FileReport(path, error=error)


class _BatchState:
    """State of a batch: files that were read, results that were written, and times."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._sources: set[Path] = set()  # files read as part of an earlier image
        self._written: set[tuple[int, int]] = set()
        self._first: dict[str, Path] = {}  # by the name of its result
        self.spent: list[dict[str, float]] = []  # seconds of each file, by what was done
        for path, target in batch.targets.items():
            self._first.setdefault(_folded(target), path)

    def left_out(self, path: Path) -> FileReport | None:
        """Return the report on a file that is no image of its own, or has a result."""
        batch = self._batch
        if path not in batch.targets:
            reason = f"{path} is not a {FORMAT_NAMES} file and was skipped."
            return FileReport(path, skipped=reason)
        if _real(path) in self._sources:
            reason = f"{path} is part of an image that was read with an earlier file."
            return FileReport(path, skipped=reason)
        target = batch.targets[path]
        if (twin := self._first[_folded(target)]) != path:
            raise errors.OutputError(
                f"{twin} and {path} would have the same name in {target.parent}: write them to two "
                "folders."
            )
        exists = target.exists()
        replaced = exists and batch.options.overwrite
        inputs = self._inputs if replaced else self._found
        formats.check_target(target, inputs, self._written)
        if replaced or not exists:
            return None
        with batch.open_image(path) as picture:
            # The other files of a set are then not denoised as images of their own.
            self._sources.update(map(_real, picture.files))
            if batch.options.resume:
                check_result(target, picture, batch.run)
                remove_unfinished(target)
                return FileReport(path, skipped=f"{target} is complete and was kept.")
        remedy = "choose another name, pass overwrite=True to replace it, or resume=True to keep it"
        note = errors.Note(f"{target} exists and was kept", f"{remedy} as done", code="exists")
        return FileReport(path, skipped=note)

    @cached_property
    def _found(self) -> output.Kept:
        return output.Kept(self._batch.found)

    @cached_property
    def _inputs(self) -> output.Kept:
        """All files of the batch, and all others of which their images are."""
        found = list(self._batch.found)
        for path in self._batch.targets:
            # What cannot be read says so when it is its turn.
            with contextlib.suppress(Exception), self._batch.open_image(path) as picture:
                found += picture.files
        return output.Kept(found)

    def sort(
        self, path: Path, opened: Callable[[], OpenImage] | None
    ) -> FileReport | OpenImage | None:
        """Return an image that is small, as `opened` returns it, or why it is left out; else None.

        An image that no worker or thread is to denoise is not opened.
        """
        try:
            if (report := self.left_out(path)) is not None or opened is None:
                return report
            if not (found := opened()).nbytes:
                found.close()
                return None
        except Exception as error:
            return self.failed(path, error)
        files = found.picture.files or (path,)
        self._sources.update(_real(file) for file in files if file != path)
        return found

    def done(
        self, path: Path, picture: ImageFile, record: Record, notes: tuple[str, ...]
    ) -> FileReport:
        """Note what `denoise_file` returned for a file, whose pixels are let go of."""
        self._sources.update(map(_real, picture.files))
        report = FileReport(path, self._batch.targets[path], record, notes=(*picture.notes, *notes))
        return self.returned(report)

    def returned(self, report: FileReport) -> FileReport:
        """Note what has become of a file."""
        if isinstance(report.error, errors.NoDeviceError):
            raise report.error
        if report.output is not None:
            self._written.add(formats.identity(report.output))
        return report

    def failed(self, path: Path, error: Exception) -> FileReport:
        """Return the report on a file that failed, without the pixels of its traceback."""
        errors.free_traceback(error)
        return FileReport(path, error=error, notes=kept_notes(self._batch.targets.get(path), error))

    def stops(self, files: Sequence[FileReport]) -> bool:
        """Return whether a file has failed that ends the batch."""
        return self._batch.stop_on_error and any(file.error is not None for file in files)


def _folded(target: Path) -> str:
    """Return a name as file systems take it that do not tell A.tif from a.tif."""
    return str(target).casefold()


def _real(path: Path) -> Path:
    """Return the one name of a file that has several, by links; those may lead in circles."""
    return path if isinstance(path, zarr.places.Address) else Path(os.path.realpath(path))


def _plate(batch: Batch) -> tuple[str, ...]:
    """Describe the plate of which the results are images, once all are there."""
    images, targets = list(batch.targets), list(batch.targets.values())
    if not images or zarr.places.has_suffix(targets[0]) or not zarr.places.is_zarr_path(targets[0]):
        return ()
    plate = zarr.metadata.plate_of(images)
    if plate is None or not all(map(zarr.places.is_zarr, targets)):
        return ()
    place, inside = targets[0], zarr.metadata.within(plate, images[0])
    for _ in inside.split("/"):
        place = place.parent
    return zarr.metadata.describe_plate(place, plate)
