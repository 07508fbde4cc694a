"""Run a filter over frames in memory on a session of choice, cut as a test wants it."""

from __future__ import annotations

from contextlib import closing, nullcontext

import numpy as np

from napari_gpu_denoise.image.axes import arrange
from napari_gpu_denoise.image.levels import Levels
from napari_gpu_denoise.opencl.memory import Arena, borrow
from napari_gpu_denoise.protocol.tiles import Span, split
from napari_gpu_denoise.run.flow.frame_flow import ArrayFrameFlow
from napari_gpu_denoise.run.flow.tile_flow import TileFlow
from napari_gpu_denoise.run.flow.work import FrameSigma, Work
from napari_gpu_denoise.run.input import Block
from napari_gpu_denoise.run.job import start
from napari_gpu_denoise.run.part import Part, filter_part
from napari_gpu_denoise.run.progress import Progress, Step
from napari_gpu_denoise.run.record import Tally
from napari_gpu_denoise.run.request import Run


class Remembered(Progress):
    """Progress that remembers its steps, and stops after so many."""

    def __init__(self, most: int | None = None):
        self.steps: list[Step] = []
        super().__init__(self.steps.append, lambda: len(self.steps) == most)


def part_steps(
    image, settings, device, out, sigma=20.0, axes="YX", part=None, told=None, **options
) -> tuple[list[Step], Tally]:
    """Filter a whole image in memory, or a part of it; return the steps told, and the tally."""
    run = Run(settings, sigma, axes=axes, device=device, **options)
    block = Block.of(image, axes, run.nonfinite)
    job = start(run, block)
    part = Part.of(job, part)
    told = told or Remembered()
    return told.steps, filter_part(job, part, block[part.reads], out, told)


def work_of(image, out, settings, session, sigma=20.0, axes="YX", levels=None) -> Work:
    """Return the work of filtering an image; sigma as `FrameSigma.of` takes it."""
    source = arrange(image, axes, settings.joint)
    return Work(
        settings,
        source,
        arrange(out, axes, settings.joint),
        levels or Levels.of(image, settings.keeps_zero),
        FrameSigma.of(sigma, image.shape, axes, settings.joint),
        session,
        tuple(map(Span.whole, source.shape[1:])),
    )


def tiled(work: Work, arena: Arena, pixels=None, tiles=None, **options) -> TileFlow:
    """Return the flow of a work, in tiles that read so many pixels at most, or in these."""
    flow = TileFlow(work, arena, **options)
    if pixels is not None:
        settings, source = work.filter, work.source
        tiles = split(source.shape, settings.reach, pixels, channels=source.joined)
    flow.tiles = flow.tiles if tiles is None else tiles
    return flow


def run_work(work: Work, pixels=None, tiles=None, arena: Arena | None = None) -> tuple[int, int]:
    """Do a work; return the number of values clipped, and of tiles or frames."""
    with borrow(work.session) if arena is None else nullcontext(arena) as held:
        if work.filter.over_time:
            flow = ArrayFrameFlow(work, held)
        else:
            flow = tiled(work, held, pixels, tiles)
        with closing(flow):
            told = Remembered()
            clipped = flow.run(told)
    total = told.steps[0].total
    if not work.filter.over_time:
        assert told.steps == [Step(k, len(flow.tiles)) for k in range(len(flow.tiles) + 1)]
    return clipped, total


def filtered(image, settings, session, sigma=20.0, axes="YX", pixels=None) -> np.ndarray:
    """Return what a filter makes of an image, in tiles that read so many pixels at most."""
    out = np.empty_like(image)
    _, tiles = run_work(work_of(image, out, settings, session, sigma, axes), pixels)
    assert pixels is None or tiles > 1, "it was not cut"
    return out
