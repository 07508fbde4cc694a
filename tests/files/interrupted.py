"""Runs of many small parts that are stopped, killed or resumed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tifffile

import napari_gpu_denoise as gd
from napari_gpu_denoise.files.resuming import ResumeLedger, unfinished_folder
from napari_gpu_denoise.files.zarr.places import as_path
from napari_gpu_denoise.run import request
from napari_gpu_denoise.run.ledger import Ledger
from scenes import SMALL_PARTS, noisy, small
from zarr_stores import write_store

PLAIN, SERIES = small(gd.NLMeans), gd.Subspace(filter="bm3d", filter_profile="fast")


@contextlib.contextmanager
def parts_written(stop_at: int | None = None, cancel: threading.Event | None = None):
    """Yield the numbers of the parts that are written; `cancel` when there are so many."""
    wrote = []

    def counted(plain):
        def wrote_one(self, number, *given):
            if cancel is not None and cancel.is_set():
                time.sleep(0.05)  # for the run to notice, while the next part is computed
            plain(self, number, *given)
            wrote.append(number)
            if len(wrote) == stop_at:
                cancel.set()

        return wrote_one

    with pytest.MonkeyPatch.context() as patched:
        for kind in (Ledger, ResumeLedger):
            patched.setattr(kind, "wrote", counted(kind.wrote))
        yield wrote


def run_until_killed(source: str, target: str, name: str) -> None:
    """Run, and kill this process when some parts are written."""
    request.USUAL_LIMITS = SMALL_PARTS

    def progress(step) -> None:
        if step.done == 4:
            os.kill(os.getpid(), signal.SIGKILL)

    (settings,) = (one for one in (PLAIN, SERIES) if one.name == name)
    gd.run_batch(source, settings, 20.0, output=target, progress=progress)


def check_killed(source, target, name: str = PLAIN.name) -> None:
    """Do so in another process."""
    if os.name == "nt":
        pytest.skip("no SIGKILL")
    script = "import sys; from files.interrupted import run_until_killed as run; run(*sys.argv[1:])"
    known = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", script, str(source), str(target), name]
    assert subprocess.run(command, env=known, check=False).returncode == -signal.SIGKILL


class Place:
    """Where an image, its result and the notes on it are: a folder, or an address.

    `kind` is that of the image: "tif", "zarr", or "address", of OME-Zarr that is no folder.
    """

    def __init__(self, root: Path | str, kind: str = "tif") -> None:
        self.root, self.kind = root, kind
        self.input, self.output = self.named("in"), self.named("out")

    def named(self, name: str):
        """Return the place of an image of this name."""
        return as_path(f"{self.root}/{name}{'.tif' if self.kind == 'tif' else '.ome.zarr'}")

    def write(self, image: np.ndarray | None = None, axes: str = "ZYX", **options) -> Place:
        """Write the input, of six parts of a plane each if none is given."""
        image = noisy(6, 33, 37, dtype="uint16") if image is None else image
        if self.kind == "tif":
            tifffile.imwrite(self.input, image, metadata={"axes": axes})
        else:
            plane = (33, 37) if self.kind == "address" else (24, 24)
            chunks = (*(1,) * (image.ndim - 2), *plane)
            write_store(self.input, image, axes, **{"chunks": chunks, **options})
        return self

    def run(self, settings=PLAIN, sigma=20.0, *, stop_at=None, name="out", **options):
        """Run a batch of one file; with `stop_at`, cancel it when so many parts are done.

        Return the report, and the numbers of the parts that were written.
        """
        cancel = threading.Event()
        options = {"output": self.named(name), "cancel": cancel, **options}
        with parts_written(stop_at, cancel) as wrote:
            return gd.run_batch(self.input, settings, sigma, **options), wrote

    def done(self, *given, name="out", **options):
        """Return the pixels and the record of a result, or raise the error of the run."""
        report, _ = self.run(*given, name=name, **options)
        for file in report.failed:
            raise file.error
        return gd.read(self.named(name)).data, report.files[0].record

    def failure(self, *given, **options):
        """Return the report on the file of a run that fails."""
        (file,) = self.run(*given, **options)[0].failed
        return file

    def resumed(self, *given, **options) -> list[int]:
        """Resume a run; return the parts that it wrote, or raise its error."""
        report, wrote = self.run(*given, resume=True, **options)
        if report.failed:
            raise report.failed[0].error
        self.record, self.data = report.done[0].record, gd.read(self.output).data
        return wrote

    def check_as_uninterrupted(self, *given, **options) -> None:
        """See that what was resumed is what a run without a stop gives, and no note is left."""
        report, _ = self.run(*given, name="whole", **options)
        whole = gd.read(self.named("whole")).data
        np.testing.assert_array_equal(self.data, whole)
        assert self.data.dtype == whole.dtype
        assert replace(self.record, date="") == replace(report.done[0].record, date="")
        assert not self.unfinished

    @property
    def notes(self):
        """The folder of the unfinished result."""
        return unfinished_folder(self.output)

    @property
    def unfinished(self) -> bool:
        """Whether there is an unfinished result."""
        return self.notes.exists()

    @property
    def complete(self) -> bool:
        """Whether the result has its name."""
        return self.output.exists()
