"""Docstrings of public functions, which share paragraphs.

A line with only a name in braces, such as ``{image}``, is replaced by the paragraph of that name in
`PARAGRAPHS`.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

_PLACE = re.compile(r"^( *)\{(\w+)\}$", re.MULTILINE)

PARAGRAPHS = {
    "image": """\
image : array_like
    Pixels of any real type, with two or more axes. Never modified.""",
    "axes": """\
axes : str, optional
    Names of the axes, such as ``"TZYX"``. Channels (C or S) are corrected separately; all
    other axes but Y and X hold planes. By default the last two are Y and X, the rest
    planes.""",
    "sigma": """\
sigma : float, array_like or None, optional
    Standard deviation of the noise in grey levels of the image: one value, one for each
    channel, one for each plane, or a map of shape (ny, nx); see `denoise`. None measures the
    noise (see `noise`). Where it is 0, pixels are returned unchanged.""",
    "noise": """\
noise : NoiseModel, tuple of NoiseModel, NoiseEstimate, str or float, optional
    Noise model, one for each channel or one for all; the result of `estimate_noise`; the name
    of a model, such as ``"gaussian"``, whose parameters are then measured; or ``"auto"``, the
    default without `sigma`, to find the model as well; see `denoise`. If `sigma` is given, it
    is used instead.""",
    "dtype": """\
dtype : data type, "auto" or "same", optional
    Type of the result. "auto", the default: the type of the image, but float32 instead of
    integers of 8 or 16 bits where rounding would add more than 0.05 dB to the remaining
    error (noise below a standard deviation of about 8.5); colours (axis S) keep their type.
    "same": the type of the image. Integers are rounded; values beyond the range of the type
    are clipped.""",
    "same_dtype": """\
dtype : data type, optional
    Type of the result, by default that of the image. Integers are rounded and clipped.""",
    "nonfinite": """\
nonfinite : {"raise", "keep"}, optional
    Reject NaN and infinity, or leave these pixels unchanged without affecting others.""",
    "correct": """\
correct : str, tuple of str or None, optional
    Structured noise to remove first: ``"stripes"`` (offsets of rows and columns, hum),
    ``"outliers"`` (hot and dead pixels), or both with ``"found"``; each only if it is
    found, see `find_structure`. The record says what was removed. By default nothing is
    removed. If something is removed, results of integers are float32 unless `dtype` is
    given.""",
    "sigma_factor": """\
sigma_factor : float, optional
    Strength: multiplies the given or measured sigma, with any noise model. 1, the default,
    is best if sigma is right; values above 1 remove more.""",
    "device": """\
device : Device, int, str, sequence or None, optional
    Where to run; by default the best device available, see `choose`. ``"all"`` divides the
    work among all devices of the same kind, a list among those listed.""",
    "memory_limit": """\
memory_limit : int or str, optional
    Maximum device memory: bytes, or text such as ``"512M"`` or ``"2G"``.""",
    "progress": """\
progress : callable, optional
    Called as ``progress(done, total)`` with numbers of tiles, or of frames if the filter
    uses several at once.
cancel : object with ``is_set()``, optional
    An event that stops the run at the next tile or frame.""",
    "part": """\
frames : int or slice, optional
    Frames along the axis T to return, by default all. The axis T stays.
rows : slice, optional
    The same along the axis Y.
columns : slice, optional
    The same along the axis X.""",
    "result": """\
ndarray
    A new array of the shape of `image`.""",
    "filtered": """\
ndarray or dask array
    An array of the shape of `image`. For a dask array it is a dask array, computed when it
    is used; see `denoise_lazy`. `progress` and `cancel` cannot be given then.""",
    "input_errors": """\
AxesError, ImageError, NonFiniteError, SettingsError
    If the input is invalid.""",
    "errors": """\
SettingsError, AxesError, SigmaError, ImageError, NonFiniteError
    If the input is invalid.
NoDeviceError, DeviceMemoryError, KernelError
    If no device is found, or the device fails.
Cancelled
    If `cancel` was set.""",
    "warnings": """\
SaturationWarning
    If results were clipped to the range of the type.
UnchangedWarning
    If measured noise is not proven, or so weak that the result hardly differs from the image.
UserWarning
    If the result has another mean than the image, as the noise is not what was given.""",
}
_RUN = ("nonfinite", "correct", "sigma_factor", "device", "memory_limit", "progress")
PARAGRAPHS["run"] = "\n".join(PARAGRAPHS[name] for name in _RUN)
PARAGRAPHS["inputs"] = "\n".join(PARAGRAPHS[name] for name in ("image", "sigma", "noise"))
PARAGRAPHS["outcome"] = "\n\n".join(
    f"{title}\n{'-' * len(title)}\n{PARAGRAPHS[name]}"
    for title, name in (("Returns", "filtered"), ("Raises", "errors"), ("Warns", "warnings"))
)
PARAGRAPHS["options"] = PARAGRAPHS["dtype"] + "\n" + PARAGRAPHS["run"]


def documented(function: Function, **own: str) -> Function:
    """Insert the shared paragraphs into a docstring, and its own ones."""
    paragraphs = PARAGRAPHS | own
    if function.__doc__:  # there is none under python -OO
        function.__doc__ = _PLACE.sub(
            lambda place: textwrap.indent(paragraphs[place[2]], place[1]), function.__doc__
        )
    return function
