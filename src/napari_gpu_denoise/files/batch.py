"""Batch processing: each file is read, denoised, written and freed before the next."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from numpy.typing import ArrayLike

from napari_gpu_denoise.errors import Cancelled
from napari_gpu_denoise.files.batch_report import BatchReport
from napari_gpu_denoise.files.batch_steps import Batch, BatchProgress, batch_steps
from napari_gpu_denoise.files.inputs import find_files, pair
from napari_gpu_denoise.opencl.several import choose_devices
from napari_gpu_denoise.run.filter import Filter
from napari_gpu_denoise.run.host_memory import HostMemory
from napari_gpu_denoise.run.request import Run, takes_options


@takes_options()
def run_batch(
    inputs: str | os.PathLike | Iterable[str | os.PathLike],
    filter: Filter,
    sigma: ArrayLike | None = None,
    *,
    output: str | os.PathLike,
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
    """Denoise TIFF, NIfTI and OME-Zarr files with the same settings.

    Parameters
    ----------
    inputs : path-like or iterable of path-like
        Files, patterns such as ``"raw/*.tif"`` (``**`` includes subfolders), or folders, with all
        TIFF, NIfTI and OME-Zarr files in them.
    filter : Filter
        An object of one of `FILTERS`, such as ``NLMeans(patch=5, step=1)``.
    sigma : float, array_like or None, default None
        Noise standard deviation in grey levels: one value, one for each channel, one for each
        plane, or a map, as for `denoise`. None measures the noise of each file.
    noise : NoiseModel, tuple of NoiseModel, NoiseEstimate, str or float, optional
        Noise model, as for `denoise`; ``"auto"``, the default without `sigma`, and names of
        models measure it in each file.
    output : path-like
        A file for one input, of the same format; or a folder, created if necessary, in which
        each result has the name of its input, after that of its folder if two would be the same.
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
        refused if it does not fit. By default parts may take a quarter of the free memory.
    overwrite : bool, default False
        Replace existing results. By default files that have one are skipped. An input is never
        replaced.
    resume : bool, default False
        Continue a batch that was interrupted: results of the same filter, settings, noise and
        correction are kept, and any other file in their place is an error. A large file, or an
        OME-Zarr, is continued with the parts that are not written yet; if settings, input, device
        or version of this package differ, it is an error.
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
    found = find_files(inputs)
    targets = dict(pair(found, output))
    run = Run(filter, sigma, host_memory=HostMemory.of(memory_limit_host), **options)
    if client is None:  # workers choose their devices by themselves
        run = replace(run, device=choose_devices(run.device))
    batch = Batch(
        tuple(found),
        targets,
        run,
        overwrite=overwrite,
        resume=resume,
        companions_anywhere=companions_anywhere,
        stop_on_error=stop_on_error,
        client=client,
    )
    with contextlib.closing(batch_steps(batch)) as steps:
        try:
            while True:
                step = next(steps)
                if progress is not None and isinstance(step, BatchProgress):
                    progress(step)
                if cancel is not None and cancel.is_set():
                    steps.throw(Cancelled("The batch was cancelled."))
        except StopIteration as end:
            return end.value
