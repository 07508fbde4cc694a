"""What became of the files of a batch, as data and in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from napari_gpu_denoise.errors import DenoiseError
from napari_gpu_denoise.noise.models import NoiseModel
from napari_gpu_denoise.run.record import Record


@dataclass(frozen=True)
class FileReport:
    """The outcome for one file: exactly one of `output`, `error` and `skipped` is set.

    `skipped` says why the file was left out; `notes` are remarks on reading and writing it.
    """

    input: Path
    output: Path | None = None
    record: Record | None = None
    error: Exception | None = None
    skipped: str = ""
    notes: tuple[str, ...] = ()

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
    what of a plate is not in its result.
    """

    files: tuple[FileReport, ...]
    cancelled: bool = False
    notes: tuple[str, ...] = ()

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
        """The numbers of files, in words."""
        done, failed, skipped = map(len, (self.done, self.failed, self.skipped))
        return f"{done} denoised, {failed} failed, {skipped} skipped."

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain values that JSON can hold."""
        return {"files": [file.as_dict() for file in self.files], "cancelled": self.cancelled}


def is_expected(error: BaseException) -> bool:
    """Return whether an error is one that a user can do something about; others are bugs."""
    return isinstance(error, (DenoiseError, MemoryError))


def lines_on(file: FileReport, settings: Any, said: Callable[[str], str] = str) -> Iterator[str]:
    """Yield what is told of a file that has a result, a line each.

    `said` returns a note as a front end words it.
    """
    record = file.record
    sigma = ", ".join(f"{value:.4g}" for value in record.sigma)
    yield str(file.output)
    if len(settings.presets) > 1:
        profile, changes = settings.nearest_profile()
        changed = "".join(f", {name}={value}" for name, value in changes.items())
        yield f"  profile     {profile}{changed}"
    for words in record.corrected:
        yield f"  corrected   {words}"
    if record.noise:
        models = dict.fromkeys(NoiseModel.from_dict(each).summary() for each in record.noise)
        yield f"  noise       {'; '.join(models)} ({record.sigma_source})"
    else:
        # The source says why, for a filter that takes no sigma.
        source = record.sigma_source
        yield f"  sigma       {f'{sigma} ({source})' if sigma else source}"
    if record.sigma_factor != 1:
        yield f"  strength    {record.sigma_factor:g} times this"
    yield f"  saturated   {record.saturated} values"
    if record.nonfinite:
        yield f"  non-finite  {record.nonfinite} values, left unchanged"
    yield f"  device      {record.device}"
    for note in (*record.notes, *file.notes):
        yield f"  note        {said(note)}"
