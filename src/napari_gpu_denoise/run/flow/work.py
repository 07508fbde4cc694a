"""Frames to be filtered on one device, their noise, the stages of the filter, and queues."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np

from napari_gpu_denoise.image.axes import Frames, arrange
from napari_gpu_denoise.image.levels import LARGEST_VALUE, Levels
from napari_gpu_denoise.noise.models import NoiseModel
from napari_gpu_denoise.opencl.memory import Arena, constant_buffer
from napari_gpu_denoise.opencl.program import Session, value_grid, values_per_item
from napari_gpu_denoise.protocol.filter import Filter
from napari_gpu_denoise.protocol.plan import FrameNote, FramePlan, Launches, TilePlan
from napari_gpu_denoise.protocol.tiles import Span, Tile

_SMALLEST = 2.0**-60  # sigma other than 0, in units of grey levels or of the largest one


@dataclass(frozen=True)
class FrameSigma:
    """Noise standard deviation of frames, in grey levels.

    `frames` has sigma of every pixel, float64, arranged as the pixels are, without a copy, and
    `numbers` the index of the noise model of each pixel, None if there is only one. If sigma is a
    map, `largest` has the values it is relative to, else None: the largest of each whole plane,
    even if the frames are a part of it, so that rounding does not depend on how the array is cut.
    """

    frames: Frames
    largest: Frames | None
    numbers: Frames | None = None

    @classmethod
    def of(
        cls,
        sigma: Any,
        shape: tuple[int, ...],
        axes: str,
        joint: str = "",
        origin: tuple[int, int, int, int] = (0, 0, 0, 0),
        largest: np.ndarray | None = None,
        numbers: np.ndarray | None = None,
    ) -> FrameSigma:
        """Arrange sigma, which broadcasts to `shape`, as the array it belongs to.

        `axes`, `joint` and `origin` are those of `arrange`; `largest` is what `largest_in_planes`
        returned for the whole map if this is a part of one; `numbers` is as in `Sigma`.
        """
        sigma = np.asarray(sigma, np.float64)
        frames = arrange(np.broadcast_to(sigma, shape), axes, joint, origin)
        lengths, strides = frames.view.shape[-2:], frames.view.strides[-2:]
        if largest is None and any(n > 1 and s for n, s in zip(lengths, strides, strict=True)):
            largest = largest_in_planes(sigma, axes)
        others = (
            None if each is None else arrange(np.broadcast_to(each, shape), axes, joint, origin)
            for each in (largest, numbers)
        )
        return cls(frames, *others)

    @property
    def is_map(self) -> bool:
        """Whether sigma varies within a plane; it then does so alike in all planes."""
        return self.largest is not None

    def levels(self, tile: Tile, unit: float) -> np.ndarray:
        """Return sigma of the frames that a tile yields, float32, shape (channels, nt * nz).

        It is in units of `unit` grey levels; of a map it is the largest one of each frame.
        """
        return _bounded(_of_frames(self.largest or self.frames, tile), unit)

    def read_levels(self, tile: Tile, unit: float) -> np.ndarray:
        """Return sigma of the frames that a tile reads, as `levels` otherwise."""
        t, z = (replace(s, start=s.source_start, stop=s.source_stop) for s in (tile.t, tile.z))
        return self.levels(replace(tile, t=t, z=z), unit)

    def models(self, tile: Tile) -> np.ndarray:
        """Return the noise model of the frames that a tile yields, int32, as `levels` otherwise."""
        if self.numbers is None:
            return np.zeros((tile.channels, tile.frames), np.int32)
        return _of_frames(self.numbers, tile).astype(np.int32)

    def of_frame(self, sequence: int, t: int, unit: float) -> tuple[np.ndarray, np.ndarray]:
        """Return sigma of a whole frame as `FrameNote` has it, and the model of each channel."""
        sigma, models = self.largest or self.frames, self.numbers
        planes = [sigma.frame(sequence, t, c)[:, 0, 0] for c in range(self.frames.joined)]
        values = _bounded(np.concatenate(planes), unit).astype(np.float64)
        if models is None:
            return values, np.zeros(self.frames.joined, np.int32)
        numbers = [models.frame(sequence, t, c)[0, 0, 0] for c in range(self.frames.joined)]
        return values, np.array(numbers, np.int32)

    def variation(self, tile: Tile) -> np.ndarray | None:
        """Return the map over what a tile reads, relative to `largest`; None if sigma is no map.

        It is float32 of shape (source ny, source nx), from 0 to 1.
        """
        if self.largest is None:
            return None
        at = tile.sequence, tile.t.source_start
        region = self.frames.region(*tile.source_region)
        tops = [self.largest.frame(*at, c)[region[0].start, 0, 0] for c in range(tile.channels)]
        channel = int(np.argmax(tops))  # others may be without noise
        plane = self.frames.frame(*at, channel)[region][0]
        return np.ascontiguousarray(_not_vanishing(plane / (tops[channel] or 1.0)), np.float32)


def largest_in_planes(sigma: np.ndarray, axes: str) -> np.ndarray:
    """Return the largest sigma of each plane, with Y and X of length 1."""
    planes = tuple(axes.index(axis) - len(axes) for axis in "YX")
    return sigma.max(axis=planes, keepdims=True)


def _bounded(values: np.ndarray, unit: float) -> np.ndarray:
    """Return sigma in units of `unit`, float32."""
    # Beyond these values it would act the same, but must not become infinite, or 0 in float32.
    levels = np.minimum(values, LARGEST_VALUE * unit) / unit
    return _not_vanishing(levels).astype(np.float32)


def _not_vanishing(levels: np.ndarray) -> np.ndarray:
    """Return values of which those above 0 stay so in float32, also multiplied with each other."""
    return np.where(levels > 0, np.maximum(levels, _SMALLEST), levels)


def _of_frames(frames: Frames, tile: Tile) -> np.ndarray:
    """Return the first pixel of each frame that a tile yields, (channels, nt * nz)."""
    values = np.empty((tile.channels, *tile.shape[:2]))
    first = frames.origin[1]
    slices = slice(tile.z.start - first, tile.z.stop - first)
    for c in range(tile.channels):
        for k, t in enumerate(range(tile.t.start, tile.t.stop)):
            values[c, k] = frames.frame(tile.sequence, t, c)[slices, 0, 0]
    return values.reshape(tile.channels, -1)


class Stabilisation:
    """Makes the noise of pixels the same everywhere, and converts results back to grey levels.

    Both happen in place, in float32 buffers, so that filters do not need to know about it. There is
    one model for all pixels, or one for each model number of frames; without a model nothing is
    done. `signed` says whether results may be negative, as needed for the mean of a magnitude
    without signal. With `maps`, results are not grey levels, and are not converted back.
    """

    def __init__(self, models: Sequence[NoiseModel], arena: Arena, signed: bool, maps: bool):
        self._models, self._device, self._maps = models, arena.session.device, maps
        self._transforms = [_transforms(model, arena, signed) for model in models]

    def forward(self, queue, values, numbers: np.ndarray, pixels: int) -> Launches:
        """Stabilise consecutive frames of `pixels` pixels; `numbers` has the model of each."""
        return self._run("stabilise", queue, values, numbers, pixels)

    def forward_tile(self, queue, values, numbers: np.ndarray, tile: Tile) -> Launches:
        """Stabilise what a tile reads; `numbers` (channels, nt * nz) are of what it yields."""
        if not self._models:
            return []
        # The margins of a tile along t and z have the model of the frames next to them.
        places = [
            np.clip(np.arange(span.source_start, span.source_stop) - span.start, 0, span.size - 1)
            for span in (tile.t, tile.z)
        ]
        yielded = numbers.reshape(tile.channels, *tile.shape[:2])
        read = yielded[:, places[0]][:, :, places[1]].ravel()
        return self.forward(queue, values, read, math.prod(tile.source_shape[2:]))

    def inverse(self, queue, values, numbers: np.ndarray, pixels: int) -> Launches:
        """Convert filtered frames back to grey levels, without bias; arguments as in `forward`."""
        return [] if self._maps else self._run("inverse", queue, values, numbers, pixels)

    def note(self, note: FrameNote) -> FrameNote:
        """Return a note with the brightness of stabilised values."""
        if note.means is None or not self._models:
            return note
        models = (self._models[k] for k in note.models)
        means = [model.stabilise(row) for model, row in zip(models, note.means, strict=True)]
        return replace(note, means=np.array(means, np.float64))

    def _run(self, way: str, queue, values, numbers: np.ndarray, pixels: int) -> Launches:
        launches = []
        for first, count, number in runs(numbers) if self._models else ():
            kernel, arguments = self._transforms[number][way]
            size = count * pixels
            event = kernel(
                queue,
                *value_grid(size, self._device),
                **{"values": values, "first": first * pixels, "count": size, **arguments},
            )
            launches.append((way, event))
        return launches


def _transforms(model: NoiseModel, arena: Arena, signed: bool) -> dict[str, tuple]:
    """Return kernel and arguments of both transforms of a model, by name."""
    transform = model.transform(signed)
    if transform is None:
        return {}
    constants = {"VALUES": values_per_item(arena.session.device)}
    ways = {"stabilise": transform.forward, "inverse": transform.inverse}
    return {
        way: (
            arena.kernel(f"noise/{way}_{transform.law}", constants),
            _kernel_arguments(arguments, arena),
        )
        for way, arguments in ways.items()
    }


def _kernel_arguments(arguments: Mapping[str, Any], arena: Arena) -> dict[str, Any]:
    """Return arguments for a kernel; a table as values, length, start and steps per unit."""
    found = dict(arguments)
    if table := found.pop("table", None):
        buffer = constant_buffer(arena.session, table.values)
        found |= {"table": buffer, "entries": len(table.values)}
        found |= {"start": table.start, "steps": table.steps}
    return found


def runs(numbers: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Yield first, count and value of equal neighbours."""
    ends = [*(np.flatnonzero(np.diff(numbers)) + 1), len(numbers)]
    first = 0
    for end in map(int, ends):
        yield first, end - first, int(numbers[first])
        first = end


