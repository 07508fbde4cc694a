"""What a panel is set to, and what is known of layers; no Qt."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, field
from typing import Any, ClassVar
from weakref import WeakKeyDictionary, ref

import numpy as np
from napari.components import Dims
from napari.layers import Image, Layer, Shapes
from psygnal import SignalGroupDescriptor

from napari_gpu_denoise._napari import preferences
from napari_gpu_denoise._napari.layers.arrays import is_lazy
from napari_gpu_denoise._napari.layers.provenance import ASKED, SOURCE, filter_of
from napari_gpu_denoise._napari.layers.regions import Part, in_rectangle, in_view, part_of
from napari_gpu_denoise._napari.layers.source import finest
from napari_gpu_denoise.assessment.recommend import Advice
from napari_gpu_denoise.errors import DenoiseError, LayerError, SigmaError
from napari_gpu_denoise.noise.models import NoiseModel
from napari_gpu_denoise.noise.record import NoiseEstimate
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.run.noise import NoiseMemory
from napari_gpu_denoise.run.request import Run

AUTO, TYPED, MEASURED = "auto", "typed", "measured"
WHOLE, VIEW, RECTANGLE, FLAT = "whole", "view", "rectangle", "flat"
ONE_SIGMA = "gaussian"  # the noise that is one sigma for each channel

_SAMPLED = 1 << 16  # pixels compared to notice that an array was changed in place


@dataclass(frozen=True)
class NoiseChoice:
    """The noise to assume: measured by the run, typed, or an estimate of a region or layer.

    `kind` may be the name of a noise model, too, which the run then fits. What was typed or
    measured stays when another kind is chosen. Of an `estimate` that a record tells only the models
    are known. `origin` says in words where it was made.
    """

    kind: str = AUTO
    typed: str = ""
    estimate: NoiseEstimate | tuple[NoiseModel, ...] | None = None
    origin: str = ""

    def sigma(self, channels: int) -> float | tuple[float, ...] | None:
        """Return the sigma typed, if it counts; raises `SigmaError` if it is no number."""
        if self.kind != TYPED:
            return None
        try:
            values = tuple(map(float, numbers(self.typed, channels)))
        except ValueError:
            raise SigmaError(
                f"The noise {self.typed!r} is not a number: type its standard deviation in grey "
                "levels, or choose Automatic."
            ) from None
        return values[0] if len(values) == 1 else values

    @property
    def noise(self) -> str | NoiseEstimate | tuple[NoiseModel, ...] | None:
        """The noise as filters take it; None for automatic noise, or a sigma."""
        known = {AUTO: None, TYPED: None, MEASURED: self.estimate}
        return known.get(self.kind, self.kind)


def numbers(text: str, channels: int) -> list[str]:
    """Return the numbers in a text, with decimal points; commas may be typed for these as well.

    Commas separate the numbers of several channels; where semicolons or spaces alone do, or for one
    channel, a comma belongs to a number.
    """
    if ";" in text:
        return text.replace(",", ".").split(";")
    words = text.split()
    if len(words) > 1 and not any(word.endswith(",") for word in words):
        return text.replace(",", ".").split()
    words = text.split(",")
    return [".".join(words)] if channels == 1 and len(words) == 2 else words


@dataclass(frozen=True)
class RegionChoice:
    """The part of a layer to work on: all, the view, or a shape drawn in a layer of shapes."""

    kind: str = WHOLE
    shapes: Shapes | None = None

    @property
    def whole(self) -> bool:
        """Whether it is all of the layer."""
        return self.kind == WHOLE

    @property
    def flat(self) -> bool:
        """Whether it is a shape that holds no object."""
        return self.kind == FLAT

    def part(self, layer: Image, axes: str, dims: Dims) -> Part:
        """Return the part of a layer that this is; raises `LayerError` if there is none."""
        if self.whole:
            return part_of(axes, layer)
        if self.kind == VIEW:
            return in_view(layer, axes, dims)
        return in_rectangle(layer, axes, dims, self.shapes, one_plane=self.flat)


@dataclass(frozen=True)
class Options:
    """Choices of a run beside filter and noise.

    `alone` are the axes of which only the place at the viewer's slider is filtered.
    """

    correct: str | None = None
    strength: float = 1.0
    dtype: str | None = None
    nonfinite: str = "raise"
    device: int | str | None = None
    alone: frozenset[str] = frozenset()


@dataclass(eq=False)
class PanelModel:
    """What a panel is set to; widgets show its fields and set them.

    `settings` are those of the filter, or the error of settings that conflict; None stands for what
    is recommended.
    """

    layers: tuple[Image, ...] = ()
    axes: str = ""
    region: RegionChoice = field(default_factory=RegionChoice)
    noise: NoiseChoice = field(default_factory=NoiseChoice)
    settings: Filter | DenoiseError | None = None
    options: Options = field(default_factory=Options)
    events: ClassVar[SignalGroupDescriptor] = SignalGroupDescriptor()

    @classmethod
    def of_record(cls, record: dict[str, Any]) -> PanelModel:
        """Return the settings of a run by its record, without layers, for any layer.

        Noise that was measured is to be measured, noise that was told is told again. Raises
        `LayerError` if the record does not tell a run of this version.
        """
        kind: Any = filter_of(record)
        told = str(record.get("sigma_source"))
        if told.startswith("given as a map"):
            raise LayerError("Sigma was given as a map, which the record does not hold.")
        # Records of files that no panel made do not tell what was asked for.
        asked = {"correct": "found" if record.get("corrected") else None}
        try:
            asked |= record.get(ASKED, {})
            noise = NoiseChoice(str(asked.pop("noise", AUTO)))
            if noise.kind == MEASURED or told == "given as a model":
                known: Any = tuple(map(NoiseModel.from_dict, record["noise"]))
                if more := record.get("estimate"):
                    known = NoiseEstimate.from_dict(more)
                noise = NoiseChoice(MEASURED, estimate=known, origin=record.get(SOURCE, ""))
            elif told == "given":
                noise = NoiseChoice(TYPED, ", ".join(map(str, record["sigma"])))
            settings = kind.of(**record["settings"])
            options = Options(strength=record.get("sigma_factor", 1.0), **asked)
        except DenoiseError:
            raise
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            name = record.get("filter", "an unknown filter")
            raise LayerError(
                f"The record of {name} tells no run of this version, which could be repeated."
            ) from error
        return cls(noise=noise, settings=settings, options=options)

    @property
    def device(self) -> int | str | None:
        """The device that is chosen, here or in the preferences."""
        return preferences.read().device if self.options.device is None else self.options.device

    def run(self, settings: Filter, axes: str | None, channels: int = 1) -> Run:
        """Return the run of a filter; raises `DenoiseError` if it does not fit together."""
        options = self.options
        noise = NoiseChoice() if settings.sigma_unused else self.noise
        return Run(
            filter=settings,
            sigma=noise.sigma(channels),
            noise=noise.noise,
            axes=axes,
            # The numbers of a map are no grey levels, which are rounded to the type of the layer.
            dtype=options.dtype or ("float32" if settings.yields_map else None),
            nonfinite=options.nonfinite,
            device=self.device,
            memory_limit=preferences.read().memory_limit,
            correct=options.correct,
            sigma_factor=options.strength,
        )


class LayerNoise(NoiseMemory):
    """The noise of a layer, and what is recommended for it, or why nothing is."""

    advice: Advice | DenoiseError | None = None


@dataclass(eq=False)
class Known:
    """What is known of a layer, in all panels: what was typed or measured, while it is true.

    `axes` are letters typed for it, `noise` is an estimate handed to the panel of a filter, and
    `made_by` the key of the run that it is a result of.
    """

    axes: str | None = None
    noise: NoiseChoice | None = None
    made_by: Any = None
    data: Any = None  # a weak reference
    sample: int = 0  # of the data
    memories: dict[Any, LayerNoise] = field(default_factory=dict)  # of their noise


_known: WeakKeyDictionary[Layer, Known] = WeakKeyDictionary()


def known_of(layer: Layer) -> Known:
    """Return what is known of a layer; the one place where that is kept."""
    return _known.setdefault(layer, Known())


def memory_of(layer: Image, model: str, *key: Any) -> LayerNoise:
    """Return the memory of the noise of a layer, which a run fills in.

    It is that of the data as they are now. `model` is as in `NoiseMemory`, `key` holds all else
    that the measurement depends on: axes, what is corrected first, treatment of NaN, device.
    """
    known, data = known_of(layer), finest(layer)
    sample = 0 if is_lazy(data) else _checksum(data)
    if known.data is None or known.data() is not data or known.sample != sample:
        known.data, known.sample, known.memories = _reference(data), sample, {}
    return known.memories.setdefault((model, *key), LayerNoise(model))


def memory_for(layer: Image, run: Run) -> NoiseMemory | None:
    """Return the memory of the noise that a run of a layer would measure; None if it is given."""
    if run.sigma is not None or run.noise not in (None, ONE_SIGMA):
        return None
    model = AUTO if run.noise is None else ONE_SIGMA
    return memory_of(layer, model, run.axes, run.correct, run.nonfinite, run.device)


def _checksum(data: np.ndarray) -> int:
    step = math.ceil((data.size / _SAMPLED) ** (1 / data.ndim))
    return zlib.crc32(data[(slice(None, None, max(step, 1)),) * data.ndim].tobytes())


def _reference(data: Any) -> Any:
    try:
        return ref(data)
    except TypeError:
        return lambda: data
