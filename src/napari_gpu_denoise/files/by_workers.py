"""Small files of a batch: each is read, filtered and written by one worker of dask."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from napari_gpu_denoise.errors import DeviceMemoryError, KernelError, NoDeviceError
from napari_gpu_denoise.files.batch_report import FileReport
from napari_gpu_denoise.files.cluster.results import Found, Results
from napari_gpu_denoise.files.cluster.tasks import Failed, address, check_version
from napari_gpu_denoise.files.one_file import file_steps
from napari_gpu_denoise.opencl.claims import own_device
from napari_gpu_denoise.run.record import finish
from napari_gpu_denoise.run.request import Run
from napari_gpu_denoise.version import package_version

_AHEAD = 2  # files given out at a time, for each thread of the workers


def reports(
    client: Any, files: Iterable[tuple[Path, Path, dict[str, Any]]], run: Run
) -> Generator[FileReport | None, None, None]:
    """Yield the report on each file as it is done, in any order; None if nothing came for a while.

    `files` has input, target and the options of `file_steps`. Closing the generator gives up the
    files that no worker has begun.
    """
    begun: list[Path] = []

    def work():
        for path, target, options in files:
            begun.append(path)
            yield "file", filtered_file, path, target, run, options, package_version()

    ahead = _AHEAD * max(1, sum(client.nthreads().values()))
    with closing(Results(client, work(), ahead, Found(), raises=False)) as results:
        for number, outcome in results.arriving():
            if not isinstance(outcome, Failed):
                yield outcome
            elif isinstance(outcome.error, NoDeviceError):
                raise outcome.error
            else:
                yield FileReport(begun[number], error=outcome.error)


def filtered_file(
    path: Path, target: Path, run: Run, options: dict[str, Any], version: str
) -> FileReport | Failed:
    """Denoise a file on the device of this process."""
    device = ""
    try:
        check_version(version)
        run = replace(run, device=own_device(run.device))
        device = str(run.device)
        picture, record, notes = finish(file_steps(path, target, run, **options))
        return FileReport(path, target, record, notes=(*picture.notes, *notes))
    except (DeviceMemoryError, KernelError, NoDeviceError) as error:
        return Failed(error, device, address())
    except Exception as error:
        return FileReport(path, error=error)
