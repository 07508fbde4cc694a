"""Filters between a stabilising transform and its inverse, both on the device."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from napari_gpu_denoise.axes import Levels
from napari_gpu_denoise.frame_notes import FrameNote
from napari_gpu_denoise.noise import tables
from napari_gpu_denoise.noise.models import NoiseModel, PoissonGaussian, Rician, Speckle
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.opencl.value_grid import value_grid, values_together
from napari_gpu_denoise.pipeline import Filter, TileSigma, yields_map
from napari_gpu_denoise.sigma import from_zero
from napari_gpu_denoise.tiles import Tile
from napari_gpu_denoise.transfer import Launches


@dataclass(frozen=True)
class Modelled:
    """A filter of which the kernels see stabilised values; for others it is that filter.

    Attributes
    ----------
    settings : Filter
        For additive noise of ``sigma_after``.
    models : tuple of NoiseModel
        One a channel, or one for all.
    signed : bool
        Whether results may be negative, as a signal of magnitudes must for its mean to be right.
    """

    settings: Filter
    models: tuple[NoiseModel, ...]
    signed: bool = True

    def __getattr__(self, name: str) -> Any:
        # Copies and pickles ask before there are fields.
        if name.startswith("__") or name in ("settings", "models"):
            raise AttributeError(name)
        return getattr(self.settings, name)

    def plan(self, arena: Arena) -> _ModelledPlan:
        """Return what runs both transforms and the filter on one device, from one thread."""
        return _ModelledPlan(self, arena)


def levels_for(settings: Filter, array: np.ndarray, known: Levels | None = None) -> Levels:
    """Return how grey levels become what the kernels see.

    Models of noise are in grey levels, and what they make of them is of everyday size.

    Raises
    ------
    ImageError, NonFiniteError
        If the array is empty or not of finite numbers.
    """
    found = known or Levels.of(array, from_zero(settings))
    return Levels(0, 1.0) if isinstance(settings, Modelled) else found


class _ModelledPlan:
    """The plan of a filter, of tiles or of frames over time, that sees stabilised values.

    Both transforms are done in place. What differs between filters is asked of the inner plan.
    """

    def __init__(self, modelled: Modelled, arena: Arena):
        self._plan = modelled.settings.plan(arena)
        self._curves = [curves_of(model, arena, modelled.signed) for model in modelled.models]
        self._models = modelled.models
        self._is_map = yields_map(modelled.settings)
        # Of a video the model of each channel: that of the last frame is that of all.
        self._channels = np.zeros(1, np.int32)

    def __getattr__(self, name: str) -> Any:
        if name == "_plan":
            raise AttributeError(name)
        return getattr(self._plan, name)

    def enqueue(self, queue, tile: Tile, source, out, sigma: TileSigma) -> Launches:
        """Enqueue the filter for one tile."""
        pixels = tile.source_shape[-2] * tile.source_shape[-1]
        numbers = _of_source(sigma.models, tile)
        launches = self._each(queue, source, numbers, pixels, "stabilise")
        launches += self._plan.enqueue(queue, tile, source, out, sigma)
        if not self._is_map:
            pixels = tile.shape[-2] * tile.shape[-1]
            launches += self._each(queue, out, sigma.models.ravel(), pixels, "unstabilise")
        return launches

    def begin(self, tile: Tile, batch: int, first: int, start: int, variation: Any) -> None:
        """Prepare for the frames of a video."""
        self._tile = tile
        self._plan.begin(tile, batch, first, start, variation)

    def take(self, queue, frames, notes: list[FrameNote]) -> Launches:
        """Stabilise the next frames, and have them taken."""
        self._channels = notes[0].models
        pixels = math.prod(self._tile.source_shape[1:])
        numbers = np.repeat(self._channels, len(notes))
        launches = self._each(queue, frames, numbers, pixels, "stabilise")
        return launches + self._plan.take(queue, frames, [self._seen(note) for note in notes])

    def enqueue_frames(self, queue, start: int, count: int, ended: bool, out) -> Launches:
        """Enqueue what yields the next frames, in grey levels."""
        launches = self._plan.enqueue_frames(queue, start, count, ended, out)
        pixels = math.prod(self._tile.shape[1:])
        numbers = np.repeat(self._channels, count)
        return [*launches, *self._each(queue, out, numbers, pixels, "unstabilise")]

    def _seen(self, note: FrameNote) -> FrameNote:
        """Return a note in which brightness is told as the kernels see it."""
        if note.means is None:
            return note
        models = (self._models[k] for k in note.models)
        means = [model.stabilise(row) for model, row in zip(models, note.means, strict=True)]
        return replace(note, means=np.array(means, np.float64))

    def _each(self, queue, values, numbers: np.ndarray, pixels: int, what: str) -> Launches:
        """Change frames that lie one after another, each by the model of its number."""
        launches = []
        for first, count, number in _alike(numbers):
            change = getattr(self._curves[number], what)
            launches.append((what, change(queue, values, first * pixels, count * pixels)))
        return launches


def _of_source(numbers: np.ndarray, tile: Tile) -> np.ndarray:
    """Return the numbers of the frames that a tile reads, of those that it yields.

    Along axes on which a tile reads more than it yields there is one model.
    """
    places = [
        np.clip(np.arange(span.source_start, span.source_stop) - span.start, 0, span.size - 1)
        for span in (tile.t, tile.z)
    ]
    yielded = numbers.reshape(tile.channels, tile.t.size, tile.z.size)
    return yielded[:, places[0]][:, :, places[1]].ravel()


def _alike(numbers: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Yield first, count and value of equal neighbours."""
    ends = [*(np.flatnonzero(np.diff(numbers)) + 1), len(numbers)]
    first = 0
    for end in map(int, ends):
        yield first, end - first, int(numbers[first])
        first = end


