"""Advice on layers, found off the GUI thread."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

import numpy as np
from napari.layers import Image

from napari_gpu_denoise._napari import preferences
from napari_gpu_denoise._napari.layers.lazy import LazyArray, is_lazy
from napari_gpu_denoise._napari.layers.source import Source, capture
from napari_gpu_denoise._napari.noise.memory import memory_of
from napari_gpu_denoise._napari.stage import Stage
from napari_gpu_denoise.errors import Cancelled
from napari_gpu_denoise.filters.advice.recommend import Advice, recommend
from napari_gpu_denoise.opencl.isolation import load_bundled_drivers
from napari_gpu_denoise.opencl.several import choose_devices
from napari_gpu_denoise.run.noise import NoiseMemory


@dataclass(frozen=True)
class Look:
    """A layer to look at; `memory` is what is known of its noise. It holds no napari objects."""

    source: Source
    axes: str
    nonfinite: str
    memory: NoiseMemory
    device: int | str | None


@dataclass(frozen=True)
class Looked:
    """What was found: advice for each layer, or the error that ended it."""

    looks: tuple[Look, ...]
    advice: tuple[Advice, ...] = ()
    error: Exception | None = None


def look_at(layer: Image, axes: str) -> Look:
    """Return what is needed to look at a layer; raises `LayerError` if it cannot be used."""
    source, device = capture(layer), preferences.read().device
    nonfinite = "keep" if np.dtype(source.data.dtype).kind == "f" else "raise"
    memory = memory_of(layer, axes, None, nonfinite, device)
    return Look(source, axes, nonfinite, memory, device)


def looking(
    looks: tuple[Look, ...], stopped: Callable[[], bool] = lambda: False
) -> Generator[Stage, None, Looked | None]:
    """Find advice on layers, one after another; return None if stopped."""
    found = []
    try:
        load_bundled_drivers()
        for number, look in enumerate(looks):
            text = f"Looking at {look.source.name}"
            yield Stage(text, number + 1, len(looks)) if len(looks) > 1 else Stage(text)
            found.append(_advice(look, stopped))
    except Cancelled:
        return None
    except Exception as error:
        return Looked(looks, error=error)
    return Looked(looks, tuple(found))


def _advice(look: Look, stopped: Callable[[], bool]) -> Advice:
    data, alpha = look.source.data, look.source.alpha
    if is_lazy(data):
        whole = (slice(None),) * (len(data.shape) - 1)
        data = LazyArray(data, stopped, (*whole, slice(3 if alpha else None)))
    elif alpha:
        data = data[..., :3]
    first, *_ = choose_devices(look.device)
    noise = look.memory.measured(data, look.axes, first)
    return recommend(data, look.axes, noise=noise, device=look.device)
