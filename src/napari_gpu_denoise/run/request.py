"""The request of a user: a filter, the noise and options; and public functions that take them."""

from __future__ import annotations

import functools
import inspect
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any

from napari_gpu_denoise.docstrings import PARAGRAPHS, Function, documented, filled
from napari_gpu_denoise.errors import SettingsError
from napari_gpu_denoise.image.levels import check_policy
from napari_gpu_denoise.noise.structure.record import CorrectionRequest, parse_correction
from napari_gpu_denoise.opencl.device import Device, DeviceAddress
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.protocol.settings import (
    Settings,
    checked_factor,
    number_of_bytes,
    setting_fields,
)
from napari_gpu_denoise.run.host_memory import HostMemory


@dataclass(frozen=True)
class Run:
    """The request of the user: a filter, the noise and options, independent of any image.

    Attributes
    ----------
    filter : Filter
        As the user set it.
    sigma, noise, axes, dtype, nonfinite, device, memory_limit, correct, sigma_factor
        As in `denoise`; `device` may also be a `DeviceAddress`, which can be sent to another
        process. Kept are parsed values: `memory_limit` in bytes, `correct` as a request.
    host_memory : HostMemory or None
        Limit for main memory, for an image that is filtered part by part.
    """

    filter: Filter
    sigma: Any = None
    _: KW_ONLY
    noise: Any = None
    axes: str | None = None
    dtype: Any = None
    nonfinite: str = "raise"
    device: Device | DeviceAddress | int | str | Sequence | None = None
    memory_limit: int | str | None = None
    correct: CorrectionRequest | str | Sequence[str] | None = None
    sigma_factor: float = 1.0
    host_memory: HostMemory | None = None

    def __post_init__(self):
        if not isinstance(self.filter, Filter):
            raise SettingsError(
                f"{self.filter!r} is not a filter",
                "give settings of one, such as napari_gpu_denoise.NLMeans()",
            )
        check_policy(self.nonfinite)
        object.__setattr__(self, "correct", parse_correction(self.correct))
        object.__setattr__(self, "sigma_factor", checked_factor(self.sigma_factor))
        if self.memory_limit is not None:
            object.__setattr__(self, "memory_limit", number_of_bytes(self.memory_limit))

    @classmethod
    def of(
        cls, kind: type[Filter], sigma: Any, given: dict[str, Any], without: Sequence[str] = ()
    ) -> Run:
        """Return a run of a filter from keywords: profile, settings and `OPTIONS`."""
        names = OPTIONS.keys() - {*without}
        options = {name: value for name, value in given.items() if name in names}
        settings = {name: value for name, value in given.items() if name not in names}
        return cls(kind.of(**settings), sigma, **options)


#: The options of a run that all public functions take, as parameters of a signature.
OPTIONS = {
    one.name: inspect.Parameter(
        one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=one.type
    )
    for one in fields(Run)
    if one.name not in ("filter", "sigma", "host_memory")
}


def with_options(function: Function, without: Sequence[str] = ()) -> Function:
    """Show `OPTIONS` in the signature of a function in place of its ``**`` parameter."""
    signature = inspect.signature(function)
    own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
    first = sum(one.kind is not one.KEYWORD_ONLY for one in own)
    options = [one for name, one in OPTIONS.items() if name not in without]
    function.__signature__ = signature.replace(parameters=[*own[:first], *options, *own[first:]])
    return function


def takes_options(*without: str) -> Callable[[Function], Function]:
    """Return a decorator for a public function that passes ``**options`` on to `Run`.

    It shows them in the signature, but for those `without`, refuses other keywords, and completes
    the docstring.
    """

    def decorate(function: Function) -> Function:
        signature = with_options(documented(function), without).__signature__

        @functools.wraps(function)
        def call(*args: Any, **named: Any) -> Any:
            try:
                signature.bind(*args, **named)
            except TypeError as error:
                raise TypeError(f"{function.__name__}(): {error}") from None
            return function(*args, **named)

        return call

    return decorate


_WIDTH = 92  # of the text of a setting, which is indented twice


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