@dataclass(frozen=True)
class Curves:
    """Both transforms of a model on a device.

    Attributes
    ----------
    stabilise, unstabilise : callable
        ``(queue, values, first, count)`` changes `count` float32 values of a buffer, from `first`
        on, in place; returns the event.
    """

    stabilise: Callable
    unstabilise: Callable


def curves_of(model: NoiseModel, arena: Arena, signed: bool = True) -> Curves:
    """Return the transforms of a model; the kernels are those of one arena."""
    if isinstance(model, PoissonGaussian):
        read_noise = model.read_noise / model.gain  # electrons
        there = _floats(model.offset, 1 / model.gain, 0.375 + read_noise**2)
        back = _floats(model.offset, model.gain, read_noise)
        table = _sent(arena, tables.photon_inverse(read_noise))
        return Curves(*_changes(arena, "photons", there, (*back, *table)))
    if isinstance(model, Rician):
        curve = tables.magnitudes()
        there = (*_floats(1 / model.sigma), *_sent(arena, curve)[:2], *_floats(curve.end))
        back = (*_floats(model.sigma), *_sent(arena, tables.magnitude_inverse()), np.int32(signed))
        return Curves(*_changes(arena, "magnitudes", there, back))
    if isinstance(model, Speckle):
        return Curves(*_changes(arena, "speckle", _floats(model.least), _floats(model.bias)))
    raise TypeError(f"{model!r} has no transform")


def _floats(*values: float) -> tuple[np.float32, ...]:
    return tuple(map(np.float32, values))


def _sent(arena: Arena, table: tables.Table) -> tuple:
    """Return a table as kernels take it: values, how many, the first place, steps in 1."""
    import pyopencl as cl

    flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
    buffer = cl.Buffer(arena.session.context, flags, hostbuf=table.values)
    return buffer, np.int32(len(table.values)), *_floats(table.start, table.steps)


def _changes(arena: Arena, law: str, there: tuple, back: tuple) -> Iterator[Callable]:
    """Yield both ways of a law of noise, each with the arguments of its kernel."""
    device = arena.session.device
    for way, arguments in (("stabilise", there), ("unstabilise", back)):
        kernel = arena.kernel(f"noise/{way}_{law}", {"VALUES": values_together(device)})
        yield partial(_launch, kernel, device, arguments)


def _launch(kernel, device, arguments: tuple, queue, values, first: int, count: int):
    grid = value_grid(count, device)
    return kernel(queue, *grid, values, np.uint64(first), np.uint64(count), *arguments)