@dataclass(frozen=True)
class Work:
    """Frames in memory to be filtered, and how.

    `sigma` is arranged as `source` is; `whole` is what is yielded and read along t, z, y, x.
    `stabilised` holds the models for variance stabilisation, `signed` says whether results may be
    negative, and `memory_limit` is in bytes.
    """

    filter: Filter
    source: Frames
    out: Frames
    levels: Levels
    sigma: FrameSigma
    session: Session
    whole: tuple[Span, ...]
    stabilised: Sequence[NoiseModel] = ()
    signed: bool = True
    memory_limit: int | None = None

    @cached_property
    def out_levels(self) -> Levels:
        """How results are mapped to grey levels; a map has none."""
        return Levels(0, 1.0) if self.filter.yields_map else self.levels

    def kept(self, tile: Tile) -> tuple[int, int]:
        """Return how many rows and columns of a tile are results; the rest is mirrored padding."""
        *_, y0, x0 = self.out.origin
        ny, nx = self.out.shape[-2:]
        y, x = tile.y, tile.x
        return max(min(y.stop, y0 + ny) - y.start, 0), max(min(x.stop, x0 + nx) - x.start, 0)


AnyPlan = TypeVar("AnyPlan", TilePlan, FramePlan)


@dataclass(frozen=True)
class Stages(Generic[AnyPlan]):
    """What runs on the device: the filter, and variance stabilisation around it."""

    plan: AnyPlan
    stabilisation: Stabilisation

    @classmethod
    def of(cls, kind: type[AnyPlan], work: Work, arena: Arena) -> Stages[AnyPlan]:
        """Make the kernels for a work, with a plan of a kind; they belong to this thread."""
        filter = work.filter
        # A plan takes longer to make than a small image to filter; over time, it has a state.
        if kind is FramePlan:
            plan = filter.plan(arena)
        else:
            plan = arena.keep(filter, lambda: filter.plan(arena))
        if not isinstance(plan, kind):
            raise TypeError(f"{type(plan).__name__} of {filter.name} is no {kind.__name__}")
        around = Stabilisation(work.stabilised, arena, work.signed, filter.yields_map)
        return cls(plan, around)


