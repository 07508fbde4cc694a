"""Errors and notes: data (a code and values), and a sentence that says what to do next."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any, Self


class DenoiseError(Exception):
    """Base class of all errors of this package.

    ``str(error)`` is one sentence for Python users. A front end with other wording for remedies
    looks up `code` in its own table, see `worded`.

    Parameters
    ----------
    problem : str
        What is wrong; or the whole sentence, if no remedy follows.
    remedy : str, optional
        What to do, in terms of Python, without a full stop.
    code : str, optional
        Short name of the remedy, such as ``"axis-needed"``.
    **values
        What the remedy depends on, such as ``axis="T"``.
    """

    def __init__(self, problem: str = "", remedy: str = "", *, code: str = "", **values: Any):
        self.problem, self.remedy, self.code, self.values = problem, remedy, code, values
        super().__init__(self.with_remedy(remedy))

    def with_remedy(self, remedy: str) -> str:
        """Return the sentence with another remedy; empty for none."""
        return f"{self.problem}: {remedy}." if remedy else self.problem


class Note(str):
    """A remark about a result: plain text, with a code and values like those of an error."""

    __slots__ = ("code", "fact", "values")

    fact: str
    code: str
    values: dict[str, Any]

    def __new__(cls, fact: str, remedy: str = "", *, code: str = "", **values: Any) -> Self:
        """Return text that is the fact, and the remedy behind a colon; see `DenoiseError`."""
        note = super().__new__(cls, f"{fact}: {remedy}" if remedy else fact)
        note.fact, note.code, note.values = fact, code, values
        return note

    def replaced(self, old: str, new: str) -> Note:
        """Return the note with another text in its fact, once."""
        fact = self.fact.replace(old, new, 1)
        note = Note(fact, self[len(self.fact) + 2 :], **self.values)
        note.code = self.code
        return note

    def with_remedy(self, remedy: str) -> str:
        """Return the text with another remedy."""
        return f"{self.fact}: {remedy}"


def worded(message: BaseException | str, remedies: Mapping[str, str]) -> str:
    """Return an error or a note with its remedy as a front end words it.

    Parameters
    ----------
    message : exception or str
    remedies : mapping of str to str
        By code: the remedy, with the names of values in braces.

    Returns
    -------
    str
        The text for Python users where the table has no entry.
    """
    if isinstance(message, (DenoiseError, Note)) and message.code in remedies:
        return message.with_remedy(remedies[message.code].format(**message.values))
    return str(message)


def free_traceback(error: BaseException | None, kept: bool = True) -> None:
    """Free what an error holds by its traceback; unless that is `kept`, by calling frames, too."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error.__traceback__ = error.__traceback__ if kept else None
        error = error.__cause__ or error.__context__


class NoDeviceError(DenoiseError, RuntimeError):
    """No OpenCL device was found, or not the requested one."""


class ForkedProcessError(NoDeviceError):
    """The process was forked from one that had used OpenCL, and cannot use a device."""


class DeviceMemoryError(DenoiseError, MemoryError):
    """The device cannot hold even the smallest tile of the work."""


class HostMemoryError(DenoiseError, MemoryError):
    """The run does not fit into the main memory that it may use."""


class KernelError(DenoiseError, RuntimeError):
    """A device refused to build or to run a kernel."""


class AxesError(DenoiseError, ValueError):
    """The axes named do not fit the array."""


class ImageError(DenoiseError, ValueError):
    """The array cannot be filtered: it is empty, or of an unsupported type."""


class NonFiniteError(ImageError):
    """The array holds NaN or infinity and the caller did not say how to treat them."""


class SettingsError(DenoiseError, ValueError):
    """A setting of a filter is out of its bounds, or unknown."""


class SigmaError(DenoiseError, ValueError):
    """The noise standard deviation is negative, not finite, or of the wrong length."""


class Cancelled(DenoiseError, RuntimeError):
    """The caller asked for a stop; nothing was returned or written."""


class FileError(DenoiseError, OSError):
    """A file cannot be read as an image."""


class OutputError(DenoiseError, OSError):
    """A result cannot be written where it was requested."""


class ClusterError(DenoiseError, RuntimeError):
    """The dask workers cannot be reached, or were lost."""


class LayerError(DenoiseError, TypeError):
    """A napari layer is not one that can be filtered."""


class UnchangedWarning(UserWarning):
    """A result equals the image, or nearly so: hardly any noise was found, or is proven."""


class SaturationWarning(UserWarning):
    """Some results fell outside the range of the output type and were clipped to it."""
