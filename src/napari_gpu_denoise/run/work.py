"""Frames to be filtered on one device: where they lie, where results go, and what is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from napari_gpu_denoise.image.axes import Frames
from napari_gpu_denoise.image.levels import Levels
from napari_gpu_denoise.noise.models import NoiseModel
from napari_gpu_denoise.opencl.memory import Arena
from napari_gpu_denoise.opencl.program import Session
from napari_gpu_denoise.run.filter import Filter
from napari_gpu_denoise.run.frame_sigma import FrameSigma
from napari_gpu_denoise.run.plan import FramePlan, TilePlan
from napari_gpu_denoise.run.stabilisation import Stabilisation
from napari_gpu_denoise.run.tiles import Span


@dataclass(frozen=True)
class Work:
    """Frames in memory that a filter is run over.

    Attributes
    ----------
    filter : Filter
        For this array and its noise.
    source, out : Frames
        Grey levels, and where the results go.
    levels : Levels
        How grey levels become what kernels see, and back.
    sigma : FrameSigma
        Noise, arranged as `source` is.
    session : Session
        Device to run on.
    spans : tuple of Span, optional
        What of larger arrays is yielded and read along t, z, y, x. By default all there is.
    stabilised : sequence of NoiseModel, optional
        Models by which the noise is made even first; none by default.
    signed : bool, optional
        Whether results may be negative. Default: True.
    memory_limit : int, optional
        Largest number of bytes of device memory to use.
    """

    filter: Filter
    source: Frames
    out: Frames
    levels: Levels
    sigma: FrameSigma
    session: Session
    spans: tuple[Span, Span, Span, Span] | None = None
    stabilised: Sequence[NoiseModel] = ()
    signed: bool = True
    memory_limit: int | None = None

    @property
    def whole(self) -> tuple[Span, Span, Span, Span]:
        """What is yielded and read along t, z, y, x."""
        return self.spans or tuple(map(Span.whole, self.source.shape[1:]))


@dataclass(frozen=True)
class Stages:
    """What a run enqueues for pixels on a device: the filter, and stabilisation around it."""

    plan: TilePlan | FramePlan
    stabilisation: Stabilisation | None

    @classmethod
    def of(
        cls, filter: Filter, stabilised: Sequence[NoiseModel], signed: bool, arena: Arena
    ) -> Stages:
        """Make the kernels of a filter; they belong to this thread."""
        around = Stabilisation(stabilised, arena, signed, filter.yields_map) if stabilised else None
        return cls(filter.plan(arena), around)


@dataclass(frozen=True)
class Queues:
    """Command queues of one flow; on a device that shares its cores with the host all are one."""

    compute: Any
    up: Any
    down: Any

    @classmethod
    def of(cls, session: Session, profiling: bool = False) -> Queues:
        """Open the queues of a flow."""
        compute = session.queue(profiling)
        if session.device.shares_cores:
            return cls(compute, compute, compute)
        return cls(compute, session.queue(profiling), session.queue(profiling))

    def after_upload(self, uploads: list) -> None:
        """Have the kernels enqueued from now on wait for uploads."""
        if self.up is not self.compute:
            import pyopencl as cl

            self.up.flush()
            cl.enqueue_barrier(self.compute, wait_for=uploads)

    def finish(self) -> None:
        """Wait until nothing is under way."""
        for queue in {self.up, self.compute, self.down}:
            queue.finish()