@dataclass
class InFlight:
    """What is on its way to the device or back; `name` is that of its buffers.

    Memory of the host may be filled again when it is `uploaded`, the buffers when all is `done`.
    Launches are kept until then, and keep alive what is copied: pyopencl waits for a copy that is
    forgotten before, and meanwhile no other thread can run.
    """

    name: str
    uploaded: Any = None
    done: Any = None
    launches: Launches = field(default_factory=list)


@dataclass(frozen=True)
class Queues:
    """Command queues of one flow; all the same one if there is nothing to do at the same time."""

    compute: Any
    up: Any
    down: Any

    @classmethod
    def of(cls, session: Session, profiling: bool = False, alone: bool = False) -> Queues:
        """Open the queues for a flow: only one for a device that shares the host's cores."""
        compute = session.queue(profiling)
        if alone or session.device.shares_cores:
            return cls(compute, compute, compute)
        return cls(compute, session.queue(profiling), session.queue(profiling))

    def after_upload(self, uploads: list) -> None:
        """Make kernels that are enqueued from now on wait for uploads."""
        if self.up is not self.compute:
            import pyopencl as cl

            self.up.flush()
            cl.enqueue_barrier(self.compute, wait_for=uploads)

    def finish(self) -> None:
        """Wait until all commands are done, in every queue even if one fails."""
        with ExitStack() as stack:
            for queue in {self.up, self.compute, self.down}:
                stack.callback(queue.finish)
