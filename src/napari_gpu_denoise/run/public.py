"""Signatures and docstrings of public functions that take the settings of a filter."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from typing import Any

from napari_gpu_denoise.docstrings import PARAGRAPHS, Function, filled
from napari_gpu_denoise.run.settings import Settings, setting_fields

_WIDTH = 92  # of the text of a setting, which is indented twice


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
        return filled(function, PARAGRAPHS | own)

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
