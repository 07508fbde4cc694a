"""Public functions that take the settings of a filter by name, such as `bm3d`."""

from __future__ import annotations

import functools
import inspect
import sys
import textwrap
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from napari_gpu_denoise.docstrings import PARAGRAPHS, Function, filled
from napari_gpu_denoise.errors import SaturationWarning, SettingsError, UnchangedWarning
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.protocol.settings import Settings, setting_fields
from napari_gpu_denoise.run.denoise import drive
from napari_gpu_denoise.run.job import NO_NOISE
from napari_gpu_denoise.run.record import Record
from napari_gpu_denoise.run.request import Run, with_options

_WIDTH = 92  # of the text of a setting, which is indented twice


def filter_function(kind: type[Filter]) -> Callable[[Callable], Callable[..., np.ndarray]]:
    """Return a decorator that makes the public function of a filter from its name and docstring.

    The function takes an image, sigma, the options of a run and every setting by name, and returns
    the pixels alone. Of a dask array it makes another, see `denoise_lazy`.
    """

    def decorate(named: Callable) -> Callable[..., np.ndarray]:
        @functools.wraps(named)
        def call(
            image: ArrayLike,
            sigma: ArrayLike | None = None,
            *,
            progress: Callable[[int, int], None] | None = None,
            cancel: Any = None,
            **given: Any,
        ) -> np.ndarray:
            run = Run.of(kind, sigma, given)
            if _is_dask(image):
                if progress is not None or cancel is not None:
                    raise SettingsError(
                        "A dask array is filtered when the result is computed: leave out "
                        "progress= and cancel=, and use those of dask."
                    )
                from napari_gpu_denoise.run.lazy import lazy_result

                return lazy_result(image, run)
            result = drive(image, run, progress=progress, cancel=cancel)
            _warn(result.record, measured=sigma is None)
            return result.image

        del call.__wrapped__  # its signature is not that of the filter
        return with_settings(kind)(call)

    return decorate


def with_settings(
    kind: type[Settings], without: tuple[str, ...] = ()
) -> Callable[[Function], Function]:
    """Return a decorator for a function whose ``**`` parameter is given to `Run.of`.

    It shows the options of a run, but for those `without`, and every setting of a filter in
    ``__signature__``, for help and completion, and fills ``{settings}`` and ``{fields}`` in the
    docstring, besides the `PARAGRAPHS`.
    """

    def decorate(function: Function) -> Function:
        own = {
            "settings": f"settings : {kind.__name__}, optional\n    Settings to start from instead "
            "of a profile; settings given as keywords override them.",
            "fields": "\n".join(_paragraph(spec) for spec in setting_fields(kind)),
        }
        start = [
            _keyword("profile", None, "str | None"),
            _keyword("settings", None, f"{kind.__name__} | None"),
        ]
        settings = [_keyword(one.name, one.default, one.type) for one in setting_fields(kind)]
        signature = inspect.signature(with_options(function, without))
        parameters = [*signature.parameters.values(), *start, *settings]
        function.__signature__ = signature.replace(parameters=parameters)
        return filled(function, PARAGRAPHS | own)

    return decorate


def _keyword(name: str, default: Any, kind: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _is_dask(image: Any) -> bool:
    """Return whether an image is a dask array, which is only then imported."""
    dask = sys.modules.get("dask.array")
    return dask is not None and isinstance(image, dask.Array)


def _warn(record: Record, measured: bool) -> None:
    """Warn of clipped values, and of noise that was measured and is too weak to filter."""
    if record.saturated:
        warnings.warn(
            f"{record.saturated} values were clipped to the range of {record.output_dtype}: use "
            "dtype='float32' to keep them.",
            SaturationWarning,
            stacklevel=3,
        )
    for note in record.notes if measured else ():
        if note == NO_NOISE or getattr(note, "code", "") == "unchanged":
            warnings.warn(str(note), UnchangedWarning, stacklevel=3)


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
