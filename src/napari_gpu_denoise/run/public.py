"""Signatures and documentation that the public functions share, written once.

A line that holds nothing but a name in braces, such as ``{image}``, stands in a docstring for the
paragraphs of that name: `PARAGRAPHS`, or what a decorator is given.
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

_NOISE = """\
noise : NoiseModel, tuple of NoiseModel, NoiseEstimate, str or float, optional
    Noise model, one for each channel or one for all; the result of `estimate_noise`; the name
    of a model, such as ``"gaussian"``, whose parameters are then measured; or ``"auto"``, the
    default without `sigma`, to find the model as well; see `denoise`. If `sigma` is given, it
    is used instead."""
_DTYPE = """\
dtype : data type, optional
    Type of the result, by default that of the image. Integers are rounded and saturated."""
_NONFINITE = """\
nonfinite : {"raise", "keep"}, optional
    Refuse NaN and infinity, or leave these pixels as they are without affecting others."""
_DEVICE = """\
device : Device, int, str or None, optional
    Where to run; by default the best device available, see `choose`."""
_MEMORY_LIMIT = """\
memory_limit : int, optional
    Largest number of bytes of device memory to use."""
_PROGRESS = """\
progress : callable, optional
    Called as ``progress(done, total)`` with numbers of tiles, or of frames where the filter
    uses several at once.
cancel : object with ``is_set()``, optional
    An event that stops the run at the next tile or frame."""

PARAGRAPHS = {
    "image": """\
image : array_like
    Pixels of any real type, with two or more axes. Never modified.""",
    "sigma": """\
sigma : float, array_like or None, optional
    Standard deviation of the noise in grey levels of the image: one value, one for each
    channel, one for each plane, or a map of shape (ny, nx); see `denoise`. None measures the
    noise (see `noise`). Where it is 0, pixels are returned unchanged.""",
    "noise": _NOISE,
    "dtype": _DTYPE,
    "nonfinite": _NONFINITE,
    "device": _DEVICE,
    "memory_limit": _MEMORY_LIMIT,
    "progress": _PROGRESS,
    "run": "\n".join((_NONFINITE, _DEVICE, _MEMORY_LIMIT, _PROGRESS)),
    "options": "\n".join((_DTYPE, _NONFINITE, _DEVICE, _MEMORY_LIMIT, _PROGRESS)),
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
    If results were clipped to the range of an integer type.""",
}


def documented(function: Function) -> Function:
    """Fill the places of a docstring with the shared paragraphs."""
    return _filled(function, PARAGRAPHS)


def with_settings(kind: type[Settings]) -> Callable[[Function], Function]:
    """Give a function the signature and the documentation of every setting of a filter.

    Parameters
    ----------
    kind : type
        The settings.

    Returns
    -------
    callable
        A decorator for a function that takes settings by its ``**`` parameter. It sets
        ``__signature__``, for help and completion, and fills the docstring: ``{settings}`` and
        ``{fields}`` besides the `PARAGRAPHS`.
    """

    def decorate(function: Function) -> Function:
        own = {
            "settings": f"settings : {kind.__name__}, optional\n    Settings to start from instead "
            "of a profile; settings given as keywords override them.",
            "fields": "\n".join(_paragraph(spec) for spec in setting_fields(kind)),
        }
        taken = inspect.signature(function).parameters.values()
        fields = [
            inspect.Parameter(
                spec.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=spec.default,
                annotation=spec.type,
            )
            for spec in setting_fields(kind)
        ]
        function.__signature__ = inspect.signature(function).replace(
            parameters=[*(one for one in taken if one.kind is not one.VAR_KEYWORD), *fields]
        )
        return _filled(function, PARAGRAPHS | own)

    return decorate


def _paragraph(spec) -> str:
    """Return what the documentation says of a setting."""
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
