"""Signatures and documentation shared by the public functions.

In their docstrings, a line with only a name in braces, such as ``{image}``, is replaced by the
paragraph of that name in `PARAGRAPHS`, or one that the decorator makes.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from napari_gpu_denoise.run.settings import Settings, setting_fields

Function = TypeVar("Function", bound=Callable[..., Any])

_PLACE = re.compile(r"^( *)\{(\w+)\}$", re.MULTILINE)
_WIDTH = 92  # of the text of a setting, which is indented twice

PARAGRAPHS = {
    "image": """\
image : array_like
    Pixels of any real type, with two or more axes. Never modified.""",
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
    Type of the result. "auto", the default: that of the image, but float32 instead of integers
    of 8 or 16 bits where rounding would cost more than 0.05 dB beside what remains of the
    noise, which is below a standard deviation of about 8.5; colours (axis S) keep their type.
    "same": that of the image. Integers are rounded; values beyond the range of the type are
    saturated.""",
    "nonfinite": """\
nonfinite : {"raise", "keep"}, optional
    Refuse NaN and infinity, or leave these pixels as they are without affecting others.""",
    "correct": """\
correct : str, tuple of str or None, optional
    Structured noise to remove first: ``"stripes"`` (rows and columns with offsets of their
    own, hum), ``"outliers"`` (hot and dead pixels), or both by ``"found"``; each only where it
    is found, see `find_structure`. The record says what was removed. By default nothing is.
    Where something is removed, results of integers are float32 unless `dtype` says otherwise.""",
    "device": """\
device : Device, int, str or None, optional
    Where to run; by default the best device available, see `choose`.""",
    "memory_limit": """\
memory_limit : int or str, optional
    Largest device memory to use: bytes, or text such as ``"512M"`` or ``"2G"``.""",
    "progress": """\
progress : callable, optional
    Called as ``progress(done, total)`` with numbers of tiles, or of frames where the filter
    uses several at once.
cancel : object with ``is_set()``, optional
    An event that stops the run at the next tile or frame.""",
    "result": """\
ndarray
    A new array of the shape of `image`.""",
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
    If the noise was measured, and so little was found that the result is nearly the image.""",
}
_RUN = ("nonfinite", "correct", "device", "memory_limit", "progress")
PARAGRAPHS["run"] = "\n".join(PARAGRAPHS[name] for name in _RUN)
PARAGRAPHS["options"] = PARAGRAPHS["dtype"] + "\n" + PARAGRAPHS["run"]


def documented(function: Function) -> Function:
    """Insert the shared paragraphs into a docstring."""
    return _filled(function, PARAGRAPHS)


def with_settings(kind: type[Settings]) -> Callable[[Function], Function]:
    """Return a decorator that adds every setting of a filter to a function with ``**`` parameter.

    It sets ``__signature__``, for help and completion, and fills ``{settings}`` and ``{fields}`` in
    the docstring, besides the `PARAGRAPHS`.
    """

    def decorate(function: Function) -> Function:
        own = {
            "settings": f"settings : {kind.__name__}, optional\n    Settings to start from instead "
            "of a profile; settings given as keywords override them.",
            "fields": "\n".join(_paragraph(spec) for spec in setting_fields(kind)),
        }
        taken = inspect.signature(function).parameters.values()
        keyword = inspect.Parameter.KEYWORD_ONLY
        fields = [
            inspect.Parameter(spec.name, keyword, default=spec.default, annotation=spec.type)
            for spec in setting_fields(kind)
        ]
        function.__signature__ = inspect.signature(function).replace(
            parameters=[*(one for one in taken if one.kind is not one.VAR_KEYWORD), *fields]
        )
        return _filled(function, PARAGRAPHS | own)

    return decorate


def _paragraph(spec) -> str:
    """Return the documentation of a setting."""
    choices, bounds, unit = (spec.metadata[key] for key in ("choices", "bounds", "unit"))
    kind = type(spec.default).__name__
    if choices:
        kind = "{" + ", ".join(_quoted(choice) for choice in choices) + "}"
    text = f"{spec.metadata['help']}."
    if bounds:
        text += f" Range: {bounds[0]:g} to {bounds[1]:g} {unit}".rstrip() + "."
    elif unit:
        text += f" Unit: {unit}."
    if spec.metadata["needs_axis"]:
        text += f" Needs an axis {spec.metadata['needs_axis']}."
    body = textwrap.indent(textwrap.fill(text, _WIDTH, break_on_hyphens=False), "    ")
    return f"{spec.name} : {kind}, default {_quoted(spec.default)}\n{body}"


def _quoted(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _filled(function: Function, paragraphs: Mapping[str, str]) -> Function:
    if function.__doc__:  # there is none under python -OO
        function.__doc__ = _PLACE.sub(
            lambda place: textwrap.indent(paragraphs[place[2]], place[1]), function.__doc__
        )
    return function
