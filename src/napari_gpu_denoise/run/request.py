"""The request of a user: a filter, noise, options and memory; public functions that take them."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from napari_gpu_denoise.docstrings import PARAGRAPHS, Function, documented
from napari_gpu_denoise.errors import DeviceMemoryError, HostMemoryError, SettingsError
from napari_gpu_denoise.image.levels import check_policy, parse_dtype
from napari_gpu_denoise.noise.structure.record import CorrectionRequest, parse_correction
from napari_gpu_denoise.opencl.device import Device, DeviceChoice
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.protocol.settings import (
    Settings,
    checked_factor,
    number_of_bytes,
    setting_fields,
)
from napari_gpu_denoise.run.noise import NoiseMemory, parse_noise, parse_sigma

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

    from napari_gpu_denoise.noise.estimate import NoiseEstimate
    from napari_gpu_denoise.noise.models import NoiseModel

# Taken by Python, libraries, drivers and compilers before the first pixel is read: 220 to 330 MB.
BASE = 340 << 20
# Parts that a device has in memory: one is filtered, the next one read, and the results of this one
# and the last one written.
_IN_MEMORY = 2
# As many bytes as a part holds at most beside what was asked for: wide parts, margins, and chunks
# that are being packed or unpacked.
_SPARE = 6
# Buffers of a CPU may take as much where the user gave no limit: less may be refused.
_LEAST_BUFFERS = 1 << 30


@dataclass(frozen=True)
class Limits:
    """Sizes by which images are cut, and the like; no result depends on them."""

    # Smaller stacks are read whole, once: for the range of values, the noise and the filter.
    streamed_bytes: int = 1 << 27
    part_bytes: int = 1 << 26  # of pixels and result of a part; larger parts read fewer margins
    # Of a filter over time, frames for each one that a part reads beyond them, if they fit.
    frames_per_margin: int = 8
    # Fewest pixels of a part of several: for fewer, a second device is not worth its transfers.
    smallest_part: int = 1 << 18
    brief_seconds: float = 2.0  # that a run takes which is not worth to be continued


USUAL_LIMITS = Limits()


Devices = Sequence[Device | None]
"""Devices of a run; None is one that is not known yet."""


def on_cores(devices: Devices) -> bool:
    """Return whether a device shares the cores of the host, as one may that is not known yet."""
    return any(each is None or each.shares_cores for each in devices)


@dataclass(frozen=True)
class HostMemory:
    """A limit to the memory of this machine that a run may take, with the program itself."""

    limit: int  # in bytes
    given: bool = True  # by the user; else it decides how images are cut, and refuses nothing

    @classmethod
    def of(cls, limit: int | str | None) -> HostMemory | None:
        """Return the limit that the user gave, if any."""
        return None if limit is None else cls(number_of_bytes(limit))

    def for_parts(self, devices: Devices) -> int:
        """Return the bytes that all parts in memory may hold, on any device."""
        rest = max(self.limit - BASE, 0)
        return rest // 2 if on_cores(devices) else 3 * rest // 4

    def for_buffers(self, devices: Devices, memory_limit: int | None) -> int | None:
        """Return the limit to the memory of devices, which for a CPU is that of the machine."""
        if not on_cores(devices):
            return memory_limit
        share = max((self.limit - BASE) // 2, 1 if self.given else _LEAST_BUFFERS)
        return share if memory_limit is None else min(memory_limit, share)

    def part_bytes(self, devices: Devices) -> int:
        """Return the bytes of pixels and result that a part should hold."""
        return max(self.for_parts(devices) // (_IN_MEMORY * _SPARE * len(devices)), 1)

    def fits(self, part_bytes: int, devices: Devices) -> bool:
        """Return whether parts of this size in bytes, pixels and result, fit."""
        return _IN_MEMORY * len(devices) * part_bytes <= self.for_parts(devices)

    def check_part(self, part_bytes: int, devices: Devices) -> None:
        """Refuse parts of this size in bytes, pixels and result, if they would take too much."""
        if self.given and not self.fits(part_bytes, devices):
            needed = _IN_MEMORY * len(devices) * part_bytes
            share = 2 if on_cores(devices) else 4 / 3
            raise self.too_small(BASE + int(share * needed))

    def check_whole(self, needed: int) -> None:
        """Refuse an image that has to be in memory, with its result, if it takes too much."""
        if self.given and needed + BASE > self.limit:
            raise self.too_small(needed + BASE)

    @contextlib.contextmanager
    def of_buffers(self, memory_limit: int | None) -> Iterator[None]:
        """Name the limit that would suffice for buffers that this one makes too small.

        `memory_limit` is that of the user.
        """
        try:
            yield
        except DeviceMemoryError as error:
            if not self.given or memory_limit is not None or error.code != "memory-limit":
                raise
            raise self.too_small(BASE + 2 * error.values["needed"]) from error

    def too_small(self, needed: int) -> HostMemoryError:
        """Return an error that says what would do."""
        megabytes = -(-needed // 1_000_000)
        return HostMemoryError(
            f"A limit of {self.limit} bytes of main memory is too small for this run",
            f"allow at least memory_limit_host='{megabytes}M'",
            code="memory-limit-host",
            needed=f"{megabytes}M",
        )


@dataclass(frozen=True)
class Run:
    """The request of the user: a filter, the noise and options, independent of any image.

    Attributes
    ----------
    filter : Filter
        As the user set it.
    sigma, noise, axes, dtype, nonfinite, device, memory_limit, correct, sigma_factor
        As in `denoise`. Kept are parsed values: `sigma` as number, tuple or array, or a function of
        the number of a frame; `noise` as a name, a number, a tuple of models, an estimate or a
        `NoiseMemory`; `dtype` as a type, ``"same"`` or None; `memory_limit` in bytes; `correct` as
        a request.
    host_memory : HostMemory or None
        Limit for main memory, for an image that is filtered part by part.
    limits : Limits
        Sizes by which the image is cut.
    """

    filter: Filter
    sigma: ArrayLike | Callable[[int], ArrayLike] | None = None
    _: KW_ONLY
    noise: NoiseModel | Sequence[NoiseModel] | NoiseEstimate | str | float | None = None
    axes: str | None = None
    dtype: DTypeLike | None = None
    nonfinite: str = "raise"
    device: DeviceChoice = None
    memory_limit: int | str | None = None
    correct: CorrectionRequest | str | Sequence[str] | None = None
    sigma_factor: float = 1.0
    host_memory: HostMemory | None = None
    limits: Limits = field(default_factory=lambda: USUAL_LIMITS)

    def __post_init__(self):
        if not isinstance(self.filter, Filter):
            raise SettingsError(
                f"{self.filter!r} is not a filter",
                "give settings of one, such as napari_gpu_denoise.NLMeans()",
            )
        check_policy(self.nonfinite)
        sigma = self.sigma
        # An array, which may be a large map, is checked once, when it is used.
        later = sigma is None or callable(sigma) or getattr(sigma, "ndim", 0) > 1
        parsed = {
            "dtype": parse_dtype(self.dtype),
            "sigma": sigma if later else parse_sigma(sigma),
            "noise": parse_noise(self.noise),
            "correct": parse_correction(self.correct),
            "sigma_factor": checked_factor(self.sigma_factor),
            "memory_limit": self.limit_of_memory,
        }
        for name, value in parsed.items():
            object.__setattr__(self, name, value)

    @property
    def measures_noise(self) -> bool:
        """Whether the noise is measured first."""
        if self.sigma is not None or self.filter.sigma_unused:
            return False
        if isinstance(self.noise, NoiseMemory):
            return self.noise.known(self.filter) is None
        return self.noise is None or isinstance(self.noise, str)

    @property
    def uses(self) -> tuple[str, ...]:
        """What a device does for the run, see `choose_devices`."""
        return ("noise", *self.filter.uses) if self.measures_noise else self.filter.uses

    @property
    def limit_of_memory(self) -> int | None:
        """`memory_limit` in bytes."""
        return None if self.memory_limit is None else number_of_bytes(self.memory_limit)

    def on(self, devices: Sequence[Device]) -> Run:
        """Return the run on the first of some devices, with the limit that main memory sets."""
        limit = self.limit_of_memory
        if self.host_memory is not None:
            limit = self.host_memory.for_buffers(devices, limit)
        return self.but(device=devices[0], memory_limit=limit)

    def but(self, **values: Any) -> Run:
        """Return the run with other options, which are parsed already."""
        made = copy.copy(self)
        vars(made).update(values)
        return made

    @classmethod
    def of(
        cls, kind: type[Filter], sigma: Any, given: dict[str, Any], without: Sequence[str] = ()
    ) -> Run:
        """Return a run of a filter from keywords: profile, settings and `OPTIONS`."""
        names = OPTIONS.keys() - {*without}
        options = {name: value for name, value in given.items() if name in names}
        settings = {name: value for name, value in given.items() if name not in names}
        return cls(kind.of(**settings), sigma, **options)


def check_flags(**given: Any) -> None:
    """Refuse what is neither true nor false, as text that says no would count as true."""
    for name, value in given.items():
        if type(value).__name__ not in ("bool", "bool_"):  # of Python or NumPy
            told = f"{name}={value!r:.60} is neither True nor False: choose one of them."
            raise SettingsError(told)


def _keyword(name: str, default: Any, kind: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


#: The options of a run that all public functions take, as parameters of a signature.
OPTIONS = {
    one.name: _keyword(one.name, one.default, one.type)
    for one in fields(Run)
    if one.name not in ("filter", "sigma", "host_memory", "limits")
}


def with_options(function: Function, without: Sequence[str] = ()) -> Function:
    """Show `OPTIONS` in the signature of a function in place of its ``**`` parameter."""
    signature = inspect.signature(function)
    own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
    first = sum(one.kind is not one.KEYWORD_ONLY for one in own)
    options = [one for name, one in OPTIONS.items() if name not in without]
    function.__signature__ = signature.replace(parameters=[*own[:first], *options, *own[first:]])
    return function


Given = ParamSpec("Given")
Made = TypeVar("Made")


def takes_options(*without: str) -> Callable[[Callable[Given, Made]], Callable[Given, Made]]:
    """Return a decorator for a public function that passes ``**options`` on to `Run`.

    It shows them in the signature, but for those `without`, refuses other keywords, and completes
    the docstring.
    """

    def decorate(function: Callable[Given, Made]) -> Callable[Given, Made]:
        signature = inspect.signature(with_options(documented(function), without))

        @functools.wraps(function)
        def call(*args: Given.args, **named: Given.kwargs) -> Made:
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
    ``__signature__``, for help and completion, and fills ``{profile}``, ``{settings}``,
    ``{fields}`` and, from settings to warnings, ``{common}`` in the docstring, besides the
    `PARAGRAPHS`.
    """

    def decorate(function: Function) -> Function:
        profiles = list(map(_quoted, kind.presets))
        own = {
            "profile": f"profile : {{{', '.join(profiles)}}}, optional\n    Settings to start "
            f"from, by default ``{profiles[0]}``; settings given as keywords override it.",
            "settings": f"settings : {kind.__name__}, optional\n    Settings to start from instead "
            "of a profile; settings given as keywords override them.",
            "fields": "\n".join(_paragraph(spec) for spec in setting_fields(kind)),
        }
        parts = own["settings"], PARAGRAPHS["options"], own["fields"] + "\n", PARAGRAPHS["outcome"]
        own["common"] = "\n".join(parts)
        start = [
            _keyword("profile", None, "str | None"),
            _keyword("settings", None, f"{kind.__name__} | None"),
        ]
        settings = [_keyword(one.name, one.default, one.type) for one in setting_fields(kind)]
        signature = inspect.signature(with_options(function, without))
        parameters = [*signature.parameters.values(), *start, *settings]
        function.__signature__ = signature.replace(parameters=parameters)
        return documented(function, **own)

    return decorate


def _paragraph(spec) -> str:
    """Return the documentation of a setting."""
    choices, bounds, unit = (spec.metadata[key] for key in ("choices", "bounds", "unit"))
    kind = type(spec.default).__name__
    if choices:
        kind = "{" + ", ".join(_quoted(choice) for choice in choices) + "}"
    said = spec.metadata["help"]
    text = f"{said[0].upper()}{said[1:]}."
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
